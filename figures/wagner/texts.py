"""Wagner et al.'s Tables 1, 4, 5 and 6: measured verification over whole texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from figures.drawing.tables import table_figure
from figures.registry import of_cpus
from figures.table import Cell, Table
from figures.wagner.profiles import (
    EXACT,
    SIGMOID,
    Device,
    beside_baseline,
    compared,
    devices,
    measured,
    method_rows,
    reduction,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Ranges = Mapping[tuple[str, str], str]
"""Ranges that the paper reports, by model and method."""


def texts(shown: Sequence[Device], printed: Ranges) -> Table:
    """Make a table of the total times over all texts, with the paper's printed ranges."""
    rows: list[tuple[Cell, ...]] = []
    for device in shown:
        for row, baseline in compared(device.record["texts"], "model"):
            rows.append(
                (
                    device.name,
                    device.kind,
                    row["model"],
                    row["V"],
                    row["method"],
                    len(row["text s"]),
                    len(row["s"]),
                    float(sum(row["accepted"]) / sum(row["gammas"])),
                    float(np.sum(row["text s"])),
                    *_less(row, baseline),
                    printed.get((row["model"], row["method"]), ""),
                )
            )
    names = ("device", "kind", "model", "V", "method", "texts", "steps", "accepted", "s")
    return Table((*names, "reduction", "low", "high", "paper"), tuple(rows))


def _less(row: dict[str, Any], baseline: dict[str, Any]) -> tuple[Cell, ...]:
    """Return mean and interval of a method's reduction; empty for the baseline."""
    if row is baseline:
        return "", "", ""
    return tuple(reduction(row["text s"], baseline["text s"]))


def draw_texts(table: Table, note: str = "") -> Figure:
    """Draw one row per model and method."""
    head, beside = beside_baseline(table)

    def cells(row: dict[str, Cell], first: bool) -> list[str]:
        return [
            str(row["model"]) if first else "",
            f"{row['V']:,}" if first else "",
            str(row["method"]),
            str(row["steps"]),
            f"{float(row['accepted']):.2f}",
            f"{1e3 * float(row['s']):,.1f}",
            beside(row),
            str(row["paper"]),
        ]

    rows, groups = method_rows(table, cells)
    heading = ["", "$V$", "method", "steps", "drafts\naccepted", "time,\nms", head]
    heading.append("in the\npaper, %")
    if of_cpus(table):  # the paper's ratios of GPUs would mislead next to those of a CPU
        heading, rows = heading[:-1], [row[:-1] for row in rows]
    return table_figure(heading, rows, left=3, groups=groups, note=note)


PAPER_1 = {
    ("Whisper", EXACT): "8.7 to 12.5",
    ("Whisper", SIGMOID): "71.9 to 84.0",
    **{(model, EXACT): "5.7 to 11.1" for model in ("Llama2", "Qwen", "Gemma")},
    **{(model, SIGMOID): "37 to 93.6" for model in ("Llama2", "Qwen", "Gemma")},
}
"""Ranges in Section 4.2; 37 is from the abstract."""


@measured
def table_1(records: list[dict[str, Any]]) -> Table:
    """Wagner et al.'s Table 1: time in verification over whole texts, relative to the baseline.

    The times are for verification only, of one chain from float32 logits.  The logits are
    random, with the vocabulary sizes of the paper's models, and γ follows the heuristic of
    transformers.  A method that accepts more takes fewer steps, with more drafts in each.  On a
    GPU, "exact" and "sigmoid" are our Triton kernels.  On a CPU they are the plain reference
    versions, in integers and float64, which are slower than the torch steps of the baseline; a
    CPU's table has times relative to the baseline.  Of the paper's cells, we have only the
    ranges in its text.  ± is half of the 95 % interval over texts.  Tables 2 and 7 replace the
    paper's word error rates and ROUGE.
    """
    return texts(devices(records)[:1], PAPER_1)


@table_1.drawing
def draw_table_1(table: Table) -> Figure:
    """Draw one row per model and method."""
    return draw_texts(table)


PAPER_4 = {
    ("Whisper", EXACT): "5.7 to 12.6",
    ("Whisper", SIGMOID): "62.0 to 82.5",
    ("Qwen", EXACT): "5.0 (1.8B)",
    ("Qwen", SIGMOID): "76.8 (1.8B)",
}

ONLY, SECOND = "the only one", "the second one"


@measured
def table_4(records: list[dict[str, Any]]) -> Table:
    """Wagner et al.'s Table 4: time in verification on a second device.

    The same as Table 1 on a second device.  The paper's second device is an RTX 2080 Ti; ours is
    the second GPU, or the second device if no GPU was measured.  If only one device was
    measured, the table shows it again, and the note below the table says so.
    """
    every = devices(records)
    table = texts(every[1:2] or every, PAPER_4)
    which = SECOND if len(every) > 1 else ONLY
    return Table((*table.names, "which"), tuple((*row, which) for row in table.rows))


