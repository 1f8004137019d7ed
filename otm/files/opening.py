"""Paths that may be anything, and bytes that may be missing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeAlias

from otm._core.text import shown
from otm.errors import InvalidInputError

AnyPath: TypeAlias = str | os.PathLike[str]
"""What names a file or a folder."""


def as_path(path: AnyPath, advice: str = "of a file") -> Path:
    """Return the name of a file or folder as a path; nothing need be there."""
    try:
        return Path(path)
    except TypeError as error:
        raise InvalidInputError(f"{shown(path)} is no path; give that {advice}") from error


def file_label(path: AnyPath) -> str:
    """Name of a file for a message: on one line, whatever its characters, and not too long.

    Parameters
    ----------
    path : str or Path
        The file, which need not exist.

    Returns
    -------
    str
        Its last part alone, quoted and shortened.

    Raises
    ------
    InvalidInputError
        If it is neither a text nor a path.

    Examples
    --------
    >>> file_label(Path("folder/laws.npy"))
    "file 'laws.npy'"
    """
    return f"file {shown(as_path(path).name)}"


def file_size(path: AnyPath) -> int:
    """Size of a regular file in bytes.

    Parameters
    ----------
    path : str or Path
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
        status = as_path(path).stat()
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInputError(f"{file_label(path)} cannot be found: {why}") from None
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInputError(f"{file_label(path)} is no regular file; give a file, not a folder")
    return status.st_size


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading; a failure to open or read is an `InvalidInputError`."""
    file_size(path)
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise InvalidInputError(f"{file_label(path)} cannot be read: {error.strerror}") from None


def read_exactly(file: BinaryIO, offset: int, count: int, path: Path) -> bytes:
    """Read `count` bytes from an offset; refuse a file that ends before."""
    file.seek(offset)
    data = file.read(count)
    if len(data) < count:
        raise InvalidInputError(
            f"{file_label(path)} ends {count - len(data)} bytes too early; it was cut short"
        )
    return data
