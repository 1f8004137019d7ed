"""Headers of `.npy`, `.npz` and `.safetensors` files, read with NumPy alone.

NumPy reads the headers of the first; `numpy.load` would take the memory for the numbers before it
finds them missing.  The second are archives of it, as `numpy.savez` and `numpy.savez_compressed`
write them.  The third is eight bytes with the length of a JSON header, the header, and the numbers.
"""

from __future__ import annotations

import io
import re
import tokenize
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

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

LONGEST_HEADER = 4096
"""Most bytes of a header; those of plain numbers take about a hundred."""

NUMPY_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
"""NumPy's readers by version of the format; the third is for names of fields in Unicode."""

UNREADABLE = (
    KeyError,
    MemoryError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
    tokenize.TokenError,
)
"""What NumPy raises for a damaged header; KeyError is ours, for another version."""

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


PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
"""Suffixes of files that torch or pickle writes."""

CONVERSION = (
    'numpy.save("scores.npy", torch.load("…", weights_only=True, map_location="cpu").float()'
    ".numpy()), or safetensors.torch.save_file of a dictionary of tensors"
)
"""How to convert a pickle of torch into a file that OTM reads."""


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
    if path.suffix.lower() in PICKLES:
        raise InvalidInputError(
            f"{file_label(path)} is a pickle by its name; pickles can run code when loaded, and "
            f"are never read; convert it: {CONVERSION}"
        )
    if reader is None:
        raise InvalidInputError(
            f"{file_label(path)} ends in none of {', '.join(FORMATS)}; arrays are read from these"
        )
    return reader(path.absolute())  # whoever reads rows may be in another folder


def npy_arrays(path: Path) -> dict[str, StoredArray]:
    """Read the header of a `.npy` file; as `open_arrays` does."""
    size = file_size(path)
    with opened(path) as file:
        shape, dtype, length = _numpy_header(file, size, file_label(path))
    return {"": StoredArray(path, "", shape, dtype, length)}


def _numpy_header(file: IO[bytes], size: int, where: str) -> tuple[tuple[int, ...], str, int]:
    """Read shape, dtype and length of a header with NumPy, from a file of this size.

    Accepts only plain numbers, row by row and all there.
    """
    start = io.BytesIO(file.read(LONGEST_HEADER))
    try:
        with warnings.catch_warnings(action="ignore"):  # NumPy warns about damaged headers.
            read = NUMPY_HEADERS[np.lib.format.read_magic(start)]
            shape, by_columns, numbers = read(start)
    except UNREADABLE as error:
        raise InvalidInputError(
            f"{where} has no sound header of NumPy's: {' '.join(str(error).split()):.80}; it is "
            "damaged, was cut short, or was not written by numpy.save"
        ) from None
    dtype = numbers.str
    _require(
        NUMBERS.fullmatch(dtype),
        f"{where} holds {dtype!r:.60}; only whole numbers and floats of 2, 4 or 8 bytes are read, "
        "never Python objects",
    )
    shape = check_shape(shape, dtype, size - start.tell(), where)
    _require(
        not by_columns or len(shape) < 2,
        f"{where} is stored by columns; save numpy.ascontiguousarray of it",
    )
    return shape, dtype, start.tell()


def npz_arrays(path: Path) -> dict[str, StoredArray]:
    """Read the headers in an archive; as `open_arrays` does.

    Arrays that are not compressed are read from any row on, like those of a `.npy` file.
    """
    size, label = file_size(path), file_label(path)
    _check_contents(path, size)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (*UNPACKING, ValueError) as error:
        raise InvalidInputError(f"{label} is no sound archive: {error!s:.100}") from None
    found: dict[str, StoredArray] = {}
    _require(
        0 < len(members) <= MAX_MEMBERS,
        f"{label} has {len(members):,} members; 1 to {MAX_MEMBERS:,} are read",
    )
    for member in members:
        name = member.filename.removesuffix(".npy")
        where = array_label(path, name)
        _require(name not in found, f"the member {name!r:.60} of {label} occurs twice")
        _require(name != member.filename, f"the member {name!r:.60} of {label} is no .npy array")
        _require(
            not member.flag_bits & 1
            and member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED),
            f"{where} is encrypted or packed in an unusual way; numpy.savez does neither",
        )
        _require(
            member.file_size <= MAX_EXPANSION * member.compress_size + 1024,
            f"{where} would unpack to {member.file_size:,} bytes from {member.compress_size:,}, "
            "more than there can be",
        )
        with unpacked(path, member.filename) as stream:
            shape, dtype, offset = _numpy_header(stream, member.file_size, where)
        packed = member.compress_type == zipfile.ZIP_DEFLATED
        if not packed:
            start = _start(path, member.header_offset)
            _require(start + member.file_size <= size, f"{where} ends behind the end of the file")
            offset += start
        inside = member.filename if packed else None
        found[name] = StoredArray(path, name, shape, dtype, offset, inside)
    return found


