"""The data of a figure: a small table that is written as CSV and read back.

Also tables that compare a paper's printed numbers with computed ones.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from otm._core.files.paths import file_label, opened
from otm.errors import InvalidInputError

Cell: TypeAlias = str | int | float

AGREES = "agrees"
"""Verdict if the computed number rounds to the printed one."""


@dataclass(frozen=True)
class Table:
    r"""Rows of cells under named columns.

    Parameters
    ----------
    names : tuple of str
        Names of the columns.
    rows : tuple of tuples
        Rows with one cell per column.  Numbers are Python numbers, so that all digits are written.

    Examples
    --------
    >>> table = Table(("k", "alpha"), ((1, 0.5), (2, 0.75)))
    >>> table["alpha"]
    array([0.5 , 0.75])
    >>> table.where(k=2).rows
    ((2, 0.75),)
    >>> list(table.records())[0]
    {'k': 1, 'alpha': 0.5}
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
        """Return the table of the rows with these cells."""
        columns = {self.names.index(name): cell for name, cell in cells.items()}
        kept = (row for row in self.rows if all(row[i] == cell for i, cell in columns.items()))
        return Table(self.names, tuple(kept))

    def records(self) -> Iterator[dict[str, Cell]]:
        """Yield the rows as mappings from columns to cells."""
        return (dict(zip(self.names, row, strict=True)) for row in self.rows)

    def to_csv(self) -> str:
        """Return the table as CSV with a header and line feeds; floats read back exactly.

        Raises
        ------
        InvalidInputError
            If a text cell would be read back as a number.
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
        """Parse the output of `to_csv`.

        Raises
        ------
        InvalidInputError
            If the text is not such a table.
        """
        try:
            names, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        except (ValueError, csv.Error) as error:
            why = str(error) if isinstance(error, csv.Error) else "it is empty"
            raise InvalidInputError(f"not a CSV table: {why}") from None
        for number, row in enumerate(rows, 1):
            if len(row) != len(names):
                raise InvalidInputError(
                    f"not a CSV table: row {number} has {len(row)} cells, the heading {len(names)}"
                )
        return cls(tuple(names), tuple(tuple(map(_as_cell, row)) for row in rows))

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a file with the output of `to_csv`.

        Raises
        ------
        InvalidInputError
            If the file is missing or not such a table; the message names it.
        """
        with opened(file) as data:
            content = data.read()
        try:
            return cls.from_csv(content.decode("utf-8"))
        except (UnicodeDecodeError, InvalidInputError) as error:
            raise InvalidInputError(
                f"{file_label(file)} is damaged: {error!s:.120}; remove it, and draw the figure "
                "again"
            ) from None


class Comparison(NamedTuple):
    """A printed number and the computed one.

    Attributes
    ----------
    item : str
        Description of the number, such as "EnDe, T5-small, T = 0".
    printed : str
        The printed number without units; its digits show how it was rounded.
    computed : float
        The number from the paper's formula.
    reason : str
        Reason for a difference; empty if the numbers agree.
    """

    item: str
    printed: str
    computed: float
    reason: str = ""


def rounding_interval(printed: str) -> tuple[Fraction, Fraction]:
    """Return the least and the largest number that may round to the printed one.

    Examples
    --------
    >>> rounding_interval("0.7")
    (Fraction(13, 20), Fraction(3, 4))
    """
    number = Decimal(printed)
    half = Fraction(Decimal(5).scaleb(int(number.as_tuple().exponent) - 1))
    return Fraction(number) - half, Fraction(number) + half


def agrees(printed: str, computed: float) -> bool:
    """Return whether a number rounds to the printed one.

    A number halfway between two printable ones may round either way.

    Examples
    --------
    >>> agrees("2.5", 2.5499), agrees("2.5", 2.56), agrees("0.75", 0.745)
    (True, False, True)
    """
    least, largest = rounding_interval(printed)
    return least <= Fraction(repr(float(computed))) <= largest


def comparison_table(comparisons: Iterable[Comparison]) -> Table:
    """Make a table of comparisons, with the differences and the verdicts."""
    rows: list[tuple[Cell, ...]] = []
    for item, printed, computed, reason in comparisons:
        verdict = AGREES if agrees(printed, computed) else "differs"
        decimals = max(0, -int(Decimal(printed).as_tuple().exponent))
        difference = computed - float(printed)
        rows.append((item, float(printed), decimals, float(computed), difference, verdict, reason))
    names = ("item", "printed", "decimals", "computed", "difference", "verdict", "reason")
    return Table(names, tuple(rows))


def _as_cell(text: str) -> Cell:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
