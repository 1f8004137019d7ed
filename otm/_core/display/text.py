"""Text for people: short texts of any object for messages, and aligned tables.

Building an error message must never raise an error itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

LENGTH = 60
"""Largest number of characters of a shown object."""


def shown(value: Any) -> str:
    """Return the `repr` of any object, cut to 60 characters.

    If `repr` fails, return the type.  Python does not write integers with thousands of digits;
    for these, return the size.
    """
    try:
        text = repr(value)
    except Exception:  # The object's own `__repr__` may raise anything.
        if isinstance(value, int):
            sign = "a negative" if value < 0 else "an"
            text = f"<{sign} integer of {value.bit_length()} bits>"
        else:
            text = f"<a {type(value).__name__:.30} that cannot be written>"
    return text if len(text) <= LENGTH else text[: LENGTH - 1] + "…"


def html_table(
    rows: Iterable[Sequence[str]],
    caption: str = "",
    *,
    heading: Sequence[str] = (),
    notes: Iterable[str] = (),
) -> str:
    """Format rows of cells as an HTML table with notes below it; escape all text."""
    from html import escape

    def line(cells: Sequence[str], tag: str) -> str:
        style = "style='text-align:left'"
        return f"<tr>{''.join(f'<{tag} {style}>{escape(x)}</{tag}>' for x in cells)}</tr>"

    above = f"<caption>{caption}</caption>" if caption else ""
    head = line(heading, "th") if heading else ""
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<table>{above}{head}{''.join(line(row, 'td') for row in rows)}</table>{below}"


def text_table(columns: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> str:
    """Format rows of cells in aligned columns, with a heading if column names are given."""
    above = [columns] if columns else []
    widths = [max(map(len, column)) for column in zip(*above, *rows, strict=True)]
    if columns:
        above.append(["-" * width for width in widths])
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (*above, *rows)
    )
