"""Leviathan et al.'s Figure 3: the best number of drafts.

The γ that maximises the walltime improvement (1 − α^(γ+1)) / ((1 − α)(γ c + 1)) of Theorem 3.8
([leviathan2023]_, section 3.5); where two are equally good, the smaller.  It is 0 where α ≤ c, and
grows without limit as α approaches 1; the drawing ends at 0.95.  The formula is the paper's, and
the values of c are our choice.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from otm._core.drawing import COLOURS, blank_figure, journal_style
from otm.decoding.analysis import best_gamma
from otm.figures.registry import Kind
from otm.figures.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.THEORY
COSTS = ("0.01", "0.02", "0.05", "0.1")
LINES = ("-", "--", "-.", ":")
STEPS = 1000
LARGEST_ALPHA = 950
"""Of the grid, in steps."""


def data() -> Table:
    """Compute the best γ by c and α, in fractions, so that no tie is decided by rounding."""
    alphas = [Fraction(step, STEPS) for step in range(LARGEST_ALPHA + 1)]
    rows = [
        (float(cost), float(alpha), int(gamma))
        for cost in COSTS
        for alpha, gamma in zip(alphas, best_gamma(alphas, Fraction(cost)), strict=True)
    ]
    return Table(("c", "alpha", "gamma"), tuple(rows))


@journal_style()
def draw(table: Table) -> Figure:
    """Draw one colour and kind of line a cost."""
    figure = blank_figure(height=2.6)
    axes = figure.add_subplot()
    for cost, colour, line in zip(COSTS, COLOURS, LINES, strict=False):
        curve = table.where(c=float(cost))
        axes.step(
            curve["alpha"],
            curve["gamma"],
            where="post",
            color=colour,
            linestyle=line,
            linewidth=1.2,
            label=f"$c = {cost}$",
        )
    axes.set(
        xlabel=r"acceptance rate $\alpha$",
        ylabel=r"best number of drafts $\gamma$",
        xlim=(0, 1),
        ylim=(0, None),
    )
    axes.legend(loc="upper left")
    return figure
