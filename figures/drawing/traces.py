"""Tokens on a page: one unit across is a character, one unit down is a line.

What became of a token is said by a line through or below it, and again by its colour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from figures.iterations import ACCEPTED, CONTEXT, NOT_REACHED, REJECTED, TARGET
from figures.table import Table
from otm._core.drawing import COLOURS, COLUMN_WIDTH, PAGE_WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FONT: dict[str, Any] = {"family": "DejaVu Sans Mono", "fontsize": 8}
"""It comes with matplotlib, so that a page looks the same everywhere."""

CHARACTER = 8 * 1233 / 2048
"""Points from one character to the next."""

LINE = 13.0
"""Points from one line to the next."""

BASELINE = 0.72
"""Lines from the top of a line to the feet of its letters."""

MARGIN = 4.0
"""Points around the page."""

COLOUR_OF = {
    CONTEXT: "#555555",
    ACCEPTED: "#007A59",  # COLOURS[2], darker: thin letters need more contrast
    REJECTED: "#B84F00",  # COLOURS[1], darker
    NOT_REACHED: "#8A8A8A",
    TARGET: COLOURS[0],
}
NAME = 10
"""Characters in front of a line for its name."""

CONTEXT_SHOWN = 26
GAP = 3
"""Characters from one new token to the next, so that each is seen to be one."""

TINT = "#D5EFE5"
"""Behind accepted drafts, which would look like the context without colours."""

KINDS = {
    ACCEPTED: "accepted draft",
    REJECTED: "rejected draft",
    NOT_REACHED: "draft not verified",
    TARGET: "target's own token",
}
"""Names of the kinds of new tokens in a legend."""


def text_page(lines: float, *, wide: bool = False) -> tuple[Figure, Axes]:
    """Start a page without frame or axes, of so many lines."""
    from matplotlib.figure import Figure

    width = PAGE_WIDTH if wide else COLUMN_WIDTH
    height = (lines * LINE + 2 * MARGIN) / 72
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    left, top = -MARGIN / CHARACTER, -MARGIN / LINE
    axes.set(xlim=(left, left + 72 * width / CHARACTER), ylim=(top + 72 * height / LINE, top))
    axes.set_autoscale_on(False)
    return figure, axes


def draw_text(axes: Axes, x: float, y: float, kind: str, tokens: Sequence[int]) -> int:
    """Write bytes of one kind from a place on, and return how many characters they take.

    Spaces of new tokens are visible, since each is a token.
    """
    text = "".join(visible(token, space=" " if kind == CONTEXT else "␣") for token in tokens)
    _write(axes, x, y, kind, text)
    return len(text)


def draw_label(axes: Axes, x: float, y: float, text: str, side: str = "left") -> None:
    """Write what a line is, on the left or on the right side of a place."""
    place = (x, y + BASELINE)
    axes.text(*place, text, ha=side, va="baseline", fontsize=8, color="#333333")


def draw_legend(axes: Axes, x: float, y: float, kinds: Iterable[str], *, columns: int = 2) -> None:
    """Explain those kinds of new tokens that there are, in words that are written like them."""
    present = set(kinds)
    shown = [(kind, name) for kind, name in KINDS.items() if kind in present]
    for i, (kind, name) in enumerate(shown):
        _write(axes, x + i % columns * 24, y + i // columns * 1.15, kind, name)


def draw_iteration(table: Table) -> Figure:
    """Draw the lines of `rows_of_iteration`: names, the end of the context, and the new tokens."""
    lines = list(dict.fromkeys(table["line"].tolist()))[1:]
    figure, axes = text_page(lines=len(lines) + 2.9)
    for y, line in enumerate(lines):
        draw_label(axes, 0, y, line)
        x = NAME + draw_context(axes, NAME, y, table.where(line="context"), CONTEXT_SHOWN)
        for i, (_, _, kind, token, _) in enumerate(table.where(line=line).rows):
            draw_text(axes, x + GAP * i + 1, y, str(kind), [int(token)])
    draw_legend(axes, 0, len(lines) + 0.6, table["kind"].tolist())
    return figure


def draw_context(axes: Axes, x: float, y: float, context: Table, length: int) -> int:
    """Write the end of a context in so many characters, and return their number."""
    _write(axes, x, y, CONTEXT, "…")
    return 1 + draw_text(axes, x + 1, y, CONTEXT, context["token"].tolist()[1 - length :])


def visible(token: int, space: str) -> str:
    """Show a byte as one character."""
    if token in b" \n":
        return {32: space, 10: "↵"}[token]
    return chr(token) if 32 < token < 127 else "�"


def _write(axes: Axes, x: float, y: float, kind: str, text: str) -> None:
    """Write a text with its line; words one by one, so that all characters stay in columns."""
    colour = COLOUR_OF[kind]
    weight = "bold" if kind == TARGET else "normal"
    for word in re.finditer(r"\S+", text):
        place = (x + word.start(), y + BASELINE)
        axes.text(*place, word.group(), color=colour, weight=weight, va="baseline", **FONT)
    if kind == ACCEPTED:
        axes.fill_between((x, x + len(text)), y + 0.02, y + 0.98, color=TINT, linewidth=0)
    elif kind in (REJECTED, NOT_REACHED):
        # faint, so that letters can be read through it
        axes.hlines(y + 0.5, x, x + len(text), color=colour, linewidth=1.4, alpha=0.5)
    elif kind == TARGET:
        axes.hlines(y + 0.92, x + 0.1, x + len(text) - 0.1, color=colour, linewidth=1)
