"""Leviathan et al.'s Figure 4: speed and arithmetic operations by acceptance rate.

For c = ĉ = 0 the speed is (1 − α^(γ+1)) / (1 − α), and the operations grow by the factor γ + 1 over
that ([leviathan2023]_, Theorems 3.8 and 3.11): what is gained in speed is paid in operations,
unless α is near 1.  The values of γ are those of the paper's Table 1, and the black dots its six
settings.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from otm._core.drawing import COLOURS, blank_figure, journal_style
from otm.decoding.analysis import operations_factor, walltime_improvement
from otm.figures.drawing.style import label_point
from otm.figures.leviathan.table_1 import PRINTED
from otm.figures.registry import Kind
from otm.figures.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.THEORY
GAMMAS = (2, 3, 5, 10)
LINES = ("-", "--", "-.", ":")
STEPS = 200
"""Of the grid of α from 0 to 1."""


def data() -> Table:
    """Compute both factors by γ and α."""
    alphas = np.arange(STEPS + 1) / STEPS
    rows = [
        (gamma, *map(float, row))
        for gamma in GAMMAS
        for row in zip(
            alphas,
            walltime_improvement(alphas, gamma, 0),
            operations_factor(alphas, gamma, 0),
            strict=True,
        )
    ]
    return Table(("gamma", "alpha", "speed", "operations"), tuple(rows))


@journal_style()
def draw(table: Table) -> Figure:
    """Draw one colour and kind of line a number of drafts; speed above, operations below."""
    figure = blank_figure(height=4.2)
    upper, lower = figure.subplots(2, sharex=True)
    for gamma, colour, line in zip(GAMMAS, COLOURS, LINES, strict=False):
        curve = table.where(gamma=gamma)
        for axes, name, end in ((upper, "speed", -1), (lower, "operations", 0)):
            axes.plot(curve["alpha"], curve[name], color=colour, linestyle=line, linewidth=1.2)
            point = (curve["alpha"][end], curve[name][end])
            side: Literal["left", "right"] = "left" if end == 0 else "right"
            label_point(axes, point, rf"$\gamma = {gamma}$", colour, side)
    for alpha, gamma, _, _ in PRINTED:
        setting = table.where(alpha=float(alpha), gamma=gamma)
        for axes, name in ((upper, "speed"), (lower, "operations")):
            axes.plot(float(alpha), setting[name][0], "o", color="black", markersize=3, zorder=3)
    upper.set(ylabel="speed over no drafts", ylim=(0, 11.6), yticks=(1, 3, 4, 6, 11))
    lower.set(
        xlabel=r"acceptance rate $\alpha$",
        ylabel="operations over no drafts",
        xlim=(-0.25, 1.25),
        xticks=(0, 0.2, 0.4, 0.6, 0.8, 1),
        ylim=(0, 11.6),
        yticks=(1, 3, 4, 6, 11),
    )
    return figure
