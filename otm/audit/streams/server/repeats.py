"""Evidence that texts repeat earlier ones, although requests without a seed are independent.

Suppose that a text copies the j-th text before it with probability π w_j, where Σ w_j = 1, and else
follows the lists.  Its likelihood over that of the lists, 1 − π + π Σ w_j [the text is the j-th] /
P(text), is a factor of mean 1 for a right server.  The texts shortly before have half of the
weights, all texts have the other half.  P(text) is bounded from above by the product of the
probabilities of its tokens, where a token that does not count has 1.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from otm.audit.streams.server.answers import Completion
from otm.audit.streams.server.laws import Law

RATES = np.array([1 / 2, 1 / 16, 1 / 256])
"""Values of π, one e-value each."""

SHORTLY = 16
"""Number of last texts of the same prompt and sampling parameters with a larger weight."""

MOST_KEPT = 2**12
"""Number of texts that are kept for a prompt and sampling parameters: the first ones."""

ERROR = 10.0
"""Relative error of a probability, in units of the rounding of an audit."""


@dataclass(frozen=True)
class Repeats:
    """How many texts repeat an earlier one of the same prompt and sampling parameters."""

    texts: int  # those with earlier texts
    repeated: int
    expected: float  # upper bound on the expected number of repeats
    log10_e_value: float


@dataclass
class _Earlier:
    """The texts of a prompt and sampling parameters so far."""

    recent: deque[tuple[str, ...]] = field(default_factory=lambda: deque(maxlen=SHORTLY))
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    number: int = 0
    likely: float = 0.0  # sum of the probabilities of all different texts

    def share(self, text: tuple[str, ...]) -> float:
        """Sum the weights of the earlier texts that are the same."""
        return (self.recent.count(text) / len(self.recent) + self.counts[text] / self.number) / 2

    def add(self, text: tuple[str, ...], probability: float) -> None:
        self.recent.append(text)
        if self.number < MOST_KEPT:
            self.likely += 0.0 if text in self.counts else probability
            self.counts[text] += 1
            self.number += 1


class Copies:
    """The texts of each prompt so far, and the evidence that some are copies."""

    def __init__(self, drift: float) -> None:
        self.drift = drift
        self._logs = np.zeros(RATES.size)
        self._earlier: dict[Hashable, _Earlier] = {}
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
        earlier = self._earlier.setdefault(key, _Earlier())
        if earlier.number:
            share = earlier.share(answer.tokens)
            self._texts += 1
            self._repeated += share > 0
            self._expected += min(earlier.likely, 1.0)
            ratio = share * math.exp(min(-likely, 600.0))
            # each probability may be wrong by its relative error
            excess = math.expm1(min(len(logs) * math.log1p(ERROR * self.drift), 600.0))
            self._logs += np.log1p(RATES * (ratio - 1)) - np.log1p(RATES * excess)
        earlier.add(answer.tokens, math.exp(likely))


def _most_likely(law: Law | None, token: str) -> float:
    """Upper bound on the probability of a token; 1 where it is unknown."""
    probability = None if law is None else law.of(token)
    if law is None or probability is None:
        return 1.0
    return probability or law.rest or 1.0
