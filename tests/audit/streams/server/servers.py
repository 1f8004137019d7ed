"""Servers in memory whose sampler, lists and spelling are those of a test."""

from __future__ import annotations

import functools
import hashlib
import json
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx2
import numpy as np
import numpy.typing as npt

from otm.audit import ServerReport, audit_server
from otm.decoding import SamplingParameters

V = 40
URL = "http://memory"
PLAIN = [SamplingParameters()]

Floats = npt.NDArray[np.float64]
Place = SimpleNamespace
"""Where a token is sampled: logits, body, rng, text (tokens before), number of the request."""


@functools.lru_cache(2**16)
def _logits(text: str, scale: float) -> Floats:
    digest = hashlib.sha256(text.encode()).digest()
    logits: Floats = np.random.default_rng(int.from_bytes(digest[:8], "big")).normal(0, scale, V)
    return logits


def asked(body: dict[str, Any]) -> SamplingParameters:
    """Read the sampling parameters of a request."""
    names = {"temperature", "top_p", "top_k"} & body.keys()
    return SamplingParameters(**{name: body[name] for name in names if body[name] != 0})


def right(at: Place) -> int:
    """Sample as asked."""
    return int(at.rng.choice(V, p=asked(at.body)(at.logits)))


def usual(at: Place, token: int) -> dict[int, float]:
    """List the sampled token and the most probable tokens."""
    logs = at.logits - np.logaddexp.reduce(at.logits)
    top = np.argsort(-logs)[: at.body.get("top_logprobs", at.body.get("logprobs"))]
    return {int(i): float(logs[i]) for i in (token, *top)}


def by_id(token: int) -> str:
    return f"token_id:{token}"


def serve(
    sample: Callable[[Place], int] = right,
    lists: Callable[[Place, int], dict[int, float]] = usual,
    *,
    name: Callable[[int], str] = by_id,
    listed_name: Callable[[int], str] | None = None,
    noise: float = 0.0,
    scale: float = 2.0,
    memory: int = 2,
    own: bool = True,
    takes: Callable[[dict[str, Any]], str] = lambda body: "",
    bodies: list[dict[str, Any]] | None = None,
) -> Any:
    """Make a transport; `takes` returns an error message for a request that it rejects.

    Logits depend on the prompt and as many of the last tokens as `memory` says.
    """
    rng, lock, count = np.random.default_rng(3), threading.Lock(), [0]

    def complete(body: dict[str, Any]) -> Any:
        texts, tokens, found = body.get("prompt", body.get("messages")), [], []
        for _ in range(body["max_tokens"]):
            logits = _logits(repr((texts, tokens[max(len(tokens) - memory, 0) :])), scale)
            logits = logits + noise * rng.normal(size=V) if noise else logits
            number = count[0]
            at = Place(logits=logits, body=body, rng=rng, text=tokens, number=number)
            token = sample(at)
            found.append(lists(at, token))
            tokens.append(token)
        count[0] += 1
        names = [name(token) for token in tokens]
        written = [{(listed_name or name)(i): log for i, log in at.items()} for at in found]
        logs = [at.get(token) if own else None for token, at in zip(tokens, found, strict=True)]
        if "prompt" in body:
            return {"tokens": names, "top_logprobs": written, "token_logprobs": logs}
        places = [
            {
                "token": one,
                "logprob": log,
                "top_logprobs": [{"token": key, "logprob": value} for key, value in at.items()],
            }
            for one, log, at in zip(names, logs, written, strict=True)
        ]
        return {"content": places}

    def answer(request: Any) -> Any:
        if request.method == "GET":
            return httpx2.Response(200, json={"data": [{"id": "memory"}]})
        body = json.loads(request.content)
        if bodies is not None:
            bodies.append(body)
        refusal = takes(body)
        if refusal:
            return httpx2.Response(400, json={"error": {"message": refusal}})
        with lock:
            return httpx2.Response(200, json={"choices": [{"logprobs": complete(body)}]})

    return httpx2.MockTransport(answer)


def audit(transport: Any, **options: Any) -> ServerReport:
    """Audit at temperature 1, without probes, as long as a test says nothing else."""
    return audit_server(
        URL, transport=transport, **{"probes": False, "sampling": PLAIN, "retries": 0, **options}
    )
