"""Common styles of rules and curves in all figures, and functions that save pictures."""

from __future__ import annotations

import textwrap
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from figures.rules import K_SEQ, MULTI_ROUND, OPTIMUM
from figures.table import Table
from otm._core.drawing import journal_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_METADATA: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}
"""Metadata without dates and versions, by kind of picture, in the order of saving."""

LINE, BELOW, LEFT = 0.13, 0.05, 0.05
"""Inches of a line above a picture, of the space below the lines, and of the left margin."""

CHARACTERS = 20
"""Number of characters per inch of such a line."""

PICTURES = tuple(_METADATA)
"""Suffixes of the kinds of pictures."""

RULE_LINES: dict[str, dict[str, Any]] = {
    OPTIMUM: {"linestyle": "-", "marker": "o", "markersize": 2.4},
    K_SEQ: {"linestyle": "--", "marker": "s", "markersize": 4, "markerfacecolor": "none"},
    MULTI_ROUND: {"linestyle": ":", "marker": "^", "markersize": 5.5, "markerfacecolor": "none"},
}
"""Line style of each rule in every figure; the figure chooses the colours."""

RULE_LABELS = {OPTIMUM: "OTM-$k$", K_SEQ: "$k$-Seq", MULTI_ROUND: "recursive rejection"}


def label_point(
    axes: Axes, point: tuple[float, float], text: str, colour: str, side: Literal["left", "right"]
) -> None:
    """Write the name of a curve next to one of its points."""
    axes.annotate(
        text,
        point,
        xytext=(-5 if side == "left" else 8, 0),
        textcoords="offset points",
        horizontalalignment="right" if side == "left" else "left",
        verticalalignment="center",
        fontsize=8,
        color=colour,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
    )


def curve_styles(
    names: Iterable[str], colours: Sequence[str], markers: Sequence[str], lines: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return the style of each named curve, with open markers."""
    return {
        name: {
            "color": colour,
            "marker": marker,
            "linestyle": line,
            "markersize": 4,
            "markerfacecolor": "none",
        }
        for name, colour, marker, line in zip(names, colours, markers, lines, strict=True)
    }


def draw_gains(
    axes: Axes,
    table: Table,
    ways: Container[str],
    places: Mapping[str, float],
    *,
    colour: str,
    aside: float,
    label: str,
) -> None:
    """Draw the gains of some ways with intervals; points above their place get the label."""
    column = table.names.index("way")
    rows = Table(table.names, tuple(row for row in table.rows if row[column] in ways))
    gain, low, high = (rows[name].astype(float) for name in ("gain", "gain_low", "gain_high"))
    axes.errorbar(
        gain,
        [places[way] + aside for way in rows["way"]],
        xerr=[gain - low, high - gain],
        linestyle="none",
        marker="o",
        markersize=4,
        color=colour,
        markerfacecolor=colour if aside > 0 else "white",
        label=label if aside > 0 else None,
    )


def rule_legend(axes: Axes, rules: Sequence[str]) -> None:
    """Draw a legend of the rules' line styles, if colours have another meaning."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color="#444444", **RULE_LINES[rule]) for rule in rules]
    axes.legend(handles, [RULE_LABELS[rule] for rule in rules], loc="lower right")


def write_above(figure: Figure, text: str) -> None:
    """Add a strip with a line of text above a drawing."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    lines = textwrap.wrap(text, round(CHARACTERS * width))
    taller = height + LINE * len(lines) + BELOW
    figure.set_size_inches(width, taller)
    engine = figure.get_layout_engine()
    if not isinstance(engine, ConstrainedLayoutEngine):
        # Positions are shares of the height, so all of them change.
        share = height / taller
        for axes in figure.axes:
            left, bottom, across, up = axes.get_position().bounds
            axes.set_position((left, bottom * share, across, up * share))
        for words in figure.texts:
            words.set_y(words.get_position()[1] * share)
        for rule in figure.findobj(Line2D, include_self=False):
            if rule.axes is None:
                rule.set_ydata(np.asarray(rule.get_ydata()) * share)
    else:
        engine.set(rect=(0, 0, 1, height / taller))
    figure.text(
        LEFT / width,
        1 - LEFT / taller,
        "\n".join(lines),
        fontsize=8,
        color="#555555",
        verticalalignment="top",
        linespacing=1.05,
    )


def save_pictures(
    figure: Figure, folder: Path, name: str, suffixes: Sequence[str] = PICTURES
) -> list[Path]:
    """Save a drawing in several formats, and return the files."""
    files = [folder / f"{name}.{suffix}" for suffix in suffixes]
    with journal_style():
        for suffix, file in zip(suffixes, files, strict=True):
            figure.savefig(file, metadata=_METADATA[suffix])
    return files
