"""Evidence from bets on a penalty, or a reward, for tokens that were there before.

Servers may penalise tokens of the text so far although a request states no penalty, for example by
a default repetition penalty.  A bet multiplies the probabilities of these tokens by a factor, and
the others keep their proportions.  With the set of tokens fixed before the token is sampled, the
product of the ratios of the changed to the stated probability is an e-value (Theorem 16.6 of
docs/theory/server-audit.md).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from otm.audit.streams.e_process import EProcess
from otm.audit.streams.server.evidence.suspects import MISTAKEN, SampledToken

FACTORS = np.exp([-2.0, -1.0, -0.5, 0.5])
"""Factors of the probabilities of earlier tokens: penalties, and a reward."""

LOOKED_AT = 64
"""Number of most probable tokens of a list that a bet may change."""


class PenaltyBets(EProcess):
    """Bets that the tokens of the answer so far, or also those of the prompt, are penalised."""

    def __init__(self) -> None:
        super().__init__(np.ones(2 * FACTORS.size))

    def add(self, sampled: Iterable[SampledToken], drift: float) -> None:
        """Add tokens, whose stated probabilities may be wrong by `drift` (TV)."""
        logs = np.zeros((2, FACTORS.size))
        for each in sampled:
            probs = each.row.probs[:LOOKED_AT]
            rank = each.row.places.get(each.token, LOOKED_AT)
            written = each.written(LOOKED_AT)
            for way, again in enumerate((written, written | each.told(LOOKED_AT))):
                if again.any():
                    total = 1 + float(probs[again].sum()) * (FACTORS - 1)
                    ratios = (FACTORS if rank < again.size and again[rank] else 1.0) / total
                    logs[way] += np.log1p(MISTAKEN * (ratios - 1))
                    logs[way] -= np.log1p(MISTAKEN * drift * np.abs(FACTORS - 1) / total)
        self.bet(logs.ravel())
