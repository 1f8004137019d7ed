"""Paths that may be anything, bytes that may be missing, strict JSON, and whole writes."""

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
"""Most bytes of a JSON file that is read as a whole."""

AnyPath: TypeAlias = str | os.PathLike[str]
"""What names a file or a folder."""


def as_path(path: AnyPath, advice: str = "of a file") -> Path:
    """Return the name of a file or folder as a path; nothing need be there."""
    try:
        return Path(path)
    except TypeError as error:
        raise InvalidInputError(f"{shown(path)} is not a path; give the path {advice}") from error


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
    >>> file_label(Path("folder/distributions.npy"))
    "file 'distributions.npy'"
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


def read_exactly(file: IO[bytes], offset: int, count: int, path: Path) -> bytes:
    """Read `count` bytes from an offset on; refuse a file that ends before."""
    file.seek(offset)
    data = file.read(count)
    if len(data) < count:
        raise InvalidInputError(
            f"{file_label(path)} ends {count - len(data)} bytes too early; it was cut short"
        )
    return data


def read_whole(path: AnyPath, most: int, kind: str) -> bytes:
    """Read a file of at most so many bytes; a refusal says what of such a kind can be read."""
    path = as_path(path)
    size = file_size(path)
    if size > most:
        raise InvalidInputError(
            f"{file_label(path)} has {size:,} bytes; {kind} of at most {most:,} can be read"
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
        What `json.loads` makes of it.

    Raises
    ------
    InvalidInputError
        If it is missing, too large, or not strictly JSON in UTF-8.

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
        In UTF-8.
    where : str
        What to call the text in messages.

    Returns
    -------
    object
        What `json.loads` makes of it.

    Raises
    ------
    InvalidInputError
        If the bytes are not JSON, or have NaN, an infinity, or a name twice in one object, which
        readers of JSON take in different ways.

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
            object_pairs_hook=_once_each,
            parse_constant=_no_number,
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError among them
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInputError(f"{where} is not JSON: {why:.120}") from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {shown(twice)} occurs twice")
    return found


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"it has {constant}, which is no number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is beyond all floats")
    return number


def check_place(path: Path) -> None:
    """Refuse a path where no file can be written: before the work rather than after it."""
    try:
        exists, taken = path.parent.is_dir(), path.is_dir()
    except OSError as error:
        raise InvalidInputError(f"{file_label(path)} cannot be written: {error.strerror}") from None
    if not exists:
        raise InvalidInputError(f"there is no folder {shown(str(path.parent))}; make it first")
    if taken:
        raise InvalidInputError(f"{shown(str(path))} is a folder; give a file in it")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: beside its place, then moved there.

    A process that ends meanwhile leaves no half of a file, and two writers do not mix.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def write_csv(path: AnyPath, rows: Iterable[Iterable[object]]) -> None:
    """Write rows, the names of the columns first, as text with commas, whole or not at all."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    file = as_path(path)
    try:
        write_whole(file, text.getvalue().encode())
    except OSError as error:
        raise InvalidInputError(
            f"{file_label(file)} cannot be written: {error.strerror}; give a file in a folder that "
            "is there"
        ) from None
