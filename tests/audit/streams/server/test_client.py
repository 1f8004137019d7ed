"""Fields of requests, fields that a server may reject, and messages about rejected fields."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

pytest.importorskip("httpx2")

import httpx2

from otm.audit.streams.server.client import EXTRAS, NEUTRAL
from otm.decoding import SamplingParameters
from otm.errors import EndpointError, InvalidInputError, OTMError
from tests.audit.streams.server.servers import Place, asked, audit, right, serve


def unless_given(name: str, value: float) -> Any:
    """Make a sampler with another default than the neutral value of a parameter."""

    def sample(at: Place) -> int:
        body = {**at.body, name: at.body.get(name, value)}
        logits = at.logits.copy()
        if "penalty" in name and body[name] != 1:
            logits[at.text] -= 4
        probs = asked(body)(logits)
        return int(at.rng.choice(len(logits), p=probs))

    return sample


@pytest.mark.parametrize("name", ["repeat_penalty", "repetition_penalty"])
def test_a_penalty_that_is_the_default_is_switched_off(name: str) -> None:
    """Bug: the shipped server of llama-cpp-python, which takes 1.1 by itself, deviated.

    Control: without the parameter it does, and a penalty is named.
    """
    sample = unless_given(name, 1.1)
    assert audit(serve(sample, memory=0), tv=0.15, concurrency=(8,)).lossless
    report = audit(serve(sample, memory=0), leave_out=[name])
    assert report.verdict == "not lossless"
    assert report.reasons[0].startswith("a penalty")
    assert report.rejected == ()


@pytest.mark.parametrize(
    ("rejected", "said", "gone"),
    [
        (("repeat_penalty",), "unknown field repeat_penalty", {"repeat_penalty"}),
        (("repeat_penalty",), "bad request", {"repeat_penalty"}),
        (("top_k",), "`top_k` must be strictly positive", {"top_k"}),
        (("top_k", "min_p"), "unknown: min_p, top_k", {"top_k", "min_p"}),
        (("ignore_eos",), "bad request", set(EXTRAS)),
    ],
)
def test_only_what_a_server_refuses_is_left_out(
    rejected: tuple[str, ...], said: str, gone: set[str]
) -> None:
    """Bug: if a server rejects one extra field, all are dropped, token ids included."""
    bodies: list[dict[str, Any]] = []
    server = serve(takes=lambda body: said if {*rejected} & body.keys() else "", bodies=bodies)
    report = audit(server, requests=16, concurrency=(1,))
    assert report.requests == 16
    assert EXTRAS.keys() - bodies[-1].keys() == gone
    sampling = {"top_k", "min_p", "repetition_penalty", "repeat_penalty"}
    assert {*report.rejected} == gone & sampling
    assert ("which uses its own values" in str(report)) == bool(gone & sampling)


def greedy_by_itself(at: Place) -> int:
    """Sample if the request has a temperature, else return the most probable token."""
    return right(at) if "temperature" in at.body else int(at.logits.argmax())


def test_a_parameter_that_is_left_out_has_the_stated_value_or_not() -> None:
    """Bug: the audit cannot detect a server that decodes greedily by default."""
    bodies: list[dict[str, Any]] = []
    assert audit(serve(greedy_by_itself, bodies=bodies), tv=0.15).lossless
    assert all({*NEUTRAL, "temperature"} <= body.keys() for body in bodies)
    bodies.clear()
    report = audit(serve(greedy_by_itself, bodies=bodies), leave_out=["temperature"])
    assert report.verdict == "not lossless"
    assert report.reasons[0].startswith("no sampling")
    assert "requests leave out temperature" in report.against
    assert not any("temperature" in body for body in bodies)


def test_a_stated_value_of_the_server_is_found_right() -> None:
    """The control: a server whose own temperature and top-p are those that are stated."""

    def own(at: Place) -> int:
        own_values = {"temperature": 0.6, "top_p": 0.8, **at.body}
        probs = asked(own_values)(at.logits)
        return int(at.rng.choice(len(probs), p=probs))

    options: dict[str, Any] = {"leave_out": ["temperature", "top_p"], "concurrency": (8,)}
    stated = [SamplingParameters(0.6, top_p=0.8)]
    assert audit(serve(own), sampling=stated, tv=0.15, **options).lossless
    other = [SamplingParameters(1.0, top_p=0.8)]
    assert audit(serve(own), sampling=other, **options).verdict == "not lossless"


def test_all_parameters_are_left_out() -> None:
    bodies: list[dict[str, Any]] = []
    audit(serve(bodies=bodies), leave_out="all", requests=8, probes=True)
    sampling = {*NEUTRAL, "temperature", "top_k", "min_p", "repetition_penalty", "repeat_penalty"}
    assert not any(sampling & body.keys() for body in bodies)
    assert all("ignore_eos" in body for body in bodies)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"leave_out": ["seed"]}, "no parameter to leave out 'seed'"),
        (
            {
                "leave_out": ["temperature"],
                "sampling": [SamplingParameters(), SamplingParameters(0.5)],
            },
            "several values of temperature",
        ),
    ],
)
def test_parameters_that_cannot_be_left_out(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OTMError, match=said):
        audit(serve(), **options)


LONG = "the model supports at most 5 logprobs; " + "you asked for twenty of them " * 20
REFUSALS: dict[str, tuple[int, Any, bool, tuple[str, ...]]] = {
    "logprobs": (400, {"error": {"message": LONG}}, False, (LONG.strip(), "--logprobs 5")),
    "detail": (
        422,
        {"detail": [{"msg": "too many logprobs"}]},
        False,
        ("too many", "--logprobs 5"),
    ),
    "model": (
        404,
        {"message": "The model `m` does not exist."},
        False,
        ("`m` does", "--name NAME"),
    ),
    "path": (404, {"detail": "Not Found"}, False, ("Not Found", "use --chat")),
    "chats": (400, {"error": "this is a chat model"}, False, ("this is a chat", "use --chat")),
    "texts": (404, {"detail": "Not Found"}, True, ("Not Found", "leave out --chat")),
    "plain": (400, "bad\nrequest", False, ("bad request",)),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_messages_name_the_option_and_what_the_server_said(name: str) -> None:
    """Bug: the server's own message was cut to 60 characters."""
    status, content, chat, parts = REFUSALS[name]
    text = content if isinstance(content, str) else json.dumps(content)

    def answer(request: Any) -> Any:
        if request.method == "GET":
            return httpx2.Response(200, json={"data": [{"id": "m"}]})
        return httpx2.Response(status, text=text)

    with pytest.raises(EndpointError) as caught:
        audit(httpx2.MockTransport(answer), chat=chat)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("models", [httpx2.Response(404, text="no such page"), {"data": []}])
