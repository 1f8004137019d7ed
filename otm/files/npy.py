"""Headers of NumPy's `.npy` files, in which Python's own reader would allow objects.

The format is described in `numpy.lib.format`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import IO, Any

from otm.errors import InvalidInputError
from otm.files.opening import file_label, file_size, opened
from otm.files.rows import StoredArray, check_shape

MAGIC = b"\x93NUMPY"

LONGEST_HEADER = 4096
"""Most bytes of a header; those of plain numbers take about a hundred."""

NUMBERS = re.compile(r"[<>|=](f2|f4|f8|[iu][1248])")
"""Types that are read: whole numbers and floats of all sizes, in either order of bytes."""


def npy_arrays(path: Path) -> dict[str, StoredArray]:
    """Read the header of a `.npy` file; as `otm.files.open_arrays` does."""
    size = file_size(path)
    with opened(path) as file:
        header, length = read_header(file, path)
    shape, dtype = as_header(header, size - length, file_label(path))
    return {"": StoredArray(path, "", shape, dtype, length)}


def read_header(file: IO[bytes], path: Path) -> tuple[Any, int]:
    """Read the header at the beginning of a file, as a Python literal, and its length in bytes."""
    start = file.read(12)
    if start[:6] != MAGIC or start[6:8] not in (b"\x01\x00", b"\x02\x00"):
        raise InvalidInputError(
            f"{file_label(path)} does not begin as NumPy's files of numbers do; write it with "
            "numpy.save"
        )
    wide = start[6] == 2
    length = int.from_bytes(start[8:12] if wide else start[8:10], "little")
    before = 12 if wide else 10
    if length > LONGEST_HEADER:
        raise InvalidInputError(
            f"{file_label(path)} has a header of {length:,} bytes; that of an array of numbers is "
            "shorter"
        )
    text = start[before:] + file.read(max(length - (12 - before), 0))
    if len(text) < length:
        raise InvalidInputError(f"{file_label(path)} ends within its header; it was cut short")
    try:
        if b"\\" in text:  # which numbers do not need, and Python warns about in texts
            raise ValueError
        return ast.literal_eval(text[:length].decode("latin-1").strip()), before + length
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        where = file_label(path)
        raise InvalidInputError(f"{where} has a header that is none of NumPy's") from None


def as_header(header: Any, available: int, where: str) -> tuple[tuple[int, ...], str]:
    """Return shape and dtype of a header; refuse all but plain numbers, row by row, all there."""
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise InvalidInputError(f"{where} has a header that is none of NumPy's")
    dtype = header["descr"]
    if not (isinstance(dtype, str) and NUMBERS.fullmatch(dtype)):
        raise InvalidInputError(
            f"{where} holds {dtype!r:.60}; only whole numbers and floats of 2, 4 or 8 bytes are "
            "read, never Python objects"
        )
    shape = check_shape(header["shape"], dtype, available, where)
    if header["fortran_order"] is not False and len(shape) > 1:
        raise InvalidInputError(f"{where} is stored by columns; save numpy.ascontiguousarray of it")
    return shape, dtype
