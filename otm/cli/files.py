"""Files of laws: JSON, ``.npy``, ``.npz`` and safetensors, headers checked before anything else.

No file is executed, which pickles would be, and none makes more memory be taken than a law of the
largest allowed size needs, whatever its header claims and however well it is compressed.
"""

from __future__ import annotations

import io
import json
import math
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from otm.errors import InvalidInputError, MissingDependencyError
from otm.shown import shown

__all__ = ["LARGEST_JSON", "LARGEST_LAW", "read_laws"]

LARGEST_LAW = 2**24
"""Most tokens of a law in a file."""

LARGEST_JSON = 2**24
"""Most bytes of a JSON file: 700,000 tokens with 17 digits each."""

LONGEST_HEADER = 2**14
"""Bytes from the start of an array that may hold its header."""

_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16"}


def read_laws(path: Path) -> dict[str, Any]:
    """Read the laws of a file by their names.

    Parameters
    ----------
    path : Path
        The kind of file is told by how its name ends.

    Returns
    -------
    dict from str to array or list of str
        JSON's numbers stay text, so that they can become fractions.  A law without a name is called
        "".

    Raises
    ------
    InvalidInputError
        If the file is none of laws, or damaged.
    OSError
        If it cannot be read.
    MissingDependencyError
        If it is one of safetensors, which is not installed.
    """
    read = _READERS.get(path.suffix.lower())
    if read is None:
        _refuse(path, f"the name should end in {', '.join(_READERS)}")
    size = path.stat().st_size
    if not path.is_file():
        _refuse(path, "it is no regular file")
    try:
        laws = read(path, size)
    except InvalidInputError as error:
        _refuse(path, str(error))
    if not laws:
        _refuse(path, "there is no law in it")
    return laws


def _refuse(path: Path, reason: str) -> NoReturn:
    raise InvalidInputError(f"{path.name} is no file of laws: {reason}")


def _read_json(path: Path, size: int) -> dict[str, Any]:
    if size > LARGEST_JSON:
        raise InvalidInputError(
            f"it has {size:,} bytes; JSON may have {LARGEST_JSON:,}, other files more"
        )

    def no_number(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no number of JSON")

    try:
        content = json.loads(
            path.read_bytes(), parse_int=str, parse_float=str, parse_constant=no_number
        )
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"not JSON ({error!s:.100})") from None
    laws = content if isinstance(content, dict) else {"": content}
    for name, law in laws.items():
        if not isinstance(law, list) or not all(isinstance(entry, str) for entry in law):
            raise InvalidInputError(
                f"{shown(name) if name else 'it'} should be a flat list of numbers and of "
                'fractions such as "1/3"'
            )
    return laws


def _read_npy(path: Path, size: int) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"": _array(file, size)}


def _read_npz(path: Path, size: int) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > 2:
                raise InvalidInputError(f"it has {len(members)} arrays; one or two are laws")
            laws = {}
            for member in members:
                with archive.open(member) as file:
                    laws[member.filename.removesuffix(".npy")] = _array(file, member.file_size)
            return laws
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"not an archive of arrays ({error!s:.100})") from None


def _array(file: IO[bytes], size: int) -> npt.NDArray[Any]:
    """Read an array of so many bytes with its header, after looking at the header alone."""
    start = file.read(LONGEST_HEADER)
    header = io.BytesIO(start)
    try:
        version = npy.read_magic(header)
        with warnings.catch_warnings(action="ignore"):  # on headers that Python 2 wrote
            read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
            shape, _, dtype = read_header[version](header)
    except (ValueError, KeyError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise InvalidInputError(f"not a header of an array ({error!s:.100})") from None
    _check(shape, str(dtype), dtype.kind in "fiu" and dtype.itemsize <= 8)
    begun = start[header.tell() :]
    left = shape[0] * dtype.itemsize - len(begun)
    if size != header.tell() + shape[0] * dtype.itemsize:
        raise InvalidInputError(
            f"it has {size:,} bytes, and an array of {shape[0]:,} entries of type {dtype} another "
            "number; it may be cut short"
        )
    data = begun + file.read(max(left, 0))
    if len(data) != shape[0] * dtype.itemsize:
        raise InvalidInputError("it is cut short")
    return np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))


def _read_safetensors(path: Path, size: int) -> dict[str, Any]:
    try:
        import safetensors
    except ImportError as error:
        raise MissingDependencyError(
            f'{path.name} needs safetensors, which is not installed: pip install "otm[torch]"'
        ) from error
    try:
        with safetensors.safe_open(path, framework="np") as file:
            names = list(file.keys())
            if len(names) > 2:
                raise InvalidInputError(f"it has {len(names)} tensors; one or two are laws")
            for name in names:
                header = file.get_slice(name)
                kind = header.get_dtype()
                _check(tuple(header.get_shape()), kind, kind in _FLOATS)
            return {name: file.get_tensor(name) for name in names}
    except safetensors.SafetensorError as error:
        raise InvalidInputError(f"not safetensors ({error!s:.100})") from None


def _check(shape: Any, kind: str, allowed: bool) -> None:
    """Refuse an array by its header."""
    if not allowed:
        raise InvalidInputError(f"it has entries of type {kind}; laws are floats")
    if len(shape) != 1:
        raise InvalidInputError(f"it has an array of shape {shown(tuple(shape))}; a law has one axis")
    if not 0 < math.prod(shape) <= LARGEST_LAW:
        raise InvalidInputError(
            f"it has {shape[0]:,} entries; a law has 1 to {LARGEST_LAW:,} tokens"
        )


_READERS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    ".json": _read_json,
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
}