def test_a_server_without_a_list_of_models_needs_a_name(models: Any) -> None:
    response = models if isinstance(models, httpx2.Response) else httpx2.Response(200, json=models)
    with pytest.raises(EndpointError, match="--name NAME"):
        audit(httpx2.MockTransport(lambda request: response))


def short(at: Place, token: int) -> dict[int, float]:
    """List five tokens for any request."""
    logs = at.logits - np.logaddexp.reduce(at.logits)
    return {int(i): float(logs[i]) for i in (token, *np.argsort(-logs)[:5])}


@pytest.mark.parametrize("name", [lambda token: f"token_id:{token}", lambda token: f" w{token}"])
def test_short_lists_name_the_option(name: Any) -> None:
    """Bug: "lossless" or "undecided" by a quarter of the lists, without a word."""
    with pytest.raises(EndpointError, match="--logprobs 5"):
        audit(serve(lists=short, name=name))
    assert audit(serve(lists=short, name=name), logprobs=5, tv=0.2, concurrency=(8,)).lossless


def test_empty_lists_are_an_error() -> None:
    """Bug: no token counts, and the audit asks for all of its requests to say so."""
    with pytest.raises(EndpointError, match=r"are empty; .*--logprobs 5"):
        audit(serve(lists=lambda at, token: {}))


def test_an_answer_that_fails_is_not_kept(tmp_path: Any) -> None:
    """Bug: an invalid list stayed in the file, so that --resume always failed."""
    file = tmp_path / "answers.jsonl"

    def broken(at: Place, token: int) -> dict[int, float]:
        return dict.fromkeys(range(20), -0.1) if at.number == 21 else dict.fromkeys(range(20), -3.7)

    options: dict[str, Any] = {"requests": 40, "concurrency": (4,), "resume": file}
    with pytest.raises(EndpointError, match="do not belong to a distribution"):
        audit(serve(lists=broken), **options)
    kept = len(file.read_text().splitlines()) - 1
    assert 20 <= kept <= 23  # the four threads of a block have any order
    assert "-0.1" not in file.read_text()
    report = audit(serve(lists=lambda at, token: dict.fromkeys(range(20), -3.7)), **options)
    assert report.requests == 40
    assert len(file.read_text().splitlines()) == 41


def test_answers_of_half_characters_are_kept_and_read_again(tmp_path: Any) -> None:
    """Bug: a list of one empty string, whose tokens are all half characters, ended the audit."""
    file = tmp_path / "answers.jsonl"

    def name(token: int) -> str:
        return "" if token < 30 else f" w{token}"

    options: dict[str, Any] = {"requests": 32, "concurrency": (4,), "resume": file}
    first = audit(serve(name=name), **options)
    again = audit(serve(name=name), **options)
    assert first.left_out > 0
    assert (first.tokens, first.left_out) == (again.tokens, again.left_out)
    assert len(file.read_text(encoding="utf-8").splitlines()) == 33


def test_a_file_of_another_version_is_named_as_such(tmp_path: Any) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text(json.dumps({"format": "otm server audit 1", "digest": "0"}) + "\n")
    with pytest.raises(InvalidInputError, match="from other servers, settings or prompts"):
        audit(serve(), resume=file)
