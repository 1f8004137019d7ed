"""Accepted mass and residual mass, for one draft and for four."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from figures.registry import theory
from figures.table import Cell, Table
from otm._core.drawing import PAGE_WIDTH, blank_figure, split_bars
from otm.coupling import OptimalPlan
from otm.problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS = ("the", "a", "his", "no")
DRAFT, TARGET = (0.50, 0.25, 0.15, 0.10), (0.20, 0.30, 0.10, 0.40)
NUMBERS = (1, 4)
NAMES = ("accepted", "residual")


@theory
def two_bars() -> Table:
    """Two distributions: accepted mass and residual mass.

    The grey bar is the draft distribution.  The bar next to it is the target: its filled part is
    output as an accepted draft, and its hatched part is drawn from the residual.  With one draft,
    the filled part is the overlap of the two bars.  With four drafts, the optimal plan can accept
    more, because a token is more often among them.  The output follows the target in both cases.
    """
    rows: list[tuple[Cell, ...]] = []
    for k in NUMBERS:
        accepted = OptimalPlan(Problem(np.array(DRAFT), np.array(TARGET), k)).accepted_mass
        for i, word in enumerate(WORDS):
            residual = max(TARGET[i] - float(accepted[i]), 0.0)
            rows.append((k, word, DRAFT[i], float(accepted[i]), residual))
    return Table(("k", "token", "draft", "accepted", "residual"), tuple(rows))


@two_bars.drawing
def draw_two_bars(table: Table) -> Figure:
    """Draw a panel for each number of drafts."""
    figure = blank_figure(height=0.34 * PAGE_WIDTH, wide=True)
    records: list[dict[str, Any]] = list(table.records())
    for axes, k in zip(figure.subplots(1, len(NUMBERS), sharey=True), NUMBERS, strict=True):
        of_k = [row for row in records if row["k"] == k]
        bars = [np.array([row[name] for row in of_k]) for name in ("draft", *NAMES)]
        drawn = f"{k} drafts" if k > 1 else "one draft"
        sums = (law.sum() for law in bars[1:])
        masses = (f"{name}, {mass:.4g}" for name, mass in zip(NAMES, sums, strict=True))
        split_bars(axes, [row["token"] for row in of_k], bars, [drawn, *masses])
        axes.set_xlabel("token")
        if k == NUMBERS[0]:
            axes.set_ylabel("probability")
    return figure
