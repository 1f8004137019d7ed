"""Text for people: any object as a few characters for a message, and tables as aligned text.

A refusal must not fail while it is worded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

LENGTH = 60
"""Most characters that are shown."""


def shown(value: Any) -> str:
    """Write an object as `repr` does, cut to 60 characters, whatever the object is.

    Python refuses to write integers of thousands of digits, and a class of the caller may have a
    `repr` that fails; of such objects only the type is named, and of integers their size.
    """
    try:
        text = repr(value)
    except Exception:  # whatever a class of the caller raises
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
    """Lay rows of cells out as a table of HTML, with notes below it; escape cells and notes."""
    from html import escape

    def line(cells: Sequence[str], tag: str) -> str:
        style = "style='text-align:left'"
        return f"<tr>{''.join(f'<{tag} {style}>{escape(x)}</{tag}>' for x in cells)}</tr>"

    above = f"<caption>{caption}</caption>" if caption else ""
    head = line(heading, "th") if heading else ""
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<table>{above}{head}{''.join(line(row, 'td') for row in rows)}</table>{below}"


def text_table(columns: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> str:
    """Lay rows of cells out in columns, below their names and a line if there are any."""
    above = [columns] if columns else []
    widths = [max(map(len, column)) for column in zip(*above, *rows, strict=True)]
    if columns:
        above.append(["-" * width for width in widths])
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (*above, *rows)
    )
