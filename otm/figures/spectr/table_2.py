"""SpecTr's Table 2: latency of the target model for several tokens in several rows.

The axes are the paper's, the models and the machine ours: byte-level targets on one thread of a
CPU, the shipped one of 4 layers and the same deepened to 32, in place of a transformer of 97M
parameters on a GPU.  Mean ± standard deviation of repeated runs, timed in turns, relative to the
mean for 4 tokens in one row, as in the paper; in brackets the median relative to the median there.
Where the deviation is nearly as large as the mean, single runs were held up by something else on
the machine, and the median says more.

The paper's latency hardly grows, as SpecTr assumes.  On a CPU it grows with the number of rows,
since it is the computing that takes the time there, and not the reading of weights.
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
    4: (Printed(1.00, 0.16), Printed(1.01, 0.15), Printed(1.06, 0.10), Printed(1.10, 0.16)),
    8: (Printed(1.01, 0.18), Printed(1.09, 0.25), Printed(1.10, 0.09), Printed(1.42, 0.4)),
}


def data(records: list[dict[str, Any]]) -> Table:
    """Lay out the target's latencies, beside the paper's numbers for another model."""
    return latencies(records, "target", PAPER)


@journal_style()
def draw(table: Table) -> Figure:
    """Draw the table."""
    return draw_latencies(table)
