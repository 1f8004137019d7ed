"""Arrays in files, which are read in blocks of rows."""

from __future__ import annotations

import math
import operator
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from otm._core.display.text import shown
from otm._core.files.paths import file_label, opened, read_exactly
from otm.errors import InvalidInputError, InvalidParameterError

LARGEST_ROW = 2**26
"""Largest number of bytes of a row; a row is always read as a whole."""

UNPACKING = (
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    RuntimeError,
    UnicodeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""Exceptions that `zipfile` raises for a damaged or unsupported archive."""


@dataclass(frozen=True)
class StoredArray:
    """Position and type of an array in a file, from its checked header.

    Rows are read without a memory map, because a truncated file under a memory map would end the
    process.

    Attributes
    ----------
    path : Path
        The file.
    name : str
        Name of the array in the file.
    shape : tuple of int
        Shape of the array; the first axis has the rows.
    dtype : str
        NumPy's name of the type; "bfloat16", which NumPy lacks, is converted to float32.
    offset : int
        Offset of the first number, in the file or in the unpacked member.
    member : str or None
        Name of a compressed member of an archive, which is read from its beginning.  None if the
        numbers are uncompressed; then any row can be read directly.

    Examples
    --------
    >>> import tempfile
    >>> from otm._core.files.headers import open_arrays
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "distributions.npy", np.array([[0.5, 0.5], [0.25, 0.75]]))
    ...     rows = open_arrays(Path(folder) / "distributions.npy")[""]
    ...     print(rows.shape, rows.kind, rows.row_bytes, rows.read(1, 2))
    (2, 2) f 16 [[0.25 0.75]]
    """

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int
    member: str | None = None

    @property
    def description(self) -> str:
        """Name of the array and its file, for messages."""
        return array_label(self.path, self.name) if self.name else file_label(self.path)

    @property
    def kind(self) -> str:
        """Kind of the numbers: "f" for floats, "i" or "u" for integers."""
        return "f" if self.dtype == "bfloat16" else np.dtype(self.dtype).kind

    @property
    def row_bytes(self) -> int:
        """Number of bytes of a row in the file."""
        return math.prod(self.shape[1:]) * item_size(self.dtype)

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read some rows.

        Parameters
        ----------
        start, stop : int
            First row, and the row after the last: 0 ≤ start ≤ stop ≤ number of rows.

        Returns
        -------
        array [stop − start, ...]
            The rows.

        Raises
        ------
        InvalidParameterError
            If start or stop is out of range.
        InvalidInputError
            If the file ends too early or is damaged.
        """
        (block,) = self.blocks([(start, stop)])
        return block

    def blocks(self, bounds: Iterable[tuple[int, int]]) -> Iterator[npt.NDArray[Any]]:
        """Read blocks of rows in order.

        Parameters
        ----------
        bounds : iterable of (int, int)
            Bounds (start, stop) of each block, as for `read`.  Each block must start at or after
            the end of the previous block.

        Yields
        ------
        array
            The rows of a block.  In a compressed array, rows between blocks are skipped in pieces.

        Raises
        ------
        InvalidParameterError
            If a bound is out of range; this is checked before rows are read.
        InvalidInputError
            If the file ends too early or is damaged.
        """
        bounds, member = self._checked(bounds), self.member
        with opened(self.path) if member is None else unpacked(self.path, member) as file:
            for start, stop in bounds:
                place = self.offset + start * self.row_bytes
                size = (stop - start) * self.row_bytes
                yield self._as_array(read_exactly(file, place, size, self.path), stop - start)

    def _checked(self, bounds: Iterable[tuple[Any, Any]]) -> list[tuple[int, int]]:
        """Return the bounds as integers; raise if they are out of range or not in order."""
        count, end, checked = self.shape[0] if self.shape else 0, 0, []
        for start, stop in bounds:
            try:
                block = operator.index(start), operator.index(stop)
            except TypeError:
                block = -1, -1
            if not end <= block[0] <= block[1] <= count:
                raise InvalidParameterError(
                    f"rows {shown(start)} to {shown(stop)} of {self.description}; give integers "
                    f"with {end} ≤ start ≤ stop ≤ {count}"
                )
            end = block[1]
            checked.append(block)
        return checked

    def _as_array(self, data: bytes, count: int) -> npt.NDArray[Any]:
        # For empty rows, NumPy could not infer a size of -1, so the shape is explicit.
        shape = (count, *self.shape[1:])
        if self.dtype == "bfloat16":
            # A bfloat16 is the upper half of a float32.
            halves = np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16
            return halves.view(np.float32).reshape(shape)
        return np.frombuffer(data, dtype=self.dtype).reshape(shape)


def array_label(path: Path, name: str) -> str:
    """Return the name of an array for messages, on one line."""
    return f"array {name!r:.60} of {file_label(path)}"


def item_size(dtype: str) -> int:
    """Return the number of bytes of a number."""
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def check_shape(shape: Any, dtype: str, available: int, where: str) -> tuple[int, ...]:
    """Check a shape from a header; raise if numbers are missing or a row is too long."""
    if not isinstance(shape, tuple | list) or not all(
        isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in shape
    ):
        raise InvalidInputError(f"{where} has a header with the invalid shape {shape!r:.60}")
    row = math.prod(shape[1:]) * item_size(dtype)
    if row > LARGEST_ROW:
        raise InvalidInputError(
            f"{where} has rows of {_many(row)} bytes; at most {LARGEST_ROW:,} are allowed"
        )
    promised = math.prod(shape) * item_size(dtype)
    if promised != available:
        raise InvalidInputError(
            f"{where} has {available:,} bytes of numbers, but its header states "
            f"{_many(promised)}; the file is damaged or truncated"
        )
    return tuple(shape)


@contextmanager
def unpacked(path: Path, member: str) -> Iterator[IO[bytes]]:
    """Open a member of an archive whose contents were checked; raise if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
            yield stream
    except UNPACKING as error:
        raise InvalidInputError(
            f"{file_label(path)} has the damaged member {member!r:.60}: {error!s:.100}"
        ) from None


def _many(number: int) -> str:
    return f"{number:,}" if number < 10**18 else "more than 10^18"
