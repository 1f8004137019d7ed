"""An array in a file, read in blocks of rows."""

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
"""Most bytes of a row: one is always held whole, so that no header may ask for more."""

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
"""What `zipfile` raises where an archive is damaged or not of this kind."""


@dataclass(frozen=True)
class StoredArray:
    """Where the numbers of an array are, as its checked header says.

    Rows are read, not mapped: a file that is cut short under a memory map ends the process.

    Attributes
    ----------
    path : Path
        The file.
    name : str
        Name of the array in it.
    shape : tuple of int
        Its shape, rows along the first axis.
    dtype : str
        Type of the numbers, as NumPy writes it; "bfloat16", which NumPy lacks, is read as float32.
    offset : int
        Byte at which the numbers begin, in the file or in what is unpacked.
    member : str or None
        The member of an archive to be unpacked, from its first row on; None if the numbers are in
        the file as they are, and can be read from any row on.

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
        """The array in words, for messages."""
        return array_label(self.path, self.name) if self.name else file_label(self.path)

    @property
    def kind(self) -> str:
        """Letter of the kind of numbers: "f", "i" or "u"."""
        return "f" if self.dtype == "bfloat16" else np.dtype(self.dtype).kind

    @property
    def row_bytes(self) -> int:
        """Bytes of one row in the file."""
        return math.prod(self.shape[1:]) * item_size(self.dtype)

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read some rows.

        Parameters
        ----------
        start, stop : int
            The first row, and the one behind the last: 0 ≤ start ≤ stop ≤ number of rows.

        Returns
        -------
        array [stop − start, ...]
            The rows.

        Raises
        ------
        InvalidParameterError
            If there are no such rows.
        InvalidInputError
            If the file ends too early or is damaged.
        """
        (block,) = self.blocks([(start, stop)])
        return block

    def blocks(self, bounds: Iterable[tuple[int, int]]) -> Iterator[npt.NDArray[Any]]:
        """Read blocks of rows, one after the other.

        Parameters
        ----------
        bounds : iterable of (int, int)
            First row of each block and the row behind its last, as for `read`; none begins before
            the end of the one before.

        Yields
        ------
        array
            The rows; what lies between two blocks of a compressed array is passed over in pieces.

        Raises
        ------
        InvalidParameterError
            If there are no such rows; before any is read.
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
        """Bounds of blocks as integers; bytes beside the rows would be read as numbers."""
        count, end, found = self.shape[0] if self.shape else 0, 0, []
        for start, stop in bounds:
            try:
                block = operator.index(start), operator.index(stop)
            except TypeError:
                block = -1, -1
            if not end <= block[0] <= block[1] <= count:
                raise InvalidParameterError(
                    f"rows {shown(start)} to {shown(stop)} of {self.description}; give integers, "
                    f"{end} ≤ start ≤ stop ≤ {count}"
                )
            end = block[1]
            found.append(block)
        return found

    def _as_array(self, data: bytes, count: int) -> npt.NDArray[Any]:
        shape = (count, *self.shape[1:])  # rows may be empty
        if self.dtype == "bfloat16":  # the upper half of a float32
            halves = np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16
            return halves.view(np.float32).reshape(shape)
        return np.frombuffer(data, dtype=self.dtype).reshape(shape)


def array_label(path: Path, name: str) -> str:
    """Name of an array for a message, on one line."""
    return f"array {name!r:.60} of {file_label(path)}"


def item_size(dtype: str) -> int:
    """Bytes of one number."""
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def check_shape(shape: Any, dtype: str, available: int, where: str) -> tuple[int, ...]:
    """Check a shape from a header: its numbers are there, no row is longer than any vocabulary."""
    if not isinstance(shape, tuple | list) or not all(
        isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in shape
    ):
        raise InvalidInputError(f"{where} has a header with the shape {shape!r:.60}")
    row = math.prod(shape[1:]) * item_size(dtype)
    if row > LARGEST_ROW:
        raise InvalidInputError(
            f"{where} has rows of {_many(row)} bytes; at most {LARGEST_ROW:,} are read"
        )
    promised = math.prod(shape) * item_size(dtype)
    if promised != available:
        raise InvalidInputError(
            f"{where} has {available:,} bytes of numbers where its header promises "
            f"{_many(promised)}; it is damaged or was cut short"
        )
    return tuple(shape)


@contextmanager
def unpacked(path: Path, member: str) -> Iterator[IO[bytes]]:
    """Open a member of an archive whose table of contents was checked; refuse a damaged one."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
            yield stream
    except UNPACKING as error:
        raise InvalidInputError(
            f"{file_label(path)} is damaged at its member {member!r:.60}: {error!s:.100}"
        ) from None


def _many(number: int) -> str:
    return f"{number:,}" if number < 10**18 else "more than 10^18"
