"""Blocks of different requests: their plan, their evidence, and servers that mix requests up."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from otm.audit import audit_server
from otm.audit.streams.server.answers import Completion, Ending
from otm.audit.streams.server.blocks import GREEDY, Block, Mixture, Request, plan_blocks
from otm.audit.streams.server.distributions.lists import probs_from_list
from otm.audit.streams.server.distributions.token_probs import TokenProbs
from otm.audit.streams.server.evidence.lengths import LengthCheck
from otm.audit.streams.server.evidence.neighbours import MixedUp
from otm.audit.streams.server.settings import Setting
from otm.audit.streams.server.simulated import simulated_server
from otm.audit.streams.server.simulated.batches import batching_server
from otm.audit.streams.server.simulated.steps import step_server
from otm.decoding import SamplingParameters

httpx2 = pytest.importorskip("httpx2")

PLAIN = [SamplingParameters()]
SETTINGS = (Setting(PLAIN[0], 1), Setting(PLAIN[0], 8))


def test_the_plan_mixes_everything_and_repeats_no_seed() -> None:
    """Bugs: a seed that occurs twice makes texts dependent; a plan that differs when resumed."""
    mixture = Mixture.of(SETTINGS, vary=True, greedy=True, seeds=True)
    plans = [list(itertools.islice(plan_blocks(SETTINGS, 4, 8, 8, mixture), 90)) for _ in range(2)]
    assert plans[0] == plans[1]
    requests = [each for block in plans[0] if block.setting == 2 for each in block.requests]
    assert len(requests) == 8 * 30
    seeds = [each.seed for each in requests if each.seed is not None]
    assert len(set(seeds)) == len(seeds) > 80
    assert {each.prompt for each in requests} == set(range(4))
    assert {each.tokens for each in requests} == set(range(4, 9))
    assert GREEDY in {each.parameters for each in requests}
    assert len({each.parameters.temperature for each in requests}) == 4


def row_of(probs: tuple[float, ...]) -> TokenProbs:
    entries = {f"token_id:{i}": math.log(p) for i, p in enumerate(probs)}
    row = probs_from_list(entries, 9, SamplingParameters(), "token_id:0")
    assert row is not None
    return row


@pytest.mark.parametrize("rest", [False, True])
def test_the_mean_of_the_e_value_is_at_most_one(rest: bool) -> None:
    """By enumeration of two requests of one token at two temperatures.  Bug: rows known later."""
    laws = [(0.6, 0.3, 0.1), (0.2, 0.3, 0.5)]
    rows = [row_of(law) for law in laws]
    if rest:
        rows = [
            TokenProbs(row.tokens[:2], row.probs[:2], float(row.probs[2]), True, frozenset())
            for row in rows
        ]
    requests = tuple(Request(0, SamplingParameters(temperature=t), 1) for t in (0.5, 1.0))
    mean = 0.0
    for outcome in itertools.product(range(3), repeat=2):
        answers = [
            Completion((f"token_id:{token}",), ({},), (row,))
            for token, row in zip(outcome, rows, strict=True)
        ]
        mixed = MixedUp(0.0, (0.5, 1.0))
        mixed.add(Block(0, 2, requests), answers)
        weight = math.prod(law[token] for law, token in zip(laws, outcome, strict=True))
        mean += weight * math.exp(mixed.evidence.log_e_value)
    assert mean == pytest.approx(1)


@pytest.mark.parametrize("vocabulary", [50, 300])
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("one temperature", "one temperature for simultaneous requests"),
        ("another row's token", "rows of simultaneous requests"),
    ],
)
def test_requests_that_are_mixed_up_are_found_and_named(
    vocabulary: int, fault: str, cause: str
) -> None:
    """Bug: a block of one prompt and setting shows none of this (vLLM #14645)."""
    # If every row is another one, the audit stops before it has enough tokens for the name.
    share = 0.5 if "row" in fault else 1.0
    server = batching_server(fault=fault, share=share, vocabulary=vocabulary, noise=1e-3)
    report = audit_server("http://s", transport=server, sampling=PLAIN, concurrency=[8])
    assert report.verdict == "not lossless"
    assert report.requests <= 1500
    # In a small vocabulary, rows of other texts are too much alike for the name of exchanged rows.
    if share == 1 or vocabulary > 50:
        assert report.reasons[0].startswith(cause)


def text_of(count: int, finish: str | None = "length", sampled: int | None = None) -> Completion:
    tokens = tuple(f"token_id:{i}" for i in range(count))
    return Completion(tokens, ({},) * count, ending=Ending("", finish, None, sampled))


def test_only_certain_lengths_are_wrong() -> None:
    """Bugs: a full context, an omitted end token or an unstated reason called wrong.

    A text without an ending is one that the tokenizer of the audit splits, perhaps otherwise.
    """
    right = LengthCheck()
    right.add("another prompt", text_of(8), 8)
    texts = [text_of(8), text_of(5, "stop"), text_of(5, None), text_of(5, sampled=8), text_of(7)]
    strings = Completion(("a",) * 9, ({},) * 9, ending=Ending("", "length"))
    for text in (*texts, strings, replace(text_of(9), ending=None)):
        right.add("prompt", text, 8)
    for _ in range(2):
        right.add("long prompt", text_of(5), 8)
    assert right.violation is None
    # The context has room for a sixth token.
    right.add("long prompt", text_of(6), 6)
    assert right.violation is not None
    longer = LengthCheck()
    longer.add("prompt", text_of(6), 5)
    assert longer.violation is not None


@pytest.mark.parametrize("vocabulary", [50, 300])
@pytest.mark.parametrize("choose", [min, max])
def test_the_length_of_another_request_is_found(choose: Any, vocabulary: int) -> None:
    """Bug: the length of the request before, which no distribution of a token shows."""
    inner, before = step_server(vocabulary=vocabulary), [8]

    def answer(request: Any) -> Any:
        if request.method != "POST":
            return inner.handler(request)
        body = json.loads(request.content)
        own, before[0] = before[0], body["max_tokens"]
        body["max_tokens"] = choose(own, before[0])
        return inner.handler(httpx2.Request("POST", request.url, json=body))

    server = httpx2.MockTransport(answer)
    report = audit_server("http://s", transport=server, sampling=PLAIN, concurrency=[8])
    assert report.verdict == "not lossless"
    assert report.requests < 100
    assert report.reasons[0].startswith("wrong number of tokens in a block of different requests")
    assert "shown by a text with a wrong ending" in str(report)


def test_a_right_server_passes_mixed_blocks() -> None:
    """The control: also with noise, drafts, greedy requests and seeds."""
    server = batching_server(noise=1e-3)
    report = audit_server("http://s", transport=server, concurrency=[8], requests=96)
    assert report.verdict == "undecided"
    assert report.log10_e_value < 1
    assert report.settings[-1].setting == "mixed block, 8 at a time"
    assert report.settings[-1].tokens > 150


def test_another_mistake_is_not_called_mixed_up() -> None:
    """Bug: drafts accepted without a test look like rows of a neighbour."""
    report = audit_server("http://s", transport=simulated_server(accepted=0.3), sampling=PLAIN)
    assert report.verdict == "not lossless"
    assert not any("simultaneous" in reason for reason in report.reasons)
    server = simulated_server(ignore="temperature")
    report = audit_server("http://s", transport=server, sampling=PLAIN)
    assert report.verdict == "not lossless"
    assert "simultaneous" not in report.reasons[0]


def test_no_mixed_blocks_without_concurrency() -> None:
    report = audit_server(
        "http://s", transport=simulated_server(), concurrency=[1], requests=8, sampling=PLAIN
    )
    assert [line.setting for line in report.settings] == ["temperature 1, 1 at a time"]
    assert np.isfinite(report.log10_e_value)
