"""The data of a figure: a small table that is written as CSV and read back."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from otm.errors import InvalidInputError

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
    >>> Table.from_csv(table.to_csv()) == table
    True
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
        """Write as CSV with a header and line feeds; floats read back to the same floats.

        Raises
        ------
        InvalidInputError
            If a text would be read back as a number.
        """
        for row in self.rows:
            for cell in row:
                if isinstance(cell, str) and not isinstance(_as_cell(cell), str):
                    raise InvalidInputError(
                        f"the text {cell!r} of a table would be read back as a number; write it "
                        "with a letter or a unit, or as the number"
                    )
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.names, *self.rows])
        return text.getvalue()

    @classmethod
    def from_csv(cls, text: str) -> Self:
        """Read what `to_csv` wrote."""
        names, *rows = csv.reader(io.StringIO(text))
        return cls(tuple(names), tuple(tuple(map(_as_cell, row)) for row in rows))


def _as_cell(text: str) -> Cell:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
