"""Wagner et al.'s Table 5: wall-clock time of whole decoding loops.

Drafting, reading by the target and verification, with γ by the heuristic of transformers: our
shipped byte-level pair, and a pair with random weights whose 50,257 tokens are about as many as
Whisper's.  Where verification is a small part of a loop, little can be won by its speed.  Steps are
fewer with sigmoids because nearly every draft is accepted, at the price of another law (Tables 2
and 7).  On a CPU "exact" and "sigmoid" are the plain versions that our kernels are checked against.
The cells of the paper's table are not at hand.  ± is half of the 95 % interval over texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from otm._core.drawing import journal_style
from otm.figures.drawing.tables import table_figure
from otm.figures.registry import Kind
from otm.figures.table import Cell, Table
from otm.figures.wagner import profiles
from otm.figures.wagner.profiles import (
    BASELINE,
    METHODS,
    device_note,
    devices,
    percent,
    reduction,
    totals,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.MEASUREMENT
RECORDED, COMMAND = profiles.RECORDED, profiles.COMMAND
PARTS = ("draft", "target", "verification")


def data(records: list[dict[str, Any]]) -> Table:
    """Compare the total times on the first device."""
    device = devices(records)[0]
    found = device.record["loops"]
    rows: list[tuple[Cell, ...]] = []
    for pair in dict.fromkeys(row["pair"] for row in found):
        baseline = totals(found, pair=pair, method=BASELINE)
        for method in METHODS:
            row = totals(found, pair=pair, method=method)
            less = reduction(row["text s"], baseline["text s"])
            rows.append(
                (
                    device.name,
                    device.kind,
                    pair,
                    row["V"],
                    method,
                    row["tokens"] * len(row["text s"]),
                    row["steps"],
                    *(float(row[f"{part} s"]) for part in PARTS),
                    float(np.sum(row["text s"])),
                    *(less if method != BASELINE else ("", "", "")),
                )
            )
    names = ("device", "kind", "pair", "V", "method", "tokens", "steps")
    parts = tuple(f"{part} s" for part in PARTS)
    return Table((*names, *parts, "s", "reduction", "low", "high"), tuple(rows))


@journal_style()
def draw(table: Table) -> Figure:
    """Draw one row for each pair and method, with milliseconds a token."""
    rows, groups = [], []
    for index, row in enumerate(table.records()):
        first = row["method"] == BASELINE
        if first and index:
            groups.append(index)
        tokens = float(row["tokens"])
        less = ""
        if not first:
            mean, high = float(row["reduction"]), float(row["high"])
            less = percent(mean, high - mean)
        rows.append(
            [
                str(row["pair"]) if first else "",
                str(row["method"]),
                f"{tokens / float(row['steps']):.2f}",
                *(f"{1e3 * float(row[f'{part} s']) / tokens:.3f}" for part in PARTS),
                f"{1e3 * float(row['s']) / tokens:.3f}",
                less,
            ]
        )
    heading = ["", "method", "tokens\na step", *(f"{part},\nms a token" for part in PARTS)]
    note = device_note(str(table["device"][0]), str(table["kind"][0]))
    return table_figure(
        [*heading, "all,\nms a token", "reduction,\n%"], rows, left=2, groups=groups, note=note
    )
