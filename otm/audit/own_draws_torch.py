"""Random operations of torch, taken from the audit's uniforms.

Uniform and Bernoulli variables and `multinomial` become functions of them.  Exponential variables
do where they make a race: the largest of p/E is that of token x with probability p(x)/Σp, for which
one uniform is enough.  Where they are looked at in another way, each is computed from its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from otm.audit.own_draws import Watch
from otm.decoding.drafting import Randomness

BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
"""Bits of the uniforms that torch draws."""


@dataclass
class Race:
    """Exponential variables, which nobody has looked at as long as they have no values."""

    rate: float
    values: Tensor | None = None
    over: bool = False  # a winner was drawn without them: they stay what torch has drawn


@dataclass
class Racing:
    """A tensor of these variables, or of weights over them."""

    tensor: ref[Tensor]
    race: Race
    seen: Tensor  # a copy, which shows whether it was changed through another tensor
    weights: Tensor | None = None
    winner: Tensor | None = None


class TorchDraws(TorchDispatchMode):  # type: ignore[misc]  # torch gives it no types
    """Random operations of torch draw from a source while this context lasts.

    A generator that is given to an operation is left to itself, and so is the global one once it
    has been seeded.
    """

    def __init__(self, source: Randomness) -> None:
        super().__init__()
        self._source = source
        self.watch = Watch(lambda: torch.get_rng_state().numpy().tobytes(), lambda: torch.rand(1))
        self._known: dict[int, Racing] = {}  # by id of the tensor

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, or draw in its place."""
        options = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if self._known and name != "exponential_":
            raced = self._race(name, func, args, options)
            if raced is not None:
                return raced
        draws = torch.Tag.nondeterministic_seeded in func.tags and not self.watch.seeded
        if draws:
            self.watch.check()
        result = func(*args, **options)  # it refuses what is wrong, and has the right shape
        if draws:
            self.watch.drawn(step=False)
        self._known.pop(id(result), None)
        if options.get("generator") is not None or self.watch.seeded:
            return result
        if name == "exponential_":
            rate = args[1] if len(args) > 1 else options.get("lambd", 1)
            self._known[id(result)] = self._racing(result, Race(float(rate)))
        elif name in DRAWS:
            result.copy_(DRAWS[name](self._uniforms, result, *args, **options))
        return result

    def __enter__(self) -> Any:
        self._manual_seed = torch.manual_seed
        torch.manual_seed = torch.random.manual_seed = self._let_seed
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch.manual_seed = torch.random.manual_seed = self._manual_seed

    def _let_seed(self, seed: int) -> torch.Generator:
        self.watch.seed()
        return self._manual_seed(seed)

    def _uniforms(self, like: Tensor, bits: int | None = None) -> Tensor:
        """Draw uniforms in float64 of a shape, with the bits that a type has."""
        unit = 2.0 ** (bits or BITS.get(like.dtype, 24))
        drawn = torch.from_numpy(self._source(like.numel()).astype("float64"))
        return ((drawn * unit).floor() / unit).reshape(like.shape).to(like.device)

    def _race(self, name: str, func: Any, args: Any, options: dict[str, Any]) -> Tensor | None:
        """Divide weights by variables, or find the winner; otherwise let look at the variables."""
        if name in ("div", "div_") and len(args) == 2 and not options:
            over = self._of(args[1])
            plain = isinstance(args[0], Tensor) and self._of(args[0]) is None
            if over is not None and plain and over.weights is None and not over.race.over:
                weights = args[0].expand_as(args[1]).clone()
                result: Tensor = func(*args)
                self._known[id(result)] = self._racing(result, over.race, weights)
                return result
        if name == "argmax" and (racing := self._of(args[0])) is not None:
            winner = self._winner(racing, args[0], *args[1:], **options)
            if winner is not None:
                return winner
        for leaf in tree_leaves((args, options)):
            if (racing := self._of(leaf)) is not None:
                self._look_at(racing, leaf)
        return None

    def _of(self, tensor: Any) -> Racing | None:
        racing = self._known.get(id(tensor))
        if racing is None or racing.tensor() is not tensor:
            return None
        return racing if torch.equal(tensor, racing.seen) else None

    @staticmethod
    def _racing(tensor: Tensor, race: Race, weights: Tensor | None = None) -> Racing:
        return Racing(ref(tensor), race, tensor.clone(), weights)

    def _look_at(self, racing: Racing, tensor: Tensor) -> None:
        """Compute the variables, each from a uniform of its own."""
        race = racing.race
        del self._known[id(tensor)]
        if race.over:
            return  # nobody can tell what they would be
        if race.values is None:
            race.values = -torch.log1p(-self._uniforms(tensor)) / race.rate
        values = race.values.to(tensor.dtype)
        tensor.copy_(values if racing.weights is None else racing.weights / values)

    def _winner(
        self, racing: Racing, tensor: Tensor, dim: int | None = None, keepdim: bool = False
    ) -> Tensor | None:
        """Draw the places of the largest along the last axis."""
        last = dim in (-1, tensor.dim() - 1) or (dim is None and tensor.dim() == 1)
        if not last or racing.weights is None:
            return None
        if racing.winner is None:
            if racing.race.over or racing.race.values is not None:
                return None
            if not (racing.weights > 0).any(-1).all() or not racing.weights.isfinite().all():
                return None
            racing.race.over = True
            rows = racing.weights[..., 0]
            racing.winner = _places(
                racing.weights.clamp(min=0), self._uniforms(rows, 53)[..., None]
            )
        return racing.winner if keepdim else racing.winner[..., 0]


def _places(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Places that uniforms [..., m] fall on, of weights [..., V] side by side."""
    ends = weights.double().cumsum(-1).contiguous()
    points = (uniforms.double() * ends[..., -1:]).contiguous()
    last = ends.shape[-1] - 1 - (weights > 0).flip(-1).int().argmax(-1, keepdim=True)
    return torch.minimum(torch.searchsorted(ends, points, right=True), last)


Uniforms = Callable[..., Tensor]


def _uniform(uniforms: Uniforms, result: Tensor, *_: Any, **__: Any) -> Tensor:
    return uniforms(result)


def _uniform_between(
    uniforms: Uniforms, result: Tensor, _: Any, low: float = 0, high: float = 1, **__: Any
) -> Tensor:
    return low + (high - low) * uniforms(result)


def _bernoulli(uniforms: Uniforms, result: Tensor, probs: Any, p: Any = None, **_: Any) -> Tensor:
    return (uniforms(result, 53) < (probs if p is None else p)).to(result.dtype)


def _bernoulli_in_place(
    uniforms: Uniforms, result: Tensor, _: Any, p: Any = 0.5, **__: Any
) -> Tensor:
    return (uniforms(result, 53) < p).to(result.dtype)


def _multinomial(
    uniforms: Uniforms,
    result: Tensor,
    weights: Tensor,
    num_samples: int,
    replacement: bool = False,
    **_: Any,
) -> Tensor:
    drawn = uniforms(result, 53)
    if replacement or num_samples == 1:
        return _places(weights, drawn)
    left, places = weights.clone(), []
    for uniform in drawn.split(1, -1):
        places.append(_places(left, uniform))
        left.scatter_(-1, places[-1], 0)
    return torch.cat(places, -1)


DRAWS: dict[str, Callable[..., Tensor]] = {
    "rand": _uniform,
    "rand_like": _uniform,
    "uniform_": _uniform_between,
    "bernoulli": _bernoulli,
    "bernoulli_": _bernoulli_in_place,
    "multinomial": _multinomial,
}
"""What operations give, from uniforms, their result and their arguments."""
