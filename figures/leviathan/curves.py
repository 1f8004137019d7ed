"""Leviathan et al.'s Figures 2 to 4: the formulas as functions of α."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np

from figures.drawing.style import label_point
from figures.leviathan.printed import FACTORS
from figures.registry import theory
from figures.table import Table
from otm._core.drawing import COLOURS, MARKERS, blank_figure
from otm.gain.formulas import (
    best_gamma,
    expected_tokens,
    operations_factor,
    oracle_speedup,
    walltime_improvement,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAMMAS_2 = (1, 3, 5, 7, 10)
STEPS = 200
"""Number of steps of the grid of α from 0 to 1."""


@theory
def figure_2() -> Table:
    """Leviathan et al.'s Figure 2: expected number of tokens from one call of the target model.

    A block of γ drafts gives (1 − α^(γ+1)) / (1 − α) tokens on average ([leviathan2023]_,
    Equation (1)), and γ + 1 at α = 1.  The limit for all γ is 1/(1 − α), the dashed line.  The
    formula is from the paper, and the values of γ are our choice.
    """
    alphas = np.arange(STEPS + 1) / STEPS
    curves = {gamma: expected_tokens(alphas, gamma) for gamma in GAMMAS_2}
    limit = oracle_speedup(alphas)
    rows = [
        (gamma, alpha, tokens)
        for gamma, curve in (*curves.items(), (math.inf, limit))
        for alpha, tokens in zip(alphas.tolist(), curve.tolist(), strict=True)
    ]
    return Table(("gamma", "alpha", "tokens"), tuple(rows))


@figure_2.drawing
def draw_figure_2(table: Table) -> Figure:
    """Draw one colour and marker per number of drafts, and the limit."""
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
    for gamma, colour, marker in zip(GAMMAS_2, COLOURS, MARKERS, strict=True):
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


COSTS = ("0.01", "0.02", "0.05", "0.1")
LINES = ("-", "--", "-.", ":")
FINE_STEPS = 1000
LARGEST_ALPHA = 950
"""Last step of the grid of α."""


@theory
def figure_3() -> Table:
    """Leviathan et al.'s Figure 3: the best number of drafts.

    The best γ maximises the walltime improvement (1 − α^(γ+1)) / ((1 − α)(γ c + 1)) of Theorem
    3.8 ([leviathan2023]_, section 3.5); of two equally good values it is the smaller one.  It is
    0 for α ≤ c, and grows without limit as α approaches 1; the drawing ends at 0.95.  The
    formula is from the paper, and the values of c are our choice.
    """
    alphas = [Fraction(step, FINE_STEPS) for step in range(LARGEST_ALPHA + 1)]
    rows = [
        (float(cost), float(alpha), int(gamma))
        for cost in COSTS
        for alpha, gamma in zip(alphas, best_gamma(alphas, Fraction(cost)), strict=True)
    ]
    return Table(("c", "alpha", "gamma"), tuple(rows))


@figure_3.drawing
def draw_figure_3(table: Table) -> Figure:
    """Draw one colour and line style per cost."""
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


GAMMAS_4 = (2, 3, 5, 10)


@theory
def figure_4() -> Table:
    """Leviathan et al.'s Figure 4: speed and arithmetic operations by acceptance rate.

    For c = ĉ = 0 the speed is (1 − α^(γ+1)) / (1 − α), and the number of operations grows by the
    factor γ + 1 divided by the speed ([leviathan2023]_, Theorems 3.8 and 3.11).  So a gain in
    speed costs operations, unless α is near 1.  The values of γ are those of the paper's Table
    1, and the black dots are its six settings.
    """
    alphas = np.arange(STEPS + 1) / STEPS
    rows = [
        (gamma, *map(float, row))
        for gamma in GAMMAS_4
        for row in zip(
            alphas,
            walltime_improvement(alphas, gamma, 0),
            operations_factor(alphas, gamma, 0),
            strict=True,
        )
    ]
    return Table(("gamma", "alpha", "speed", "operations"), tuple(rows))


@figure_4.drawing
def draw_figure_4(table: Table) -> Figure:
    """Draw one colour and line style per number of drafts, with speed above operations."""
    figure = blank_figure(height=4.2)
    upper, lower = figure.subplots(2, sharex=True)
    for gamma, colour, line in zip(GAMMAS_4, COLOURS, LINES, strict=False):
        curve = table.where(gamma=gamma)
        for axes, name, end in ((upper, "speed", -1), (lower, "operations", 0)):
            axes.plot(curve["alpha"], curve[name], color=colour, linestyle=line, linewidth=1.2)
            point = (curve["alpha"][end], curve[name][end])
            side: Literal["left", "right"] = "left" if end == 0 else "right"
            label_point(axes, point, rf"$\gamma = {gamma}$", colour, side)
    for alpha, gamma, _, _ in FACTORS:
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