@table_4.drawing
def draw_table_4(table: Table) -> Figure:
    """Draw one row per model and method."""
    alone = table["which"][0] == ONLY
    return draw_texts(
        table,
        "A second device has not been measured: these are the times of Table 1." if alone else "",
    )


PARTS = ("draft", "target", "verification")


@measured
def table_5(records: list[dict[str, Any]]) -> Table:
    """Wagner et al.'s Table 5: wall-clock time of whole decoding loops.

    The times include drafting, the target's calls and verification, with γ by the heuristic of
    transformers.  The pairs are our shipped byte-level pair, and a pair with random weights
    whose 50,257 tokens are about as many as Whisper's.  If verification is a small part of a
    loop, faster verification gains little.  Sigmoids need fewer steps because they accept nearly
    every draft, but their output has another distribution (Tables 2 and 7).  On a CPU, "exact"
    and "sigmoid" are the plain reference versions of our kernels.  We do not have the cells of
    the paper's table.  ± is half of the 95 % interval over texts.
    """
    device = devices(records)[0]
    rows: list[tuple[Cell, ...]] = [
        (
            device.name,
            device.kind,
            row["pair"],
            row["V"],
            row["method"],
            row["tokens"] * len(row["text s"]),
            row["steps"],
            *(float(row[f"{part} s"]) for part in PARTS),
            float(np.sum(row["text s"])),
            *_less(row, baseline),
        )
        for row, baseline in compared(device.record["loops"], "pair")
    ]
    names = ("device", "kind", "pair", "V", "method", "tokens", "steps")
    parts = tuple(f"{part} s" for part in PARTS)
    return Table((*names, *parts, "s", "reduction", "low", "high"), tuple(rows))


@table_5.drawing
def draw_table_5(table: Table) -> Figure:
    """Draw one row per pair and method, with milliseconds per token."""
    head, beside = beside_baseline(table)

    def cells(row: dict[str, Cell], first: bool) -> list[str]:
        tokens = float(row["tokens"])
        return [
            str(row["pair"]) if first else "",
            str(row["method"]),
            f"{tokens / float(row['steps']):.2f}",
            *(f"{1e3 * float(row[f'{part} s']) / tokens:.3f}" for part in PARTS),
            f"{1e3 * float(row['s']) / tokens:.3f}",
            beside(row),
        ]

    rows, groups = method_rows(table, cells)
    heading = ["", "method", "tokens\na step", *(f"{part},\nms a token" for part in PARTS)]
    return table_figure(
        [*heading, "all,\nms a token", head],
        rows,
        left=2,
        groups=groups,
    )


@measured
def table_6(records: list[dict[str, Any]]) -> Table:
    """Wagner et al.'s Table 6: time in verification per decoding step.

    Cells are mean and standard deviation over all steps of the texts of Table 1.  A step of the
    sigmoid method has more drafts, because it accepts nearly all drafts, and then γ grows.
    Figure 3 has the times at equal γ.  On a CPU, "exact" and "sigmoid" are the plain reference
    versions of our kernels.  We do not have the cells of the paper's table; its text says that
    both methods are always faster.
    """
    device = devices(records)[0]
    rows: list[tuple[Cell, ...]] = []
    for row, baseline in compared(device.record["texts"], "model"):
        mean, spread = float(np.mean(row["s"])), float(np.std(row["s"], ddof=1))
        setup = (device.name, device.kind, row["model"], row["V"], row["method"])
        less = 100 * (1 - mean / float(np.mean(baseline["s"])))
        rows.append((*setup, float(np.mean(row["gammas"])), mean, spread, less))
    names = ("device", "kind", "model", "V", "method", "gamma", "s", "sd", "reduction")
    return Table(names, tuple(rows))


@table_6.drawing
def draw_table_6(table: Table) -> Figure:
    """Draw one row per model and method."""
    head, beside = beside_baseline(table)

    def cells(row: dict[str, Cell], first: bool) -> list[str]:
        return [
            str(row["model"]) if first else "",
            f"{row['V']:,}" if first else "",
            str(row["method"]),
            f"{float(row['gamma']):.1f}",
            f"{1e3 * float(row['s']):.3f} ± {1e3 * float(row['sd']):.3f}",
            beside(row),
        ]

    rows, groups = method_rows(table, cells)
    heading = ["", "$V$", "method", "mean $\\gamma$", "ms a step", head]
    return table_figure(heading, rows, left=3, groups=groups)
