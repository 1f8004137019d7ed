"""Leviathan et al.'s Table 2: measured speed by draft model, temperature and number of drafts.

The axes are the paper's, the models and the machine ours: byte-level models on one thread of a CPU
in place of T5 on a TPU, and one task, to continue a text.  "shipped" is the target as it comes;
"deepened" has the same laws and 8 times the layers, so that drafts are about as cheap as in the
paper.  α is the mean of 1 − TV(p, q) over as many tokens that the target wrote from the same
prompts (Corollary 3.6); speed is the time of decoding without drafts over that with them, in turns.
Both are ± half of the 95 % interval over prompts.

α rises with the size of the draft model, and so does its cost.  The shipped target is so small that
drafts hardly pay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otm._core.drawing import journal_style
from otm.figures import recorded_pairs
from otm.figures.drawing.tables import table_figure
from otm.figures.recorded_pairs import PAIRS
from otm.figures.registry import Kind
from otm.figures.shipped_pairs import SIZES
from otm.figures.table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMMAND, RECORDED = recorded_pairs.COMMAND, recorded_pairs.RECORDED

KIND = Kind.MEASUREMENT
_ENDS = ("mean", "low", "high")


def data(records: list[dict[str, Any]]) -> Table:
    """Lay out what `benchmarks.papers` recorded of one chain of drafts."""
    rows: list[tuple[Cell, ...]] = [
        (
            pair,
            row["draft"],
            SIZES[row["draft"]],
            row["temperature"],
            row["gamma"],
            *(row[quantity][end] for quantity in ("alpha", "speed") for end in _ENDS),
        )
        for record in records
        for pair in PAIRS
        for row in record[pair]["chains"]
    ]
    names = ("target", "draft", "parameters", "temperature", "gamma")
    of_alpha = ("alpha", "alpha_low", "alpha_high")
    return Table((*names, *of_alpha, "speed", "low", "high"), tuple(rows))


@journal_style()
def draw(table: Table) -> Figure:
    """Draw a row for each draft model and temperature, a column for each target and γ."""
    gammas = dict.fromkeys(table["gamma"].tolist())
    rows: list[list[str]] = []
    groups = []
    for temperature in dict.fromkeys(table["temperature"].tolist()):
        groups.append(len(rows))
        for draft in dict.fromkeys(table["draft"].tolist()):
            line = table.where(temperature=temperature, draft=draft)
            cells = []
            for pair in PAIRS:
                for gamma in gammas:
                    found = line.where(target=pair, gamma=gamma)
                    mean, high = found["speed"][0], found["high"][0]
                    cells.append(f"{mean:.2f} ± {high - mean:.2f}")
            name = f"{draft}, {line['parameters'][0]}"
            alpha, high = line["alpha"][0], line["alpha_high"][0]
            rate = f"{alpha:.2f} ± {high - alpha:.2f}"
            rows.append([name, f"{temperature:g}", rate, *cells])
    columns = [f"{pair}\n$\\gamma$ = {gamma}" for pair in PAIRS for gamma in gammas]
    heading = ["draft model", "temperature", "$\\alpha$", *columns]
    return table_figure(heading, rows, groups=groups[1:])
