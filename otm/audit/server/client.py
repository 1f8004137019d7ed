"""Requests to an OpenAI-compatible server: completions with log-probabilities, and metrics.

A key is read from the environment, goes into one header, and is nowhere else.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import numpy as np

from otm._core.files.paths import parse_json
from otm._core.optional import require
from otm._core.text import shown
from otm.decoding import SamplingParameters
from otm.errors import EndpointError, InvalidInputError

Prompt: TypeAlias = str | tuple[int, ...]
"""A text, or token ids."""


class Encoded(tuple[int, ...]):
    """Token ids of a text, which is what is sent to a server that takes no ids."""

    text: str

    @classmethod
    def of(cls, text: str, tokenizer: Any) -> Encoded:
        """Encode a prompt as such a server does."""
        prompt = cls(tokenizer(text).input_ids)
        prompt.text = text
        return prompt


KEYS = ("OTM_API_KEY", "OPENAI_API_KEY")
"""Environment variables that may have the key, the first that is set."""

TOKEN_ID = "token_id:"
"""How vLLM writes a token by its id."""

UNCLEAR = "\ufffd"
"""What half a character is written as: the same string for different tokens."""

SHORTEST_SECRET = 8
"""Characters of a key that is looked for in answers: a shorter one may be any part of a word."""

MOST_BYTES = 2**24
"""Longest answer that is read."""

MOST_LISTED = 1_000
"""Longest list of log-probabilities that is read."""

AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""Statuses after which a request is sent again."""

