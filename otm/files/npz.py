"""Archives of arrays, as `numpy.savez` and `numpy.savez_compressed` write them."""

from __future__ import annotations

import zipfile
from pathlib import Path

from otm.errors import InvalidInputError
from otm.files.npy import as_header, read_header
from otm.files.opening import file_label, file_size, opened, read_exactly
from otm.files.rows import UNPACKING, StoredArray, unpacked

MAX_MEMBERS = 1000

LONGEST_CONTENTS = 2**20
"""Most bytes of an archive's table of contents, which is read as a whole."""

MAX_EXPANSION = 1040
"""Deflate cannot expand a byte to more: an archive that promises more is lying."""


def npz_arrays(path: Path) -> dict[str, StoredArray]:
    """Read the headers in an archive; as `otm.files.open_arrays` does.

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
        where = f"array {name!r:.60} of {file_label(path)}"
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
