"""What lists say of the next token: checked against the whole distribution, for every token."""

from __future__ import annotations

import math

import numpy as np
import pytest

from otm.audit.server.laws import Law, law_from_list, law_from_logits
from otm.decoding import SamplingParameters
from otm.errors import EndpointError

SAMPLING = [
    SamplingParameters(),
    SamplingParameters(temperature=0.6),
    SamplingParameters(temperature=1.5, top_k=4),
    SamplingParameters(top_k=20),
    SamplingParameters(top_p=0.7),
    SamplingParameters(top_p=0.999),
    SamplingParameters(temperature=0.7, top_p=0.8),
    SamplingParameters(temperature=0.7, top_k=5, top_p=0.6),
]


def served(logs: np.ndarray, token: int, listed: int) -> dict[str, float]:
    """List what a server sends if it samples `token`: that one first, then the likeliest."""
    top = np.argsort(-logs, kind="stable")[:listed]
    return {f"token_id:{i}": float(logs[i]) for i in (token, *top)}


def same(one: Law | None, other: Law | None) -> bool:
    assert one is not None
    assert other is not None
    return (one.tokens, one.rest, one.unseen) == (other.tokens, other.rest, other.unseen)


@pytest.mark.parametrize("parameters", SAMPLING, ids=str)
@pytest.mark.parametrize("ties", [False, True])
def test_the_law_is_that_of_the_server_given_that_a_token_counts(
    parameters: SamplingParameters, ties: bool
) -> None:
    """Bugs: a law that depends on the sampled token, a wrong rest, temperature twice."""
    rng = np.random.default_rng(5)
    for listed in (6, 12):
        logits = rng.normal(0, 2, 30)
        logits = np.round(logits) if ties else logits
        logs = logits - np.logaddexp.reduce(logits)
        truth = parameters(logs)
        laws = [law_from_list(served(logs, y, listed), listed, parameters) for y in range(30)]
        law = laws[0]
        assert law is not None
        assert all(same(law, other) for other in laws)
        counts = np.array([law.of(f"token_id:{y}") is not None for y in range(30)])
        assert math.isclose(float(law.probs.sum()) + law.rest, 1)
        inside = [int(token.removeprefix("token_id:")) for token in law.tokens]
        if not ties:  # at ties other servers keep other tokens
            given = truth / truth[counts].sum()
            np.testing.assert_allclose(law.probs, given[inside], atol=1e-12)
            outside = counts.copy()
            outside[inside] = False
            assert law.rest == pytest.approx(given[outside].sum(), abs=1e-12)
        else:
            given = truth[inside] / truth[inside].sum()
            np.testing.assert_allclose(law.probs, given * (1 - law.rest))
        for y in np.flatnonzero(counts):
            assert np.abs(law.merged(f"token_id:{y}").sum(axis=1)).max() < 1e-12
        whole = law_from_logits(logs, parameters)
        assert whole is not None
        assert ties or len(whole.tokens) == np.count_nonzero(truth)


def test_processed_lists_are_taken_as_they_are() -> None:
    logs = {"token_id:3": math.log(0.75), "token_id:1": math.log(0.25), "token_id:0": -9999.0}
    law = law_from_list(logs, 20, SamplingParameters(temperature=0.1, top_k=2), processed=True)
    assert law is not None
    assert (law.tokens, law.rest) == (("token_id:3", "token_id:1"), 0.0)
    np.testing.assert_allclose(law.probs, [0.75, 0.25])


def test_strings_of_several_tokens_and_end_tokens() -> None:
    """Bugs: half characters counted as one token; an end token that is never returned."""
    probs = {"a": 0.4, "\ufffd": 0.2, "<|end|>": 0.2, "b": 0.1, "c": 0.05}
    logs = {token: math.log(prob) for token, prob in probs.items()}
    law = law_from_list(logs, 4, SamplingParameters())
    assert law is not None
    assert law.tokens == ("a",)
    assert law.of("<|end|>") is None
    assert law.of("") is None
    assert law.of("\ufffd") == 0
    np.testing.assert_allclose([law.probs[0], law.rest], [0.5, 0.5])


@pytest.mark.parametrize("logs", [[-0.1, -0.1], [0.0, 0.0]])
def test_a_list_of_no_distribution_is_refused(logs: list[float]) -> None:
    entries = {f"token_id:{i}": log for i, log in enumerate(logs)}
    with pytest.raises(EndpointError, match="no distribution"):
        law_from_list(entries, 2, SamplingParameters())


def test_a_shorter_list_than_asked_for_is_refused() -> None:
    with pytest.raises(EndpointError, match="lists 2"):
        law_from_list({"token_id:0": -1.0, "token_id:1": -2.0}, 5, SamplingParameters())
