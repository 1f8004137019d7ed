"""Bets on penalties that no request states: valid for right servers, and quick for wrong ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("httpx2")

from otm.audit.streams.server.distributions.token_probs import TokenProbs
from otm.audit.streams.server.evidence.penalty_bets import LOOKED_AT, PenaltyBets
from otm.audit.streams.server.evidence.suspects import SampledToken
from tests.audit.streams.server.servers import PLAIN, Place, V, asked, audit, right, serve


def factors(row: TokenProbs, token: str, written: list[str], drift: float) -> np.ndarray:
    """Return the factors of all bets for one token after a text, to a prompt of tokens 7 and 8."""
    answer = cast("Any", SimpleNamespace(tokens=(*written, token)))
    bets = PenaltyBets()
    bets.add([SampledToken(row, token, (7, 8), answer, len(written))], drift)
    return np.exp(bets.logs)


@pytest.mark.parametrize("count", [12, LOOKED_AT + 8])
@pytest.mark.parametrize("rest", [0.0, 0.25])
def test_the_mean_of_a_bet_is_at_most_one(count: int, rest: float) -> None:
    """By enumeration, also where the stated probabilities are wrong by the allowed error.

    Bugs: a total without the unlisted tokens; an error that costs nothing.
    """
    rng = np.random.default_rng(4)
    probs = np.sort(rng.dirichlet(np.full(count, 0.5)))[::-1] * (1 - rest)
    names = tuple(f"token_id:{i}" for i in rng.permutation(count))
    row = TokenProbs(names, probs, rest, rest > 0, frozenset())
    written = ["token_id:1", names[0], "token_id:other"]
    tokens, probs = [*names, "token_id:other"], np.append(probs, rest)
    for drift in (0.0, 0.02):
        all_bets = np.array([factors(row, token, written, drift) for token in tokens])
        # The worst distribution moves mass from the smallest to the largest factor.
        for bet in all_bets.T:
            low, high = bet.argsort()[[0, -1]]
            moved = min(drift, probs[low])
            worst = probs.copy()
            worst[[low, high]] += (-moved, moved)
            assert worst @ bet < 1 + 1e-12
        assert (np.ptp(all_bets, axis=0) > 0.01).all()
    assert probs @ all_bets == pytest.approx(1, abs=0.05)


def penalised(size: float, *, of_prompt: bool = False) -> Any:
    def sample(at: Place) -> int:
        logits = at.logits.copy()
        logits[[*at.text, *(at.body["prompt"] if of_prompt else [])]] -= size
        return int(at.rng.choice(V, p=asked(at.body)(logits)))

    return sample


@pytest.mark.parametrize("size", [1.0, -0.5])
def test_a_penalty_that_no_request_states_is_found(size: float) -> None:
    """Without these bets the audit needs 424 and more than 600 requests."""
    report = audit(serve(penalised(size), memory=0, scale=1.5), sampling=PLAIN, logprobs=30)
    assert report.verdict == "not lossless"
    assert report.requests <= 200
    # A small reward is also explained by a lower temperature.
    assert "a penalty for tokens of the" in report.reasons[0] or size < 0


@pytest.mark.parametrize("of_prompt", [False, True])
def test_whether_tokens_of_the_prompt_are_penalised_is_named(of_prompt: bool) -> None:
    """Bug: a penalty of the answer alone that tokens of the prompt hide from its name."""
    server = serve(penalised(1.5, of_prompt=of_prompt), memory=0)
    prompts = [list(range(20)), list(range(10, 30))]
    report = audit(server, sampling=PLAIN, logprobs=30, prompts=prompts)
    (reason,) = report.reasons
    where = "prompt or the text so far" if of_prompt else "text so far, without the prompt"
    assert reason.startswith(f"a penalty for tokens of the {where}")


def test_a_right_server_that_repeats_itself_is_not_rejected() -> None:
    """Bug: tokens of the text so far that count as deviations."""
    report = audit(serve(right, memory=0, scale=3.0), sampling=PLAIN, logprobs=30, tv=0.1)
    assert report.lossless
