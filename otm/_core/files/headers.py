"""Headers of `.npy`, `.npz` and `.safetensors` files, read with NumPy alone.

The first format is described in `numpy.lib.format`, whose own reader would allow objects.  The
second are archives of it, as `numpy.savez` and `numpy.savez_compressed` write them.  The third is
eight bytes with the length of a JSON header, the header, and the numbers.
"""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from otm._core.files.paths import (
    AnyPath,
    as_path,
    file_label,
    file_size,
    opened,
    parse_json,
    read_exactly,
)
from otm._core.files.stored import UNPACKING, StoredArray, array_label, check_shape, unpacked
from otm.errors import InvalidInputError

MAGIC = b"\x93NUMPY"

LONGEST_HEADER = 4096
"""Most bytes of a header; those of plain numbers take about a hundred."""

NUMBERS = re.compile(r"[<>|=](f2|f4|f8|[iu][1248])")
"""Types that are read: whole numbers and floats of all sizes, in either order of bytes."""

MAX_MEMBERS = 1000

LONGEST_CONTENTS = 2**20
"""Most bytes of an archive's table of contents, which is read as a whole."""

MAX_EXPANSION = 1040
"""Deflate cannot expand a byte to more: an archive that promises more is lying."""

LONGEST_JSON_HEADER = 2**20
"""Most bytes of a header, which takes some dozens of times as many when it is parsed."""

TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "bfloat16",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
}  # fmt: skip


def open_arrays(path: AnyPath) -> dict[str, StoredArray]:
    """Say which arrays a file holds; nothing but headers is read.

    Parameters
    ----------
    path : str or Path
        A `.npy`, `.npz` or `.safetensors` file.

    Returns
    -------
    dict from str to StoredArray
        The arrays by name; the only one of a `.npy` file has an empty name.

    Raises
    ------
    InvalidInputError
        If it is no such file, or its headers promise anything but plain numbers that are there.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "pair.npz"
    ...     np.savez_compressed(path, draft=np.ones((4, 2)), target=np.arange(8.0).reshape(4, 2))
    ...     arrays = open_arrays(path)
    ...     print(*arrays, arrays["target"].shape, arrays["target"].read(1, 2))
    draft target (4, 2) [[2. 3.]]
    """
    path = as_path(path)
    reader = FORMATS.get(path.suffix.lower())
    if reader is None:
        raise InvalidInputError(
            f"{file_label(path)} ends in none of {', '.join(FORMATS)}; arrays are read from these"
        )
    return reader(path.absolute())  # whoever reads rows may be in another folder


def npy_arrays(path: Path) -> dict[str, StoredArray]:
    """Read the header of a `.npy` file; as `open_arrays` does."""
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


def npz_arrays(path: Path) -> dict[str, StoredArray]:
    """Read the headers in an archive; as `open_arrays` does.

    Arrays that are not compressed are read from any row on, like those of a `.npy` file.
    """
    size = file_size(path)
    _check_contents(path, size)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (*UNPACKING, ValueError) as error:
        raise InvalidInputError(f"{file_label(path)} is no sound archive: {error!s:.100}") from None
    found: dict[str, StoredArray] = {}
    if not members or len(members) > MAX_MEMBERS:
        raise InvalidInputError(
            f"{file_label(path)} has {len(members):,} members; 1 to {MAX_MEMBERS:,} are read"
        )
    for member in members:
        name = member.filename.removesuffix(".npy")
        where = array_label(path, name)
        if name == member.filename or name in found:
            why = "occurs twice" if name in found else "is no .npy array"
            raise InvalidInputError(f"the member {name!r:.60} of {file_label(path)} {why}")
        if member.flag_bits & 1 or member.compress_type not in (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        ):
            raise InvalidInputError(
                f"{where} is encrypted or packed in an unusual way; numpy.savez does neither"
            )
        if member.file_size > MAX_EXPANSION * member.compress_size + 1024:
            raise InvalidInputError(
                f"{where} would unpack to {member.file_size:,} bytes from {member.compress_size:,},"
                " more than there can be"
            )
        with unpacked(path, member.filename) as stream:
            header, length = read_header(stream, path)
        shape, dtype = as_header(header, member.file_size - length, where)
        if member.compress_type == zipfile.ZIP_DEFLATED:
            found[name] = StoredArray(path, name, shape, dtype, length, member.filename)
            continue
        start = _start(path, member.header_offset)
        if start + member.file_size > size:
            raise InvalidInputError(f"{where} ends behind the end of the file")
        found[name] = StoredArray(path, name, shape, dtype, start + length)
    return found


