"""SpecTr's Table 3: latency of the draft model for several tokens in several rows.

The axes are the paper's, the models and the machine ours: the small byte-level draft model (17k
parameters) on one thread of a CPU, in place of a transformer of 6M parameters on a GPU.  Mean ±
standard deviation of repeated runs, timed in turns, relative to the mean of the target for 4 tokens
in one row; in brackets the same of medians; "shipped" and "deepened" say which target (Table 2).

Next to the deepened target the draft model is cheaper than the paper's, whose 0.16 to 0.20 lie
between the two.  Its times differ by less than a factor of 2 over all lengths and batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otm._core.drawing import journal_style
from otm.figures import recorded_pairs
from otm.figures.registry import Kind
from otm.figures.spectr.latencies import Printed, draw_latencies, latencies
from otm.figures.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMMAND, RECORDED = recorded_pairs.COMMAND, recorded_pairs.RECORDED

KIND = Kind.MEASUREMENT

PAPER = {
    4: (Printed(0.18, 0.02), Printed(0.19, 0.04), Printed(0.18, 0.09), Printed(0.20, 0.13)),
    8: (Printed(0.17, 0.04), Printed(0.19, 0.05), Printed(0.16, 0.02), Printed(0.18, 0.04)),
}


def data(records: list[dict[str, Any]]) -> Table:
    """Lay out the draft model's latencies, beside the paper's numbers for another model."""
    return latencies(records, "small", PAPER)


@journal_style()
def draw(table: Table) -> Figure:
    """Draw the table."""
    return draw_latencies(table)
