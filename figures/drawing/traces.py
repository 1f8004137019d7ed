"""Tokens on a page, in units of one character across and one line down.

A line through or below a token shows its fate, and its colour shows it again.
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
"""A font that comes with matplotlib, so that a page looks the same on all machines."""

CHARACTER = 8 * 1233 / 2048
"""Width of a character in points."""

LINE = 13.0
"""Height of a line in points."""

BASELINE = 0.72
"""Distance from the top of a line to the baseline of its letters, in lines."""

MARGIN = 4.0
"""Margin around the page in points."""

COLOUR_OF = {
    CONTEXT: "#555555",
    ACCEPTED: "#007A59",  # a darker COLOURS[2], because thin letters need contrast
    REJECTED: "#B84F00",  # a darker COLOURS[1]
    NOT_REACHED: "#8A8A8A",
    TARGET: COLOURS[0],
}
NAME = 10
"""Number of characters before a line for its name."""

CONTEXT_SHOWN = 26
GAP = 3
"""Number of characters from one new token to the next, so that tokens are separate."""

TINT = "#D5EFE5"
"""Background of accepted drafts, which would look like the context without colours."""

KINDS = {
    ACCEPTED: "accepted draft",
    REJECTED: "rejected draft",
    NOT_REACHED: "draft not verified",
    TARGET: "target's own token",
}
"""Names of the kinds of new tokens in the legend."""


def text_page(lines: float, *, wide: bool = False) -> tuple[Figure, Axes]:
    """Start a page of `lines` lines, without frame or axes."""
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
    """Write bytes of one kind at a position, and return their width in characters.

    Spaces among new tokens are visible, because each is a token.
    """
    text = without_spaces(bytes(tokens).decode("latin-1"), " " if kind == CONTEXT else "␣")
    draw_token(axes, x, y, kind, text)
    return len(text)


def draw_label(axes: Axes, x: float, y: float, text: str, side: str = "left") -> None:
    """Write the name of a line to the left or to the right of a position."""
    place = (x, y + BASELINE)
    axes.text(*place, text, ha=side, va="baseline", fontsize=8, color="#333333")


def draw_legend(axes: Axes, x: float, y: float, kinds: Iterable[str], *, columns: int = 2) -> None:
    """Draw a legend of the existing kinds of new tokens, with each name in its style."""
    present = set(kinds)
    shown = [(kind, name) for kind, name in KINDS.items() if kind in present]
    for i, (kind, name) in enumerate(shown):
        draw_token(axes, x + i % columns * 24, y + i // columns * 1.15, kind, name)


def draw_iteration(table: Table) -> Figure:
    """Draw the lines of `rows_of_iteration`: name, end of the context, and new tokens."""
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
    """Write the end of a context within `length` characters, and return the number written."""
    draw_token(axes, x, y, CONTEXT, "…")
    return 1 + draw_text(axes, x + 1, y, CONTEXT, context["token"].tolist()[1 - length :])


def without_spaces(text: str, space: str) -> str:
    """Show each character in one column: new lines as ↵, unprintable ones as �."""
    shown = {" ": space, "\n": "↵"}
    return "".join(shown.get(c, c if 32 < ord(c) < 127 else "�") for c in text)


def draw_token(axes: Axes, x: float, y: float, kind: str, text: str) -> None:
    """Write a text with its line, word by word, so that all characters stay in columns."""
    colour = COLOUR_OF[kind]
    weight = "bold" if kind == TARGET else "normal"
    for word in re.finditer(r"\S+", text):
        place = (x + word.start(), y + BASELINE)
        axes.text(*place, word.group(), color=colour, weight=weight, va="baseline", **FONT)
    if kind == ACCEPTED:
        axes.fill_between((x, x + len(text)), y + 0.02, y + 0.98, color=TINT, linewidth=0)
    elif kind in (REJECTED, NOT_REACHED):
        # The line is faint, so that letters stay readable.
        axes.hlines(y + 0.5, x, x + len(text), color=colour, linewidth=1.4, alpha=0.5)
    elif kind == TARGET:
        axes.hlines(y + 0.92, x + 0.1, x + len(text) - 0.1, color=colour, linewidth=1)
