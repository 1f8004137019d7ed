"""Compute results of random torch operations from uniforms of a source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otm.audit.intercept.generators import FEW
from otm.audit.intercept.races import draw_place
from otm.decoding.draft_tree import Randomness

BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
"""Bits of the uniforms that torch draws."""


class Uniforms:
    """Uniforms for operations, from a source."""

    def __init__(self, source: Randomness) -> None:
        self.source = source

    def __call__(self, like: Tensor, bits: int | None = None) -> Tensor:
        """Draw uniforms in float64, with the shape and the number of bits of `like`."""
        unit = 2.0 ** (bits or BITS.get(like.dtype, 24))
        drawn = np.floor(self.source(like.numel()).astype(np.float64) * unit) / unit
        return torch.from_numpy(drawn.reshape(tuple(like.shape))).to(like.device)

    def place(self, weights: list[float]) -> int:
        """Draw an index by weights."""
        return draw_place(self.source, weights)


def _uniform(uniforms: Uniforms, result: Tensor, *_: Any, **__: Any) -> Tensor:
    return uniforms(result)


def _uniform_between(
    uniforms: Uniforms, result: Tensor, _: Any, low: float = 0, high: float = 1, **__: Any
) -> Tensor:
    return low + (high - low) * uniforms(result)


def _bernoulli(uniforms: Uniforms, result: Tensor, probs: Any, p: Any = None, **_: Any) -> Tensor:
    probs = torch.as_tensor(probs if p is None else p).expand(result.shape).reshape(-1)
    drawn = [1 - uniforms.place([p, 1 - p]) for p in probs.tolist()]
    return torch.tensor(drawn).reshape(result.shape)


def _bernoulli_in_place(
    uniforms: Uniforms, result: Tensor, _: Any, p: Any = 0.5, **__: Any
) -> Tensor:
    return _bernoulli(uniforms, result, p)


def _integers(uniforms: Uniforms, result: Tensor, *arguments: Any, **_: Any) -> Tensor:
    bounds = [each for each in arguments if isinstance(each, int)]
    if not bounds:
        # Integers without bounds keep torch's own values.
        return result
    low, high = [0, *bounds][-2:]
    if high - low <= FEW:
        drawn = [low + uniforms.place([1] * (high - low)) for _ in range(result.numel())]
        return torch.tensor(drawn).reshape(result.shape)
    return (uniforms(result, 53) * (high - low)).floor().clamp(max=high - low - 1) + low


def _multinomial(
    uniforms: Uniforms,
    result: Tensor,
    weights: Tensor,
    num_samples: int,
    replacement: bool = False,
    **_: Any,
) -> Tensor:
    places = []
    for row in weights.reshape(-1, weights.shape[-1]).tolist():
        for _each in range(num_samples):
            places.append(uniforms.place(row))
            if not replacement:
                row[places[-1]] = 0.0
    return torch.tensor(places).reshape(result.shape)


DRAWS: dict[str, Callable[..., Tensor]] = {
    "rand": _uniform,
    "rand_like": _uniform,
    "uniform_": _uniform_between,
    "bernoulli": _bernoulli,
    "bernoulli_": _bernoulli_in_place,
    "randint": _integers,
    "randint_like": _integers,
    "random_": _integers,
    "multinomial": _multinomial,
}
"""Functions that compute the new result from uniforms, the operation's result and arguments."""
