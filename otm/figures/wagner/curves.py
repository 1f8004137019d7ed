"""Curves over γ, one a method and one panel a model, as Figures 3 to 5 have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from otm._core.drawing import COLOURS
from otm.figures.table import Cell, Table
from otm.figures.wagner.profiles import METHODS, devices

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES: dict[str, dict[str, Any]] = {
    "baseline": {"linestyle": "-", "marker": "o", "markersize": 2.4, "color": COLOURS[0]},
    "exact": {"linestyle": "--", "marker": "s", "markersize": 3.2, "color": COLOURS[1]},
    "sigmoid": {"linestyle": ":", "marker": "^", "markersize": 3.6, "color": COLOURS[2]},
}
"""By method."""


def curves(records: list[dict[str, Any]], models: Sequence[str], entry: str) -> Table:
    """Take an entry of all chains of the first device, with its quartiles if it is the time."""
    device = devices(records)[0]
    rows: list[tuple[Cell, ...]] = []
    for row in device.record["chains"]:
        if row["model"] not in models:
            continue
        low, high = row["quartiles s"] if entry == "s" else (row[entry], row[entry])
        rows.append(
            (
                device.name,
                device.kind,
                device.record["memory counted by"] if entry == "peak bytes" else "wall clock",
                row["model"],
                row["V"],
                row["method"],
                row["gamma"],
                row[entry],
                low,
                high,
                row["input bytes"],
            )
        )
    names = ("device", "kind", "measured by", "model", "V", "method", "gamma", entry)
    return Table((*names, "low", "high", "input bytes"), tuple(rows))


def draw_panel(axes: Axes, table: Table, entry: str, unit: float) -> None:
    """Draw the methods for one model, with the quartiles as a band."""
    for method in METHODS:
        found = table.where(method=method)
        line = LINES[method]
        axes.plot(found["gamma"], found[entry] / unit, **line, label=method)
        axes.fill_between(
            found["gamma"],
            found["low"] / unit,
            found["high"] / unit,
            color=line["color"],
            alpha=0.15,
            linewidth=0,
        )
    axes.set_title(f"{table['model'][0]}, $V$ = {int(table['V'][0]):,}", fontsize=9)
    axes.set_xticks((1, 5, 10, 15, 20))
