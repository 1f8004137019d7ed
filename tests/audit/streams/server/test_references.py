"""The digits of lists, and how they are spelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("httpx2")

from otm.audit import audit_server
from otm.audit.streams.server.answers import Completion, read_completion
from otm.audit.streams.server.distributions.references import OwnLists
from otm.decoding import SamplingParameters
from otm.errors import EndpointError
from tests.audit.streams.server.servers import URL, Place, audit, serve, usual


def rounded(decimals: int, kind: type = float) -> Callable[[Place, int], dict[int, float]]:
    def lists(at: Place, token: int) -> dict[int, float]:
        entries = usual(at, token)
        return {i: float(kind(round(log, decimals))) for i, log in entries.items()}

    return lists


@pytest.mark.parametrize(("decimals", "kind"), [(2, float), (2, np.float32), (3, float)])
def test_rounded_lists_get_a_verdict(decimals: int, kind: type) -> None:
    """Bug: an error as soon as the probabilities of a list sum to more than 1.001."""
    server = serve(lists=rounded(decimals, kind), scale=4.0)
    report = audit(server, tv=0.15, concurrency=(8,), logprobs=40)
    assert report.lossless
    assert report.decimals == decimals
    assert f"log-probabilities have {decimals} decimals" in str(report)
    wrong = serve(lambda at: int(at.rng.integers(40)), rounded(decimals, kind))
    assert audit(wrong).verdict == "not lossless"


def test_coarse_lists_are_undecided() -> None:
    """The rounding is added to the distance."""
    report = audit(serve(lists=rounded(0)), requests=160, tv=0.3)
    assert report.verdict == "undecided"
    assert (report.decimals, report.tv_bound) == (0, pytest.approx(0.5, abs=0.49))
    assert report.tv_bound > 0.5


@pytest.mark.parametrize(
    ("logs", "decimals"),
    [
        ([-1.25, -3.5, -0.01], 2),
        ([-1.25, -3.5, -0.012], 3),
        ([-1.23456, -3.5, -2.0], None),
        ([-1.0, -2.0, -9999.0], 0),
    ],
)
def test_decimals_are_those_of_all_numbers(logs: list[float], decimals: int | None) -> None:
    """Bug: the decimals of the last list; numbers such as -9999 and 0, which have none."""
    lists = OwnLists(3, processed=False, chat=False)
    entries = {f"token_id:{i}": log for i, log in enumerate(logs)}
    entries = {**entries, "token_id:9": 0.0} if decimals == 0 else entries
    for _ in range(10):
        lists._count_decimals(Completion(("token_id:0",), (entries,)))
    assert lists.rounded_to == decimals
    assert lists.error == (0.0 if decimals is None else 0.5 * 10.0**-decimals)


def test_merged_strings_do_not_hide_decimals() -> None:
    """Bug: the sum of two half characters has more decimals, and then no list is rounded."""
    lists = OwnLists(20, processed=False, chat=True)
    at = {"a": -1.25, "b": -0.5, "\ufffd": float(np.logaddexp(-3.25, -4.75))}
    lists._count_decimals(Completion(("a",) * 10, (at,) * 10))
    assert lists.rounded_to == 2


def test_an_infinity_may_be_null() -> None:
    """Bug: an error after truncation on servers that write minus infinity so."""
    found = {"tokens": ["a"], "top_logprobs": [{"a": 0.0, "b": None}], "token_logprobs": [0.0]}
    answer = {"choices": [{"logprobs": found}]}
    read = read_completion(answer, 1, chat=False, listed=2, same_spelling=True)
    assert read.lists == ({"a": 0.0, "b": -9999.0},)


def plain(token: int) -> str:
    return f" w{token}"


def marked(token: int) -> str:
    return f"▁w{token}"


def partly(token: int) -> str:
    """Spell every other token as the lists do."""
    return plain(token) if token % 2 else marked(token)


@pytest.mark.parametrize("name", [marked, partly, lambda token: f"{token}"])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("chat", [False, True])
def test_tokens_spelled_otherwise_are_an_error(
    name: Callable[[int], str], own: bool, chat: bool
) -> None:
    """Bug: a right server was "not lossless", 10^27 to 1, since no token was in its own list."""
    server = serve(name=name, listed_name=plain, own=own)
    if not own and name not in (marked, partly):
        return  # nothing shows that these are the same tokens
    with pytest.raises(EndpointError, match="spells sampled and listed tokens differently"):
        audit(server, chat=chat)


def likeliest_alone(at: Place, token: int) -> dict[int, float]:
    logs = at.logits - np.logaddexp.reduce(at.logits)
    return {int(i): float(logs[i]) for i in np.argsort(-logs)[: at.body["logprobs"]]}


def test_lists_without_the_sampled_token_are_read() -> None:
    """Control: servers that list only the most probable tokens leave out rarer ones."""
    server = serve(lists=likeliest_alone, own=False)
    report = audit(server, requests=300, tv=0.25, concurrency=(8,))
    assert report.verdict == "lossless on everything tried"


def test_strings_of_two_servers_need_not_be_those_of_their_lists() -> None:
    server = serve(name=marked, listed_name=plain)
    report = audit_server(
        URL, reference="http://other", transport=server, requests=64, probes=False
    )
    assert report.requests == 64


def halves(token: int) -> str:
    """Spell a third of the tokens as half characters, as servers do that return strings."""
    return "" if token % 6 == 0 else "\ufffd" if token % 6 == 3 else f" w{token}"


@pytest.mark.parametrize("chat", [False, True])
def test_places_of_half_characters_do_not_count(chat: bool) -> None:
    """Bugs: an error at a list that they make short; a right server that deviates.

    Control: a wrong one is found.
    """
    options = {"concurrency": (8,), "chat": chat, "logprobs": 12, "requests": 200}
    report = audit(serve(name=halves), tv=0.25, **options)
    assert report.verdict != "not lossless"
    assert report.left_out > 100
    assert report.log10_e_value < 2
    assert report.lists is not None
    # texts of half characters are not the same, though their strings are
    assert report.lists.tokens > 100
    assert report.lists.mean_tv < 0.01
    wrong = serve(lambda at: int(at.rng.integers(40)), name=halves)
    assert audit(wrong, **options).verdict == "not lossless"


def test_a_character_may_be_completed() -> None:
    """Bug: an error, as the server of llama-cpp-python completes the last character."""

    def answer(more: int, name: str) -> dict[str, Any]:
        tokens = [name] * (2 + more)
        logprobs = {"tokens": tokens, "top_logprobs": [{name: -2.0}] * len(tokens)}
        return {"choices": [{"logprobs": logprobs}]}

    for more, name, good in [(3, "", True), (4, "", False), (1, "a", False)]:
        given: dict[str, Any] = {"chat": False, "listed": 5, "same_spelling": True}
        if good:
            assert read_completion(answer(more, name), 2, **given).tokens == (name,) * 2
        else:
            with pytest.raises(EndpointError, match="instead of 2"):
                read_completion(answer(more, name), 2, **given)


def test_two_numbers_may_be_rounded() -> None:
    """Bugs: a sum above 1 before there are enough numbers; one distribution for all settings."""
    lists = OwnLists(2, processed=False, chat=False)
    answer = Completion(("token_id:0",), ({"token_id:0": -0.68, "token_id:1": -0.70},))
    law = lists((1,), answer, SamplingParameters())
    assert lists((1,), answer, SamplingParameters())[0] is law[0]
    assert lists((1,), answer, SamplingParameters(0.5))[0] is not law[0]
