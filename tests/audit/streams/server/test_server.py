"""The audit of simulated servers: right, wrong and broken ones, and audits that are resumed."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from otm.audit import ServerReport, audit_server
from otm.audit.streams.server import client as client_module
from otm.audit.streams.server.probes import acceptance_between
from otm.audit.streams.server.simulated.server import VOCABULARY, logits_after, simulated_server
from otm.cli import main
from otm.decoding import SamplingParameters
from otm.errors import EndpointError, InvalidInputError, InvalidParameterError
from otm.models import StatelessModel

httpx2 = pytest.importorskip("httpx2")

URL = "http://simulated"
KEY = "sk-a-key-of-a-test"
PLAIN = [SamplingParameters()]


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in client_module.KEYS:
        monkeypatch.delenv(name, raising=False)


class Model(StatelessModel):
    """The model of the simulated server."""

    vocabulary = VOCABULARY

    def probs(self, context: tuple[int, ...]) -> Any:
        if len(context) < 3:
            return np.full(VOCABULARY, 1 / VOCABULARY)
        return SamplingParameters()(logits_after(list(context[:3]), context[3:]))


def audit(transport: Any, **options: Any) -> ServerReport:
    return audit_server(URL, transport=transport, **{"probes": False, **options})


WRONG = [{"temperature": 0.8}, {"ignore": "top_k"}, {"ignore": "top_p"}, {"accepted": 0.15}]
IDS = [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_servers_are_found_within_2_000_requests(wrong: dict[str, Any]) -> None:
    name = wrong.get("ignore")
    sampling = [SamplingParameters(**{name: {"top_k": 10, "top_p": 0.7}[name]})] if name else PLAIN
    report = audit(simulated_server(**wrong), sampling=sampling)
    assert report.verdict == "not lossless"
    assert not report.lossless
    assert report.requests <= 2000
    assert report.most_deviant is not None


@pytest.mark.parametrize("options", [{}, {"chat": True}, {"model": Model(), "prompts": IDS}])
def test_a_right_server_is_lossless(options: dict[str, Any]) -> None:
    """Also by chats, and beside a local model."""
    report = audit(simulated_server(), sampling=PLAIN, tv=0.2, **options)
    assert report.verdict == "lossless on everything tried"
    assert report.tv_bound <= 0.2


class Words:
    """A tokenizer: token i is the word "wi", and the last one ends a text."""

    eos_token_id = VOCABULARY - 1

    def __call__(self, text: str, **_: Any) -> Any:
        return SimpleNamespace(input_ids=[int(word[1:]) for word in text.split()])


def texts_alone(**wrong: Any) -> Any:
    """Make a server that takes texts, and returns them without log-probabilities or ends."""
    inner = simulated_server(**wrong)

    def answer(request: Any) -> Any:
        if request.method == "GET":
            return inner.handle_request(request)
        body = json.loads(request.content)
        if {"logprobs", "ignore_eos"} & body.keys():
            return httpx2.Response(422, text="unexpected fields")
        body |= {"prompt": Words()(body["prompt"]).input_ids, "logprobs": 1}
        found = json.loads(inner.handle_request(httpx2.Request("POST", URL, json=body)).content)
        ids = [int(token[9:]) for token in found["choices"][0]["logprobs"]["tokens"]]
        ends = Words.eos_token_id in ids
        kept = ids[: ids.index(Words.eos_token_id)] if ends else ids
        text = " ".join(f"w{token}" for token in kept)
        choice = {"text": text, "finish_reason": "stop" if ends else "length"}
        return httpx2.Response(200, json={"choices": [choice]})

    return httpx2.MockTransport(answer)


@pytest.mark.parametrize(("temperature", "right"), [(1.0, True), (0.7, False)])
def test_texts_are_read_by_the_tokenizer_of_the_model(temperature: float, right: bool) -> None:
    """Catches ends of texts that do not count, and log-probabilities that must be there."""
    report = audit(
        texts_alone(temperature=temperature),
        **{"model": Model(), "tokenizer": Words(), "prompts": ["w1 w2 w3", "w4 w5 w6"]},
        **{"sampling": PLAIN, "tv": 0.2, "concurrency": [2]},
    )
    assert report.lossless is right
    assert report.verdict != "undecided"


def test_a_server_that_lies_is_found_beside_the_model() -> None:
    """Its own lists cannot show it: they are of the other model."""
    assert audit(simulated_server(), model=Model(), prompts=[[1, 2, 3]], requests=64).requests == 64

    class Other(Model):
        def probs(self, context: tuple[int, ...]) -> Any:
            return SamplingParameters(temperature=1.6)(np.log(super().probs(context)))

    report = audit(simulated_server(), model=Other(), prompts=IDS, draft=Model())
    assert report.verdict == "not lossless"


@pytest.mark.parametrize(("temperature", "verdict"), [(1.0, "undecided"), (0.3, "not lossless")])
def test_two_servers_are_compared(temperature: float, verdict: str) -> None:
    """Bug: tokens paired with those of the same server, or after other texts."""
    two = {"a": simulated_server(), "b": simulated_server(temperature=temperature, seed=1)}
    transport = httpx2.MockTransport(lambda request: two[request.url.host].handler(request))
    report = audit_server(
        "http://a",
        reference="http://b",
        transport=transport,
        sampling=PLAIN,
        prompts=["A prompt of a test"],
        requests=256,
        probes=False,
    )
    assert report.verdict == verdict
    assert report.requests <= 2000


def test_two_right_servers_are_lossless_whatever_has_no_partner() -> None:
    """Bug: tokens without a partner counted as unusable, and made too many of them."""
    report = audit(simulated_server(), reference="http://b", tv=0.45, prompts=["a", "b"])
    assert report.lossless
    assert report.left_out > report.tokens


def test_greedy_texts_and_seeds_are_reported() -> None:
    report = audit(simulated_server(), requests=8, probes=True)
    assert report.greedy is not None
    assert report.seeds is not None
    assert (report.greedy.same, report.greedy.texts) == (4, 4)
    assert (report.seeds.same, report.seeds.texts) == (12, 12)
    json.dumps(report.to_dict(), allow_nan=False)


def test_an_audit_that_is_cut_off_and_resumed_is_the_same(tmp_path: Path) -> None:
    """Bugs: answers counted twice, or lost; a line that was cut short; other settings mixed in."""
    file = tmp_path / "answers.jsonl"
    whole = audit(simulated_server(), requests=60, concurrency=(1,))
    server, count = simulated_server(), 0

    def cut(request: Any) -> Any:
        nonlocal count
        count += request.method == "POST"
        if count == 25:
            raise KeyboardInterrupt
        return server.handler(request)

    with pytest.raises(KeyboardInterrupt):
        audit(httpx2.MockTransport(cut), requests=60, concurrency=(1,), resume=file)
    with file.open("ab") as end:
        end.write(b'[0, ["token_id:1"')
    resumed = audit(server, requests=60, concurrency=(1,), resume=file)
    # metrics are of what was sampled since
    parts = [{**report.to_dict(), "acceptance": None} for report in (resumed, whole)]
    assert parts[0] == parts[1]
    again = audit(simulated_server(), requests=60, concurrency=(1,), resume=file)
    assert again.to_dict()["settings"] == whole.to_dict()["settings"]
    with pytest.raises(InvalidInputError, match="other servers, settings or prompts"):
        audit(server, requests=60, concurrency=(2,), resume=file)
    file.write_text("something else\n")
    with pytest.raises(InvalidInputError, match="not an audit; give"):
        audit(server, resume=file)
    assert file.read_text() == "something else\n"


def broken(answer: Callable[[Any], Any]) -> Any:
    """Make a server that names its model, and else answers as told."""
    models = {"data": [{"id": "m"}]}

    def handler(request: Any) -> Any:
        if request.method == "GET":
            return httpx2.Response(200, json=models)
        return answer(request)

    return httpx2.MockTransport(handler)


def choices(logprobs: Any) -> dict[str, Any]:
    return {"choices": [{"logprobs": logprobs}]}


NAN = b'{"choices": [{"logprobs": {"tokens": ["a"], "top_logprobs": [{"a": NaN}]}}]}'
BROKEN: dict[str, tuple[Any, str]] = {
    "junk": ({"content": b"\xff\x00junk"}, "does not answer in JSON"),
    "cut": ({"content": b'{"choices": [{"logpro'}, "does not answer in JSON"),
    "nan": ({"content": NAN}, "does not answer in JSON"),
    "nested": ({"content": b"[" * 100_000}, "does not answer in JSON"),
    "flood": ({"content": b" " * (2**24 + 1)}, "longer than"),
    "none": ({"json": choices(None)}, "no log-probabilities"),
    "list": ({"json": [1, 2]}, "no log-probabilities"),
    "text": ({"json": choices({"tokens": ["a"], "top_logprobs": [{"a": "b"}]})}, "no log-prob"),
    "above 0": ({"json": choices({"tokens": ["a"], "top_logprobs": [{"a": 1.0}]})}, "no log-prob"),
    "more": ({"json": choices({"tokens": ["a"] * 9, "top_logprobs": [{}] * 9})}, "instead of 8"),
    "uneven": ({"json": choices({"tokens": ["a"], "top_logprobs": []})}, "no log-prob"),
    "401": ({"status_code": 401}, "401"),
    "404": ({"status_code": 404, "text": "there is\nno such page"}, "404"),
    "500": ({"status_code": 500}, "answers 500"),
    "moved": ({"status_code": 307, "headers": {"Location": "http://other"}}, "307"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_server_is_one_error(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also with a key that the server writes back: no message and no file has it."""
    monkeypatch.setenv("OTM_API_KEY", KEY)
    arguments, message = BROKEN[name]
    arguments = {"status_code": 200, **arguments}
    if "text" in arguments:
        arguments = {**arguments, "text": f"{arguments['text']} {KEY}"}
    file = tmp_path / "answers.jsonl"
    transport = broken(lambda request: httpx2.Response(**arguments))
    with pytest.raises(EndpointError, match=message) as caught:
        audit(transport, resume=file, retries=0)
    assert KEY not in f"{caught.value} {caught.value.__context__!r}"
    assert KEY not in file.read_text()


