"""Tables as aligned text."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["text_table"]


def text_table(columns: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> str:
    """Lay rows out in columns.

    Parameters
    ----------
    columns : sequence of str or None
        What stands above, with a line below it; None for nothing.
    rows : sequence of sequences of str
        The cells; all rows of one length.

    Returns
    -------
    str
        A line for each row, without the last line break.

    Examples
    --------
    >>> print(text_table(["rule", "acceptance"], [["optimal", "0.6875"], ["k-Seq", "0.6483"]]))
    rule     acceptance
    -------  ----------
    optimal  0.6875
    k-Seq    0.6483
    """
    above = [columns] if columns else []
    widths = [max(map(len, column)) for column in zip(*above, *rows, strict=True)]
    if columns:
        above.append(["-" * width for width in widths])
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (*above, *rows)
    )
