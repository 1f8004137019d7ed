"""Parameters of all requests: checked before any request, and sent with every request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("httpx2")

import httpx2

from otm.audit import RequestParameters, audit_server
from otm.audit.streams.server.settings import OMITTED, as_omitted, with_defaults
from otm.audit.streams.server.simulated.steps import step_server
from otm.decoding import SamplingParameters
from otm.errors import EndpointError, InvalidInputError, InvalidParameterError, OTMError
from otm.models import StatelessModel
from tests.audit.streams.server.servers import Place, asked, audit, serve


class Probs(StatelessModel):
    vocabulary = 5

    def probs(self, context: tuple[int, ...]) -> Any:
        return np.full(5, 0.2)


def recorded(bodies: list[dict[str, Any]], server: Any) -> Any:
    def answer(request: Any) -> Any:
        if request.method == "POST":
            bodies.append(json.loads(request.content))
        return server.handler(request)

    return httpx2.MockTransport(answer)


def test_all_requests_have_the_parameters() -> None:
    """Bug: greedy texts and seeds without the penalty, so that they differ from the reference."""
    bodies: list[dict[str, Any]] = []
    request = RequestParameters(
        frequency_penalty=0.5, presence_penalty=-0.5, logit_bias={4: 2}, min_tokens=1, end_tokens=0
    )
    sampling = [SamplingParameters(min_p=0.1)]
    server = recorded(bodies, step_server(vocabulary=20))
    report = audit(server, request=request, sampling=sampling, requests=8, probes=True)
    sent = {"frequency_penalty": 0.5, "presence_penalty": -0.5, "min_tokens": 1}
    # The lists of a prompt are made before all parameters.
    sampled = [body for body in bodies if not body.get("echo")]
    assert all(body.items() >= (sent | {"logit_bias": {"4": 2.0}}).items() for body in sampled)
    assert sum(body["min_p"] == 0.1 for body in bodies) == 8
    assert not any("ignore_eos" in body or "end_tokens" in body for body in bodies)
    assert report.greedy is not None
    assert (report.greedy.same, report.greedy.texts) == (4, 4)
    assert "frequency_penalty 0.5" in report.against


def test_greedy_texts_are_those_after_the_penalty() -> None:
    """Bug: the most probable token of the list before a bias counts as the greedy token."""
    request = RequestParameters(logit_bias={3: 100})
    right = audit(step_server(vocabulary=20), request=request, requests=4, probes=True)
    wrong = audit(
        step_server("dropped logit_bias", vocabulary=20), request=request, requests=4, probes=True
    )
    assert right.greedy is not None
    assert wrong.greedy is not None
    assert (right.greedy.same, wrong.greedy.same) == (4, 0)


@pytest.mark.parametrize(
    "given",
    [
        {"frequency_penalty": 3},
        {"presence_penalty": float("nan")},
        {"repetition_penalty": 0},
        {"logit_bias": {1: 101}},
        {"logit_bias": {-1: 1}},
        {"logit_bias": {10**9: 1}},
        {"logit_bias": [1]},
        {"min_tokens": -1, "end_tokens": 0},
        {"min_tokens": 2},
        {"min_tokens": 2, "end_tokens": 0, "stop": "a"},
        {"stop": ""},
        {"stop": ["a", 1]},
        {"stop": "\ud800"},
        {"end_tokens": [-1]},
        {"stop": 5},
        {"stop": None},
        {"end_tokens": 1.5},
        {"end_tokens": None},
    ],
    ids=str,
)
def test_wrong_parameters(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError):
        RequestParameters(**given)


def test_ids_of_arrays_and_names_beside_all() -> None:
    """Bugs: a token id of NumPy that cannot be iterated; "all" beside a name that it contains."""
    assert RequestParameters(end_tokens=np.int64(5)).end_tokens == (5,)
    assert as_omitted(["all", "top_k"]) == OMITTED


REPETITION = RequestParameters(repetition_penalty=1.2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"request": {"stop": "a"}}, "give a RequestParameters"),
        (
            {"request": None, "leave_out": "all", "generation_config": {}},
            "give a RequestParameters",
        ),
        ({"leave_out": None}, "give names of parameters"),
        ({"generation_config": {"do_sample": "no"}, "leave_out": ["all"]}, "true or false"),
        ({"request": RequestParameters(min_tokens=9, end_tokens=0)}, "above max_tokens = 8"),
        ({"request": REPETITION}, "counts tokens of the prompt"),
        ({"request": REPETITION, "prompts": [[1, 2]]}, "only log-probabilities"),
        ({"request": REPETITION, "model": Probs(), "prompts": [[1]]}, "returns probabilities"),
        ({"generation_config": {"top_k": 5}}, "name these parameters with leave_out"),
        ({"generation_config": [], "leave_out": "all"}, "path|JSON object"),
        (
            {"generation_config": {"do_sample": False}, "leave_out": "all"},
            "do_sample = false",
        ),
        (
            {
                "generation_config": {"temperature": 0.5},
                "leave_out": "all",
                "sampling": [SamplingParameters(0.7)],
            },
            "temperature: both stated and read",
        ),
    ],
)
def test_errors_come_before_any_request(options: dict[str, Any], said: str) -> None:
    """Bug: an hour of requests before an error that could be known."""

    def answer(request: Any) -> Any:
        raise AssertionError("a request was sent")

    with pytest.raises(OTMError, match=said):
        audit(httpx2.MockTransport(answer), **options)


def test_texts_in_place_of_token_ids_are_an_error() -> None:
    """Bug: a bias without effect on the reference, since no string is the token "3"."""
    server = serve(name=lambda token: f" w{token}")
    with pytest.raises(EndpointError, match="penalties, biases, end tokens"):
        audit(server, request=RequestParameters(logit_bias={3: 1}))
    with pytest.raises(InvalidInputError, match="returns only texts cannot be checked"):
        audit(
            server,
            request=RequestParameters(end_tokens=0),
            **{"model": Probs(), "tokenizer": lambda text, **_: None, "prompts": ["a"]},
        )


def test_a_parameter_that_the_server_rejects_is_an_error() -> None:
    """Bug: min-p is dropped without a word, because the server does not know it."""
    server = serve(takes=lambda body: "unknown: min_p" if "min_p" in body else "")
    with pytest.raises(EndpointError, match="min_p"):
        audit(server, sampling=[SamplingParameters(min_p=0.2)])
    assert audit(server, requests=8).rejected == ("min_p",)  # the control: its neutral value


def test_defaults_come_from_a_generation_configuration(tmp_path: Path) -> None:
    """Bugs: parameters that requests state; a missing value that is not neutral."""
    content = {"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1, "eos_token_id": 7}
    (tmp_path / "generation_config.json").write_text(json.dumps(content))
    sampling, request = with_defaults(
        [SamplingParameters(top_p=0.9), SamplingParameters(top_p=0.8)],
        RequestParameters(frequency_penalty=0.5),
        tmp_path,
        ["temperature", "top_k", "min_p", "repetition_penalty"],
    )
    assert sampling == tuple(SamplingParameters(0.6, top_k=20, top_p=p) for p in (0.9, 0.8))
    assert request == RequestParameters(frequency_penalty=0.5, repetition_penalty=1.1)
    same = with_defaults([SamplingParameters()], RequestParameters(), {}, ["temperature"])
    assert same == ((SamplingParameters(),), RequestParameters())


@pytest.mark.parametrize(("own", "right"), [({"temperature": 0.6, "top_k": 8}, True), ({}, False)])
def test_a_server_uses_its_stated_defaults_or_not(own: dict[str, float], right: bool) -> None:
    """Bug: the values of the configuration are not the reference."""

    def sample(at: Place) -> int:
        probs = asked(own | at.body)(at.logits)
        return int(at.rng.choice(len(probs), p=probs))

    config = {"temperature": 0.6, "top_k": 8}
    bodies: list[dict[str, Any]] = []
    report = audit(
        serve(sample, bodies=bodies),
        **{"leave_out": "all", "generation_config": config, "tv": 0.25, "concurrency": [8]},
    )
    assert report.verdict == ("lossless on everything tried" if right else "not lossless")
    assert not any({"temperature", "top_k"} & body.keys() for body in bodies)
    assert right or "the server's default" in report.reasons[0]


def test_two_servers_get_the_same_parameters() -> None:
    """A second server needs no knowledge of the logits; end tokens that one lists do not count."""
    request = RequestParameters(repetition_penalty=1.4, end_tokens=5)
    two = {
        "a": step_server(vocabulary=20, end=5),
        "b": step_server(vocabulary=20, end=5, lists_end=False, seed=1),
    }
    transport = httpx2.MockTransport(lambda request: two[request.url.host].handler(request))
    options: dict[str, Any] = {"requests": 256, "prompts": [[1, 2]], "tv": 0.01}
    report = audit_server(
        "http://a",
        reference="http://b",
        transport=transport,
        request=request,
        probes=False,
        sampling=[SamplingParameters()],
        **options,
    )
    assert report.verdict == "undecided"
    assert report.log10_e_value < 2
