"""Draw tokens from weights by inverse cumulative distribution, with uniforms as the argument."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Frozen, Probs, read_only, running_sum, zeros


@dataclass(frozen=True, eq=False)
class InverseCdf(Frozen):
    """Inverse cumulative distribution of non-negative weights.

    A token of weight zero is never drawn; a uniform exactly on an edge of the cumulative
    distribution draws the next token of positive weight.
    """

    tokens: npt.NDArray[np.int64]  # [m], the tokens of positive weight, ascending
    cumulative: Probs  # [m], running sum of their weights

    @classmethod
    def from_weights(cls, weights: Probs) -> InverseCdf:
        """Build from one non-negative weight a token, at least one of them positive."""
        tokens = np.flatnonzero(weights > 0)
        return cls(read_only(tokens), read_only(running_sum(weights[tokens])))

    def locate(self, uniforms: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Token drawn by each uniform in [0, 1); the shape is kept."""
        found = np.searchsorted(self.cumulative, uniforms * self.cumulative[-1], side="right")
        # u · total can round up to the total itself
        return np.asarray(self.tokens[np.minimum(found, self.tokens.size - 1)])

    def probs(self, n: int) -> Probs:
        """Distribution of the token drawn, array [n], integrated from what is stored."""
        weights = zeros(n, self.cumulative)
        weights[self.tokens] = np.diff(self.cumulative, prepend=self.cumulative[:1] * 0)
        return np.asarray(weights / self.cumulative[-1])


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
