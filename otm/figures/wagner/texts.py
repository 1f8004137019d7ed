"""Time in verification over whole texts: what Tables 1 and 4 show, each of its own devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from otm.figures.drawing.tables import table_figure
from otm.figures.table import Cell, Table
from otm.figures.wagner.profiles import (
    BASELINE,
    METHODS,
    Device,
    device_note,
    percent,
    reduction,
    totals,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Ranges = Mapping[tuple[str, str], str]
"""What the paper reports, by model and method."""


def texts(shown: Sequence[Device], printed: Ranges) -> Table:
    """Compare the total times over all texts; printed ranges beside them."""
    rows: list[tuple[Cell, ...]] = []
    for device in shown:
        found = device.record["texts"]
        for model in dict.fromkeys(row["model"] for row in found):
            baseline = totals(found, model=model, method=BASELINE)
            for method in METHODS:
                row = totals(found, model=model, method=method)
                less = reduction(row["text s"], baseline["text s"])
                rows.append(
                    (
                        device.name,
                        device.kind,
                        model,
                        row["V"],
                        method,
                        len(row["text s"]),
                        len(row["s"]),
                        float(sum(row["accepted"]) / sum(row["gammas"])),
                        float(np.sum(row["text s"])),
                        *(less if method != BASELINE else ("", "", "")),
                        printed.get((model, method), ""),
                    )
                )
    names = ("device", "kind", "model", "V", "method", "texts", "steps", "accepted", "s")
    return Table((*names, "reduction", "low", "high", "paper"), tuple(rows))


def draw_texts(table: Table, note: str = "") -> Figure:
    """Draw one row for each model and method."""
    rows, groups = [], []
    for index, row in enumerate(table.records()):
        first = row["method"] == BASELINE
        if first and index:
            groups.append(index)
        less = ""
        if not first:
            mean, high = float(row["reduction"]), float(row["high"])
            less = percent(mean, high - mean)
        rows.append(
            [
                str(row["model"]) if first else "",
                f"{row['V']:,}" if first else "",
                str(row["method"]),
                str(row["steps"]),
                f"{float(row['accepted']):.2f}",
                f"{1e3 * float(row['s']):,.1f}",
                less,
                str(row["paper"]),
            ]
        )
    places = dict.fromkeys(zip(table["device"], table["kind"], strict=True))
    measured = "\n".join(device_note(str(name), str(kind)) for name, kind in places)
    return table_figure(
        [
            "",
            "$V$",
            "method",
            "steps",
            "drafts\naccepted",
            "time,\nms",
            "reduction,\n%",
            "in the\npaper, %",
        ],
        rows,
        left=3,
        groups=groups,
        note="\n".join(part for part in (measured, note) if part),
    )