def _check_contents(path: Path, size: int) -> None:
    """Refuse an archive whose table of contents is too long, which `zipfile` would read."""
    tail = min(size, 2**16 + 42)
    with opened(path) as file:
        end = read_exactly(file, size - tail, tail, path)
        place = end.rfind(b"PK\x05\x06")
        found = 0 <= place <= tail - 22
        _require(found, f"{file_label(path)} is no archive; write it with numpy.savez")
        length = int.from_bytes(end[place + 12 : place + 16], "little")
        locator = end[max(place - 20, 0) : place]
        if locator[:4] == b"PK\x06\x07":  # of an archive beyond 4 GB, where the length is kept
            where = int.from_bytes(locator[8:16], "little")
            if where + 56 <= size:
                record = read_exactly(file, where, 56, path)
                length = max(length % 0xFFFFFFFF, int.from_bytes(record[40:48], "little"))
    _require(
        length <= LONGEST_CONTENTS,
        f"{file_label(path)} has a table of contents of {length:,} bytes; at most "
        f"{LONGEST_CONTENTS:,} are read",
    )


def _start(path: Path, header_offset: int) -> int:
    """Where the bytes of a member begin, behind its own header."""
    with opened(path) as file:
        header = read_exactly(file, header_offset, 30, path)
    lengths = (int.from_bytes(header[i : i + 2], "little") for i in (26, 28))
    return header_offset + 30 + sum(lengths)


def safetensors_arrays(path: Path) -> dict[str, StoredArray]:
    """Read the header of a safetensors file; as `open_arrays` does."""
    size, label = file_size(path), file_label(path)
    with opened(path) as file:
        length = int.from_bytes(read_exactly(file, 0, 8, path), "little")
        _require(
            0 < length <= min(LONGEST_JSON_HEADER, size - 8),
            f"{label} says that its header has {length:,} bytes; it is no safetensors file, or was "
            "cut short",
        )
        header = parse_json(read_exactly(file, 8, length, path), f"the header of {label}")
    _require(isinstance(header, dict), f"{label} has a header that is no JSON object")
    header.pop("__metadata__", None)
    for name, entry in header.items():
        places = entry.get("data_offsets") if isinstance(entry, dict) else None
        _require(
            isinstance(places, list)
            and set(entry) == {"dtype", "shape", "data_offsets"}
            and all(type(place) is int for place in places)
            and len(places) == 2
            and 0 <= places[0] <= places[1],
            f"{array_label(path, name)} has an entry {entry!r:.60} in its header, which is not one "
            "of an array",
        )
    start, last, found = 8 + length, 0, {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        where, kind, (begin, end) = array_label(path, name), entry["dtype"], entry["data_offsets"]
        _require(begin == last, f"{where} does not begin where the one before it ends")
        known = isinstance(kind, str) and kind in TYPES
        _require(known, f"{where} holds {kind!r:.60}; {', '.join(TYPES)} are read")
        shape = check_shape(entry["shape"], TYPES[kind], end - begin, where)
        found[name] = StoredArray(path, name, shape, TYPES[kind], start + begin)
        last = end
    _require(
        start + last == size,
        f"{label} has {size - start:,} bytes of numbers where its header promises {last:,}; it is "
        "damaged or was cut short",
    )
    return found


def _require(condition: object, message: str) -> None:
    if not condition:
        raise InvalidInputError(message)


FORMATS: dict[str, Callable[[Path], dict[str, StoredArray]]] = {
    ".npy": npy_arrays,
    ".npz": npz_arrays,
    ".safetensors": safetensors_arrays,
}
"""Readers of headers, by the end of a file's name."""
