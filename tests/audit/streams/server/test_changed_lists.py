"""Lists after penalties, biases and min-p: checked against the whole distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from otm.audit.streams.server.answers import Completion
from otm.audit.streams.server.distributions.lists import probs_from_list
from otm.audit.streams.server.distributions.references import ModelProbs, OwnLists
from otm.audit.streams.server.request_parameters import RequestParameters
from otm.decoding import SamplingParameters
from otm.models import StatelessModel

SAMPLING = [
    SamplingParameters(),
    SamplingParameters(0.6),
    SamplingParameters(1.4, top_k=4),
    SamplingParameters(top_p=0.7),
    SamplingParameters(min_p=0.1),
    SamplingParameters(0.8, min_p=0.05),
    SamplingParameters(1.2, top_k=9, top_p=0.8, min_p=0.02),
    SamplingParameters(min_p=1.0),
]


def vllm_probs(logits: np.ndarray, parameters: SamplingParameters) -> np.ndarray:
    """Apply temperature, min-p, top-k and top-p in vLLM's order, one after the other."""
    weights = np.exp((logits - logits.max()) / parameters.temperature)
    weights[weights < (parameters.min_p or 0)] = 0
    order = np.argsort(-weights, kind="stable")
    weights[order[parameters.top_k or weights.size :]] = 0
    probs = weights / weights.sum()
    before = np.cumsum(probs[order]) - probs[order]
    probs[order[before >= (parameters.top_p or 2)]] = 0
    return np.asarray(probs / probs.sum())


@pytest.mark.parametrize("parameters", SAMPLING, ids=str)
@pytest.mark.parametrize("vocabulary", [20, 60])
def test_the_distribution_is_the_servers_given_that_a_token_counts(
    parameters: SamplingParameters, vocabulary: int
) -> None:
    """For every sampled token.

    Bugs: a change that moves an unlisted token over a listed one; a wrong mass of the unlisted
    tokens; min-p relative to the largest value before the change; min-p after top-p.
    """
    rng = np.random.default_rng(3)
    counted = 0.0
    for number in range(12):
        logits = rng.normal(0, 1.5, vocabulary)
        logs = logits - np.logaddexp.reduce(logits)
        changes = {int(i): float(rng.normal(0, 2)) for i in rng.choice(vocabulary, number % 6)}
        changed = logits.copy()
        changed[[*changes]] += [*changes.values()]
        truth = vllm_probs(changed, parameters)
        named = {f"token_id:{i}": value for i, value in changes.items()}
        deviation: Any = 0.0
        for listed in (8, 15, vocabulary + 1):
            for y in np.flatnonzero(truth):
                top = np.argsort(-logs)[:listed]
                entries = {f"token_id:{i}": float(logs[i]) for i in (y, *top)}
                token = f"token_id:{y}"
                law = probs_from_list(entries, listed, parameters, token, changes=named)
                if law is not None and law.of(token) is not None:
                    assert math.isclose(float(law.probs.sum()) + law.rest, 1)
                    deviation += truth[y] * law.deviation(token)
                    counted += truth[y]
        assert np.abs(deviation).max() < 1e-9
    assert counted > 12  # of 36 lists


def test_changed_tokens_have_their_own_classes() -> None:
    """Bug: merged with other tokens by rank, so that a penalty that is missing hardly shows."""
    logs = np.log([0.4, 0.3, 0.2, 0.1])
    entries = {f"token_id:{i}": float(log) for i, log in enumerate(logs)}
    law = probs_from_list(
        entries, 9, SamplingParameters(), "token_id:0", changes={"token_id:1": -1.0}
    )
    assert law is not None
    by_token = dict(zip(law.tokens, law.classes[0], strict=True))
    assert by_token["token_id:1"] >= 8 > max(by_token[f"token_id:{i}"] for i in (0, 2, 3))
    np.testing.assert_allclose(law.merged_probs, law.merge_other(law))


class Logits(StatelessModel):
    """Fixed logits of both signs."""

    vocabulary, returns_probs = 6, False
    values = np.array([2.0, -1.0, 0.5, -0.2, 1.0, 0.0])

    def probs(self, context: tuple[int, ...]) -> Any:
        return self.values


def test_a_model_gives_penalised_logits_of_prompt_and_output() -> None:
    """By hand: 2 / 1.5 and −1 · 1.5 for tokens of the prompt or output; −1.2 for the output alone.

    Bugs: the presence penalty of a prompt's token; a repetition penalty that helps negative logits;
    the sampled token counted before it is there.
    """
    request = RequestParameters(repetition_penalty=1.5, presence_penalty=0.7, frequency_penalty=0.5)
    answer = Completion(("token_id:1", "token_id:2"), ({}, {}))
    found = ModelProbs(Logits(), request)((0,), answer, SamplingParameters())
    for row, logits in zip(
        found, ([4 / 3, -1, 0.5, -0.2, 1, 0], [4 / 3, -1.5 - 1.2, 0.5, -0.2, 1, 0]), strict=True
    ):
        assert row is not None
        exact = np.exp(logits) / np.exp(logits).sum()
        np.testing.assert_allclose([row.of(f"token_id:{i}") for i in range(6)], exact)


def test_a_model_runs_once_for_all_mistakes_and_again_for_another_text() -> None:
    """Bugs: a run of the model for each mistake that a bet tries; logits of another answer."""

    class Counted(Logits):
        runs = 0

        def probs(self, context: tuple[int, ...]) -> Any:
            self.runs += 1
            return self.values * sum(context)

    model, answer = Counted(), Completion(("token_id:1", "token_id:2"), ({}, {}))
    probs_of = ModelProbs(model)
    first = probs_of((3,), answer, SamplingParameters())
    runs = model.runs
    probs_of((3,), answer, SamplingParameters(0.5), RequestParameters(presence_penalty=1.0))
    assert model.runs == runs
    other = probs_of((1,), answer, SamplingParameters())
    assert first[0] is not None
    assert other[0] is not None
    assert first[0].of("token_id:0") != pytest.approx(other[0].of("token_id:0"))


def test_an_impossible_token_counts_as_impossible() -> None:
    """Bug: an end token before min_tokens does not count."""
    request = RequestParameters(min_tokens=1, end_tokens=2)
    logs = np.log([0.5, 0.3, 0.2])
    entries = {f"token_id:{i}": float(log) for i, log in enumerate(logs)}
    answer = Completion(("token_id:2", "token_id:2"), (entries, entries))
    lists = OwnLists(5, processed=False, chat=False, request=request)
    first, second = lists("a", answer, SamplingParameters())
    assert first is not None
    assert second is not None
    assert (first.of("token_id:2"), second.of("token_id:2")) == (0.0, pytest.approx(0.2))
    assert first.of("token_id:0") == pytest.approx(0.625)
