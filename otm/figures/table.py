"""The data of a figure: a small table that is written as CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Cell", "Table"]

Cell: TypeAlias = str | int | float


@dataclass(frozen=True)
class Table:
    r"""Rows of cells under named columns.

    Parameters
    ----------
    names : tuple of str
        The columns.
    rows : tuple of tuples
        One cell a column; numbers are Python's own, so that they are written with all digits.

    Examples
    --------
    >>> table = Table(("k", "alpha"), ((1, 0.5), (2, 0.75)))
    >>> table["alpha"]
    array([0.5 , 0.75])
    >>> table.where(k=2).rows
    ((2, 0.75),)
    >>> table.to_csv()
    'k,alpha\n1,0.5\n2,0.75\n'
    """

    names: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        column = self.names.index(name)
        return np.array([row[column] for row in self.rows])

    def where(self, **cells: Cell) -> Table:
        """Keep the rows that have these cells."""
        columns = {self.names.index(name): cell for name, cell in cells.items()}
        kept = (row for row in self.rows if all(row[i] == cell for i, cell in columns.items()))
        return Table(self.names, tuple(kept))

    def to_csv(self) -> str:
        """Write as CSV with a header and line feeds; floats read back to the same floats."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.names, *self.rows])
        return text.getvalue()
