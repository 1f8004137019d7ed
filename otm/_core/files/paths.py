"""Checked paths, reads that detect truncated files, strict JSON, and atomic writes."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, NoReturn, TypeAlias

from otm._core.display.text import shown
from otm.errors import InvalidInputError

LARGEST_JSON = 2**24
"""Largest number of bytes of a JSON file."""

AnyPath: TypeAlias = str | os.PathLike[str]
"""Path of a file or a folder."""


def as_path(path: AnyPath, advice: str = "of a file") -> Path:
    """Convert to a `Path`; the file or folder need not exist."""
    try:
        return Path(path)
    except TypeError as error:
        raise InvalidInputError(f"{shown(path)} is not a path; give the path {advice}") from error


def file_label(path: AnyPath) -> str:
    """Return a file's name for messages, on one line and shortened.

    Parameters
    ----------
    path : str or Path
        The file, which need not exist.

    Returns
    -------
    str
        The last component of the path, quoted and shortened.

    Raises
    ------
    InvalidInputError
        If the argument is neither a string nor a path.

    Examples
    --------
    >>> file_label(Path("folder/distributions.npy"))
    "file 'distributions.npy'"
    """
    return f"file {shown(as_path(path).name)}"


def file_size(path: AnyPath) -> int:
    """Return the size of a regular file in bytes.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    int
        Number of bytes.

    Raises
    ------
    InvalidInputError
        If the file does not exist, or is a folder, a pipe or a device; reading a pipe could wait
        forever.

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
    # ValueError is raised for a path with a null character.
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInputError(f"{file_label(path)} cannot be found: {why}") from None
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInputError(
            f"{file_label(path)} is not a regular file; give a file, not a folder or a pipe"
        )
    return status.st_size


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading; raise `InvalidInputError` if it cannot be opened or read."""
    file_size(path)
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise InvalidInputError(f"{file_label(path)} cannot be read: {error.strerror}") from None


def read_exactly(file: IO[bytes], offset: int, count: int, path: Path) -> bytes:
    """Read `count` bytes from an offset; raise if the file ends earlier."""
    file.seek(offset)
    data = file.read(count)
    if len(data) < count:
        raise InvalidInputError(
            f"{file_label(path)} ends {count - len(data)} bytes too early; it is truncated"
        )
    return data


def read_whole(path: AnyPath, most: int, kind: str) -> bytes:
    """Read a file of at most `most` bytes; `kind` names the allowed files in an error message."""
    path = as_path(path)
    size = file_size(path)
    if size > most:
        raise InvalidInputError(
            f"{file_label(path)} has {size:,} bytes; OTM reads {kind} of at most {most:,} bytes"
        )
    with opened(path) as file:
        return read_exactly(file, 0, size, path)


def read_json(path: AnyPath) -> Any:
    """Read a JSON file.

    Parameters
    ----------
    path : str or Path
        The file, of at most 2^24 bytes.

    Returns
    -------
    object
        The value that `json.loads` returns.

    Raises
    ------
    InvalidInputError
        If the file is missing, too large, or not strict JSON in UTF-8.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "one.json"
    ...     _ = path.write_bytes(b'{"a": 1}')
    ...     read_json(path)
    {'a': 1}
    """
    return parse_json(read_whole(path, LARGEST_JSON, "JSON"), file_label(path))


def parse_json(text: bytes, where: str) -> Any:
    """Read JSON from bytes.

    Parameters
    ----------
    text : bytes
        JSON text in UTF-8.
    where : str
        Name of the text for messages.

    Returns
    -------
    object
        The value that `json.loads` returns.

    Raises
    ------
    InvalidInputError
        If the bytes are not JSON, or have NaN, an infinity, or a name twice in one object; JSON
        readers interpret these in different ways.

    Examples
    --------
    >>> parse_json(b'{"a": [1, 2.5]}', "the text")
    {'a': [1, 2.5]}
    >>> parse_json(b'{"a": 1, "a": 2}', "the text")
    Traceback (most recent call last):
    otm.errors.InvalidInputError: the text is not JSON: the name 'a' occurs twice
    """
    try:
        return json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_unique_names,
            parse_constant=_reject_constant,
            parse_float=_finite,
        )
    # UnicodeDecodeError is a ValueError.
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInputError(f"{where} is not JSON: {why:.120}") from None


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {shown(twice)} occurs twice")
    return members


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} exceeds the range of floats")
    return number


def check_writable(path: Path) -> None:
    """Raise if no file can be written at a path; call this before long work."""
    try:
        exists, is_folder = path.parent.is_dir(), path.is_dir()
    except OSError as error:
        raise InvalidInputError(f"{file_label(path)} cannot be written: {error.strerror}") from None
    if not exists:
        raise InvalidInputError(f"there is no folder {shown(str(path.parent))}; create it first")
    if is_folder:
        raise InvalidInputError(f"{shown(str(path))} is a folder; give a file in it")


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: write a temporary file in the same folder, then move it.

    If the process ends early, no partial file remains under the final name.  Two writers cannot mix
    their contents.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def write_csv(path: AnyPath, rows: Iterable[Iterable[object]]) -> None:
    """Write rows, with the column names as the first row, to a CSV file atomically."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    file = as_path(path)
    try:
        write_atomically(file, text.getvalue().encode())
    except OSError as error:
        raise InvalidInputError(
            f"{file_label(file)} cannot be written: {error.strerror}; give a file in an existing "
            "folder"
        ) from None
