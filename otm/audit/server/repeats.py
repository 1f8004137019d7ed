"""Evidence that texts repeat earlier ones, although requests without a seed are independent.

Suppose that a text copies one of the m texts before it with probability π, and else follows the
lists.  Its likelihood over that of the lists, 1 − π + (π / m) Σ [the text is the j-th] / P(text),
is a factor of mean 1 for a right server.  P(text) is bounded from above by the product of the
probabilities of its tokens, where a token that does not count has 1.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from otm.audit.server.answers import Completion
from otm.audit.server.laws import Law

RATES = np.array([1 / 2, 1 / 16, 1 / 256])
"""Values of π, one e-value each."""

BEFORE = 16
"""Earlier texts of the same prompt and sampling parameters with which a text is compared."""

ERROR = 10.0
"""Relative error of a probability, in units of the rounding of an audit."""


@dataclass(frozen=True)
class Repeats:
    """How many texts repeat one of those before them."""

    texts: int  # those with earlier texts
    repeated: int
    expected: float  # upper bound on the expected number of repeats
    log10_e_value: float


class Copies:
    """The texts of each prompt so far, and the evidence that some are copies."""

    def __init__(self, drift: float) -> None:
        self.drift = drift
        self._logs = np.zeros(RATES.size)
        self._before: dict[Hashable, deque[tuple[tuple[str, ...], float]]] = {}
        self._texts, self._repeated, self._expected = 0, 0, 0.0

    @property
    def log_e_value(self) -> float:
        """Logarithm of the mean over all π."""
        return float(np.logaddexp.reduce(self._logs)) - math.log(RATES.size)

    def summary(self) -> Repeats:
        """Sum up for the report."""
        log10 = self.log_e_value / math.log(10)
        return Repeats(self._texts, self._repeated, self._expected, log10)

    def add(self, key: Hashable, answer: Completion, laws: Sequence[Law | None]) -> None:
        """Compare a text with those before it."""
        if not answer.tokens:
            return
        logs = [
            math.log(_most_likely(law, token))
            for law, token in zip(laws, answer.tokens, strict=True)
        ]
        likely = math.fsum(logs)
        before = self._before.setdefault(key, deque(maxlen=BEFORE))
        if before:
            same = sum(tokens == answer.tokens for tokens, _ in before)
            self._texts += 1
            self._repeated += same > 0
            known = {tokens: math.exp(log) for tokens, log in before}
            self._expected += min(math.fsum(known.values()), 1.0)
            ratio = same / len(before) * math.exp(min(-likely, 600.0))
            # each probability may be wrong by its relative error
            excess = math.expm1(min(len(logs) * math.log1p(ERROR * self.drift), 600.0))
            self._logs += np.log1p(RATES * (ratio - 1)) - np.log1p(RATES * excess)
        before.append((answer.tokens, likely))


def _most_likely(law: Law | None, token: str) -> float:
    """Upper bound on the probability of a token; 1 where it is unknown."""
    probability = None if law is None else law.of(token)
    if law is None or probability is None:
        return 1.0
    return probability or law.rest or 1.0