NEUTRAL = {"top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""What a server would else take from the model's own configuration."""

EXTRAS = {
    "ignore_eos": True,
    "return_tokens_as_token_ids": True,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}
"""What not every server takes: if one refuses, requests go without."""

IMPOSSIBLE = -9_999.0
"""What servers write for the logarithm of 0."""


@dataclass(frozen=True)
class Completion:
    """What a server sampled, and what it said of the tokens before each was sampled."""

    tokens: tuple[str, ...]
    lists: tuple[dict[str, float], ...]  # of each token: log-probabilities by token


@dataclass(frozen=True)
class Access:
    """How a server is asked: limits, and whether by its interface for chats."""

    timeout: float = 60.0
    retries: int = 4
    chat: bool = False
    logprobs: int = 20  # length of the lists
    tokenizer: Any = None  # of Hugging Face, where the server takes and returns texts alone
    pause: float = 0.5  # seconds before the first retry; then twice as many


def check_url(url: str) -> str:
    """Return the address without what follows its path; refuse one with a key in it."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except (ValueError, AttributeError, TypeError):
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise InvalidInputError("this is no address of a server; give one as http://host:8000")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidInputError(
            f"the address of {host} has more than host and path; give a key in the environment, "
            f"as {KEYS[0]}, and the address as http://host:8000"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/").removesuffix("/v1")


class Client:
    """A server, asked from several threads."""

    def __init__(self, url: str, model: str | None, access: Access, transport: Any = None) -> None:
        self.url = check_url(url)
        self._httpx = require("httpx2")
        self._closed = threading.Event()
        self._access = access
        self._extras: dict[str, Any] = dict(EXTRAS)
        self.retried = 0
        key = next((os.environ[name] for name in KEYS if os.environ.get(name)), None)
        if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
            raise InvalidInputError("the key in the environment has characters no key has")
        self._key = key
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        headers["Accept-Encoding"] = "identity"  # what is compressed may become very long
        # a redirect could take the key elsewhere
        self._http = self._httpx.Client(
            headers=headers,
            timeout=access.timeout,
            transport=transport,
            follow_redirects=False,
        )
        try:
            self.model = model or self._first_model()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections; what still waits for an answer gives up."""
        self._closed.set()
        self._http.close()

    def sample(
        self, prompt: Prompt, parameters: SamplingParameters, tokens: int, seed: int | None = None
    ) -> Completion:
        """Ask for a continuation of so many tokens."""
        body: dict[str, Any] = {"model": self.model, "max_tokens": tokens, **NEUTRAL}
        body["temperature"] = parameters.temperature
        if parameters.top_p is not None:
            body["top_p"] = parameters.top_p
        if parameters.top_k is not None:
            body["top_k"] = parameters.top_k
        if seed is not None:
            body["seed"] = seed
        if self._access.chat:
            body["messages"] = [{"role": "user", "content": prompt}]
            body |= {"logprobs": True, "top_logprobs": self._access.logprobs}
        elif isinstance(prompt, Encoded):
            body["prompt"] = prompt.text
        else:
            body["prompt"] = prompt if isinstance(prompt, str) else list(prompt)
            body["logprobs"] = self._access.logprobs
        path = "/v1/chat/completions" if self._access.chat else "/v1/completions"
        extras = self._extras
        status, content = self._send("POST", path, extras | body)
        if status in (400, 422) and extras:
            status, content = self._send("POST", path, body)
            if status == 200:
                self._extras = {}
        self._check_status(status, path, content)
        if self._access.tokenizer is not None:
            return _read_text(self._json(content), tokens, self._access.tokenizer)
        answer = _read(self._json(content), tokens, chat=self._access.chat)
        if any(len(entries) > self._access.logprobs + 1 for entries in answer.lists):
            raise EndpointError("the server lists more log-probabilities than it was asked for")
        return answer

    def metrics(self) -> str | None:
        """Return the server's metrics; None if it has none."""
        try:
            status, content = self._send("GET", "/metrics", None)
        except EndpointError:
            return None
        return content.decode("utf-8", "replace") if status == 200 else None

    def _first_model(self) -> str:
        status, content = self._send("GET", "/v1/models", None)
        self._check_status(status, "/v1/models", content)
        found = self._json(content)
        try:
            name = found["data"][0]["id"]
            name.encode()
        except (LookupError, TypeError, AttributeError, UnicodeEncodeError):
            name = None
        if not isinstance(name, str):
            raise EndpointError("the server names no model; give its name, as --name NAME")
        return name

    def _check_status(self, status: int, path: str, content: bytes) -> None:
        if status in (401, 403):
            said = "refuses the key" if self._key else f"wants a key; set {KEYS[0]}"
            raise EndpointError(f"the server answers {status} to {path}: it {said}")
        if status != 200:
            text = self._without_key(" ".join(content[:300].decode("utf-8", "replace").split()))
            raise EndpointError(f"the server answers {status} to {path}: {shown(text)}")

    def _json(self, content: bytes) -> Any:
        """Read JSON; the key, should a server write it back, is replaced in all strings."""
        try:
            return self._without_key(parse_json(content, "the answer"))
        except InvalidInputError as error:
            said = self._without_key(str(error))
            raise EndpointError(f"the server does not answer in JSON: {said}") from None

    def _without_key(self, value: Any) -> Any:
        if self._key is None or len(self._key) < SHORTEST_SECRET:
            return value
        if isinstance(value, str):
            return value.replace(self._key, "(key)")
        if isinstance(value, list):
            return [self._without_key(each) for each in value]
        if isinstance(value, dict):
            return {self._without_key(name): self._without_key(x) for name, x in value.items()}
        return value

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        """Send a request, again after what may pass; return status and content."""
        problem = "is no longer asked"
        for attempt in range(self._access.retries + 1):
            if attempt:
                self.retried += 1
                if self._closed.wait(self._access.pause * 2 ** (attempt - 1)):
                    break
            try:
                status, content = self._once(method, path, body)
            except self._httpx.TimeoutException:
                problem = f"does not answer within {self._access.timeout:g} s"
            except (self._httpx.NetworkError, self._httpx.ProtocolError) as error:
                problem = f"cannot be reached or breaks off ({type(error).__name__})"
            except (self._httpx.HTTPError, self._httpx.InvalidURL) as error:
                raise EndpointError(f"no request can be sent ({type(error).__name__})") from None
            else:
                if status not in AGAIN:
                    return status, content
                problem = f"answers {status}"
        raise EndpointError(
            f"the server {problem} at {path}, {self._access.retries + 1} times; raise the limits "
            "of time and retries, or try again later"
        )

    def _once(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        """Send a request once; an answer is read up to a limit of bytes and of time."""
        until = time.monotonic() + self._access.timeout
        with self._http.stream(method, self.url + path, json=body) as response:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise EndpointError("the server compresses its answers, which it was asked not to")
            parts, size = [], 0
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > MOST_BYTES:
                    raise EndpointError(
                        f"the server's answer is longer than {MOST_BYTES:,} bytes; it was left"
                    )
                if time.monotonic() > until:
                    raise self._httpx.ReadTimeout("the answer takes too long")
            return response.status_code, b"".join(parts)


def _read(found: Any, tokens: int, *, chat: bool) -> Completion:
    """Read an answer; anything but a sampled text with its log-probabilities is an error."""
    try:
        logprobs = found["choices"][0]["logprobs"]
        completion = _from_chat(logprobs) if chat else _from_lists(logprobs)
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError):
        raise EndpointError(
            f"the server's answer has no log-probabilities as the interface has them: "
            f"{shown(found)}; it must return `logprobs`"
        ) from None
    if len(completion.tokens) > tokens:
        raise EndpointError(
            f"the server returns {len(completion.tokens)} tokens; it was asked for {tokens}"
        )
    return completion


def _read_text(found: Any, tokens: int, tokenizer: Any) -> Completion:
    """Read a text by the tokens that its tokenizer makes of it; one that stopped has an end.

    What stands behind half a character is left, and the token before it, which has the other half.
    """
    try:
        text, why = found["choices"][0]["text"], found["choices"][0]["finish_reason"]
        whole, cut, _ = text.partition(UNCLEAR)
        ids = tokenizer(whole, add_special_tokens=False).input_ids[:tokens]
    except (LookupError, TypeError, ValueError, AttributeError):
        raise EndpointError(f"the server's answer has no text: {shown(found)}") from None
    if cut:
        ids = ids[:-1]
    elif why == "stop" and len(ids) < tokens and tokenizer.eos_token_id is not None:
        ids = [*ids, tokenizer.eos_token_id]
    return Completion(tuple(f"{TOKEN_ID}{token}" for token in ids), ({},) * len(ids))


def _from_lists(logprobs: Any) -> Completion:
    tokens, lists = logprobs["tokens"], logprobs["top_logprobs"]
    return completion_from(tokens, [entries.items() for entries in lists])


def _from_chat(logprobs: Any) -> Completion:
    places = logprobs["content"]
    lists = [[(top["token"], top["logprob"]) for top in at["top_logprobs"]] for at in places]
    return completion_from([at["token"] for at in places], lists)


def completion_from(tokens: Any, lists: Sequence[Any]) -> Completion:
    """Check tokens and lists of pairs, and merge equal strings; ValueError if they are none."""
    if len(tokens) != len(lists) or not all(isinstance(token, str) for token in tokens):
        raise ValueError
    merged = []
    for pairs in lists:
        entries: dict[str, float] = {}
        for token, log in pairs:
            good = isinstance(token, str) and isinstance(log, int | float) and log <= 1e-6
            if not good or isinstance(log, bool) or math.isnan(log) or len(entries) > MOST_LISTED:
                raise ValueError
            finite = max(float(log), IMPOSSIBLE)
            before = entries.get(token)
            entries[token] = finite if before is None else float(np.logaddexp(before, finite))
        merged.append(entries)
    return Completion(tuple(tokens), tuple(merged))
