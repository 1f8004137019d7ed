"""Evidence that a server samples tokens that its sampling parameters exclude."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from otm.audit.streams.e_process import EProcess
from otm.audit.streams.server.distributions.token_probs import TokenProbs

SHARES = np.array([0.01, 0.05, 0.2])
"""Shares w of the bets, with one e-value for each."""

LEAST_RATE = 1e-3
"""Least error of a probability that the bets allow."""

MULTIPLE = 5
"""Allowed rate of excluded tokens as a multiple of this error.

A token at the edge of top-p has several percent, so that noise in the lists excludes it more often
than the mean error of a class says.
"""


class ExcludedTokens(EProcess):
    """Bets on excluded tokens: 1 − w + w / r for such a token, and 1 − w for any other.

    If excluded tokens have a probability of at most r, the mean of a factor is at most 1
    (docs/theory/server-audit.md, Theorem 16.6).
    """

    def __init__(self) -> None:
        super().__init__(np.ones(SHARES.size))

    def add(self, sampled: Iterable[tuple[TokenProbs, str]], drift: float) -> None:
        """Add tokens with their distributions, if these exclude tokens and are not greedy."""
        limited = [(row, token) for row, token in sampled if row.rest == 0 and len(row.probs) > 1]
        out = np.array([row.of(token) == 0 for row, token in limited])
        if out.size:
            rate = min(MULTIPLE * max(drift, LEAST_RATE), 1.0)
            won, lost = np.log1p(SHARES * (1 / rate - 1)), np.log1p(-SHARES)
            self.bet(np.where(out[:, None], won, lost))
