"""Tables as pictures, with rules above and below and no lines between rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from figures.table import AGREES, Table
from otm._core.drawing import COLOURS, COLUMN_WIDTH, PAGE_WIDTH
from otm.errors import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONT_SIZE = 8
LINE = 0.165
"""Inches from one line of text to the next."""
GAP = 0.12
"""Minimum number of inches between columns."""
MARGIN = 0.05
APART = 0.05
"""Extra inches between two groups of rows, for the line and the descenders of letters."""


def table_figure(
    heading: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int = 1,
    groups: Collection[int] = (),
    marked: Collection[int] = (),
    note: str = "",
) -> Figure:
    """Draw a table as wide as one column of a page, or two columns if necessary.

    Parameters
    ----------
    heading : sequence of str
        Names of the columns; they may contain line feeds.
    rows : sequence of sequences of str
        Rows with one cell for each column.
    left : int, optional
        Number of leading text columns, aligned on the left; other columns are aligned on the right.
    groups : collection of int, optional
        Rows with a thin line above them.
    marked : collection of int, optional
        Highlighted rows, in another colour.
    note : str, optional
        Text below the table; it may contain line feeds.

    Raises
    ------
    InvalidInputError
        If the table is wider than a page.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    scratch = Figure(figsize=(PAGE_WIDTH, 1))

    def inches(text: str) -> float:
        shown = Text(0, 0, text, fontsize=FONT_SIZE, figure=scratch)
        return float(shown.get_window_extent().width) / scratch.dpi

    columns = list(zip(heading, *rows, strict=True))
    widths = [max(map(inches, column)) for column in columns]
    least = math.fsum(widths) + GAP * (len(widths) - 1) + 2 * MARGIN
    if least > PAGE_WIDTH:
        raise InvalidInputError(
            f"the table is {least:.1f} inches wide, and a page {PAGE_WIDTH}; shorten its cells"
        )
    page = COLUMN_WIDTH if least <= COLUMN_WIDTH else PAGE_WIDTH
    gap = min((page - 2 * MARGIN - math.fsum(widths)) / max(1, len(widths) - 1), 4 * GAP)
    table = math.fsum(widths) + gap * (len(widths) - 1)
    heads = max(text.count("\n") for text in heading) + 1
    notes = note.count("\n") + 1 if note else 0
    between = APART * len(groups)
    height = (heads + len(rows) + notes) * LINE + between + 0.3 + (0.08 if notes else 0)
    figure = Figure(figsize=(page, height))
    start = (page - table) / 2

    def write(x: float, y: float, text: str, side: str, colour: str = "black") -> None:
        figure.text(
            x / page,
            y / height,
            text,
            fontsize=FONT_SIZE,
            horizontalalignment=side,
            verticalalignment="bottom",
            color=colour,
        )

    def line(y: float, width: float) -> None:
        ends = [start / page, (start + table) / page]
        figure.add_artist(Line2D(ends, [y / height] * 2, color="black", linewidth=width))

    top = height - 0.06
    line(top, 0.9)
    below = top - 0.05 - heads * LINE
    line(below, 0.5)
    bottom = below - 0.08 - len(rows) * LINE - between

    def foot(row: int) -> float:
        return below - 0.03 - (row + 1) * LINE - APART * sum(group <= row for group in groups)

    line(bottom, 0.9)
    x = start
    for index, (column, width) in enumerate(zip(columns, widths, strict=True)):
        side, at = ("left", x) if index < left else ("right", x + width)
        write(at, below + 0.03, column[0], side)
        for row, cell in enumerate(column[1:]):
            colour = COLOURS[1] if row in marked else "black"
            write(at, foot(row), cell, side, colour)
        x += width + gap
    for row in groups:
        line(foot(row) + LINE + APART / 2, 0.3)
    if note:
        write(start, bottom - 0.06 - notes * LINE, note, "left", "#444444")
    return figure


def comparison_figure(table: Table, *, item: str = "") -> Figure:
    """Draw a table of `figures.leviathan.printed`, with differences highlighted.

    Parameters
    ----------
    table : Table
        Result of `comparison_table`.
    item : str, optional
        Heading of the first column.
    """
    rows, marked = [], []
    for index, cells in enumerate(table.records()):
        digits = int(cells["decimals"])
        differs = cells["verdict"] != AGREES
        if differs:
            marked.append(index)
        rows.append(
            [
                str(cells["item"]),
                f"{cells['printed']:.{digits}f}",
                f"{cells['computed']:.{digits + 1}f}",
                _signed(float(cells["difference"]), digits + 1),
                "differs" if differs else "",
            ]
        )
    heading = [item, "printed", "computed", "difference", ""]
    if not marked:
        heading, rows = heading[:-1], [row[:-1] for row in rows]
    return table_figure(heading, rows, marked=marked)


def _signed(number: float, digits: int) -> str:
    """Format a number with a sign, but zero without a sign."""
    rounded = round(number, digits)
    return f"{rounded:+.{digits}f}".replace("-", "−") if rounded else f"{0:.{digits}f}"
