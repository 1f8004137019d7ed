"""Substitutes for the generators of Python and NumPy, which draw from the source of a run."""

# ruff: noqa: D102  methods are documented by the classes that they override

from __future__ import annotations

import random
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import total
from otm.audit.intercept.noise import Noise
from otm.audit.intercept.races import Form, Race, draw_place
from otm.decoding.draft_tree import Randomness

FEW = 64
"""Largest number of values that are drawn by separate cells of a uniform."""


def default_uniforms(m: int) -> npt.NDArray[np.float64]:
    """Draw uniforms for code that runs outside an audited run."""
    return _OTHERS.random(m)


class PythonStandIn(random.Random):
    """A generator of the standard library with uniforms from a source."""

    def __init__(self) -> None:
        super().__init__(0)
        self.source: Randomness = default_uniforms

    def random(self) -> Any:
        return self.source(1)[0]

    def uniform(self, a: Any, b: Any) -> Any:
        return self.random() if (a, b) == (0, 1) else super().uniform(a, b)

    def _randbelow(self, n: int) -> int:
        """Draw an integer below n, for `choice`, `randrange` and others."""
        if n <= FEW:
            return draw_place(self.source, [1] * n)
        point, low, high = self.random() * n, 0, n - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (low, middle - 1) if point < middle else (middle, high)
        return low

    def choices(
        self, population: Any, weights: Any = None, *, cum_weights: Any = None, k: int = 1
    ) -> list[Any]:
        weights, cum_weights = (x if x is None else list(x) for x in (weights, cum_weights))
        # The real method raises for invalid arguments.
        super().choices(population, weights, cum_weights=cum_weights, k=0)
        if weights is None:
            cumulative = range(1, len(population) + 1) if cum_weights is None else cum_weights
            weights = [b - a for a, b in zip([0, *cumulative], cumulative, strict=False)]
        return [population[draw_place(self.source, weights)] for _ in range(k)]


_REAL = np.random.PCG64()
_OTHERS = np.random.Generator(np.random.PCG64())
"""Source of random numbers for a generator that a verifier has kept from an earlier run."""


class NumPyStandIn(np.random.Generator):
    """A NumPy generator with uniforms from a source, with names of older functions too."""

    def __init__(self, races: list[Race], source: Randomness = default_uniforms) -> None:
        super().__init__(_REAL)
        self.source, self.races = source, races

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        if out is not None:
            out[...] = self.random(out.shape, dtype)
            return out
        drawn = self.source(_count(size))
        if np.dtype(dtype) == np.float32:
            drawn = (np.floor(drawn * 2.0**24) / 2.0**24).astype(np.float32)
        return drawn[0] if size is None else drawn.reshape(size)

    random_sample = ranf = sample = random

    def rand(self, *shape: int) -> Any:
        return self.random(shape or None)

    def uniform(self, low: Any = 0, high: Any = 1, size: Any = None) -> Any:
        drawn = self.random(size)
        return drawn if (low, high) == (0, 1) else low + (high - low) * drawn

    def choice(  # noqa: PLR0917 - NumPy's order of arguments
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        shuffle: bool = True,
    ) -> Any:
        places: list[int] = []
        entries = np.arange(a) if np.ndim(a) == 0 else np.asarray(a)
        weights = [1] * entries.shape[axis] if p is None else list(p)
        floats = None if p is None else np.asarray(p, np.float64)
        # The real method raises for invalid arguments.
        super().choice(entries.shape[axis], size, replace, floats)
        for _ in range(_count(size)):
            places.append(draw_place(self.source, weights))
            if not replace:
                weights[places[-1]] = 0
        return entries.take(places[0] if size is None else np.reshape(places, size), axis)

    def multinomial(self, n: Any, pvals: Any, size: Any = None) -> npt.NDArray[np.int64]:
        # The real method raises for invalid arguments.
        super().multinomial(n, np.asarray(pvals, np.float64), size)
        counts = np.zeros((_count(size), len(pvals)), np.int64)
        # Like NumPy, give the last entry the remaining mass.
        weights = [*pvals[:-1], max(1 - total(pvals[:-1]), 0)]
        for row in counts:
            for _ in range(n):
                row[draw_place(self.source, weights)] += 1
        return counts[0] if size is None else counts.reshape(*np.atleast_1d(size), -1)

    def exponential(self, scale: Any = 1, size: Any = None) -> Any:
        # The real method raises for invalid arguments.
        super().exponential(scale, size)
        return self._noise("multiple", scale, 1, np.shape(scale), size)

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, method: str = "zig", out: Any = None
    ) -> Any:
        if out is None:
            return self.exponential(1, size)
        out[...] = -np.log1p(-self.source(out.size).reshape(out.shape))
        return out

    def gumbel(self, loc: Any = 0, scale: Any = 1, size: Any = None) -> Any:
        super().gumbel(loc, scale, size)
        shape = np.broadcast_shapes(np.shape(loc), np.shape(scale))
        noise = self._noise("log", 0, -1, shape, size)
        return noise * scale + loc

    def _noise(self, kind: str, part: Any, power: int, shape: Any, size: Any) -> Any:
        shape = shape if size is None else tuple(np.atleast_1d(size).tolist())
        if not shape:
            # A single number cannot be a race.
            value = -np.log1p(-self.source(1)[0])
            return part * value if kind == "multiple" else part - np.log(value)
        self.races.append(Race(self.source, shape))
        return Noise(self.races[-1], Form(kind, np.broadcast_to(part, shape), power))


def _count(size: Any) -> int:
    return 1 if size is None else prod(np.atleast_1d(size).tolist())
