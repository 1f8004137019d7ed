"""Requests to a program and its answers, as JSON objects, one per line."""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from otm._core.display.text import shown
from otm.audit.programs.child import PART, Child, EndOfAnswersError, excerpt
from otm.errors import ProcessError

LONGEST_REQUEST = 400
"""Largest number of characters of a request that a message shows."""


def to_json(value: Any) -> str:
    """Return numbers and lists as JSON; each float has enough digits to be read back exactly."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


class Session:
    """Conversation with one program, which starts at the first request.

    Each request is the text between the braces of a JSON object, without the id.
    """

    def __init__(self, command: Sequence[str], timeout: float, start_timeout: float) -> None:
        self._command, self._timeout, self._start_timeout = command, timeout, start_timeout
        self._child: Child | None = None
        self._answered = False
        self._requests = 0
        self._request = ""

    def ask(self, requests: Iterable[str]) -> list[Any]:
        """Return the tokens that answer each request; send many requests before reading answers."""
        child = self._started()
        waiting: deque[tuple[int, str]] = deque()
        answers: list[Any] = []

        def receive_all() -> None:
            while waiting:
                number, self._request = waiting.popleft()
                answers.append(self._tokens(self._receive(child, self._limit), number))

        with self._closing_after_errors():
            for request in requests:
                waiting.append(self._send(child, request))
                if child.unsent > PART:
                    receive_all()
            receive_all()
        return answers

    def converse(self, request: str, reply: Callable[[dict[str, Any]], str]) -> Any:
        """Send a request, reply to the program's questions, and return the tokens of its answer."""
        child = self._started()
        with self._closing_after_errors():
            number, self._request = self._send(child, request)
            limit = self._limit
            deadline = time.monotonic() + limit
            while "id" not in (message := self._receive(child, limit, deadline)):
                child.write(b"{%b}\n" % reply(message).encode())
            return self._tokens(message, number)

    def close(self) -> None:
        """End the program; the next request starts it again."""
        if self._child is not None:
            self._child.close()
        self._child, self._answered = None, False

    def error(self, what: str) -> ProcessError:
        """Make an error about a message of the program, with the request that led to it."""
        request, child = self._request, self._child
        if len(request) > LONGEST_REQUEST:
            request = request[:LONGEST_REQUEST] + "…"
        name, errors = (child.name, child.stderr_text()) if child else ("", "")
        return ProcessError(f"the program {name} {what}{errors}; the request was {request}")

    @contextlib.contextmanager
    def _closing_after_errors(self) -> Iterator[None]:
        """End the program after an error, because a late answer would match no request."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _started(self) -> Child:
        if self._child is None:
            self._child = Child(self._command)
        return self._child

    @property
    def _limit(self) -> float:
        """Seconds to wait for the next answer."""
        return self._timeout if self._answered else max(self._timeout, self._start_timeout)

    def _send(self, child: Child, request: str) -> tuple[int, str]:
        """Queue a request with a new number; return the number and the text."""
        self._requests += 1
        text = f'{{"id":{self._requests},{request}}}'
        child.write(text.encode() + b"\n")
        return self._requests, text

    def _receive(self, child: Child, limit: float, deadline: float | None = None) -> dict[str, Any]:
        """Return the program's next message; wait until `deadline`, by default `limit` seconds."""
        try:
            line = child.read_line(limit if deadline is None else deadline - time.monotonic())
        except TimeoutError as late:
            option = "timeout" if limit == self._timeout else "start-timeout"
            partial = f" (it wrote {late} without a line end)" if str(late) else ""
            raise self.error(
                f"did not answer within {limit:g} seconds{partial}; it must write one line for "
                f"each request and flush it; if it needs more time, allow more (--{option})"
            ) from None
        except EndOfAnswersError as end:
            raise self.error(str(end)) from None
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise self.error(
                f"wrote {excerpt(line)}, which is not a JSON object; its standard output must "
                "contain only answers, so write other text to standard error"
            )
        self._answered = True
        return message

    def _tokens(self, message: dict[str, Any], number: int) -> Any:
        if message.get("id") != number:
            raise self.error(
                f"answered {shown(message)} in place of id {number}; copy the id of each request, "
                "and answer each request once, in order"
            )
        if not isinstance(message.get("tokens"), list):
            raise self.error(
                f'answered {shown(message)}, without a list of tokens; give "tokens": [0, 2]'
            )
        return message["tokens"]
