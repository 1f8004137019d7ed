"""Replace random operations of torch by functions of the audit's uniforms.

Uniform and Bernoulli variables and `multinomial` become functions of the audit's uniforms.
Exponential variables, and rows of uniform variables, have no values at first.  If variables make a
race (`otm.audit.intercept.races`), one of the audit's uniforms decides the winner; if code reads
the variables, their values become functions of the audit's uniforms.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from otm.audit.intercept.races import Form, Race
from otm.audit.intercept.torch_functions import (
    MAKES_NOISE,
    OTHER_ARGS,
    OVERWRITES,
    WINNERS,
    draws_nothing,
    form_after,
    is_draw,
    is_transforming,
    iter_leaves,
    may_be_noise,
    name_and_randomness,
    reads_values,
)
from otm.audit.intercept.torch_operations import BITS, DRAWS, Uniforms
from otm.audit.intercept.watch import GeneratorWatch
from otm.decoding.draft_tree import Randomness


@dataclass(frozen=True)
class Racing:
    """A tensor of noise, or a tensor computed from noise, without values yet."""

    tensor: ref[Tensor]
    # A copy, which shows whether code has changed the tensor through another tensor.
    seen: Tensor
    race: Race
    # Form of the noise; None if the tensor does not have its shape.
    form: Form | None
    # Function that returns the values.
    compute: Callable[[], Tensor]


class _Calls(TorchFunctionMode):  # type: ignore[misc]  # torch gives it no types
    """Mode that intercepts all calls of torch, and inspects calls that may draw."""

    def __init__(self, draws: TorchDraws) -> None:
        super().__init__()
        self._draws = draws

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        draws, options = self._draws, kwargs or {}
        if draws.knows((args, options)):
            if reads_values(func):
                draws.look(args)
        elif not is_transforming():
            # Transforms hide the tensors of a call, so `draws` inspects its operations.
            # Most calls have no relevant operations, and are far faster without inspection.
            if draws_nothing(func):
                return func(*args, **options)
            if is_draw(func) and not OTHER_ARGS & options.keys():
                return draws.draw(func.__name__, func, args, options)
        with draws:
            return func(*args, **options)


class TorchDraws(TorchDispatchMode):  # type: ignore[misc]  # torch gives it no types
    """Context in which random operations of torch draw from a source.

    `following` enters the context only for calls that may draw, or compute with noise.  Operations
    with a generator as argument draw from this generator, unless it is `handed`.  The global
    generator draws by itself after it was seeded.
    """

    def __init__(self, source: Randomness, races: list[Race]) -> None:
        super().__init__()
        self._source, self._races = source, races
        self.watch = GeneratorWatch(
            lambda: torch.get_rng_state().numpy().tobytes(), lambda: torch.rand(1)
        )
        # The generator for a verifier's parameter, with a state that no other generator has.
        self.handed = torch.Generator().manual_seed(secrets.randbits(63))
        self.handed_watch = GeneratorWatch(
            lambda: self.handed.get_state().numpy().tobytes(),
            lambda: torch.rand(1, generator=self.handed),
        )
        # Noise without values, by id of the tensor.
        self._known: dict[int, Racing] = {}

    @property
    def source(self) -> Randomness:
        """Source of the uniforms of a run."""
        return self._source

    @source.setter
    def source(self, source: Randomness) -> None:
        self._source = source
        self._known.clear()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, or draw in its place."""
        options = kwargs or {}
        name, random = name_and_randomness(func)
        if not (random or self._known):
            return func(*args, **options)
        if self._known and name not in OVERWRITES:
            raced = self._race(name, func, args, options)
            if raced is not None:
                return raced
            self.look((args, options))
        if random:
            return self.draw(name, func, args, options)
        result = func(*args, **options)
        self._known.pop(id(result), None)
        return result

    def draw(self, name: str, func: Any, args: Any, options: dict[str, Any]) -> Tensor:
        """Run a random operation, and replace its result by values from the source."""
        generator = options.get("generator")
        watch = self.watch if generator is None else self.handed_watch
        draws = not watch.seeded and (generator is None or self._is_handed(generator))
        if draws:
            watch.check()
        # The operation raises for invalid arguments, and its result has the right shape.
        result: Tensor = func(*args, **options)
        self._known.pop(id(result), None)
        if not draws:
            return result
        watch.drawn(step=False)
        if name == "exponential_":
            rate = args[1] if len(args) > 1 else options.get("lambd", 1)
            self._noise(result, Form("multiple", np.full(tuple(result.shape), 1 / float(rate))))
        elif name in MAKES_NOISE and may_be_noise(result, args[1:] if name == "uniform_" else ()):
            self._noise(result, Form("uniform", np.ones(tuple(result.shape))))
        elif name in DRAWS:
            result.copy_(DRAWS[name](Uniforms(self._source), result, *args, **options))
        return result

    def _is_handed(self, generator: torch.Generator) -> bool:
        """Whether a generator is `handed`, by its state, because operations get another object."""
        return bool(torch.equal(generator.get_state(), self.handed.get_state()))

    @contextmanager
    def following(self) -> Iterator[None]:
        """Intercept all calls of torch, and the operations of calls that may draw."""
        self._manual_seed = torch.manual_seed
        torch.manual_seed = torch.random.manual_seed = self._let_seed
        try:
            with _Calls(self):
                yield
        finally:
            torch.manual_seed = torch.random.manual_seed = self._manual_seed

    def knows(self, values: Any) -> bool:
        """Whether `values` contain a tensor of noise whose values have not been computed yet."""
        return bool(self._known) and any(id(leaf) in self._known for leaf in iter_leaves(values))

    def _let_seed(self, seed: int) -> torch.Generator:
        self.watch.seed()
        return self._manual_seed(seed)

    def _noise(self, result: Tensor, form: Form) -> None:
        """Register new noise."""
        race, kind, like = Race(self._source, tuple(result.shape)), result.dtype, result.device
        self._races.append(race)

        def values() -> Tensor:
            array = (
                race.uniforms(BITS.get(kind, 24))
                if form.kind == "uniform"
                else form.part * race.exponentials()
            )
            return torch.from_numpy(array).to(kind).to(like)

        self._follow(result, race, form, values)

    def _follow(
        self, result: Tensor, race: Race, form: Form | None, compute: Callable[[], Tensor]
    ) -> None:
        key, known = id(result), self._known
        held = ref(result, lambda _: known.pop(key, None))
        known[key] = Racing(held, result.clone(), race, form, compute)

    def _race(self, name: str, func: Any, args: Any, options: dict[str, Any]) -> Any:
        """Compute with noise, or draw a winner; return None if the values are needed."""
        places = [i for i, each in enumerate(args[:2]) if self._of(each) is not None]
        if len(places) != 1:
            return None
        racing = self._of(args[places[0]])
        if racing is None or racing.form is None:
            return None
        if name in WINNERS:
            return self._winner(name, racing, func, args, options)
        form = form_after(name.strip("_"), racing.form, places[0], args, options)
        if form is None:
            return None
        kept = [each.clone() if isinstance(each, Tensor) else each for each in args]
        place, computed = places[0], racing.compute

        def values() -> Tensor:
            again = [each.clone() if isinstance(each, Tensor) else each for each in kept]
            again[place] = computed()
            made: Tensor = func(*again, **options)
            return made

        result: Tensor = func(*args, **options)
        if tuple(result.shape) != form.part.shape:
            if result.numel() != form.part.size:
                return None
            form = replace(form, part=form.part.reshape(tuple(result.shape)))
        self._follow(result, racing.race, form, values)
        return result

    def _of(self, tensor: Any) -> Racing | None:
        racing = self._known.get(id(tensor))
        held = None if racing is None else racing.tensor()
        if racing is None or held is None or held is not tensor or held.shape != racing.seen.shape:
            return None
        same = torch.equal(tensor, racing.seen) or torch.allclose(
            tensor, racing.seen, rtol=0, atol=0, equal_nan=True
        )
        return racing if same else None

    def look(self, values: Any) -> None:
        """Compute the noise tensors among `values`, and fill these tensors with the results."""
        for leaf in iter_leaves(values):
            if (racing := self._of(leaf)) is not None:
                del self._known[id(leaf)]
                leaf.copy_(racing.compute())

    def _winner(
        self, name: str, racing: Racing, func: Any, args: Any, options: dict[str, Any]
    ) -> Any:
        """Draw the indices of the largest or smallest values along the last axis."""
        named = dict(zip(WINNERS[name], args, strict=False)) | options
        dim, tensor = named.get("dim", -1 if name == "topk" else None), args[0]
        last = dim in {-1, tensor.dim() - 1} or (dim is None and tensor.dim() == 1)
        # Without an axis, these functions return only a value.
        whole = dim is None and name in {"max", "min"}
        if not last or whole or racing.form is None or named.get("k", 1) != 1:
            return None
        smallest = name in {"argmin", "min"} or not named.get("largest", True)
        weights = racing.form.weights(smallest=smallest)
        winners = None if weights is None else racing.race.winners(weights)
        if winners is None:
            return None
        indices = torch.from_numpy(np.array(winners)).to(tensor.device)[..., None]
        result = func(*args, **options)
        if name in {"argmax", "argmin"}:
            return result.copy_(indices.reshape(result.shape))
        largest, places = result
        places.copy_(indices.reshape(places.shape))

        def values() -> Tensor:
            return racing.compute().gather(-1, indices).reshape(largest.shape)

        self._follow(largest, racing.race, None, values)
        return result
