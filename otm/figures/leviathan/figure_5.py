"""Leviathan et al.'s Figure 5: when the two models are called, with γ = 7, γ = 3 and no drafts.

The paper's figure is a diagram ([leviathan2023]_); this one is measured, call by call, while 24
tokens are decoded with one thread of a processor, at seeds with a usual number of runs.  The number
in a block of the target is that of the tokens that its run yields; gaps are time outside of the
models.  A draft of the first pair costs about a fifth of the target; the weights are random, and
scaled so that about four drafts of five are accepted.  The models of the second pair come with this
package, and are so small that a draft costs a good part of the target, and the loop does too.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otm._core.drawing import COLOURS, blank_figure, journal_style
from otm.figures.registry import Kind
from otm.figures.table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KIND = Kind.MEASUREMENT
RECORDED = "timeline"
COMMAND = "python -m benchmarks.timeline --save"
WHOLE = "whole run"
TARGET, DRAFT = "target", "draft"

BLOCKS: dict[str, dict[str, Any]] = {
    TARGET: {"facecolor": COLOURS[0], "edgecolor": "white"},
    DRAFT: {"facecolor": "#F3B98C", "edgecolor": COLOURS[1]},
    f"{TARGET}, prompt": {"facecolor": "white", "edgecolor": COLOURS[0], "hatch": "//////"},
    f"{DRAFT}, prompt": {"facecolor": "white", "edgecolor": COLOURS[1], "hatch": "......"},
}
"""Looks of the calls; those of the draft model are lighter, the prompt's are hatched."""

HEIGHT = {TARGET: 0.72, DRAFT: 0.44}


def data(records: list[dict[str, Any]]) -> Table:
    """List the calls of each way of decoding, and each run as a whole.

    Parameters
    ----------
    records : list of dict
        The record of the benchmark, alone.
    """
    (record,) = records
    rows: list[tuple[Cell, ...]] = []
    for pair in record["pairs"]:
        for way in pair["ways"]:
            outputs = iter(way["outputs"])
            name, gamma = pair["pair"], way["gamma"]
            rows += [
                (name, gamma, call["call"], call["begin_ms"], call["end_ms"], made)
                for call in way["calls"]
                for made in [next(outputs) if call["call"] == TARGET else 0]
            ]
            rows.append((name, gamma, WHOLE, 0.0, way["wall_ms"], sum(way["outputs"])))
    return Table(("pair", "gamma", "call", "begin_ms", "end_ms", "tokens"), tuple(rows))


@journal_style()
def draw(table: Table) -> Figure:
    """Draw a panel for each pair, with a lane for each way of decoding."""
    from matplotlib.patches import Patch

    pairs = list(dict.fromkeys(table["pair"].tolist()))
    figure = blank_figure(height=0.6 + 1.5 * len(pairs), wide=True)
    panels = figure.subplots(len(pairs), squeeze=False)[:, 0]
    for axes, pair in zip(panels, pairs, strict=True):
        draw_panel(axes, table.where(pair=pair))
        axes.set_title(pair, loc="left", fontsize=9)
    panels[-1].set_xlabel("time (ms)")
    handles = [Patch(label=name, linewidth=0.5, **style) for name, style in BLOCKS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def draw_panel(axes: Axes, table: Table) -> None:
    """Draw the lanes of one pair."""
    ways = list(dict.fromkeys(table["gamma"].tolist()))
    for lane, gamma in enumerate(ways):
        calls = table.where(gamma=gamma)
        for name, style in BLOCKS.items():
            found = calls.where(call=name)
            if not found.rows:
                continue
            begins, ends = found["begin_ms"], found["end_ms"]
            spans = list(zip(begins, ends - begins, strict=True))
            height = HEIGHT[name.partition(",")[0]]
            axes.broken_barh(spans, (lane - height / 2, height), linewidth=0.5, **style)
        runs = calls.where(call=TARGET)
        for begin, end, made in zip(runs["begin_ms"], runs["end_ms"], runs["tokens"], strict=True):
            middle = (begin + end) / 2
            axes.text(middle, lane, str(made), color="white", fontsize=8, ha="center", va="center")
    labels = [f"γ = {gamma}" if gamma else "no drafts" for gamma in ways]
    axes.set_yticks(range(len(ways)), labels=labels)
    axes.set(ylim=(len(ways) - 0.5, -0.5), xlim=(0, 1.01 * table["end_ms"].max()))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
