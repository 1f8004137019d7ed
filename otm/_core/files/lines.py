"""Read parts of files line by line, since a part can have gigabytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from otm._core.files.paths import file_label, opened
from otm.errors import InvalidInputError

LONGEST_LINE = 2**22
"""Largest number of bytes of a line, which is read as a whole."""


def lines_of(path: Path, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the bytes of each line between two offsets; skip empty lines."""
    with opened(path) as file:
        file.seek(begin)
        while (place := file.tell()) < end:
            line = file.readline(LONGEST_LINE + 1)
            if not line:
                raise InvalidInputError(
                    f"{file_label(path)} became shorter while it was read; start again"
                )
            if len(line) > LONGEST_LINE:
                raise InvalidInputError(
                    f"{file_label(path)} has a line of more than {LONGEST_LINE:,} bytes; write one "
                    "position or response per line"
                )
            if line.strip():
                yield place, line