@pytest.mark.parametrize("key", ["1", "token", "simulated-key"])
def test_a_key_that_answers_hold_is_no_other_word(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a key "token", as local servers take any, was cut out of the names of fields."""
    monkeypatch.setenv("OTM_API_KEY", key)
    right = simulated_server(key=key)

    def answer(request: Any) -> Any:
        if request.url.path == "/v1/models":  # escaped, so that no bytes of the key are there
            escaped = "".join(f"\\u{ord(x):04x}" for x in key)
            return httpx2.Response(200, text=f'{{"data": [{{"id": "{escaped}"}}]}}')
        return right.handler(request)

    report = audit(httpx2.MockTransport(answer), requests=8)
    assert report.tokens == 64
    assert (key in str(report)) == (len(key) < client_module.SHORTEST_SECRET)


HOSTILE = {
    "a number beyond floats": {"tokens": ["a"], "top_logprobs": [{"a": -(10**400)}]},
    "tokens without lists": {"tokens": ["a"], "top_logprobs": []},
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("options", [{}, {"model": Model(), "prompts": [[1]]}])
def test_hostile_numbers_are_one_error(name: str, options: dict[str, Any]) -> None:
    answer = httpx2.Response(200, json={"choices": [{"logprobs": HOSTILE[name]}]})
    with pytest.raises(EndpointError):
        audit(broken(lambda request: answer), **options)
    surrogate = httpx2.Response(200, text='{"data": [{"id": "\\ud800"}]}')
    with pytest.raises(EndpointError, match="does not list a model"):
        audit(httpx2.MockTransport(lambda request: surrogate), **options)
    squeezed = httpx2.Response(200, headers={"Content-Encoding": "gzip"}, content=b"")
    with pytest.raises(EndpointError, match="compresses"):
        audit(httpx2.MockTransport(lambda request: squeezed), **options)


def test_answers_without_tokens_say_nothing() -> None:
    nothing = {"tokens": [], "top_logprobs": []}
    answer = httpx2.Response(200, json={"choices": [{"logprobs": nothing}]})
    report = audit(broken(lambda request: answer), model=Model(), prompts=[[1]], requests=8)
    assert (report.verdict, report.tokens) == ("undecided", 0)


def test_what_a_model_has_in_its_own_configuration_is_overruled() -> None:
    """Bug: vLLM takes what a request leaves out from the model's generation_config."""
    bodies: list[dict[str, Any]] = []
    right = simulated_server()

    def answer(request: Any) -> Any:
        if request.method == "POST":
            bodies.append(json.loads(request.content))
        return right.handler(request)

    audit(httpx2.MockTransport(answer), requests=8, sampling=[SamplingParameters(top_k=5)])
    neutral = {"top_p": 1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0}
    for body in bodies:
        assert body.items() >= {**neutral, "frequency_penalty": 0, "top_k": 5}.items()


def test_tokens_that_do_not_count_cannot_make_a_server_lossless() -> None:
    """Bug: "lossless" of a server half of whose tokens are on no list."""
    options: Any = {"tv": 0.9, "requests": 100, "sampling": [SamplingParameters(0.7)]}
    report = audit(simulated_server(), logprobs=2, **options)
    assert report.left_out > report.tokens / 3
    assert report.verdict == "undecided"
    assert audit(simulated_server(), **options).lossless  # the control: tokens count


def test_tokens_off_the_lists_cannot_make_a_server_lossless() -> None:
    """Bug: the verdict "lossless" from tokens that are known only to be on no list."""
    report = audit(
        simulated_server(), requests=100, tv=0.6, logprobs=2, sampling=[SamplingParameters()]
    )
    assert report.left_out < report.tokens / 4
    assert report.verdict == "undecided"
    assert any("not on their lists" in reason for reason in report.reasons)


def test_requests_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a retry that counts an answer twice, or none at all after a time-out."""
    server, count = simulated_server(), 0

    def flaky(request: Any) -> Any:
        nonlocal count
        count += 1
        if count % 5 == 3:
            raise httpx2.ReadTimeout("slow", request=request)
        return httpx2.Response(429) if count % 5 == 4 else server.handler(request)

    access = client_module.Access(pause=0.0)
    monkeypatch.setattr("otm.audit.streams.server.audit.Access", lambda **given: access)
    report = audit(httpx2.MockTransport(flaky), requests=24, concurrency=(1,))
    assert (report.requests, report.tokens + report.left_out) == (24, 192)
    assert report.retried > 10


def test_fields_that_a_server_refuses_are_left_out() -> None:
    """And its tokens, then texts, cannot be compared with a model."""
    server = simulated_server()

    def strict(request: Any) -> Any:
        extra = request.method == "POST" and "ignore_eos" in json.loads(request.content)
        return httpx2.Response(400, text="unknown field") if extra else server.handler(request)

    assert audit(httpx2.MockTransport(strict), requests=16).requests == 16


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("simulated", {}),
        ("ftp://simulated", {}),
        (f"http://user:{KEY}@simulated", {}),
        (f"http://simulated?key={KEY}", {}),
        (URL, {"reference": URL, "model": Model()}),
        (URL, {"draft": Model()}),
        (URL, {"model": Model()}),
        (URL, {"tokenizer": Words()}),
        (URL, {"model": Model(), "tokenizer": Words(), "prompts": [[1, 2]]}),
        (URL, {"prompts": []}),
        (URL, {"prompts": [[1]], "chat": True}),
        (URL, {"sampling": [SamplingParameters(temperature=0)]}),
        (URL, {"concurrency": (1, 1)}),
        (URL, {"requests": 0}),
    ],
)
def test_wrong_arguments(url: str, options: dict[str, Any]) -> None:
    with pytest.raises((InvalidInputError, InvalidParameterError)) as caught:
        audit_server(url, transport=simulated_server(), **options)
    assert KEY not in str(caught.value)


def test_counters_of_prometheus() -> None:
    before = 'vllm:spec_decode_num_drafts_total{engine="0"} 10.0\n'
    after = (
        "# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.\n"
        'vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 60.0\n'
        'vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 50.0\n'
        'vllm:spec_decode_num_draft_tokens_total{engine="0"} 3e2\n'
        'vllm:spec_decode_num_accepted_tokens_total{engine="0"} 120.0\n'
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 75.0\n'
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 45.0\n'
    )
    seen = acceptance_between(before, after, None)
    assert seen is not None
    assert (seen.steps, seen.drafts, seen.accepted, seen.first) == (100, 300, 120, 0.75)
    assert acceptance_between(after, after, None) is None
    assert acceptance_between("", "vllm:spec_decode_num_drafts junk\n", None) is None


@pytest.fixture
def local() -> Iterator[str]:
    """Serve the simulated server over HTTP."""
    transport = simulated_server(key=KEY)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = httpx2.Request(
                self.command, f"{URL}{self.path}", headers=dict(self.headers), content=body
            )
            answer = transport.handler(request)
            self.send_response(answer.status_code)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_the_command_over_http(
    local: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statuses and JSON; without the key an error that says where to put it."""
    options = ["audit", "server", f"{local}/v1", "--requests", "16", "--retries", "0"]
    assert main(options) == 2
    assert "OTM_API_KEY" in capsys.readouterr().err
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert main([*options, "--json"]) == 3
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert (report["verdict"], report["requests"], err) == ("undecided", 16, "")
    assert KEY not in out
    assert main([*options, "--tv", "0.9", "--temperature", "0.5", "--top-p", "0.5"]) == 0
    assert main(["audit", "server", "http://127.0.0.1:1", "--retries", "0"]) == 2
    assert "cannot be reached" in capsys.readouterr().err
