"""Evidence, valid at any time, against a null hypothesis: bets and their mixture.

A bet multiplies its e-value by a factor for each token.  If tokens have their stated probabilities,
the mean of a bet's factor, given all earlier tokens, is at most 1.  The product of a bet's factors
is an e-value, and so is a weighted mean of e-values.  The probability that an e-value ever reaches
1/α is at most α (Ville's inequality), so an audit may stop and decide at any time
(docs/theory/recorded-steps.md, Theorem 15.2).  The audits use different bets: `RowEvidence` bets on
single classes of tokens, `GroupEvidence` on all unions of classes, and `Copies` on repeated texts.
E-values and factors are stored as logarithms.
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
"""Probability that a deviation of the stated size is missed, or that a bound is too low."""


class EProcess:
    """A mixture of e-values, its largest value, and the step at which it reached its limit."""

    def __init__(self, shares: Sequence[float] | Floats, limit: float = math.inf) -> None:
        """Start with e-values of 1; `limit` is the logarithm of the e-value that decides."""
        weights = np.asarray(shares, dtype=np.float64)
        self.logs = np.zeros(weights.size)
        self.limit, self.largest = limit, 0.0
        self.decided_at: int | None = None
        self._log_shares = np.log(weights / weights.sum())

    @property
    def log_e_value(self) -> float:
        """Logarithm of the mixture of the e-values."""
        return float(np.logaddexp.reduce(self.logs + self._log_shares))

    @property
    def decided(self) -> bool:
        """Whether the mixture has ever reached the limit."""
        return self.largest >= self.limit

    def bet(self, log_factors: Floats, steps: Sequence[int] = (0,)) -> None:
        """Multiply the e-values by the factors of T tokens, [T, J], from these steps."""
        self.update(np.cumsum(np.atleast_2d(log_factors), axis=0) + self.logs, steps)

    def update(self, logs: Floats, steps: Sequence[int] = (0,)) -> None:
        """Set the e-values after each of T tokens, as logarithms [T, J]."""
        logs = np.atleast_2d(logs)
        mixed = np.logaddexp.reduce(logs + self._log_shares, axis=1)
        self.logs[...] = logs[-1]
        self.largest = max(self.largest, float(mixed.max()))
        reached = mixed >= self.limit
        if self.decided_at is None and reached.any():
            self.decided_at = steps[int(reached.argmax())]
