"""Requests to an OpenAI-compatible server: completions with log-probabilities, and metrics.

The client reads a key from the environment and sends it in one header only.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from otm._core.files.paths import parse_json
from otm._core.optional import require
from otm.audit.streams.server.answers import (
    Completion,
    Encoded,
    Prompt,
    read_completion,
    read_prompt,
    read_text,
)
from otm.audit.streams.server.request_parameters import (
    NO_PARAMETERS,
    RequestParameters,
    request_fields,
)
from otm.decoding import SamplingParameters
from otm.errors import EndpointError, InvalidInputError

KEYS = ("OTM_API_KEY", "OPENAI_API_KEY")
"""Environment variables of the key; the first that is set is used."""

SHORTEST_SECRET = 8
"""Shortest key that is removed from answers; a shorter key may be a part of any word."""

MOST_BYTES = 2**24
"""Longest answer that is read, in bytes."""

AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""HTTP statuses after which a request is sent again."""

NEUTRAL = {"top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""Neutral values of parameters whose defaults a server may read from the model's configuration."""

EXTRAS = {
    "ignore_eos": True,
    "return_tokens_as_token_ids": True,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    # For llama.cpp; llama-cpp-python has the default 1.1.
    "repeat_penalty": 1.0,
}
"""Parameters that not every server supports; requests omit those that a server rejects."""

RARE = frozenset({"repeat_penalty"})
"""Extras to omit first if a server rejects a request without naming a parameter."""

SAMPLING_EXTRAS = ("top_k", "min_p", "repetition_penalty", "repeat_penalty")
"""Extras for which a server's own value may change the samples."""

LONGEST_MESSAGE = 4_000
"""Largest number of characters of a server's own message in an error."""


@dataclass(frozen=True)
class Access:
    """Options of all requests: limits, and the interface of the server."""

    timeout: float = 60.0
    retries: int = 4
    chat: bool = False
    # Length of the lists.
    logprobs: int = 20
    # Hugging Face tokenizer, for a server that accepts and returns only texts.
    tokenizer: Any = None
    # Seconds before the first retry; doubled for each further retry.
    pause: float = 0.5
    # Whether tokens are compared with the server's own lists.
    own_lists: bool = True
    # Sampling parameters that all requests omit.
    leave_out: Collection[str] = ()
    request: RequestParameters = NO_PARAMETERS


def check_url(url: str) -> str:
    """Return the address without a trailing /v1; raise if it contains a key."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except (ValueError, AttributeError, TypeError):
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise InvalidInputError(
            "the address of the server is invalid; give one such as http://host:8000"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidInputError(
            f"the address of {host} has more than host and path; give a key in the environment "
            f"variable {KEYS[0]}, and the address as http://host:8000"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/").removesuffix("/v1")


class Client:
    """A server that several threads may send requests to."""

    def __init__(self, url: str, model: str | None, access: Access, transport: Any = None) -> None:
        self.url = check_url(url)
        self._httpx = require("httpx2")
        self._closed = threading.Event()
        self.access = access
        extras = EXTRAS | {"repeat_penalty": access.request.repetition_penalty}
        # A server that ignores end tokens would not show where its texts end.
        omitted = {*access.leave_out, *(["ignore_eos"] if access.request.end_tokens else [])}
        self._extras: dict[str, Any] = {
            name: value for name, value in extras.items() if name not in omitted
        }
        self.retried = 0
        key = next((os.environ[name] for name in KEYS if os.environ.get(name)), None)
        if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
            raise InvalidInputError("the key in the environment has characters invalid in a key")
        self._key = key
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        # Compressed content may become very long.
        headers["Accept-Encoding"] = "identity"
        # A redirect could send the key to another host.
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
        """Close the connections, and stop waiting for retries."""
        self._closed.set()
        self._http.close()

    def sample(
        self,
        prompt: Prompt,
        parameters: SamplingParameters,
        tokens: int,
        seed: int | None = None,
        most: int = 0,
    ) -> Completion:
        """Request a continuation of at most `tokens` tokens; read up to `most` if it is longer."""
        body: dict[str, Any] = {"model": self.model, "max_tokens": tokens, **NEUTRAL}
        body["temperature"] = parameters.temperature
        if parameters.top_p is not None:
            body["top_p"] = parameters.top_p
        if parameters.top_k is not None:
            body["top_k"] = parameters.top_k
        if parameters.min_p is not None:
            body["min_p"] = parameters.min_p
        body |= request_fields(self.access.request)
        if seed is not None:
            body["seed"] = seed
        if self.access.chat:
            body["messages"] = [{"role": "user", "content": prompt}]
            body |= {"logprobs": True, "top_logprobs": self.access.logprobs}
        elif isinstance(prompt, Encoded):
            body["prompt"] = prompt.text
        else:
            body["prompt"] = prompt if isinstance(prompt, str) else list(prompt)
            body["logprobs"] = self.access.logprobs
        for name in self.access.leave_out:
            body.pop(name, None)
        path = "/v1/chat/completions" if self.access.chat else "/v1/completions"
        content = self._send_accepted(path, body)
        if self.access.tokenizer is not None:
            return read_text(self._json(content), tokens, self.access.tokenizer)
        return read_completion(
            self._json(content),
            max(tokens, most),
            chat=self.access.chat,
            listed=self.access.logprobs,
            same_spelling=self.access.own_lists,
        )

    def prompt_lists(self, prompt: Prompt) -> Completion | None:
        """Request the tokens and lists of a prompt (`echo`), and one token after it.

        Return None if the server does not support this.
        """
        if self.access.chat or isinstance(prompt, Encoded):
            return None
        body = {"model": self.model, "max_tokens": 1, **NEUTRAL, "temperature": 1.0, "echo": True}
        body["prompt"] = prompt if isinstance(prompt, str) else list(prompt)
        body["logprobs"] = self.access.logprobs
        for name in self.access.leave_out:
            body.pop(name, None)
        try:
            found = read_prompt(self._json(self._send_accepted("/v1/completions", body)))
        except EndpointError:
            return None
        return found if len(found.tokens) > 1 else None

    def _send_accepted(self, path: str, body: dict[str, Any]) -> bytes:
        """Send a request with all extras that the server accepts; return the content."""
        extras = self._extras
        status, content = self._send("POST", path, extras | body)
        while status in (400, 422) and extras:
            said = content.decode("utf-8", "replace")
            named = {name for name in extras if name in said} or RARE & extras.keys() or {*extras}
            extras = {name: value for name, value in extras.items() if name not in named}
            status, content = self._send("POST", path, extras | body)
        self._check_status(status, path, content)
        self._extras = extras
        return content

    @property
    def rejected(self) -> tuple[str, ...]:
        """Sampling parameters that the server rejects, so that it uses its own values."""
        own = {*self._extras, *self.access.leave_out}
        return tuple(name for name in SAMPLING_EXTRAS if name not in own)

    def metrics(self) -> str | None:
        """Return the server's metrics, or None if it has none."""
        try:
            status, content = self._send("GET", "/metrics", None)
        except EndpointError:
            return None
        return content.decode("utf-8", "replace") if status == 200 else None

    def _first_model(self) -> str:
        hint = "give the model's name on the server with --name NAME"
        try:
            status, content = self._send("GET", "/v1/models", None)
            self._check_status(status, "/v1/models", content, hint)
            name = self._json(content)["data"][0]["id"]
            name.encode()
        except (LookupError, TypeError, AttributeError, UnicodeEncodeError):
            name = None
        if not isinstance(name, str):
            raise EndpointError(f"the server does not list a model; {hint}")
        return name

    def _check_status(self, status: int, path: str, content: bytes, hint: str = "") -> None:
        """Raise an error with the server's own message, and with the option that may help."""
        if status in (401, 403):
            said = "rejects the key" if self._key else f"needs a key; set {KEYS[0]}"
            raise EndpointError(f"the server answers {status} to {path}: it {said}")
        if status == 200:
            return
        said = self._message(content)
        if not hint and status in (400, 404, 405, 422):
            hint = self._option(status, said.lower())
        advice = f"; {hint}" if hint else ""
        raise EndpointError(f"the server answers {status} to {path}: {said!r}{advice}")

    def _option(self, status: int, said: str) -> str:
        """Return advice on an option if a server rejects a request with this message."""
        if "logprob" in said:
            return "request shorter lists with --logprobs 5"
        if "model" in said and ("exist" in said or "not found" in said or "unknown" in said):
            return "give the model's name on the server with --name NAME"
        if "chat" in said or status in (404, 405):
            other = "leave out --chat" if self.access.chat else "use --chat"
            accepted = "texts" if self.access.chat else "chats"
            return f"if the server accepts only {accepted}, {other}"
        return ""

    def _message(self, content: bytes) -> str:
        """Return the server's message from its JSON, or its whole text."""
        text = content[: 4 * LONGEST_MESSAGE].decode("utf-8", "replace")
        try:
            found = parse_json(content, "the answer")
            found = found.get("error", found)
            found = found if isinstance(found, str) else found.get("message", found.get("detail"))
            text = found if isinstance(found, str) and found else text
        except (InvalidInputError, AttributeError):
            pass
        text = str(self._without_key(" ".join(text.split())))
        return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"

    def _json(self, content: bytes) -> Any:
        """Read JSON; replace the key in all strings, in case the server returns it."""
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
        """Send a request, with retries after temporary failures; return status and content."""
        problem = "was closed"
        for attempt in range(self.access.retries + 1):
            if attempt:
                self.retried += 1
                if self._closed.wait(self.access.pause * 2 ** (attempt - 1)):
                    break
            try:
                status, content = self._once(method, path, body)
            except self._httpx.TimeoutException:
                problem = f"does not answer within {self.access.timeout:g} s"
            except (self._httpx.NetworkError, self._httpx.ProtocolError) as error:
                problem = f"cannot be reached or closes the connection ({type(error).__name__})"
            except (self._httpx.HTTPError, self._httpx.InvalidURL) as error:
                raise EndpointError(f"cannot send the request ({type(error).__name__})") from None
            else:
                if status not in AGAIN:
                    return status, content
                problem = f"answers {status}"
        raise EndpointError(
            f"the server {problem} at {path}, after {self.access.retries + 1} attempts; increase "
            "the timeout or the number of retries, or try again later"
        )

    def _once(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        """Send a request once, and read the answer up to a limit of bytes and of time."""
        until = time.monotonic() + self.access.timeout
        with self._http.stream(method, self.url + path, json=body) as response:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise EndpointError("the server compresses its answers, which the request forbids")
            parts, size = [], 0
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > MOST_BYTES:
                    raise EndpointError(
                        f"the server's answer is longer than {MOST_BYTES:,} bytes and was discarded"
                    )
                if time.monotonic() > until:
                    raise self._httpx.ReadTimeout("the answer takes too long")
            return response.status_code, b"".join(parts)
