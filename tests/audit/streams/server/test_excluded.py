"""Tokens that sampling parameters exclude: their e-value, and a server that samples a few."""

from __future__ import annotations

import math

import numpy as np
import pytest

from otm.audit import NOT_LOSSLESS
from otm.audit.streams.server.distributions.token_probs import TokenProbs
from otm.audit.streams.server.evidence.excluded import LEAST_RATE, MULTIPLE, ExcludedTokens
from otm.decoding import SamplingParameters
from tests.audit.streams.server.servers import Place, asked, audit, right, serve

ROW = TokenProbs(("a", "b"), np.array([0.6, 0.4]), 0.0, True, frozenset())


@pytest.mark.parametrize("drift", [0.0, 1e-3, 0.01])
def test_the_mean_is_one_at_the_allowed_rate(drift: float) -> None:
    """Bug: evidence against a server whose lists are as wrong as stated."""
    rate = MULTIPLE * max(drift, LEAST_RATE)
    mean = 0.0
    for token, prob in (("a", 1 - rate), ("excluded", rate)):
        found = ExcludedTokens()
        found.add([(ROW, token)], drift)
        mean += prob * math.exp(found.log_e_value)
    assert mean == pytest.approx(1)


@pytest.mark.parametrize(("size", "rest"), [(1, 0.0), (2, 0.1)])
def test_greedy_rows_and_unlisted_tokens_do_not_count(size: int, rest: float) -> None:
    """Bugs: ties of greedy requests, which rounding decides, and tokens outside a cut list."""
    found = ExcludedTokens()
    probs = np.full(size, (1 - rest) / size)
    row = TokenProbs(("a", "c")[:size], probs, rest, True, frozenset())
    found.add([(row, "b")] * 9, 1e-3)
    assert found.log_e_value == pytest.approx(0)


def test_a_server_that_sometimes_forgets_top_p_is_found() -> None:
    """Bug: one token in sixty is excluded, and the classes do not show it (a stale top-p)."""

    def forgetful(at: Place) -> int:
        own = {**at.body, "top_p": 1.0} if at.rng.random() < 0.2 else at.body
        return int(at.rng.choice(at.logits.size, p=asked(own)(at.logits)))

    options = {"sampling": [SamplingParameters(top_p=0.9)], "requests": 400}
    report = audit(serve(forgetful), **options)
    assert report.verdict == NOT_LOSSLESS
    assert "exclude" in report.reasons[0]
    assert audit(serve(right), **{**options, "requests": 160}).verdict != NOT_LOSSLESS
