"""Wagner et al.'s Figures 3 to 5 and Table 3: measured verification of one chain of drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from figures.drawing.tables import table_figure
from figures.registry import of_cpus
from figures.table import Cell, Table
from figures.wagner.profiles import METHODS, devices, measured, method_rows
from otm._core.drawing import COLOURS, blank_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES: dict[str, dict[str, Any]] = {
    "baseline": {"linestyle": "-", "marker": "o", "markersize": 2.4, "color": COLOURS[0]},
    "exact": {"linestyle": "--", "marker": "s", "markersize": 3.2, "color": COLOURS[1]},
    "sigmoid": {"linestyle": ":", "marker": "^", "markersize": 3.6, "color": COLOURS[2]},
}
"""Line style of each method."""


def curves(records: list[dict[str, Any]], models: Sequence[str], entry: str) -> Table:
    """Return one entry of all chains of the first device, with quartiles for the time."""
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
    """Draw the methods for one model, with quartiles as bands."""
    for method in METHODS:
        curve = table.where(method=method)
        line = LINES[method]
        axes.plot(curve["gamma"], curve[entry] / unit, **line, label=method)
        axes.fill_between(
            curve["gamma"],
            curve["low"] / unit,
            curve["high"] / unit,
            color=line["color"],
            alpha=0.15,
            linewidth=0,
        )
    axes.set_title(f"{table['model'][0]}, $V$ = {int(table['V'][0]):,}", fontsize=9)
    axes.set_xticks((1, 5, 10, 15, 20))


MODELS_3 = ("Llama2", "Whisper", "Qwen", "Gemma")
"""Models in the order of their vocabulary sizes."""


@measured
def figure_3(records: list[dict[str, Any]]) -> Table:
    """Wagner et al.'s Figure 3: time of verification per step for γ = 1 to 20.

    The methods verify the same single chains from random float32 logits, with the vocabulary
    sizes of the paper's models.  Lines are medians, and bands are quartiles.  On a GPU, "exact"
    and "sigmoid" are our Triton kernels, and the paper's curves are flat in γ.  On a CPU they
    are the plain reference versions of these kernels, and each row costs time.
    """
    return curves(records, MODELS_3, "s")


@figure_3.drawing
def draw_figure_3(table: Table) -> Figure:
    """Draw one panel per model."""
    figure = blank_figure(height=4.4, wide=True)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, model in zip(panels.flat, MODELS_3, strict=True):
        draw_panel(axes, table.where(model=model), "s", 1e-3)
        axes.set_yscale("log")
    for axes in panels[:, 0]:
        axes.set_ylabel("time of a step, ms")
    for axes in panels[1]:
        axes.set_xlabel("number of drafts $\\gamma$")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


MODELS_4 = ("Llama2", "Qwen", "Gemma")
MIB = 2.0**20


@measured
def figure_4(records: list[dict[str, Any]]) -> Table:
    """Wagner et al.'s Figure 4: peak memory of verification for γ = 1 to 20, language models.

    The figure shows the peak bytes of a call without its logits; the grey line is the size of the
    logits.  The paper's peaks include the models, compared with which differences of a few rows
    are tiny.  On a GPU, torch's allocator counts the bytes.  On a CPU, the allocations of the
    plain versions are counted.  These use float64 and integers, so they need more memory than
    the step-by-step baseline.
    """
    return curves(records, MODELS_4, "peak bytes")


@figure_4.drawing
def draw_figure_4(table: Table) -> Figure:
    """Draw one panel per model."""
    return draw_memory(table, MODELS_4)


def draw_memory(table: Table, models: tuple[str, ...]) -> Figure:
    """Draw peak memory, one panel per model."""
    wide = len(models) > 1
    figure = blank_figure(height=2.9, wide=wide)
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    for axes, model in zip(panels, models, strict=True):
        of_model = table.where(model=model)
        draw_panel(axes, of_model, "peak bytes", MIB)
        logits = of_model.where(method="baseline")
        axes.plot(
            logits["gamma"],
            logits["input bytes"] / MIB,
            color="#777777",
            linewidth=0.8,
            label="the logits themselves",
        )
        axes.set_xlabel("number of drafts $\\gamma$")
        axes.set_ylim(bottom=0)
    panels[0].set_ylabel("memory at the peak, MiB")
    columns = 4 if wide else 2
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=columns)
    return figure


MODELS_5 = ("Whisper",)


@measured
def figure_5(records: list[dict[str, Any]]) -> Table:
    """Wagner et al.'s Figure 5: peak memory of verification for γ = 1 to 20, Whisper's vocabulary.

    The same as Figure 4, for the 51,864 tokens of the paper's speech models.
    """
    return curves(records, MODELS_5, "peak bytes")


@figure_5.drawing
def draw_figure_5(table: Table) -> Figure:
    """Draw one panel."""
    return draw_memory(table, MODELS_5)


GAMMA = 5

BANDWIDTHS = {
    "Whisper": ("9.32 to 13.98", "11.18 to 14.16", "16.06 to 16.33"),
    "Llama2": ("20.18 to 24.56", "24.08 to 27.70", "30.52 to 31.39"),
    "Qwen": ("44.99 (7B)", "31.65 (7B)", "52.14 (7B)"),
    "Gemma": ("53.69 (7B)", "38.51 (7B)", "62.99 (7B)"),
}
"""The paper's bandwidths in GB/s, by model and method."""


@measured
def table_3(records: list[dict[str, Any]]) -> Table:
    """Wagner et al.'s Table 3: realised bandwidth of each method at γ = 5.

    The bandwidth is bytes over time, shown with the rate of a plain copy on the same device.
    "Moved" counts the bytes that torch's operations read and write, including intermediate
    tensors.  For Triton kernels these bytes cannot be counted, so the bytes that the method must
    read ("needed") replace them.  Bytes from caches count too, so the rate may exceed that of a
    copy.  A softmax method needs all rows once and one pair of rows again; the sigmoid method
    needs one pair.  The paper counts moved sectors on an A100, with its models.  A high
    bandwidth alone is not an advantage: a method that moves fewer bytes may be faster.
    """
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
                BANDWIDTHS[row["model"]][METHODS.index(row["method"])],
            )
        )
    names = ("device", "kind", "model", "V", "method", "needed bytes", "moved bytes", "s")
    return Table((*names, "GB/s", "of copy", "copy GB/s", "paper GB/s"), tuple(rows))


@table_3.drawing
def draw_table_3(table: Table) -> Figure:
    """Draw one row per model and method."""

    def cells(row: dict[str, Cell], first: bool) -> list[str]:
        moved = row["moved bytes"]
        return [
            str(row["model"]) if first else "",
            str(row["method"]),
            f"{float(row['needed bytes']) / 1e6:.2f}",
            f"{float(moved) / 1e6:.2f}" if moved != "" else "–",
            f"{1e3 * float(row['s']):.3f}",
            f"{float(row['GB/s']):.2f}",
            f"{100 * float(row['of copy']):.1f}",
            str(row["paper GB/s"]),
        ]

    rows, groups = method_rows(table, cells)
    heading = ["", "method", "needed,\nMB", "moved,\nMB", "time,\nms", "realised,\nGB/s"]
    copy = f"A copy reads and writes {float(table['copy GB/s'][0]):.1f} GB/s."
    heading += ["of a\ncopy, %", "in the paper,\nGB/s"]
    if of_cpus(table):  # the paper's numbers are from a GPU
        heading, rows = heading[:-1], [row[:-1] for row in rows]
    return table_figure(heading, rows, left=2, groups=groups, note=copy)
