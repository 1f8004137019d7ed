"""Where texts end: every form of a right server passes, and every wrong ending is shown."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

pytest.importorskip("httpx2")

from otm.audit import RequestParameters
from otm.audit.adapters.base import AFTER_END, AFTER_STOP, TOO_SHORT
from otm.audit.streams.server.answers import Completion, Ending
from otm.audit.streams.server.distributions.lists import probs_from_list
from otm.audit.streams.server.evidence.endings import AT_CAP, EARLY_END, WRONG_REASON, EndingCheck
from otm.audit.streams.server.simulated.server import transport_of
from otm.audit.streams.server.simulated.steps import ENDINGS, StepServer, step_server
from otm.errors import EndpointError, InvalidInputError
from tests.audit.streams.server.servers import PLAIN, URL, audit, serve

END = 5


def answer(
    tokens: str, text: str = "", finish: str | None = "length", stop: Any = None, **more: Any
) -> Completion:
    """Make an answer from one digit per token, or from words if `words`; `sampled` is its usage."""
    names = (
        tuple(tokens.split(",")) if more.get("words") else tuple(f"token_id:{x}" for x in tokens)
    )
    sampled = more.get("sampled", len(names))
    return Completion(names, ({},) * len(names), ending=Ending(text, finish, stop, sampled))


ENDS, LATER_ENDS = RequestParameters(end_tokens=5), RequestParameters(end_tokens=5, min_tokens=2)
STOPS = RequestParameters(stop=["##"])
BOTH = RequestParameters(end_tokens=5, stop=["##"])
TWO = RequestParameters(stop=["\n\n", "\n"])

RIGHT: dict[str, tuple[RequestParameters, list[Completion], str]] = {
    "end listed": (ENDS, [answer("15", finish="stop"), answer("1235", finish="stop")], "at_end"),
    "end at the limit": (ENDS, [answer("1235")], "at_end"),
    "end omitted": (ENDS, [answer("12", finish="stop"), answer("1", finish="stop")], "at_end"),
    "end named": (ENDS, [answer("125", finish="stop", stop=5)], "at_end"),
    "end omitted at the limit": (ENDS, [answer("123", sampled=4), answer("1234")], "at_end"),
    "end omitted, unknown": (ENDS, [answer("123"), answer("1234")], "unclear"),
    "end omitted, no usage": (ENDS, [answer("123", sampled=None), answer("1234")], "unclear"),
    "end omitted before min_tokens": (
        RequestParameters(end_tokens=5, min_tokens=4),
        [answer("123", sampled=4), answer("1234")],
        "unclear",
    ),
    "stop omitted at the limit": (STOPS, [answer("12", "a"), answer("1234", "b")], "unclear"),
    "unnamed stop, then named": (
        BOTH,
        [answer("12", "a", "stop"), answer("12", "a", "stop", "##")],
        "at_end",
    ),
    "unnamed stop, then a listed end": (
        BOTH,
        [answer("12", "a", "stop"), answer("125", "a", "stop")],
        "at_stop",
    ),
    "nothing named or listed": (BOTH, [answer("12", "a", "stop")], "unclear"),
    "full": (ENDS, [answer("1234")], "full"),
    "after min_tokens": (LATER_ENDS, [answer("125", finish="stop")], "at_end"),
    "excluded": (STOPS, [answer("123", "a", "stop", "##")], "at_stop"),
    "included": (STOPS, [answer("123", "a##", "stop", "##")], "at_stop"),
    "longer stop": (TWO, [answer("12", "a\n\n", "stop", "\n\n")], "at_stop"),
    "overhang of a word": (STOPS, [answer("a,#,#b", "a##b", "stop", words=True)], "unclear"),
    "whole last token": (STOPS, [answer("123", "a##b", "stop")], "unclear"),
    "other end token": (ENDS, [answer("127", finish="stop", stop=7)], "unclear"),
    "full context": (ENDS, [answer("12"), answer("12")], "unclear"),
    "cancelled": (ENDS, [answer("12", finish="abort"), answer("1234")], "unclear"),
    "other stop in one token": (
        RequestParameters(stop=["##", "%"]),
        [answer("12", "a", "stop", "%"), answer("12", "a##b", "stop", "%")],
        "unclear",
    ),
}


@pytest.mark.parametrize("form", RIGHT)
def test_no_form_of_a_right_server_is_wrong(form: str) -> None:
    """Bug: a right server that omits end tokens, or returns whole tokens, is "not lossless"."""
    request, answers, kind = RIGHT[form]
    check = EndingCheck(request, 4)
    for each in answers:
        check.add("p", each)
    assert check.counts.violation is None
    counts = dataclasses.asdict(check.counts)
    assert counts[kind] >= 1
    assert counts["texts"] == len(answers)
    assert sum(counts[name] for name in ("at_end", "at_stop", "full", "unclear")) == len(answers)


WRONG: dict[str, tuple[str, RequestParameters, list[Completion]]] = {
    "behind the end": (AFTER_END, ENDS, [answer("1523")]),
    "two ends": (AFTER_END, ENDS, [answer("155", finish="stop")]),
    "early": (EARLY_END, LATER_ENDS, [answer("15", finish="stop")]),
    "early, omitted": (EARLY_END, LATER_ENDS, [answer("1", finish="stop")]),
    "reason": (WRONG_REASON, ENDS, [answer("15")]),
    "short": (TOO_SHORT, ENDS, [answer("12"), answer("123")]),
    "short by one": (
        TOO_SHORT,
        ENDS,
        [answer("15", finish="stop"), answer("1234"), answer("123")],
    ),
    "short before min_tokens": (
        TOO_SHORT,
        RequestParameters(end_tokens=5, min_tokens=4),
        [answer("1234"), answer("123")],
    ),
    "short, stops listed": (
        TOO_SHORT,
        STOPS,
        [answer("1234", "a", "stop", "##"), answer("1234", "a"), answer("12", "a")],
    ),
    "short, later": (TOO_SHORT, ENDS, [answer("1234"), answer("12")]),
    "behind a stop": (
        AFTER_STOP,
        STOPS,
        [answer("123", "a##b", "stop"), answer("12", "a", "stop", "##")],
    ),
    "behind a stop, words": (AFTER_STOP, STOPS, [answer("a,##,b,c", "a##bc", "stop", words=True)]),
    "at the limit": (AT_CAP, STOPS, [answer("12", "a", "stop", "##"), answer("1234", "a##bc")]),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_endings_are_shown_with_their_tokens(case: str) -> None:
    mistake, request, answers = WRONG[case]
    check = EndingCheck(request, 4)
    for each in answers:
        check.add("p", each)
    found = check.counts.violation
    assert found is not None
    assert found.mistake == mistake
    assert found.tokens in [each.tokens for each in answers]
    assert "prompt p" in str(found)


LOGS = {f"token_id:{i}": log for i, log in ((5, -0.7), (1, -1.2), (2, -1.6))}


def test_end_tokens_count_only_once_the_server_lists_them() -> None:
    """Bug: a right server that omits end tokens seems to avoid them."""
    row = probs_from_list(LOGS, 9, PLAIN[0], "token_id:1")
    check = EndingCheck(ENDS, 4)
    without = check.countable(row)
    assert without is not None
    assert without.of("token_id:5") is None
    check.add("p", answer("15", finish="stop"))
    assert check.countable(row) is row
    two = EndingCheck(RequestParameters(end_tokens=[5, 2]), 4)
    two.add("p", answer("15", finish="stop"))
    after = two.countable(row)
    assert after is not None
    assert after.of("token_id:5") is not None
    assert after.of("token_id:2") is None  # the server may omit the other end token
    limit = EndingCheck(ENDS, 4)
    limit.add("p", answer("1235"))  # a server may omit end tokens where it stops
    assert limit.countable(row) is not row


STOPPED = answer("1234", "a", "stop", "##")
"""A stopped text with `max_tokens` tokens, which lists the tokens of its stop string."""

HIDDEN = {
    "returned tokens as usage": [answer("123", "a", "stop", "##")],
    "no usage": [answer("12", "a", "stop", "##", sampled=None)],
    "perhaps another ending": [answer("1234", "a", "stop")],
    "length": [answer("1234", "a##")],
    "more sampled": [answer("12", "a", "stop", "##", sampled=3), STOPPED],
    "no token": [answer("", "", "stop", "##"), STOPPED],
    "part of a word": [answer("a,b,c,d##", "abcd", "stop", words=True)],
}

LISTED = {
    "named": STOPPED,
    "in the text": answer("1234", "a##", "stop", sampled=None),
    "in the tokens": answer("a,b,#,#", "ab", "stop", words=True),
}


@pytest.mark.parametrize("case", HIDDEN)
def test_no_token_counts_while_a_server_may_omit_tokens_of_stop_strings(case: str) -> None:
    """Bug: the other tokens seem to avoid the stop strings."""
    row = probs_from_list(LOGS, 9, PLAIN[0], "token_id:1")
    check = EndingCheck(STOPS, 4)
    for each in HIDDEN[case]:
        check.add("p", each)
    assert check.countable(row) is None
    assert any("omit" in reason for reason in check.missing())


@pytest.mark.parametrize("case", LISTED)
def test_tokens_count_after_a_text_lists_its_stop_string(case: str) -> None:
    """Bug: no request with stop strings is ever compared."""
    row = probs_from_list(LOGS, 9, PLAIN[0], "token_id:1")
    check = EndingCheck(STOPS, 4)
    check.add("p", LISTED[case])
    assert check.counts.at_stop == 1
    assert check.countable(row) is row
    assert not any("omit" in reason for reason in check.missing())


class Omitting(StepServer):
    """A right server that omits stop tokens; its usage counts the returned tokens."""

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        choice = super().complete(body)
        if "stop_reason" in choice:
            for values in choice["logprobs"].values():
                del values[-1]
            choice["usage"]["completion_tokens"] -= 1
        return choice


def test_omitted_stop_tokens_raise_no_alarm() -> None:
    """Bug: an e-value of 10^6, because returned tokens are never those of a stop string."""
    request = RequestParameters(stop=["w1 ", "w2 ", "w3 "])
    server = transport_of(Omitting(vocabulary=20, end=0).complete)
    report = audit(server, request=request, requests=300, concurrency=[4])
    assert report.verdict == "undecided"
    assert report.log10_e_value < 1
    assert any("omits tokens of stop strings" in reason for reason in report.reasons)
    assert not any("longer lists" in reason for reason in report.reasons)


def test_lists_before_the_first_listed_end_are_not_compared_with_later_ones() -> None:
    """Bug: lists without the end token differ from those with it, so never "lossless"."""
    request = RequestParameters(end_tokens=END, logit_bias={END: 2})
    report = audit(
        step_server(vocabulary=20, end=END),
        **{"request": request, "prompts": [[0]], "requests": 400, "concurrency": [4]},
    )
    assert report.lists is not None
    assert report.lists.tokens >= 100
    assert report.lists.mean_tv < 0.001


@pytest.mark.parametrize("reference", [None, URL])
def test_end_tokens_need_token_ids(reference: str | None) -> None:
    """Bug: tokens behind an omitted end are counted, because no string is an end token."""
    with pytest.raises(EndpointError, match="does not return token ids"):
        audit(serve(name=lambda token: f"w{token}"), request=ENDS, reference=reference)


@pytest.mark.parametrize("mistake", ENDINGS)
@pytest.mark.parametrize("vocabulary", [20, 60])
def test_wrong_servers_are_found(mistake: str, vocabulary: int) -> None:
    """Bug: an engine that keeps tokens behind an end inside a block passes."""
    stops = mistake in (AFTER_STOP, AT_CAP)
    request = RequestParameters(stop="w5 ") if stops else RequestParameters(end_tokens=END)
    server = step_server(mistake, vocabulary=vocabulary, end=0 if stops else END)
    report = audit(server, request=request, max_tokens=10, requests=400, concurrency=[1], tv=0.02)
    assert report.verdict == "not lossless"
    assert report.reasons[0].startswith(mistake)
    assert len(report.reasons) == 1
    assert "shown by a text with a wrong ending" in str(report)
    assert report.endings is not None
    assert report.endings.violation is not None
    assert report.endings.violation.tokens


FORMS: list[dict[str, Any]] = [
    {"end_tokens": END, "server": {}},
    {"end_tokens": END, "server": {"lists_end": False}},
    {"end_tokens": END, "min_tokens": 2, "server": {}},
    {"stop": "w5 ", "server": {"end": 0}},
    {"stop": "w5 ", "server": {"end": 0, "keeps_stop": True}},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_right_servers_are_lossless(form: dict[str, Any], tmp_path: Any) -> None:
    """Also from the file of a resumed audit.  Bug: an ending that the file does not keep."""
    options = dict(form)
    server = {"vocabulary": 20, "end": END, **options.pop("server")}
    given: dict[str, Any] = {
        "request": RequestParameters(**options),
        **{"max_tokens": 10, "tv": 0.3, "concurrency": [1], "resume": tmp_path / "answers"},
    }
    report = audit(step_server(**server), **given)
    assert report.verdict == "lossless on everything tried", report
    assert report.endings is not None
    assert max(report.endings.at_end, report.endings.at_stop) >= 20
    assert report.endings.unclear == 0
    assert "endings of" in str(report)
    again = audit(step_server("dropped top_k", **server), **given)
    assert again.endings == report.endings


def test_too_few_endings_are_undecided() -> None:
    """Bug: "lossless" of endings that no text had."""
    request = RequestParameters(end_tokens=49)
    report = audit(
        step_server(end=49, gamma=2), request=request, requests=60, tv=0.5, concurrency=[4]
    )
    assert report.verdict == "undecided"
    assert any("ended at an end token" in reason for reason in report.reasons)


def test_endings_need_tokens() -> None:
    """A text alone does not show them, and two servers may differ in what they list."""
    with pytest.raises(InvalidInputError, match="stop strings cannot be used with a second server"):
        audit(step_server(), reference=URL, request=STOPS)
