"""Compare newly drawn figures with the committed ones.

Another processor, NumPy build or Python may add floats in another order.  This changes the last
digits of data and single pixels, and so the bytes of the files.  So drawing does not change
committed files, and figures are compared within tolerances.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np

from figures.registry import Kind, load
from figures.table import Cell, Table
from otm._core.files.paths import read_json

FOLDER = Path(__file__).parent
"""Folder of the committed page."""

DRAWN = FOLDER / "drawn"
"""Folder of the committed figures."""

SUFFIXES = ("csv", "json", "png")
"""Suffixes of the committed files: the data, their source, and the picture."""

TOLERANCES = {
    Kind.THEORY: (1e-9, 1e-12),
    Kind.EXPERIMENT: (1e-5, 2e-6),  # larger, because models compute in float32
    Kind.MEASUREMENT: (1e-9, 1e-12),
}
"""Relative and absolute tolerances of floats, by kind; rounding errors are smaller."""

LARGEST_DIFFERENCE = 6.0
"""Tolerance of pictures as root mean square difference, of 255; a moved line exceeds it."""


def differences(name: str, drawn: Path, committed: Path = DRAWN) -> tuple[str, ...]:
    """Return the differences between a drawn and a committed figure; empty if they agree.

    Parameters
    ----------
    name : str
        Name of a figure with files in the folder `drawn`.
    drawn, committed : Path
        Folders of the drawn and of the committed files.

    Raises
    ------
    InvalidInputError
        If a file is damaged; the message names it.
    """
    files, others = _files(name, drawn), _files(name, committed)
    if not all(file.is_file() for file in others):
        return ("not committed",)
    found = [data_difference(Table.read(files[0]), Table.read(others[0]), load(name).kind)]
    if read_json(files[1]) != read_json(others[1]):
        found.append("where the data come from")
    if picture_distance(files[2], others[2]) > LARGEST_DIFFERENCE:
        found.append("the picture")
    return tuple(each for each in found if each)


def data_difference(table: Table, committed: Table, kind: Kind = Kind.THEORY) -> str:
    """Describe the first cell that differs by more than rounding; empty without such a cell.

    Examples
    --------
    >>> data_difference(Table(("k", "alpha"), ((1, 0.5),)), Table(("k", "alpha"), ((1, 0.75),)))
    'alpha of row 1 is 0.5, not 0.75'
    """
    if table.names != committed.names:
        return "the columns of the data"
    if len(table.rows) != len(committed.rows):
        return f"{len(table.rows)} rows of data, not {len(committed.rows)}"
    for number, (cells, others) in enumerate(zip(table.rows, committed.rows, strict=True), 1):
        for column, cell, other in zip(table.names, cells, others, strict=True):
            if not _agree(cell, other, *TOLERANCES[kind]):
                return f"{column} of row {number} is {cell}, not {other}"
    return ""


def _agree(cell: Cell, other: Cell, relative: float, absolute: float) -> bool:
    """Whether two cells are equal up to rounding."""
    if isinstance(cell, float) and isinstance(other, float):
        close = math.isclose(cell, other, rel_tol=relative, abs_tol=absolute)
        return close or (math.isnan(cell) and math.isnan(other))
    return cell == other


def picture_distance(file: Path, other: Path) -> float:
    """Return the root mean square difference of two pictures, of 255; ∞ for different sizes."""
    from matplotlib.image import imread

    pixels, others = imread(file), imread(other)
    if pixels.shape != others.shape:
        return math.inf
    return 255 * math.sqrt(float(np.square(pixels - others).mean()))


def take_over(name: str, drawn: Path, committed: Path = DRAWN) -> None:
    """Replace committed files of a figure by drawn ones that differ.

    Data that agree up to rounding do not change, and pictures with equal pixels do not change.
    """
    (table, source, picture), others = _files(name, drawn), _files(name, committed)
    new = not all(file.is_file() for file in others)
    if new or data_difference(Table.read(table), Table.read(others[0]), load(name).kind):
        shutil.copyfile(table, others[0])
    if new or read_json(source) != read_json(others[1]):
        shutil.copyfile(source, others[1])
    if new or picture_distance(picture, others[2]) > 0:
        shutil.copyfile(picture, others[2])


def _files(name: str, folder: Path) -> list[Path]:
    return [folder / f"{name}.{suffix}" for suffix in SUFFIXES]
