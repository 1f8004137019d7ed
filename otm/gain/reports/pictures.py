"""Draw the tables of a report as SVG elements of its page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from otm._core.drawing import COLOURS, MARKERS, blank_figure, journal_style, legend_above
from otm._core.means import Floats
from otm.gain.reports.sampled_tables import TableRow
from otm.gain.reports.summary import Summary

HEIGHT = 2.4
"""Height of a picture without its legend, in inches."""

LINE = 0.16
"""Height of a line of the legend, in inches."""

PLOT_SIZE = 195, 130
"""Width and height inside the axes of a picture, in units of 1/72 inch; approximate."""

CHARACTER_SIZE = 4.3, 9.5
"""Width and height of a character of a label, in units of 1/72 inch."""

LABEL_SIDES = [
    (np.array(gap), np.array(share))
    for gap, share in (
        ((5, 0), (0, -0.5)),  # right of the point
        ((4, -3), (0, -1)),  # below and to the right
        ((0, 4), (-0.5, 0)),  # above
        ((-5, 0), (-1, -0.5)),  # to the left
        ((0, -4), (-0.5, -1)),  # below
    )
]
"""Offsets of a label's corner from its point: a distance, plus a share of the label's size."""

MIN_RANGE = 1e-3
"""Smallest range of an axis, for settings that change almost no output."""

MAX_CURVES = 4
"""Largest number of curves, one for each k, in a picture."""


def pictures(summary: Summary) -> dict[str, str]:
    """Draw the tables of a summary as SVG elements, by name of the table."""
    drawings: dict[str, tuple[bool, Callable[[Any, Summary], None]]] = {
        "acceptance": (bool(summary.acceptance), _acceptance),
        "bounds": (bool(summary.bounds), _bounds),
        "efficiency": (bool(summary.block_efficiency), _efficiency),
        "lossy": (bool(summary.lossy), _lossy),
        "temperatures": (len(summary.settings.draft_temperatures) > 1, _temperatures),
    }
    figures, legend_lines = {}, 0
    with journal_style():
        for name, (has_rows, draw) in drawings.items():
            if has_rows:
                figures[name] = figure = blank_figure(HEIGHT)
                axes = figure.add_subplot()
                draw(axes, summary)
                legend_above(axes)
                legend_lines = max(legend_lines, len(axes.get_legend_handles_labels()[1]) // 2 + 1)
        for figure in figures.values():  # pictures in a row of the page need the same height
            figure.set_figheight(HEIGHT + LINE * legend_lines)
        return {name: _svg(figure, name) for name, figure in figures.items()}


def _acceptance(axes: Any, summary: Summary) -> None:
    rows = _where(summary.acceptance, {"draft temperature": summary.settings.draft_temperatures[0]})
    _curves(axes, rows, "rule", summary.settings.rules, ("k", "mean"))
    axes.set(xlabel="number of drafts $k$", ylabel="acceptance probability")
    axes.xaxis.get_major_locator().set_params(integer=True)


def _bounds(axes: Any, summary: Summary) -> None:
    ks = [row["k"] for row in summary.bounds]
    lower, upper = ([row[end].mean for row in summary.bounds] for end in ("lower", "upper"))
    axes.fill_between(ks, lower, upper, color=COLOURS[0], alpha=0.25, linewidth=0)
    axes.plot(ks, lower, color=COLOURS[0], marker="o", markersize=3, label="at least")
    axes.plot(ks, upper, color=COLOURS[0], marker="s", markersize=3, label="at most")
    axes.set(xlabel="number of drafts $k$", ylabel=r"mean of $\alpha_k$")
    axes.xaxis.get_major_locator().set_params(integer=True)


def _efficiency(axes: Any, summary: Summary) -> None:
    main, rule = summary.settings.draft_temperatures[0], summary.settings.capped_rules[0]
    rows = _where(summary.block_efficiency, {"draft temperature": main, "rule": rule})
    ks = _some(summary.settings.ks)
    _curves(axes, rows, "K", ks, ("gamma", "chains"), label="$K = {}$")
    for i, k in enumerate(ks):
        if k > 1:
            trees = [(row["gamma"], row["tree"].mean) for row in rows if row["K"] == k]
            axes.plot(*zip(*trees, strict=True), color=COLOURS[i], linestyle=":")
    axes.set(xlabel=r"drafts of a path $\gamma$", ylabel="tokens per step")
    axes.xaxis.get_major_locator().set_params(integer=True)


def _lossy(axes: Any, summary: Summary) -> None:
    main, ks = summary.settings.draft_temperatures[0], summary.settings.ks
    # for each k, the points of all settings
    points: list[Any] = []
    for i, k in enumerate(dict.fromkeys((ks[0], ks[-1]))):
        rows = _where(summary.lossy, {"draft temperature": main, "k": k})
        points.append([(row["total variation"].mean, row["gain"].mean) for row in rows])
        style = {"color": COLOURS[i], "linestyle": "none", "marker": MARKERS[i]}
        axes.plot(*zip(*points[-1], strict=True), markersize=4, label=f"$k = {k}$", **style)
    # one segment per setting, from its smallest k to its largest k
    segments = list(zip(points[0], points[-1], strict=True))
    for ends in segments:
        axes.plot(*zip(*ends, strict=True), color="#999999", linewidth=0.5, zorder=1)
    right, top = (1.1 * max(float(np.max(points, axis=(0, 1))[axis]), MIN_RANGE) for axis in (0, 1))
    axes.plot([0, top], [0, top], color="#777777", linestyle=":", label="upper bound")
    left, bottom = -0.04 * right, min(1.1 * float(np.min(points, axis=(0, 1))[1]), -0.06 * top)
    axes.set(xlabel="total variation from the target", ylabel="acceptance gained")
    axes.set(xlim=(left, right), ylim=(bottom, 1.1 * top))
    scale = np.divide(PLOT_SIZE, (right - left, 1.1 * top - bottom))
    origin = np.array([left, bottom])
    lines = [np.linspace(*ends, 20) for ends in (*segments, ((0, 0), (top, top)))]
    names = [str(row["setting"]).replace(" ε", "\nε") for row in rows]
    obstacles = (np.concatenate(lines) - origin) * scale
    corners = label_corners((np.array(points[0]) - origin) * scale, names, obstacles)
    for name, corner in zip(names, corners, strict=True):
        place = corner / scale + origin
        axes.annotate(name, place, fontsize=8, linespacing=1, color="#444444")


def label_corners(points: Floats, names: Sequence[str], obstacles: Floats) -> list[Floats]:
    """Return where each name's lower left corner goes, next to its point, in units of 1/72 inch.

    Each name takes the side on which it covers the fewest obstacles and earlier names.
    """
    corners: list[Floats] = []
    covered = obstacles
    for point, name in zip(points, names, strict=True):
        lines = name.split("\n")
        size = np.array([CHARACTER_SIZE[0] * max(map(len, lines)), CHARACTER_SIZE[1] * len(lines)])
        choices = [point + gap + size * share for gap, share in LABEL_SIDES]
        costs = [_covered(choice, size, covered) for choice in choices]
        corners.append(choices[int(np.argmin(costs))])
        grid = np.stack(np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 1, 3)), axis=-1)
        covered = np.concatenate([covered, corners[-1] + size * grid.reshape(-1, 2)])
    return corners


def _covered(corner: Floats, size: Floats, points: Floats) -> int:
    """Count the points under a text; add 100 if the text leaves the plot."""
    inside = ((points > corner) & (points < corner + size)).all(axis=1)
    beyond = (corner < 0).any() or (corner + size > PLOT_SIZE).any()
    return int(inside.sum()) + 100 * int(beyond)


def _temperatures(axes: Any, summary: Summary) -> None:
    rows = _where(summary.acceptance, {"rule": summary.settings.rules[0]})
    rows.sort(key=lambda row: float(row["draft temperature"]))
    columns = "draft temperature", "mean"
    _curves(axes, rows, "k", _some(summary.settings.ks), columns, label="$k = {}$")
    axes.set(xlabel="temperature of the draft model", ylabel="acceptance probability")


def _where(rows: Sequence[TableRow], labels: TableRow) -> list[TableRow]:
    """Return the rows that have these labels."""
    return [row for row in rows if all(row[name] == label for name, label in labels.items())]


def _curves(
    axes: Any,
    rows: Sequence[TableRow],
    group: str,
    values: Sequence[Any],
    columns: tuple[str, str],
    *,
    label: str = "{}",
) -> None:
    """Draw a curve for each value in the column `group`, with intervals as bands.

    The first of `columns` is the horizontal axis, and the second has the means.
    """
    for i, value in enumerate(values):
        x, estimates = ([row[name] for row in rows if row[group] == value] for name in columns)
        means, low, high = np.transpose(estimates)
        style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        axes.plot(x, means, markersize=3, label=label.format(value), **style)
        if np.isfinite(high).all():
            axes.fill_between(x, low.clip(0), high, color=style["color"], alpha=0.15, linewidth=0)


def _some(ks: tuple[int, ...]) -> tuple[int, ...]:
    """Select at most `MAX_CURVES` evenly spaced numbers, including the first and the last."""
    places = np.linspace(0, len(ks) - 1, min(len(ks), MAX_CURVES))
    return tuple(ks[round(place)] for place in places)


def _svg(figure: Any, name: str) -> str:
    """Write a figure as an SVG element of full width, whose ids are unique on the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    _, start, rest = buffer.getvalue().partition("<svg")
    text = re.sub(r'(?<=[ "#])(id="|xlink:href="#|url\(#)', rf"\g<1>{name}-", start + rest)
    head, rest = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{name}">{rest}'
