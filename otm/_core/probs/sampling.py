"""Draw tokens from weights by inverse cumulative distribution, with uniforms as the argument."""

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
"""Tokens of a block: a cumulative sum over more of them rounds away more of each."""


def locate(tokens: npt.NDArray[np.int64], weights: Probs, uniform: Any) -> int:
    """Draw one token by non-negative weights, as `InverseCdf` does."""
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
    if place == ends.size:  # u · total rounds up to the total itself: the last of positive weight
        place = int(np.searchsorted(ends, ends[-1]))
    return int(tokens[start + place])


def exact_cell(weights: Probs, uniform: Any, *, side: Literal["left", "right"] = "right") -> int:
    """Return the index of the cell that contains uniform · total, for weights in fractions.

    The cells divide [0, total); the weights are their lengths.  Unlike NumPy's search to the right,
    this search does not ask whether a symbolic uniform is exactly on an edge.  There the result is
    the same as just above the edge, so a separate path would gain nothing.  The weights are summed
    as whole numbers, which is quick.
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

    A uniform picks a block, and what it has left a token in it.  A token of weight zero is never
    drawn; a uniform exactly on an edge draws the next token of positive weight.
    """

    tokens: npt.NDArray[np.int64]  # [m], the tokens of positive weight, ascending
    cumulative: Probs  # [m], running sum of their weights within each block
    ends: Probs  # [blocks], running sum of the weights of blocks

    @classmethod
    def from_weights(
        cls, weights: Probs, tokens: npt.NDArray[np.int64] | None = None
    ) -> InverseCdf:
        """Build from one non-negative weight a token, at least one of them positive."""
        positive = np.flatnonzero(weights > 0)
        tokens = positive if tokens is None else tokens[positive]
        weights = weights[positive]
        if is_exact(weights) or weights.size <= BLOCK:
            cumulative = np.cumsum(weights)
            return cls(read_only(tokens), read_only(cumulative), cumulative[-1:])
        rows = np.zeros((-(-weights.size // BLOCK), BLOCK))
        rows.ravel()[: weights.size] = weights  # a view
        cumulative = np.cumsum(rows, axis=1).ravel()[: weights.size]
        return cls(*map(read_only, (tokens, cumulative, np.cumsum(rows.sum(axis=1)))))

    def locate(self, uniforms: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Token drawn by each uniform in [0, 1); the shape is kept."""
        points = np.asarray(uniforms * self.ends[-1])
        if self.ends.size == 1:
            found = np.searchsorted(self.cumulative, points, side="right")
            # u · total can round up to the total itself
            return np.asarray(self.tokens[np.minimum(found, self.tokens.size - 1)])
        block = np.minimum(np.searchsorted(self.ends, points, side="right"), self.ends.size - 1)
        left = points - np.append(0, self.ends)[block]
        found = np.empty(points.shape, dtype=np.int64)
        for each in set(block.ravel().tolist()):
            here, inside = block == each, self._block(each)
            place = np.searchsorted(self.cumulative[inside], left[here], side="right")
            found[here] = np.minimum(inside.start + place, inside.stop - 1)
        return np.asarray(self.tokens[found])

    def probs(self, n: int) -> Probs:
        """Distribution of the token drawn, array [n], integrated from what is stored."""
        weights = zeros(n, self.cumulative)
        widths = np.diff(self.ends, prepend=0 * self.ends[:1])
        for each, width in enumerate(widths):
            tokens = self._block(each)
            edges = np.minimum(self.cumulative[tokens], width)
            edges[-1] = width  # the last token has what rounding leaves
            weights[self.tokens[tokens]] = np.diff(edges, prepend=0 * width)
        return np.asarray(weights / self.ends[-1])

    def _block(self, number: int) -> slice:
        """Places in `tokens` of a block."""
        size = BLOCK if self.ends.size > 1 else self.tokens.size
        return slice(number * size, min((number + 1) * size, self.tokens.size))


def chunks(count: int, width: int, entries: int) -> Iterator[slice]:
    """Slices of `count` rows of this width, with at most so many entries each, a row at least."""
    step = max(1, entries // max(width, 1))
    return (slice(start, start + step) for start in range(0, count, step))


def locate_in_rows(weights: Probs, uniforms: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Token that each uniform in [0, 1) draws from the weights in its row: [B, n], [B] → [B].

    Equivalent to `InverseCdf.from_weights(row).locate(u)` for every row: a token of weight zero is
    never drawn, and in every row one has a positive weight.
    """
    cumulative = np.cumsum(weights, axis=1)
    points = uniforms * cumulative[:, -1]
    found = (cumulative <= points[:, None]).sum(axis=1).astype(np.int64)
    # u · total can round up to the total itself
    last = weights.shape[1] - 1 - (weights[:, ::-1] > 0).argmax(axis=1)
    return np.asarray(np.minimum(found, last))
