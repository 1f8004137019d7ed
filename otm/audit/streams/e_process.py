"""Evidence against a null hypothesis that may be read at any time: bets and their mixture.

A bet multiplies by a factor whose mean, given all tokens before, is at most 1 if tokens have their
stated probabilities.  The product of a bet's factors is an e-value, and so is a mean of e-values
with shares of sum 1.  Such a mean ever reaches 1/α with probability at most α (Ville's inequality),
so an audit may stop and decide at any time.  There are two kinds of bets: on one class of tokens
(docs/theory/recorded-steps.md, Theorem 15.2), and on all unions of classes at once
(docs/theory/server-audit.md, Theorem 16.1).  E-values and factors are stored as logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

CLASS_LAMBDAS = np.concatenate([-(2.0 ** np.arange(2, -6, -1)), 2.0 ** np.arange(-5, 3)])
"""λ of the bets on one class."""

UNION_LAMBDAS = 2.0 ** np.arange(-7, 2)
"""λ of the bets on all unions of classes."""

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
        if self.decided_at is None and self.decided:
            self.decided_at = steps[int((mixed >= self.limit).argmax())]


def tilt_bets(hit: Bools, mass: Floats) -> Floats:
    """Bet that each class is likelier or rarer than its probability: [T, K] → [T, K, λ]."""
    normalising = np.log1p(mass[..., None] * np.expm1(CLASS_LAMBDAS))
    return np.asarray(hit[..., None] * CLASS_LAMBDAS - normalising)


def detectable_deviation(count: int, log_needed: float, slack: float) -> float:
    """Mean deviation of a class that is missed with probability `MISSED` (Theorem 15.3).

    An e-value of logarithm `log_needed` decides; each factor was divided by e^`slack`.
    """
    if not count:
        return 1.0
    positive = CLASS_LAMBDAS[CLASS_LAMBDAS > 0]
    smallest = (log_needed / count + positive**2 / 8 + slack) / positive
    return min(float(smallest.min()) + math.sqrt(-math.log(MISSED) / (2 * count)), 1.0)


def union_log_e_value(excess: Floats, count: int, width: float, drift: float) -> float:
    """Logarithm of the mean e-value over families, unions of classes and λ (Theorem 16.1).

    `excess` [F, C] is how much more often each class came than expected in `count` tokens, each of
    which adds values in a range of `width`.  A probability may be wrong by `drift`.
    """
    tilted = excess[:, None] * UNION_LAMBDAS[:, None]
    # This is ln(1 + e^x), faster than by logaddexp.
    logs = (np.maximum(tilted, 0) + np.log1p(np.exp(-np.abs(tilted)))).sum(axis=2)
    cost = UNION_LAMBDAS**2 * width**2 / 8 + UNION_LAMBDAS * drift
    logs -= excess.shape[1] * math.log(2) + count * cost
    return float(np.logaddexp.reduce(logs, axis=None) - math.log(logs.size))


def union_slack(shape: tuple[int, ...], count: int, width: float, level: float) -> float:
    """How much the true mean deviation of a union may exceed the seen one (Theorem 16.2).

    Exceeded with probability at most `level`, at all times together, by any union of C classes of
    any of F families; `shape` is (F, C).
    """
    needed = math.log(2 ** shape[1] * shape[0] * UNION_LAMBDAS.size / level)
    slack = needed / (count * UNION_LAMBDAS) + UNION_LAMBDAS * width**2 / 8
    return float(slack.min())
