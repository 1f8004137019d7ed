"""JSON as the standard has it: no NaN, no infinities, no name twice in an object."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn

from otm._core.text import shown
from otm.errors import InvalidInputError
from otm.files.opening import AnyPath, as_path, file_label, file_size, opened, read_exactly

LARGEST = 2**24
"""Most bytes of a JSON file that is read as a whole."""


def read_json(path: AnyPath, *, max_bytes: int = LARGEST) -> Any:
    """Read a JSON file.

    Parameters
    ----------
    path : str or Path
        The file.
    max_bytes : int, optional
        Most bytes that are read, 2^24 if left out.

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
    path = as_path(path)
    size = file_size(path)
    if size > max_bytes:
        raise InvalidInputError(
            f"{file_label(path)} has {size:,} bytes; JSON of at most {max_bytes:,} is read"
        )
    with opened(path) as file:
        return parse_json(read_exactly(file, 0, size, path), file_label(path))


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
