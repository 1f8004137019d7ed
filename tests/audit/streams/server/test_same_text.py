"""Lists that are made after the draw are found, and those of right servers raise no alarm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("httpx2")

from otm.audit.streams.server.answers import Completion
from otm.audit.streams.server.distributions.lists import probs_from_list
from otm.audit.streams.server.distributions.token_probs import TokenProbs
from otm.audit.streams.server.evidence.earlier_answers import FEWEST_COMPARED, SameText
from otm.decoding import SamplingParameters
from tests.audit.streams.server.servers import PLAIN, Place, V, audit, serve, usual


def anything(at: Place) -> int:
    return int(at.rng.integers(V))


def alone(at: Place, token: int) -> dict[int, float]:
    return {token: 0.0}


def likeliest(at: Place, token: int) -> dict[int, float]:
    """List any sampled token with probability 0.96."""
    others = [i for i in range(V) if i != token][: at.body.get("top_logprobs", 20) - 1]
    return {token: math.log(0.96)} | dict.fromkeys(others, math.log(0.04 / len(others)))


def decoy(at: Place, token: int) -> dict[int, float]:
    """List the sampled token and another with the same probability: half of the time it is."""
    other = int((token + 1 + at.rng.integers(V - 1)) % V)
    rest = [i for i in range(V) if i not in (token, other)][:18]
    pair = {token: math.log(0.48), other: math.log(0.48)}
    return pair | dict.fromkeys(rest, math.log(0.04 / 18))


def later(at: Place, token: int) -> dict[int, float]:
    """Tell the truth at first, and follow the tokens after the first one."""
    return likeliest(at, token) if at.text else dict.fromkeys(range(20), math.log(1 / V))


def shared(at: Place, token: int) -> dict[int, float]:
    """List what one of two models says, and sample from it: no text has one distribution."""
    logs = np.full(V, math.log(0.1 / (V - 1)))
    logs[token] = math.log(0.9)
    return {int(i): float(logs[i]) for i in (token, *np.argsort(-logs)[:20])}


LIARS = [alone, likeliest, decoy, later, shared]


@pytest.mark.parametrize("lists", LIARS)
@pytest.mark.parametrize("chat", [False, True])
def test_lists_that_follow_the_token_are_found(lists: Any, chat: bool) -> None:
    """Bug: a server whose lists follow the sampled token was called lossless."""
    report = audit(serve(anything, lists), chat=chat)
    assert report.verdict == "not lossless"
    assert report.requests < 400
    assert report.lists is not None
    assert report.lists.mean_tv > 0.3
    assert "made them after sampling the token" in report.reasons[0]


@pytest.mark.parametrize("noise", [0.01, 0.06])
def test_lists_that_batches_round_raise_no_alarm(noise: float) -> None:
    """The control: logits in half precision differ by as much from batch to batch."""
    report = audit(serve(noise=noise), tv=0.2, concurrency=(8,))
    assert report.lossless
    assert report.log10_e_value < 1
    assert report.lists is not None
    assert 0 < report.lists.mean_tv < 0.05


def test_lists_that_differ_more_are_not_lossless_and_not_wrong() -> None:
    report = audit(serve(noise=0.2), requests=160, tv=0.3)
    assert report.verdict == "undecided"
    assert any("lists after the same text differ" in reason for reason in report.reasons)


def test_texts_that_never_come_again_show_nothing() -> None:
    """Bug: "lossless" of lists that were never compared."""
    prompts = [f"prompt {i}" for i in range(240)]
    report = audit(
        serve(anything, likeliest), prompts=prompts, requests=240, tv=0.5, concurrency=(1,)
    )
    assert report.verdict == "undecided"
    assert report.lists is not None
    assert report.lists.tokens < FEWEST_COMPARED
    assert any("use fewer prompts" in reason for reason in report.reasons)


def at_a_place_of_two(at: Place, token: int) -> dict[int, float]:
    if len(at.text) >= 4:
        return likeliest(at, token)
    logs = np.full(V, -30.0)
    logs[:2] = math.log(0.5)
    return {int(i): float(logs[i]) for i in range(20)}


def test_lists_that_follow_the_token_at_a_few_places_are_found() -> None:
    """Bug: averaged over all places, they differ by less than right lists may."""

    def sample(at: Place) -> int:  # few texts, so that some come again as far as the fifth place
        return anything(at) if len(at.text) >= 4 else int(at.rng.integers(2))

    report = audit(serve(sample, at_a_place_of_two), prompts=["a", "b"])
    assert report.verdict == "not lossless"
    assert "made them after sampling the token" in report.reasons[0]
    text = str(report)
    assert "the audit cannot see whether the list was made before the token" in text


def test_lists_that_are_rounded_much_raise_no_alarm() -> None:
    """Bug: the first list after a text is off by its rounding, which was not paid for."""

    def rounded(at: Place, token: int) -> dict[int, float]:
        return {key: float(np.round(log)) for key, log in usual(at, token).items()}

    server = serve(memory=0, lists=rounded)
    report = audit(server, prompts=["a"], requests=600, logprobs=6, max_tokens=1)
    assert report.verdict == "undecided"
    assert report.lists is not None
    assert report.lists.log10_e_value < 0.5


def row_of(probs: list[float]) -> TokenProbs:
    entries = {f"token_id:{i}": math.log(p) for i, p in enumerate(probs)}
    law = probs_from_list(entries, len(probs), SamplingParameters(), "token_id:0")
    assert law is not None
    return law


def test_distance_and_shift_of_lists() -> None:
    """By hand.  Bugs: half of a distance, tokens of one list alone that are not counted."""
    one, two = row_of([0.5, 0.3, 0.15, 0.05]), row_of([0.3, 0.5, 0.15, 0.05])
    assert one.distance(two) == pytest.approx(0.2)
    assert one.distance(one) == 0
    # the token that is certain may be in the rest of the other
    certain = probs_from_list({"token_id:9": 0.0}, 20, PLAIN[0], "token_id:9")
    another = probs_from_list({"token_id:8": 0.0}, 20, PLAIN[0], "token_id:8")
    assert certain is not None
    assert another is not None
    assert certain.distance(one) == pytest.approx(0.95)
    assert certain.distance(another) == another.distance(certain) == 1
    same = SameText({"prompt": 1}, 0.0)
    for row in (one, two, one, two):
        same.add(0, SamplingParameters(), [Completion(("token_id:0",), ({},), (row,))])
    assert same.tokens == 3
    assert same.mean_distance == pytest.approx(0.4 / 3)
    assert same.shift == pytest.approx(0.4 / 3)
    # the probabilities of a list to the first one, and back: the mean distance stays
    back = Completion(("token_id:0",), ({},), (row_of([0.7, 0.1, 0.15, 0.05]),))
    same.add(0, SamplingParameters(), [back])
    same.add(0, SamplingParameters(), [back])
    assert same.mean_distance == pytest.approx(0.8 / 5)
    assert same.shift == pytest.approx(0, abs=1e-12)


def test_little_entropy_is_undecided_with_its_number() -> None:
    """Bug: "lossless" of a server of whose sampling nothing is seen.  Control: more entropy."""
    report = audit(serve(scale=100.0), requests=100, tv=0.3, concurrency=(8,))
    assert report.verdict == "undecided"
    assert report.entropy is not None
    assert report.entropy < 0.2
    assert any("too little entropy" in reason for reason in report.reasons)
    assert f"{report.entropy:.3g} bits" in str(report)
    assert audit(serve(scale=6.0), tv=0.2).lossless


def test_lists_that_are_certain_of_one_token_show_nothing() -> None:
    """One token alone after each text, in the lists and in the texts."""
    report = audit(serve(lambda at: int(at.logits.argmax()), alone), requests=300)
    assert report.verdict == "undecided"
    assert report.entropy == 0
