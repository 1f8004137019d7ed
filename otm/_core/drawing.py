"""Style of all plots: as wide as one column of a paper, legible in print and without colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from otm._core.optional import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

COLUMN_WIDTH = 3.4
"""Inches."""

PAGE_WIDTH = 7.0
"""Width of a plot over both columns of a page, in inches."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")
"""Okabe and Ito's palette for all kinds of colour vision, without its lightest colours."""

INVISIBLE = 1e-9
"""Largest probability that is not drawn, because its bar would look like a line."""

BAR = 0.38
"""Width of one of the two bars of a token; tokens are 1 apart."""

LEGEND = 64
"""Longest legend that is drawn in one line, in characters."""

SCREEN_WIDTH = 5.2
"""Width of a plot for the screen, in inches."""

MARKERS = ("o", "s", "^", "D", "v")
"""One marker per colour, so that curves also differ in black and white."""

_SETTINGS: dict[str, Any] = {
    "font.family": "STIXGeneral",
    "font.size": 9,
    "mathtext.fontset": "stix",
    "axes.labelsize": 9,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.4,
    "grid.color": "#DDDDDD",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 8,
    "legend.edgecolor": "none",
    "legend.framealpha": 1,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1,
    "lines.markeredgewidth": 0.7,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # Embedded TrueType: many publishers reject Type 3 fonts.
    "svg.fonttype": "path",  # Paths look the same if the font is not installed.
    "svg.hashsalt": "otm",  # A fixed salt makes the names inside reproducible.
}


@contextmanager
def journal_style() -> Iterator[None]:
    """Draw or save in the style of the figures, independent of the user's settings."""
    require("matplotlib")
    from matplotlib import style

    with style.context(["default", _SETTINGS]):
        yield


def blank_figure(height: float, *, wide: bool = False) -> Figure:
    """Create a figure, one or two columns wide, with a height in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(PAGE_WIDTH if wide else COLUMN_WIDTH, height), layout="constrained")


@contextmanager
def drawing_on(ax: Axes | None, height: float, width: float = SCREEN_WIDTH) -> Iterator[Axes]:
    """Yield the caller's axes, or those of a new pyplot figure with a size in inches."""
    require("matplotlib")
    if ax is not None:
        with journal_style():
            yield ax
        return
    from matplotlib import pyplot as plt

    # The figure is made outside the style context, which would reset a notebook's settings.
    figure = plt.figure(figsize=(width, height), layout="constrained")
    with journal_style():
        yield figure.add_subplot()


def split_bars(
    axes: Axes, names: Sequence[str], laws: Sequence[Floats], labels: Sequence[str]
) -> None:
    """Draw two bars per token: the draft, and the target split into accepted part and residual."""
    (draft, accepted, residual), (drawn, taken, left) = laws, labels
    places = np.arange(len(names))
    right, above = places + BAR / 2, residual > INVISIBLE
    axes.bar(places - BAR / 2, draft, BAR, color="#BBBBBB", label=drawn)
    axes.bar(right, accepted, BAR, color=COLOURS[0], label=taken)
    style: dict[str, Any] = {"facecolor": "white", "edgecolor": COLOURS[1], "hatch": "////"}
    style |= {"bottom": accepted[above], "label": left}
    axes.bar(right[above], residual[above], BAR, **style)
    axes.set_xticks(places, names)
    axes.grid(visible=False, axis="x")
    legend_above(axes)


def legend_above(axes: Axes) -> None:
    """Put the legend above the axes, where it hides no data; a short legend takes one line."""
    handles, labels = axes.get_legend_handles_labels()
    short = sum(map(len, labels)) + 5 * len(labels) <= LEGEND
    axes.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=len(labels) if short else 2,
        handlelength=1.6,
        columnspacing=1.2,
    )
