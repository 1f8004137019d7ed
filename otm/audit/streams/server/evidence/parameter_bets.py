"""Evidence from bets that a server makes a mistake in the request parameters.

Let p be the stated and q the mistaken distribution of a token, both given that the token counts
under both.  The mean of 1 − w + w q/p under p is at most 1, so the product over tokens is an
e-value for each mistake and share w.  If p is wrong by at most r in total variation, the mean
exceeds 1 by at most w r (max q/p − min q/p), so each factor is divided by 1 plus this number.
Ratios are capped at `LARGEST_RATIO`, or less for a large r, which makes the mean smaller.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otm.audit.streams.e_process import EProcess
from otm.audit.streams.server.answers import Completion, Prompt
from otm.audit.streams.server.distributions.references import OwnLists, ProbsOf
from otm.audit.streams.server.evidence.parameter_mistakes import (
    LARGEST_RATIO,
    SHARES,
    Stated,
    mistakes_in,
    ratio,
)
from otm.audit.streams.server.evidence.suspects import MISTAKEN
from otm.audit.streams.server.plan import Plan
from otm.audit.streams.server.request_parameters import RequestParameters
from otm.decoding import SamplingParameters

LARGEST_COST = 0.03
"""Largest product of the ratio of a bet and the error r; smaller ratios then cost less."""


class ParameterBets(EProcess):
    """Evidence from bets that the server makes one of the mistakes in the request parameters."""

    def __init__(
        self, request: RequestParameters, sampling: Sequence[SamplingParameters], probs_of: ProbsOf
    ) -> None:
        self._request, self._probs_of = request, probs_of
        names = Stated(SamplingParameters(), request).names()
        # The sets of mistakes must not differ between settings.
        if any(parameters.min_p for parameters in sampling):
            names.append("min_p")
        self._mistakes = mistakes_in(names)
        self._shares = np.array((SHARES[0], SHARES[2], MISTAKEN))
        # Largest error r of a distribution.
        self.drift = 0.0
        super().__init__(np.ones(len(self._mistakes) * self._shares.size))

    def add(self, prompt: Prompt, answer: Completion, parameters: SamplingParameters) -> None:
        """Add the tokens of an answer, whose rows are the stated distributions."""
        stated = Stated(parameters, self._request)
        factors = np.zeros((len(self._mistakes), self._shares.size))
        largest = min(LARGEST_RATIO, max(LARGEST_COST / max(self.drift, 1e-9), 2.0))
        for number, mistake in enumerate(self._mistakes):
            mistaken = mistake.rows(self._probs_of, stated, prompt, answer)
            for place, (token, row) in enumerate(zip(answer.tokens, answer.rows, strict=True)):
                others = [rows[place] for rows in mistaken]
                if all(other is row for other in others):
                    continue
                found = np.mean([ratio(row, other, token, largest) for other in others], axis=0)
                value, low, high = found.tolist()
                factors[number] += np.log1p(self._shares * (value - 1))
                factors[number] -= np.log1p(self._shares * self.drift * (high - low))
        self.bet(factors.ravel())


def plan_bets(plan: Plan) -> ParameterBets | None:
    """Return bets on mistakes in the request parameters, if their effect is known."""
    probs_of, request = plan.probs_of, plan.request
    processed = isinstance(probs_of, OwnLists) and probs_of.processed
    if probs_of is None or processed or not request.changes_logits:
        return None
    return ParameterBets(request, [setting.parameters for setting in plan.settings], probs_of)
