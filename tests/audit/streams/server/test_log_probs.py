"""Log-probabilities of servers: each fault is found, named, and kept apart from the tokens."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pytest

from otm.audit import UNDECIDED, ServerReport, audit_server
from otm.audit.streams.server.answers import Completion
from otm.audit.streams.server.blocks import Request
from otm.audit.streams.server.checks.kept_answers import KeptAnswer, ListFormat, difference
from otm.audit.streams.server.checks.list_checks import (
    CONSISTENT,
    NOT_CHECKED,
    check_answers,
    unit_of,
)
from otm.audit.streams.server.simulated.batches import BatchingEngine, batching_server
from otm.cli import main
from otm.decoding import SamplingParameters
from otm.models import StatelessModel
from tests.audit.streams.server.servers import Place, serve, usual

PROMPTS = [[1, 2, 3, 4, 5], [7, 8, 9, 10, 11], [5, 4, 3, 2, 1]]
SAMPLING = [SamplingParameters(), SamplingParameters(temperature=0.6)]

CAUSES = {
    "shifted lists": "another position, most often 1 later",
    "stale lists": "another position, most often 1 earlier",
    "draft lists": "as if of the draft model",
    "lists after temperature": "after temperature",
    "no bonus list": "as if they were bonus tokens",
    "another row": "those of another request",
}


def report_of(server: Any, **options: Any) -> ServerReport:
    options = {"prompts": PROMPTS, "sampling": SAMPLING, "concurrency": [8], **options}
    return audit_server("http://s", transport=server, **{"requests": 48, "retries": 0, **options})


Status = Callable[[ServerReport], int]


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Status:
    """Return the exit status of the command for a report; check that the JSON has its lists."""

    def run(report: ServerReport) -> int:
        monkeypatch.setattr("otm.audit.audit_server", lambda url, **options: report)
        found = main(["audit", "server", "http://s", "--json"])
        printed = json.loads(capsys.readouterr().out)
        assert len(printed["log_probs"]) == len(report.log_probs) == 5
        return found

    return run


@pytest.mark.parametrize(
    ("fault", "vocabulary"),
    [*((fault, 300) for fault in CAUSES), ("stale lists", 50), ("another row", 50)],
)
def test_wrong_lists_are_found_and_named(fault: str, vocabulary: int) -> None:
    """Bug: nobody looks at the lists of the tokens that were drafted."""
    report = report_of(batching_server(fault=fault, vocabulary=vocabulary, noise=1e-3))
    assert report.wrong_log_probs
    assert any(CAUSES[fault] in check.cause for check in report.log_probs)
    # The tokens are right, apart from those of "another row".
    assert report.verdict != "not lossless"


@pytest.mark.parametrize("vocabulary", [50, 300])
def test_right_lists_are_consistent(vocabulary: int, status: Status) -> None:
    """The control, with noise; the exit status is that of the tokens."""
    report = report_of(batching_server(vocabulary=vocabulary, noise=1e-2))
    assert [check.verdict for check in report.log_probs] == [CONSISTENT] * 5
    assert "no contradiction" in str(report)
    assert status(report) == 3


def test_wrong_lists_have_a_status_of_their_own(status: Status) -> None:
    """Bug: a wrong log-probability taken for a wrong sample, or for a right one."""
    report = report_of(batching_server(fault="stale lists", share=1.0))
    assert report.verdict == "undecided"
    assert "lists are wrong" in report.reasons[0]
    assert status(report) == 4
    assert status(dataclasses.replace(report, verdict="not lossless")) == 1
    assert "log-probabilities: wrong" in str(report)


class Model(StatelessModel):
    """The target or the draft of the simulated server."""

    vocabulary = 50

    def __init__(self, *, draft: bool = False) -> None:
        engine = BatchingEngine(None, 0.0, 50, 3, 0.0, 0.0, np.random.default_rng(0))
        self._logits = engine.draft_logits if draft else engine.logits

    def probs(self, context: tuple[int, ...]) -> Any:
        return SamplingParameters()(self._logits(tuple(context)))


@pytest.mark.parametrize("fault", [None, "draft lists"])
def test_lists_are_compared_with_a_model(fault: str | None) -> None:
    """With the draft model, its lists are named; the tokens keep their own verdict."""
    server = batching_server(fault=fault)
    models = {"model": Model(), "draft": Model(draft=True)}
    report = report_of(server, tv=0.4, requests=200, **models)
    check = report.log_probs[-1]
    assert check.name == "lists of the local model"
    assert report.lossless
    assert (check.verdict == CONSISTENT) is (fault is None)
    assert "those of the draft model" in check.cause or fault is None


@pytest.mark.parametrize("fault", [None, "stale lists"])
def test_lists_are_compared_with_a_second_server(fault: str | None) -> None:
    two = {"a": batching_server(fault=fault), "b": batching_server(seed=1)}
    transport = httpx2.MockTransport(lambda request: two[request.url.host].handler(request))
    report = audit_server(
        "http://a", reference="http://b", transport=transport, prompts=PROMPTS, requests=64
    )
    check = report.log_probs[-1]
    assert "reference" in check.name
    assert (check.verdict == CONSISTENT) is (fault is None)
    assert report.verdict == "undecided"


def test_what_a_server_does_not_return_is_not_checked() -> None:
    """Bug: "consistent" of lists of prompts that the server never sent."""
    report = report_of(serve(), requests=16)
    last = report.log_probs[-1]
    assert last.verdict == NOT_CHECKED
    assert "echo" in last.detail
    assert not report.wrong_log_probs


def test_a_sampled_token_with_two_values_is_found() -> None:
    def off(at: Place, token: int) -> dict[int, float]:
        entries = usual(at, token)
        return {**entries, token: entries[token]}

    server = serve(lists=off)
    inner = server.handler

    def shifted(request: Any) -> Any:
        answer = json.loads(inner(request).content)
        for choice in answer.get("choices", ()):
            logs = choice["logprobs"]["token_logprobs"]
            choice["logprobs"]["token_logprobs"] = [log - 0.5 for log in logs]
        return httpx2.Response(200, json=answer)

    report = report_of(httpx2.MockTransport(shifted), requests=8)
    wrong = [check for check in report.log_probs if check.verdict == "not consistent"]
    assert [check.name for check in wrong] == ["sampled token on its list, with the same value"]


def test_lists_after_temperature_are_no_mistake_of_the_tokens() -> None:
    """Bug: "not lossless, temperature 0.6" for a right server that lists processed values."""

    def after(at: Place, token: int) -> dict[int, float]:
        logits = at.logits / at.body["temperature"] if at.body["temperature"] else at.logits
        return usual(Place(logits=logits, body=at.body), token)

    report = report_of(serve(lists=after), requests=600)
    assert report.verdict == UNDECIDED
    assert "--processed" in report.reasons[0]
    assert report.wrong_log_probs


def test_rounded_values_may_sum_to_more_than_one() -> None:
    """Bug: lists with one decimal "do not belong to a distribution"."""
    entries = {"a": -0.6, "b": -0.7, "c": -5.0}  # up to 0.05 too large
    answer = Completion(("a",), (entries,), own=(-0.6,))
    kept = [KeptAnswer(0, Request(0, SamplingParameters(), 1), answer)]
    for error, verdict in ((0.05, "consistent"), (0.0, "not consistent")):
        checks = check_answers(kept, ListFormat(3, error=error))
        assert {check.name: check.verdict for check in checks}["lists of a distribution"] == verdict


def test_differences_of_lists_by_hand() -> None:
    """Bugs: a missing token that counts as impossible; a rare token that decides."""
    one = {"a": -0.5, "b": -1.5, "c": -3.0}
    assert difference(one, {"a": -0.5, "b": -1.5, "c": -2.6}, 3).size == pytest.approx(0.4)
    # "c" may be as probable as the last token of the other list
    assert difference(one, {"a": -0.5, "b": -1.5, "d": -3.0}, 3).size == 0
    assert difference(one, {"a": -0.5, "c": -3.0, "d": -3.2}, 3).size == pytest.approx(1.5)
    # a sampled token may have replaced "c", as in chats of vLLM
    assert difference(one, {"a": -0.5, "b": -1.5, "z": -7.0}, 3).size == 0
    assert difference({"a": -0.1, "b": -6.0}, {"a": -0.1, "b": -9.0}, 2).size == 0
    assert unit_of({str(i): -i / 8 - 0.3 for i in range(9)}) == 1 / 8
    assert unit_of({str(i): -math.sqrt(i) for i in range(9)}) == 0
    assert unit_of(dict.fromkeys("abcdef", -2.0)) == 0
