"""SpecTr's Table 1: block efficiency and wall clock speed of SpecTr and speculative decoding.

The axes are the paper's, the models and the machine ours: byte-level models on a CPU in place of
PaLM 2.  The shipped target is so small that a draft costs nearly half of its time, and drafts do
not pay.  The deepened one has the same laws and 8 times the layers, of which the new ones add
nothing, so that drafts are about as cheap as in the papers.  Speed is the time of decoding without
drafts over that with them, measured in turns on the same prompts; intervals are 95 % over prompts.

Speed stays below block efficiency, as in the paper.  K = 8 does not pay here, however many tokens a
step has, because a CPU takes longer for more rows (Table 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otm._core.drawing import journal_style
from otm.figures import recorded_pairs
from otm.figures.drawing.tables import table_figure
from otm.figures.recorded_pairs import PAIRS
from otm.figures.registry import Kind
from otm.figures.table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMMAND, RECORDED = recorded_pairs.COMMAND, recorded_pairs.RECORDED

KIND = Kind.MEASUREMENT
QUANTITIES = ("block_efficiency", "speed")

# Sun et al., Table 1, by algorithm, K and L: block efficiency and relative wall clock speed
PAPER: dict[tuple[str, Any, Any], tuple[float, float]] = {
    ("baseline", "", ""): (1.0, 1.0),
    ("speculative", 1, 4): (2.4, 1.67),
    ("SpecTr", 8, 4): (3.1, 2.08),
    ("speculative", 1, 8): (2.9, 1.56),
    ("SpecTr", 8, 8): (4.0, 2.13),
}


def data(records: list[dict[str, Any]]) -> Table:
    """Lay out what `benchmarks.papers` recorded, beside the paper's numbers for other models."""
    rows: list[tuple[Cell, ...]] = [
        (
            pair,
            row["draft"],
            *(row["algorithm"], row["K"], row["L"]),
            *(row[quantity][end] for quantity in QUANTITIES for end in ("mean", "low", "high")),
            *PAPER[row["algorithm"], row["K"], row["L"]],
        )
        for record in records
        for pair in PAIRS
        for row in record[pair]["speed"]
    ]
    ends = (f"{name}{end}" for name in QUANTITIES for end in ("", "_low", "_high"))
    of_paper = (f"paper, other models: {name}" for name in ("block efficiency", "speed"))
    return Table(("pair", "draft", "algorithm", "K", "L", *ends, *of_paper), tuple(rows))


@journal_style()
def draw(table: Table) -> Figure:
    """Draw the table, one group of rows a pair of models."""
    rows, groups = [], []
    for index, cells in enumerate(table.records()):
        first = cells["algorithm"] == "baseline"
        if first and index:
            groups.append(index)
        numbers = [
            f"{cells[name]:.2f} ± {float(cells[f'{name}_high']) - float(cells[name]):.2f}"
            for name in QUANTITIES
        ]
        settings = [str(cells[name]) or "–" for name in ("K", "L")]
        pair = str(cells["pair"]) if first else ""
        rows.append([pair, str(cells["algorithm"]), *settings, *(["1", "1"] if first else numbers)])
    heading = ["pair", "algorithm", "$K$", "$L$", "block\nefficiency", "relative\nspeed"]
    return table_figure(heading, rows, left=2, groups=groups)
