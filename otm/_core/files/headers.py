"""Read the headers of `.npy`, `.npz` and `.safetensors` files with NumPy only.

NumPy's functions read the header of a `.npy` file; `numpy.load` would allocate memory for the
numbers before it notices that they are missing.  A `.npz` file is an archive of `.npy` files, from
`numpy.savez` or `numpy.savez_compressed`.  A `.safetensors` file has eight bytes with the length of
a JSON header, then the header, then the numbers.
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
"""Largest number of bytes of a `.npy` header; headers of plain numbers have about a hundred."""

NUMPY_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
"""NumPy's header readers by format version; version 3 only adds Unicode field names."""

UNREADABLE = (
    KeyError,
    MemoryError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
    tokenize.TokenError,
)
"""Exceptions for a damaged header; KeyError stands for an unknown format version."""

NUMBERS = re.compile(r"[<>|=](f2|f4|f8|[iu][1248])")
"""Accepted types: integers and floats of all sizes, in both byte orders."""

MAX_MEMBERS = 1000

LONGEST_CONTENTS = 2**20
"""Largest number of bytes of an archive's table of contents, which is read as a whole."""

MAX_EXPANSION = 1040
"""Largest expansion factor; Deflate cannot exceed it, so a larger size in a header is false."""

LONGEST_JSON_HEADER = 2**20
"""Largest number of bytes of a JSON header; parsing needs dozens of times this memory."""

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
"""Advice to convert a torch pickle to a file that OTM reads."""


def open_arrays(path: AnyPath) -> dict[str, StoredArray]:
    """Read the headers of a file, and return its arrays by name without their numbers.

    Parameters
    ----------
    path : str or Path
        A `.npy`, `.npz` or `.safetensors` file.

    Returns
    -------
    dict from str to StoredArray
        The arrays by name; the array of a `.npy` file has an empty name.

    Raises
    ------
    InvalidInputError
        If the file has another format, an array does not consist of plain numbers, or numbers are
        missing.

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
            f"{file_label(path)} has the suffix of a pickle.  OTM reads no pickles, since they can "
            f"run code; convert it: {CONVERSION}"
        )
    if reader is None:
        raise InvalidInputError(
            f"{file_label(path)} has an unknown suffix; arrays are read from {', '.join(FORMATS)}"
        )
    # The path is made absolute, since rows may be read after a change of the working directory.
    return reader(path.absolute())


def npy_arrays(path: Path) -> dict[str, StoredArray]:
    """Read the header of a `.npy` file; return a dict with its array under the empty name."""
    size = file_size(path)
    with opened(path) as file:
        shape, dtype, length = _numpy_header(file, size, file_label(path))
    return {"": StoredArray(path, "", shape, dtype, length)}


def _numpy_header(file: IO[bytes], size: int, where: str) -> tuple[tuple[int, ...], str, int]:
    """Read shape, dtype and length of a `.npy` header in a file of `size` bytes.

    Raise unless the array has plain numbers, is stored row by row and is complete.
    """
    start = io.BytesIO(file.read(LONGEST_HEADER))
    try:
        # NumPy warns about damaged headers.
        with warnings.catch_warnings(action="ignore"):
            read = NUMPY_HEADERS[np.lib.format.read_magic(start)]
            shape, by_columns, numbers = read(start)
    except UNREADABLE as error:
        raise InvalidInputError(
            f"{where} has no valid NumPy header: {' '.join(str(error).split()):.80}; the file is "
            "damaged, truncated, or was not written by numpy.save"
        ) from None
    dtype = numbers.str
    _require(
        NUMBERS.fullmatch(dtype),
        f"{where} has the type {dtype!r:.60}; OTM reads integers, and floats of 2, 4 or 8 bytes, "
        "but never Python objects",
    )
    shape = check_shape(shape, dtype, size - start.tell(), where)
    _require(
        not by_columns or len(shape) < 2,
        f"{where} is stored column by column; save numpy.ascontiguousarray(array)",
    )
    return shape, dtype, start.tell()


def npz_arrays(path: Path) -> dict[str, StoredArray]:
    """Read the headers in a `.npz` archive; return its arrays by name.

    Rows of an uncompressed array can be read from any position, as in a `.npy` file.
    """
    size, label = file_size(path), file_label(path)
    _check_contents(path, size)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (*UNPACKING, ValueError) as error:
        raise InvalidInputError(f"{label} is not a valid archive: {error!s:.100}") from None
    arrays: dict[str, StoredArray] = {}
    _require(
        0 < len(members) <= MAX_MEMBERS,
        f"{label} has {len(members):,} members; allowed are 1 to {MAX_MEMBERS:,}",
    )
    for member in members:
        name = member.filename.removesuffix(".npy")
        where = array_label(path, name)
        _require(name not in arrays, f"the member {name!r:.60} of {label} occurs twice")
        _require(name != member.filename, f"the member {name!r:.60} of {label} is not a .npy array")
        _require(
            not member.flag_bits & 1
            and member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED),
            f"{where} is encrypted or has an unknown compression; write it with numpy.savez",
        )
        _require(
            member.file_size <= MAX_EXPANSION * member.compress_size + 1024,
            f"{where} claims to unpack {member.compress_size:,} bytes to {member.file_size:,} "
            "bytes, which is impossible",
        )
        with unpacked(path, member.filename) as stream:
            shape, dtype, offset = _numpy_header(stream, member.file_size, where)
        packed = member.compress_type == zipfile.ZIP_DEFLATED
        if not packed:
            start = _start(path, member.header_offset)
            _require(start + member.file_size <= size, f"{where} extends beyond the file's end")
            offset += start
        inside = member.filename if packed else None
        arrays[name] = StoredArray(path, name, shape, dtype, offset, inside)
    return arrays


def _check_contents(path: Path, size: int) -> None:
    """Raise if an archive's table of contents is too long, since `zipfile` would read it all."""
    tail = min(size, 2**16 + 42)
    with opened(path) as file:
        end = read_exactly(file, size - tail, tail, path)
        place = end.rfind(b"PK\x05\x06")
        is_archive = 0 <= place <= tail - 22
        _require(is_archive, f"{file_label(path)} is not an archive; write it with numpy.savez")
        length = int.from_bytes(end[place + 12 : place + 16], "little")
        locator = end[max(place - 20, 0) : place]
        # Archives beyond 4 GB store the length in a separate record.
        if locator[:4] == b"PK\x06\x07":
            where = int.from_bytes(locator[8:16], "little")
            if where + 56 <= size:
                record = read_exactly(file, where, 56, path)
                length = max(length % 0xFFFFFFFF, int.from_bytes(record[40:48], "little"))
    _require(
        length <= LONGEST_CONTENTS,
        f"{file_label(path)} has a table of contents of {length:,} bytes; at most "
        f"{LONGEST_CONTENTS:,} are allowed",
    )


