"""A simulated server, correct or wrong, for audits without a network."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from otm._core.listed_tokens import token_name
from otm._core.optional import require
from otm._core.probs.sampling import locate
from otm.audit.streams.e_process import Floats
from otm.decoding import SamplingParameters

VOCABULARY = 50


@lru_cache(maxsize=2**16)
def _logits(text: str) -> Floats:
    digest = hashlib.sha256(text.encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    scores: Floats = rng.normal(0, 2, VOCABULARY).astype(np.float32).astype(np.float64)
    scores.flags.writeable = False
    return scores


def logits_after(prompt: Any, tokens: tuple[int, ...]) -> Floats:
    """Return the logits of the simulated model [V], a function of prompt and last two tokens."""
    return _logits(repr((prompt, tokens[-2:])))


def simulated_server(
    *,
    temperature: float = 1.0,
    ignore: str | None = None,
    accepted: float = 0.0,
    seed: int = 0,
    key: str | None = None,
) -> Any:
    """Make an httpx2 transport that answers like a server.

    A wrong server multiplies the requested temperature by `temperature`, ignores a parameter such
    as "top_k", or accepts a share `accepted` of the drafts of a uniform draft model without a test.
    If `key` is stated, requests must have this key.
    """
    rng = np.random.default_rng(seed)
    # Number of drafts, and of accepted drafts.
    counts = np.zeros(2, dtype=np.int64)

    def sample(body: dict[str, Any]) -> dict[str, Any]:
        own = np.random.default_rng(body["seed"]) if "seed" in body else rng
        values: dict[str, Any] = {
            name: body[name]
            for name in ("temperature", "top_k", "top_p")
            if name in body and (name, body[name]) != ("top_k", 0)
        }
        values.pop(ignore or "", None)
        values["temperature"] = values.get("temperature", 1.0) * temperature
        parameters = SamplingParameters(**values)
        prompt = body.get("prompt", body.get("messages"))
        tokens: tuple[int, ...] = ()
        lists = []
        for _ in range(body["max_tokens"]):
            logits = logits_after(prompt, tokens)
            probs = parameters(logits)
            drafted = values["temperature"] > 0 and own.random() < accepted
            if drafted:
                kept = np.flatnonzero(probs)
                token = int(kept[own.integers(kept.size)])
            else:
                token = locate(np.arange(VOCABULARY), probs, own.random())
            counts[:] += 1, drafted
            lists.append(list_of(logits, token, body))
            tokens += (token,)
        return {"logprobs": logprobs_of(tokens, lists, body)}

    def metrics() -> str:
        names = ("drafts", "draft_tokens", "accepted_tokens")
        values = zip(names, (counts[0], *counts), strict=True)
        return "\n".join(f"vllm:spec_decode_num_{n}_total{{}} {float(v)}" for n, v in values)

    return transport_of(sample, metrics, key)


def list_of(logits: Floats, token: int, body: dict[str, Any]) -> dict[str, float]:
    """List the log-probability of the sampled token, then the most probable tokens, as in vLLM."""
    logs = logits - np.logaddexp.reduce(logits)
    top = np.argsort(-logs, kind="stable")[: body.get("top_logprobs", body["logprobs"])]
    return {token_name(i): float(logs[i]) for i in (token, *top)}


def logprobs_of(
    tokens: Sequence[int], lists: Sequence[dict[str, float]], body: dict[str, Any]
) -> dict[str, Any]:
    """Return the log-probabilities in the format of completions or chats."""
    names = [token_name(token) for token in tokens]
    if "messages" not in body:
        return {"tokens": names, "top_logprobs": lists}
    content = []
    for written, entries in zip(names, lists, strict=True):
        tops = [{"token": name, "logprob": log} for name, log in entries.items()]
        content.append({"token": written, "logprob": entries[written], "top_logprobs": tops})
    return {"content": content}


def transport_of(
    sample: Callable[[dict[str, Any]], dict[str, Any]],
    metrics: Callable[[], str] = str,
    key: str | None = None,
) -> Any:
    """Make an httpx2 transport from a function that returns the choice for a request's body.

    A choice may have "usage", which belongs to the whole answer.
    """
    httpx, lock = require("httpx2"), threading.Lock()

    def answer(request: Any) -> Any:
        if key is not None and request.headers.get("Authorization") != f"Bearer {key}":
            return httpx.Response(401, text="no")
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "simulated"}]})
        if request.url.path == "/metrics":
            return httpx.Response(200, text=metrics() + "\n")
        with lock:
            choice = sample(json.loads(request.content))
        return httpx.Response(200, json={"usage": choice.pop("usage", {}), "choices": [choice]})

    return httpx.MockTransport(answer)
