"""Evidence against a null hypothesis that may be read at any time: bets and their mixture.

A bet multiplies by a factor whose mean, given all tokens before, is at most 1 if tokens have their
stated probabilities.  The product of a bet's factors is an e-value, and so is a mean of e-values
with shares of sum 1.  Such a mean ever reaches 1/α with probability at most α (Ville's inequality),
so an audit may stop and decide at any time (docs/theory/recorded-steps.md, Theorem 15.2).  The
audits differ in their bets: `RowEvidence` bets on single classes of tokens, `GroupEvidence` on all
unions of classes at once, `Copies` on texts.  E-values and factors are stored as logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

MISSED = 1e-3
"""Probability with which a deviation of the stated size is missed, or a bound is too low."""


class EProcess:
    """A mixture of e-values, its largest value so far, and when it reached its limit."""

    def __init__(self, shares: Sequence[float] | Floats, limit: float = math.inf) -> None:
        """Begin with e-values of 1; `limit` is the logarithm of the value that decides."""
        weights = np.asarray(shares, dtype=np.float64)
        self.logs = np.zeros(weights.size)
        self.limit, self.largest = limit, 0.0
        self.decided_at: int | None = None
        self._log_shares = np.log(weights / weights.sum())

    @property
    def log_e_value(self) -> float:
        """Logarithm of the mixture."""
        return float(np.logaddexp.reduce(self.logs + self._log_shares))

    @property
    def decided(self) -> bool:
        """Whether the mixture ever reached the limit."""
        return self.largest >= self.limit

    def bet(self, log_factors: Floats, steps: Sequence[int] = (0,)) -> None:
        """Multiply the e-values by the factors [T, J] of T tokens, which are of these steps."""
        self.update(np.cumsum(np.atleast_2d(log_factors), axis=0) + self.logs, steps)

    def update(self, logs: Floats, steps: Sequence[int] = (0,)) -> None:
        """Set the e-values after each of T tokens: logarithms [T, J]."""
        logs = np.atleast_2d(logs)
        mixed = np.logaddexp.reduce(logs + self._log_shares, axis=1)
        self.logs[...] = logs[-1]
        self.largest = max(self.largest, float(mixed.max()))
        reached = mixed >= self.limit
        if self.decided_at is None and reached.any():
            self.decided_at = steps[int(reached.argmax())]
