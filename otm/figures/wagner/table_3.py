"""Wagner et al.'s Table 3: realised bandwidth of each method at γ = 5.

Bytes over time, beside the rate of a plain copy on the same device.  Moved is what the operations
of torch read and write, intermediate tensors included; of a Triton kernel it cannot be seen from
outside, and the bytes that the method cannot do without (needed) stand for it.  What stays in
caches counts too, so that more than a copy may be moved.  With softmax all rows are needed once and
one pair again; with sigmoids one pair.  The paper counts the sectors moved on an A100, with its
models.  A high bandwidth is no merit by itself: who moves less may be faster at a lower one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otm._core.drawing import journal_style
from otm.figures.drawing.tables import table_figure
from otm.figures.registry import Kind
from otm.figures.table import Cell, Table
from otm.figures.wagner import profiles
from otm.figures.wagner.profiles import BASELINE, METHODS, device_note, devices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.MEASUREMENT
RECORDED, COMMAND = profiles.RECORDED, profiles.COMMAND
GAMMA = 5
PAPER = {
    "Whisper": ("9.32 to 13.98", "11.18 to 14.16", "16.06 to 16.33"),
    "Llama2": ("20.18 to 24.56", "24.08 to 27.70", "30.52 to 31.39"),
    "Qwen": ("44.99 (7B)", "31.65 (7B)", "52.14 (7B)"),
    "Gemma": ("53.69 (7B)", "38.51 (7B)", "62.99 (7B)"),
}
"""By model and method, in GB/s."""


def data(records: list[dict[str, Any]]) -> Table:
    """Divide bytes by times on the first device."""
    device = devices(records)[0]
    rate = float(device.record["copy bytes/s"])
    rows: list[tuple[Cell, ...]] = []
    for row in device.record["chains"]:
        if row["gamma"] != GAMMA:
            continue
        needed, moved = float(row["needed bytes"]), row["moved bytes"]
        realised = (needed if moved is None else float(moved)) / row["s"]
        rows.append(
            (
                device.name,
                device.kind,
                row["model"],
                row["V"],
                row["method"],
                needed,
                "" if moved is None else int(moved),
                float(row["s"]),
                realised / 1e9,
                realised / rate,
                rate / 1e9,
                PAPER[row["model"]][METHODS.index(row["method"])],
            )
        )
    names = ("device", "kind", "model", "V", "method", "needed bytes", "moved bytes", "s")
    return Table((*names, "GB/s", "of copy", "copy GB/s", "paper GB/s"), tuple(rows))


@journal_style()
def draw(table: Table) -> Figure:
    """Draw one row for each model and method."""
    rows, groups = [], []
    for index, row in enumerate(table.records()):
        first = row["method"] == BASELINE
        if first and index:
            groups.append(index)
        moved = row["moved bytes"]
        rows.append(
            [
                str(row["model"]) if first else "",
                str(row["method"]),
                f"{float(row['needed bytes']) / 1e6:.2f}",
                f"{float(moved) / 1e6:.2f}" if moved != "" else "–",
                f"{1e3 * float(row['s']):.3f}",
                f"{float(row['GB/s']):.2f}",
                f"{100 * float(row['of copy']):.1f}",
                str(row["paper GB/s"]),
            ]
        )
    heading = ["", "method", "needed,\nMB", "moved,\nMB", "time,\nms", "realised,\nGB/s"]
    note = device_note(str(table["device"][0]), str(table["kind"][0]))
    copy = f"A copy reads and writes {float(table['copy GB/s'][0]):.1f} GB/s."
    return table_figure(
        [*heading, "of a\ncopy, %", "in the paper,\nGB/s"],
        rows,
        left=2,
        groups=groups,
        note=f"{note}\n{copy}",
    )