def _check_contents(path: Path, size: int) -> None:
    """Refuse an archive whose table of contents is too long, which `zipfile` would read."""
    tail = min(size, 2**16 + 42)
    with opened(path) as file:
        end = read_exactly(file, size - tail, tail, path)
        place = end.rfind(b"PK\x05\x06")
        if place < 0 or place + 22 > tail:
            raise InvalidInputError(f"{file_label(path)} is no archive; write it with numpy.savez")
        length = int.from_bytes(end[place + 12 : place + 16], "little")
        locator = end[max(place - 20, 0) : place]
        if locator[:4] == b"PK\x06\x07":  # of an archive beyond 4 GB, where the length is kept
            where = int.from_bytes(locator[8:16], "little")
            if where + 56 <= size:
                record = read_exactly(file, where, 56, path)
                length = max(length % 0xFFFFFFFF, int.from_bytes(record[40:48], "little"))
    if length > LONGEST_CONTENTS:
        raise InvalidInputError(
            f"{file_label(path)} has a table of contents of {length:,} bytes; at most "
            f"{LONGEST_CONTENTS:,} are read"
        )


def _start(path: Path, header_offset: int) -> int:
    """Where the bytes of a member begin, behind its own header."""
    with opened(path) as file:
        header = read_exactly(file, header_offset, 30, path)
    lengths = (int.from_bytes(header[i : i + 2], "little") for i in (26, 28))
    return header_offset + 30 + sum(lengths)


def safetensors_arrays(path: Path) -> dict[str, StoredArray]:
    """Read the header of a safetensors file; as `open_arrays` does."""
    size = file_size(path)
    with opened(path) as file:
        length = int.from_bytes(read_exactly(file, 0, 8, path), "little")
        if not 0 < length <= min(LONGEST_JSON_HEADER, size - 8):
            raise InvalidInputError(
                f"{file_label(path)} says that its header has {length:,} bytes; it is no "
                "safetensors file, or was cut short"
            )
        header = parse_json(
            read_exactly(file, 8, length, path), f"the header of {file_label(path)}"
        )
    if not isinstance(header, dict):
        raise InvalidInputError(f"{file_label(path)} has a header that is no JSON object")
    header.pop("__metadata__", None)
    start, found = 8 + length, {}
    ends = [0]
    places = {name: _places(entry, array_label(path, name)) for name, entry in header.items()}
    for name, (begin, end) in sorted(places.items(), key=lambda item: item[1]):
        where, entry = array_label(path, name), header[name]
        if begin != ends[-1]:
            raise InvalidInputError(f"{where} does not begin where the one before it ends")
        dtype = TYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
        if dtype is None:
            raise InvalidInputError(
                f"{where} holds {entry['dtype']!r:.60}; {', '.join(TYPES)} are read"
            )
        shape = check_shape(entry["shape"], dtype, end - begin, where)
        ends.append(end)
        found[name] = StoredArray(path, name, shape, dtype, start + begin)
    if start + ends[-1] != size:
        raise InvalidInputError(
            f"{file_label(path)} has {size - start:,} bytes of numbers where its header promises "
            f"{ends[-1]:,}; it is damaged or was cut short"
        )
    return found


def _places(entry: Any, where: str) -> tuple[int, int]:
    """First byte of an array behind the header, and the one behind its last."""
    places = entry.get("data_offsets") if isinstance(entry, dict) else None
    if (
        not isinstance(places, list)
        or set(entry) != {"dtype", "shape", "data_offsets"}
        or not all(type(place) is int for place in places)
        or len(places) != 2
        or not 0 <= places[0] <= places[1]
    ):
        raise InvalidInputError(
            f"{where} has an entry {entry!r:.60} in its header, which is not one of an array"
        )
    return places[0], places[1]


FORMATS: dict[str, Callable[[Path], dict[str, StoredArray]]] = {
    ".npy": npy_arrays,
    ".npz": npz_arrays,
    ".safetensors": safetensors_arrays,
}
"""Readers of headers, by the end of a file's name."""
