"""Files of lines, one after the other: all lines of a block together may be gigabytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from otm._core.files.paths import file_label, opened
from otm.errors import InvalidInputError

LONGEST_LINE = 2**22
"""Most bytes of a line, which is read as a whole."""


def lines_of(path: Path, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Read one line after the other, but for empty ones, each with the byte that it begins at."""
    with opened(path) as file:
        file.seek(begin)
        while (place := file.tell()) < end:
            line = file.readline(LONGEST_LINE + 1)
            if not line:
                raise InvalidInputError(f"{file_label(path)} was cut short meanwhile")
            if len(line) > LONGEST_LINE:
                raise InvalidInputError(
                    f"{file_label(path)} has a line of more than {LONGEST_LINE:,} bytes"
                )
            if line.strip():
                yield place, line
