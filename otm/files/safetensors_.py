"""Headers of safetensors files, read with NumPy alone, bfloat16 included.

The format is eight bytes with the length of a JSON header, the header, and the numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otm.errors import InvalidInputError
from otm.files.json_ import parse_json
from otm.files.opening import file_label, file_size, opened, read_exactly
from otm.files.rows import StoredArray, check_shape

LONGEST_HEADER = 2**20
"""Most bytes of a header, which takes some dozens of times as many when it is parsed."""

TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "bfloat16",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
}  # fmt: skip


def safetensors_arrays(path: Path) -> dict[str, StoredArray]:
    """Read the header of a safetensors file; as `otm.files.open_arrays` does."""
    size = file_size(path)
    with opened(path) as file:
        length = int.from_bytes(read_exactly(file, 0, 8, path), "little")
        if not 0 < length <= min(LONGEST_HEADER, size - 8):
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
    places = {
        name: _places(entry, f"array {name!r:.60} of {file_label(path)}")
        for name, entry in header.items()
    }
    for name, (begin, end) in sorted(places.items(), key=lambda item: item[1]):
        where, entry = f"array {name!r:.60} of {file_label(path)}", header[name]
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
