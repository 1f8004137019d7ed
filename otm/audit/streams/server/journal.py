"""File from which an audit can be resumed: one line for each answer."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from dataclasses import astuple, replace
from pathlib import Path
from typing import IO, Any

from otm._core.files.paths import check_writable, file_label, parse_json
from otm.audit.streams.server.answers import Completion, completion_from, ending_from
from otm.errors import EndpointError, InvalidInputError

FORMAT = "otm server audit 3"


def digest_of(plan: Any) -> str:
    """Hash the plan of an audit."""
    text = json.dumps(plan, sort_keys=True, default=list)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Journal:
    """Answers by server, in the order of the plan: first from the file, then new ones."""

    def __init__(self, path: Path | None, digest: str) -> None:
        self._file: IO[bytes] | None = None
        self._stored: tuple[deque[Completion], deque[Completion]] = deque(), deque()
        if path is None:
            return
        check_writable(path)
        head = (json.dumps({"format": FORMAT, "digest": digest}) + "\n").encode()
        try:
            self._file = path.open("a+b")
            self._file.seek(0)
            kept = self._read(self._file.read(), head, file_label(path))
            # Remove an incomplete last line.
            self._file.truncate(kept)
            if not kept:
                self._file.write(head)
        except OSError as error:
            raise InvalidInputError(f"cannot write {file_label(path)}: {error.strerror}") from None
        except BaseException:
            self.close()
            raise

    def _read(self, content: bytes, head: bytes, label: str) -> int:
        """Read the answers of a file; return the number of bytes in complete lines."""
        kept = content.rfind(b"\n") + 1
        lines = content[:kept].split(b"\n")[:-1]
        if not lines:
            if content and not head.startswith(content):
                raise InvalidInputError(f"{label} is not an audit to resume; give another file")
            return 0
        if lines[0] + b"\n" != head:
            known = FORMAT[:-2].encode() in lines[0][:100]
            why = (
                "from other servers, settings or prompts, or from another version"
                if known
                else "not an audit"
            )
            raise InvalidInputError(f"{label} is {why}; give another file")
        for number, line in enumerate(lines[1:], 2):
            where = f"line {number} of {label}"
            try:
                server, tokens, lists, own, *ending = parse_json(line, where)
                answer = completion_from(tokens, [pairs.items() for pairs in lists])
                own = tuple(None if log is None else float(log) for log in own)
                if ending:
                    answer = replace(answer, ending=ending_from(*ending))
                self._stored[bool(server)].append(replace(answer, own=own))
            except (ValueError, TypeError, AttributeError, OverflowError):
                raise InvalidInputError(
                    f"{where} is damaged; remove it and all lines after it"
                ) from None
        return kept

    def take(self, server: int, most: int) -> list[Completion]:
        """Return up to `most` stored answers of a server, and remove them."""
        stored = self._stored[server]
        return [stored.popleft() for _ in range(min(most, len(stored)))]

    def keep(self, server: int, answer: Completion) -> None:
        """Append a server's answer to the file."""
        if self._file is None:
            return
        ending = [] if answer.ending is None else [astuple(answer.ending)]
        line = json.dumps(
            [server, answer.tokens, answer.lists, answer.own, *ending], allow_nan=False
        )
        self._file.write(line.encode() + b"\n")
        try:
            self._file.flush()
        except OSError as error:
            raise EndpointError(f"cannot write the file to resume from: {error.strerror}") from None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
