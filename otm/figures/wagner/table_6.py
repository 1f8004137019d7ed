"""Wagner et al.'s Table 6: time in verification per decoding step.

Mean and standard deviation over all steps of the texts of Table 1.  A step of the sigmoid method
has more drafts, because it accepts nearly all of them and γ then grows; Figure 3 has the times at
equal γ.  On a CPU "exact" and "sigmoid" are the plain versions that our kernels are checked
against.  The cells of the paper's table are not at hand; its text says that both are always faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from otm._core.drawing import journal_style
from otm.figures.drawing.tables import table_figure
from otm.figures.registry import Kind
from otm.figures.table import Cell, Table
from otm.figures.wagner import profiles
from otm.figures.wagner.profiles import BASELINE, METHODS, device_note, devices, percent, totals

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.MEASUREMENT
RECORDED, COMMAND = profiles.RECORDED, profiles.COMMAND


def data(records: list[dict[str, Any]]) -> Table:
    """Compute the mean and the standard deviation of a step on the first device."""
    device = devices(records)[0]
    found = device.record["texts"]
    rows: list[tuple[Cell, ...]] = []
    for model in dict.fromkeys(row["model"] for row in found):
        baseline = float(np.mean(totals(found, model=model, method=BASELINE)["s"]))
        for method in METHODS:
            row = totals(found, model=model, method=method)
            mean, spread = float(np.mean(row["s"])), float(np.std(row["s"], ddof=1))
            gamma = float(np.mean(row["gammas"]))
            less = 100 * (1 - mean / baseline)
            rows.append(
                (device.name, device.kind, model, row["V"], method, gamma, mean, spread, less)
            )
    names = ("device", "kind", "model", "V", "method", "gamma", "s", "sd", "reduction")
    return Table(names, tuple(rows))


@journal_style()
def draw(table: Table) -> Figure:
    """Draw one row for each model and method."""
    rows, groups = [], []
    for index, row in enumerate(table.records()):
        first = row["method"] == BASELINE
        if first and index:
            groups.append(index)
        rows.append(
            [
                str(row["model"]) if first else "",
                f"{row['V']:,}" if first else "",
                str(row["method"]),
                f"{float(row['gamma']):.1f}",
                f"{1e3 * float(row['s']):.3f} ± {1e3 * float(row['sd']):.3f}",
                "" if first else percent(float(row["reduction"])),
            ]
        )
    heading = ["", "$V$", "method", "mean $\\gamma$", "ms a step", "reduction, %"]
    note = device_note(str(table["device"][0]), str(table["kind"][0]))
    return table_figure(heading, rows, left=3, groups=groups, note=note)
