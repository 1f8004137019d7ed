"""Sample tokens from weights with the inverse cumulative distribution of given uniforms."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Frozen,
    Probs,
    as_integers,
    as_number,
    is_exact,
    read_only,
    zeros,
)

BLOCK = 512
"""Number of tokens of a block; longer cumulative sums have larger rounding errors."""


def locate(tokens: npt.NDArray[np.int64], weights: Probs, uniform: Any) -> int:
    """Sample one token from non-negative weights, as `InverseCdf` does."""
    if is_exact(weights) and (cell := exact_cell(weights, uniform)) < weights.size:
        return int(tokens[cell])
    if is_exact(weights) or weights.size <= BLOCK:
        ends = np.cumsum(weights)
        left, start = uniform * ends[-1], 0
    else:
        sums = np.add.reduceat(weights, np.arange(0, weights.size, BLOCK))
        blocks = np.cumsum(sums)
        point = uniform * blocks[-1]
        block = min(int(np.searchsorted(blocks, point, side="right")), sums.size - 1)
        start = block * BLOCK
        ends = np.cumsum(weights[start : start + BLOCK])
        left = point - (blocks[block - 1] if block else 0)
    place = int(np.searchsorted(ends, left, side="right"))
    # If u · total rounds up to the total, take the last token of positive weight.
    if place == ends.size:
        place = int(np.searchsorted(ends, ends[-1]))
    return int(tokens[start + place])


def exact_cell(weights: Probs, uniform: Any, *, side: Literal["left", "right"] = "right") -> int:
    """Return the index of the cell of [0, total) that contains uniform · total.

    The weights are fractions; they are summed as integers, which is fast.  Unlike NumPy's search,
    this search does not compare a symbolic uniform with an edge for equality.  A uniform on an edge
    gives the same result as one just above the edge, so a test for equality would only add paths.
    """
    search = bisect_right if side == "right" else bisect_left
    parts, unit = as_integers(weights)
    ends = list(accumulate(parts))
    point = as_number(uniform) * Fraction(ends[-1], unit)
    if side == "right" and isinstance(point, float | Fraction):
        over, under = point.as_integer_ratio()
        return search(ends, over * unit // under)
    return search(ends, point, key=lambda end: Fraction(end, unit))


@dataclass(frozen=True, eq=False)
class InverseCdf(Frozen):
    """Inverse cumulative distribution of non-negative weights, in blocks of tokens.

    A uniform selects a block, and its offset in the block selects a token.  A token of weight zero
    is never sampled; a uniform exactly on an edge selects the next token of positive weight.
    """

    # [m]: the tokens of positive weight, in ascending order.
    tokens: npt.NDArray[np.int64]
    # [m]: cumulative sum of the weights within each block.
    cumulative: Probs
    # [blocks]: cumulative sum of the weights of blocks.
    ends: Probs

    @classmethod
    def from_weights(
        cls, weights: Probs, tokens: npt.NDArray[np.int64] | None = None
    ) -> InverseCdf:
        """Build from one non-negative weight per token; at least one weight must be positive."""
        positive = np.flatnonzero(weights > 0)
        tokens = positive if tokens is None else tokens[positive]
        weights = weights[positive]
        if is_exact(weights) or weights.size <= BLOCK:
            cumulative = np.cumsum(weights)
            return cls(read_only(tokens), read_only(cumulative), cumulative[-1:])
        rows = np.zeros((-(-weights.size // BLOCK), BLOCK))
        # `ravel` returns a view.
        rows.ravel()[: weights.size] = weights
        cumulative = np.cumsum(rows, axis=1).ravel()[: weights.size]
        return cls(*map(read_only, (tokens, cumulative, np.cumsum(rows.sum(axis=1)))))

    def locate(self, uniforms: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the token that each uniform in [0, 1) selects, in the shape of the uniforms."""
        points = np.asarray(uniforms * self.ends[-1])
        if self.ends.size == 1:
            places = np.searchsorted(self.cumulative, points, side="right")
            # The product u · total can round up to the total.
            return np.asarray(self.tokens[np.minimum(places, self.tokens.size - 1)])
        block = np.minimum(np.searchsorted(self.ends, points, side="right"), self.ends.size - 1)
        left = points - np.append(0, self.ends)[block]
        places = np.empty(points.shape, dtype=np.int64)
        for each in set(block.ravel().tolist()):
            here, inside = block == each, self._block(each)
            place = np.searchsorted(self.cumulative[inside], left[here], side="right")
            places[here] = np.minimum(inside.start + place, inside.stop - 1)
        return np.asarray(self.tokens[places])

    def probs(self, n: int) -> Probs:
        """Return the exact distribution [n] of the tokens that `locate` samples."""
        weights = zeros(n, self.cumulative)
        widths = np.diff(self.ends, prepend=0 * self.ends[:1])
        for each, width in enumerate(widths):
            tokens = self._block(each)
            edges = np.minimum(self.cumulative[tokens], width)
            # The last token of a block also gets the rounding error.
            edges[-1] = width
            weights[self.tokens[tokens]] = np.diff(edges, prepend=0 * width)
        return np.asarray(weights / self.ends[-1])

    def _block(self, number: int) -> slice:
        """Return the slice of `tokens` of a block."""
        size = BLOCK if self.ends.size > 1 else self.tokens.size
        return slice(number * size, min((number + 1) * size, self.tokens.size))


def chunks(count: int, width: int, entries: int) -> Iterator[slice]:
    """Return slices of `count` rows, each with at most `entries` numbers but at least one row."""
    step = max(1, entries // max(width, 1))
    return (slice(start, start + step) for start in range(0, count, step))


def locate_in_rows(weights: Probs, uniforms: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the token that each uniform in [0, 1) selects in its row: [B, n], [B] → [B].

    Equivalent to `InverseCdf.from_weights(row).locate(u)` for every row.  Every row must have a
    positive weight; a token of weight zero is never sampled.
    """
    cumulative = np.cumsum(weights, axis=1)
    points = uniforms * cumulative[:, -1]
    places = (cumulative <= points[:, None]).sum(axis=1).astype(np.int64)
    # The product u · total can round up to the total.
    last = weights.shape[1] - 1 - (weights[:, ::-1] > 0).argmax(axis=1)
    return np.asarray(np.minimum(places, last))