def _start(path: Path, header_offset: int) -> int:
    """Return the offset of a member's data, which follow its local header."""
    with opened(path) as file:
        header = read_exactly(file, header_offset, 30, path)
    lengths = (int.from_bytes(header[i : i + 2], "little") for i in (26, 28))
    return header_offset + 30 + sum(lengths)


def safetensors_arrays(path: Path) -> dict[str, StoredArray]:
    """Read the header of a safetensors file; return its arrays by name."""
    size, label = file_size(path), file_label(path)
    with opened(path) as file:
        length = int.from_bytes(read_exactly(file, 0, 8, path), "little")
        _require(
            0 < length <= min(LONGEST_JSON_HEADER, size - 8),
            f"{label} claims a header of {length:,} bytes; it is not a safetensors file, or it is "
            "truncated",
        )
        header = parse_json(read_exactly(file, 8, length, path), f"the header of {label}")
    _require(isinstance(header, dict), f"{label} has a header that is not a JSON object")
    header.pop("__metadata__", None)
    for name, entry in header.items():
        places = entry.get("data_offsets") if isinstance(entry, dict) else None
        _require(
            isinstance(places, list)
            and set(entry) == {"dtype", "shape", "data_offsets"}
            and all(type(place) is int for place in places)
            and len(places) == 2
            and 0 <= places[0] <= places[1],
            f"{array_label(path, name)} has the header entry {entry!r:.60}, which does not "
            "describe an array",
        )
    start, last, arrays = 8 + length, 0, {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        where, kind, (begin, end) = array_label(path, name), entry["dtype"], entry["data_offsets"]
        _require(begin == last, f"{where} does not begin where the previous array ends")
        known = isinstance(kind, str) and kind in TYPES
        _require(known, f"{where} has the type {kind!r:.60}; allowed are {', '.join(TYPES)}")
        shape = check_shape(entry["shape"], TYPES[kind], end - begin, where)
        arrays[name] = StoredArray(path, name, shape, TYPES[kind], start + begin)
        last = end
    _require(
        start + last == size,
        f"{label} has {size - start:,} bytes of numbers, but its header states {last:,}; the file "
        "is damaged or truncated",
    )
    return arrays


def _require(condition: object, message: str) -> None:
    if not condition:
        raise InvalidInputError(message)


FORMATS: dict[str, Callable[[Path], dict[str, StoredArray]]] = {
    ".npy": npy_arrays,
    ".npz": npz_arrays,
    ".safetensors": safetensors_arrays,
}
"""Header readers by file suffix."""
