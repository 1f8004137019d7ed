"""Leviathan et al.'s Figure 2: expected number of tokens from one run of the target model.

A block of γ drafts yields (1 − α^(γ+1)) / (1 − α) tokens on average ([leviathan2023]_, Equation
(1)), and γ + 1 at α = 1; no γ yields more than 1/(1 − α), the dashed line.  The formula is the
paper's, and the values of γ are our choice.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from otm._core.drawing import COLOURS, MARKERS, blank_figure, journal_style
from otm.decoding.analysis import expected_tokens, oracle_speedup
from otm.figures.drawing.style import label_point
from otm.figures.registry import Kind
from otm.figures.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.THEORY
GAMMAS = (1, 3, 5, 7, 10)
STEPS = 200
"""Of the grid of α from 0 to 1."""


def data() -> Table:
    """Compute the mean number of tokens by γ and α; γ is infinite for the limit."""
    alphas = np.arange(STEPS + 1) / STEPS
    curves = {gamma: expected_tokens(alphas, gamma) for gamma in GAMMAS}
    limit = oracle_speedup(alphas)
    rows = [
        (gamma, alpha, tokens)
        for gamma, curve in (*curves.items(), (math.inf, limit))
        for alpha, tokens in zip(alphas.tolist(), curve.tolist(), strict=True)
    ]
    return Table(("gamma", "alpha", "tokens"), tuple(rows))


@journal_style()
def draw(table: Table) -> Figure:
    """Draw one colour and marker a number of drafts, and the limit."""
    figure = blank_figure(height=2.6)
    axes = figure.add_subplot()
    limit = table.where(gamma=math.inf)
    axes.plot(limit["alpha"], limit["tokens"], color="#444444", linestyle="--")
    axes.annotate(
        r"$\gamma \to \infty$",
        (0.9, 10),
        xytext=(-6, 0),
        textcoords="offset points",
        horizontalalignment="right",
        verticalalignment="center",
        fontsize=8,
        color="#444444",
    )
    for gamma, colour, marker in zip(GAMMAS, COLOURS, MARKERS, strict=True):
        curve = table.where(gamma=gamma)
        axes.plot(
            curve["alpha"],
            curve["tokens"],
            color=colour,
            marker=marker,
            markersize=3,
            markevery=STEPS // 10,
        )
        label_point(axes, (1, curve["tokens"][-1]), rf"$\gamma = {gamma}$", colour, "right")
    axes.set(
        xlabel=r"acceptance rate $\alpha$",
        ylabel="mean number of tokens per block",
        xlim=(0, 1.22),
        xticks=(0, 0.2, 0.4, 0.6, 0.8, 1),
        ylim=(0, 11.5),
        yticks=(1, 2, 4, 6, 8, 11),
    )
    return figure
