"""The look of all pictures: one column of a paper wide, legible in print and without colour."""

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
"""Inches; of the two columns of a page, for what does not fit into one."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")
"""Okabe and Ito's palette for all kinds of colour vision, without its lightest colours."""

INVISIBLE = 1e-9
"""Probabilities up to it are not drawn: they would be a line."""

BAR = 0.38
"""Width of one of the two bars of a token, whose places are 1 apart."""

LEGEND = 64
"""Most characters of a legend in one line."""

SCREEN_WIDTH = 5.2
"""Inches; of a picture for the screen."""

MARKERS = ("o", "s", "^", "D", "v")
"""One for each colour, so that curves differ in print without colours too."""

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
    "pdf.fonttype": 42,  # TrueType, embedded: Type 3 fonts are refused by many publishers
    "svg.fonttype": "path",  # looks the same where the font is not installed
    "svg.hashsalt": "otm",  # otherwise the names inside are drawn at random
}


@contextmanager
def journal_style() -> Iterator[None]:
    """Draw or save in the style of the figures, whatever the user's own settings are."""
    require("matplotlib")
    from matplotlib import style

    with style.context(["default", _SETTINGS]):
        yield


def blank_figure(height: float, *, wide: bool = False) -> Figure:
    """Start a figure that is one column, or two, wide and some inches high."""
    from matplotlib.figure import Figure

    return Figure(figsize=(PAGE_WIDTH if wide else COLUMN_WIDTH, height), layout="constrained")


@contextmanager
def drawing_on(ax: Axes | None, height: float, width: float = SCREEN_WIDTH) -> Iterator[Axes]:
    """Draw for a user: on axes that were given, or on a new figure of pyplot, sizes in inches."""
    require("matplotlib")
    if ax is not None:
        with journal_style():
            yield ax
        return
    from matplotlib import pyplot as plt

    # outside of the style, in which pyplot would forget what a notebook has set
    figure = plt.figure(figsize=(width, height), layout="constrained")
    with journal_style():
        yield figure.add_subplot()


def split_bars(
    axes: Axes, names: Sequence[str], laws: Sequence[Floats], labels: Sequence[str]
) -> None:
    """Draw two bars for each token: the draft's, and the target's as accepted part and residual."""
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
    """Put the legend above the axes, where it covers nothing; in one line if it is short."""
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
