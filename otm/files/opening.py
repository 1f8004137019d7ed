"""Paths that may be anything, and bytes that may be missing."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from otm.errors import InvalidInputError
from otm.shown import shown

__all__ = ["file_size", "named", "opened", "read_exactly"]


def named(path: Path) -> str:
    """Name of a file for a message: on one line, whatever its characters, and not too long.

    Parameters
    ----------
    path : Path
        The file, which need not exist.

    Returns
    -------
    str
        Its last part alone, quoted and shortened.

    Examples
    --------
    >>> named(Path("folder/laws.npy"))
    "file 'laws.npy'"
    """
    return f"file {shown(path.name)}"


def file_size(path: Path) -> int:
    """Size of a regular file in bytes.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    InvalidInputError
        If there is none, or it is a folder, a pipe or a device, which could keep a reader waiting.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "four.txt"
    ...     _ = path.write_bytes(b"four")
    ...     file_size(path)
    4
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInputError(f"{named(path)} cannot be found: {why}") from None
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInputError(f"{named(path)} is no regular file; give a file, not a folder")
    return status.st_size


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading.

    Raises
    ------
    InvalidInputError
        If that fails, or reading from it does.
    """
    file_size(path)
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise InvalidInputError(f"{named(path)} cannot be read: {error.strerror}") from None


def read_exactly(file: BinaryIO, offset: int, count: int, path: Path) -> bytes:
    """Read so many bytes from a place, all of them.

    Raises
    ------
    InvalidInputError
        If the file ends before.
    """
    file.seek(offset)
    data = file.read(count)
    if len(data) < count:
        raise InvalidInputError(
            f"{named(path)} ends {count - len(data)} bytes too early; it was cut short"
        )
    return data
