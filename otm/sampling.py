"""Draw a token from weights by inverse cumulative distribution, with uniforms as the argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.arithmetic import Law, read_only, running_sum, zeros

__all__ = ["InverseCdf"]


@dataclass(frozen=True, eq=False)
class InverseCdf:
    """Inverse cumulative distribution of non-negative weights.

    A token of weight zero is never drawn; a uniform exactly on an edge of the cumulative
    distribution draws the next token of positive weight.

    Attributes
    ----------
    tokens : int array [m]
        The tokens of positive weight.
    cumulative : array [m]
        Running sum of their weights.
    """

    tokens: npt.NDArray[np.int64]
    cumulative: Law

    @classmethod
    def from_weights(cls, weights: Law) -> InverseCdf:
        """Build from one non-negative weight a token, at least one of them positive."""
        tokens = np.flatnonzero(weights > 0)
        return cls(read_only(tokens), read_only(running_sum(weights[tokens])))

    def locate(self, uniforms: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Token drawn by each uniform in [0, 1); the shape is kept."""
        found = np.searchsorted(self.cumulative, uniforms * self.cumulative[-1], side="right")
        # u · total can round up to the total itself
        tokens: npt.NDArray[np.int64] = self.tokens[np.minimum(found, self.tokens.size - 1)]
        return tokens

    def law(self, n: int) -> Law:
        """Law of the token drawn, on a vocabulary of n tokens, integrated from what is stored."""
        weights = zeros(n, self.cumulative)
        weights[self.tokens] = np.diff(self.cumulative, prepend=self.cumulative[:1] * 0)
        law: Law = weights / self.cumulative[-1]
        return law
