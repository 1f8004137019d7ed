"""The file from which an audit can be resumed: one line for each answer."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from pathlib import Path
from typing import IO, Any

from otm._core.files.paths import check_place, file_label, parse_json
from otm.audit.streams.server.answers import Completion, completion_from
from otm.errors import EndpointError, InvalidInputError

FORMAT = "otm server audit 2"


def digest_of(plan: Any) -> str:
    """Hash the plan of an audit."""
    text = json.dumps(plan, sort_keys=True, default=list)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Journal:
    """Answers by server, in the order of the plan: first those of the file, then new ones."""

    def __init__(self, path: Path | None, digest: str) -> None:
        self._file: IO[bytes] | None = None
        self._found: tuple[deque[Completion], deque[Completion]] = deque(), deque()
        if path is None:
            return
        check_place(path)
        head = (json.dumps({"format": FORMAT, "digest": digest}) + "\n").encode()
        try:
            self._file = path.open("a+b")
            self._file.seek(0)
            kept = self._read(self._file.read(), head, file_label(path))
            self._file.truncate(kept)  # a line that was cut short
            if not kept:
                self._file.write(head)
        except OSError as error:
            raise InvalidInputError(
                f"{file_label(path)} cannot be kept: {error.strerror}"
            ) from None
        except BaseException:
            self.close()
            raise

    def _read(self, content: bytes, head: bytes, label: str) -> int:
        """Take the answers of a file; return how many bytes of it are whole lines."""
        kept = content.rfind(b"\n") + 1
        lines = content[:kept].split(b"\n")[:-1]
        if not lines:
            if content and not head.startswith(content):
                raise InvalidInputError(f"{label} is not an audit to resume; name another file")
            return 0
        if lines[0] + b"\n" != head:
            known = FORMAT[:-2].encode() in lines[0][:100]
            why = (
                "of other servers, settings or prompts, or of another version"
                if known
                else "not an audit"
            )
            raise InvalidInputError(f"{label} is {why}; name another file")
        for number, line in enumerate(lines[1:], 2):
            where = f"line {number} of {label}"
            try:
                server, tokens, lists = parse_json(line, where)
                self._found[bool(server)].append(
                    completion_from(tokens, [pairs.items() for pairs in lists])
                )
            except (ValueError, TypeError, AttributeError, OverflowError):
                raise InvalidInputError(f"{where} is damaged; remove it and all below") from None
        return kept

    def take(self, server: int, most: int) -> list[Completion]:
        """Take up to `most` of a server's answers from the file."""
        found = self._found[server]
        return [found.popleft() for _ in range(min(most, len(found)))]

    def keep(self, server: int, answer: Completion) -> None:
        """Append a server's answer to the file."""
        if self._file is None:
            return
        line = json.dumps([server, answer.tokens, answer.lists], allow_nan=False)
        self._file.write(line.encode() + b"\n")
        try:
            self._file.flush()
        except OSError as error:
            raise EndpointError(f"the file to resume from is full: {error.strerror}") from None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
