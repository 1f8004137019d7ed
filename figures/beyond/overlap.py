"""Speed of drafting while the target verifies, by the share of prepared outcomes."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from figures.registry import theory
from figures.table import Cell, Table
from otm._core.drawing import COLOURS, blank_figure
from otm.gain import overlapped_improvement, parallel_improvement, walltime_improvement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALPHAS = (Fraction(3, 5), Fraction(4, 5))
COSTS = (Fraction(1, 20), Fraction(1, 5), Fraction(1, 2))
HIT_RATES = tuple(Fraction(i, 20) for i in range(21))
GAMMAS = np.arange(1, 33)

PREPARED, PARALLEL, WAITING = "prepared outcomes", "one chain without pause", "waiting"


def best(speeds: Any) -> tuple[int, float]:
    """Return the number of drafts with the highest speed, the smallest one among equals."""
    place = int(np.argmax(speeds))
    return int(GAMMAS[place]), float(speeds[place])


@theory
def overlap() -> Table:
    """How much drafting while the target verifies gains: speed by the share of prepared outcomes.

    The draft model prepares drafts for likely outcomes of a step (Theorem 25.6), or drafts one
    chain without pause as PEARL does (Theorem 25.7), or waits for the target as usual.  Each way
    has its best number of drafts γ, up to 32.  Each draft is accepted with the same probability α,
    and costs the time c of a call of the target.  Speeds are relative to decoding without drafts,
    computed in fractions.
    """
    rows: list[tuple[Cell, ...]] = []
    for alpha, cost in itertools.product(ALPHAS, COSTS):
        pair = alpha, GAMMAS, cost
        given = float(alpha), float(cost)
        for hit_rate in HIT_RATES:
            speeds = overlapped_improvement(*pair, hit_rate)
            rows.append((*given, PREPARED, float(hit_rate), *best(speeds)))
        rows.append((*given, PARALLEL, "", *best(parallel_improvement(*pair))))
        rows.append((*given, WAITING, "", *best(walltime_improvement(*pair))))
    return Table(("alpha", "c", "way", "hit rate", "gamma", "speed"), tuple(rows))


@overlap.drawing
def draw_overlap(table: Table) -> Figure:
    """Draw one panel per draft cost."""
    figure = blank_figure(height=2.9, wide=True)
    panels = figure.subplots(1, len(COSTS), sharey=True)
    for axes, cost in zip(panels, COSTS, strict=True):
        for alpha, colour in zip(ALPHAS, COLOURS, strict=False):
            of_pair = table.where(alpha=float(alpha), c=float(cost))
            prepared = of_pair.where(way=PREPARED)
            label = f"$\\alpha = {float(alpha):g}$, "
            axes.plot(
                prepared["hit rate"].astype(float), prepared["speed"], color=colour,
                label=label + PREPARED,
            )  # fmt: skip
            for way, style in ((PARALLEL, "--"), (WAITING, ":")):
                (speed,) = of_pair.where(way=way)["speed"]
                axes.axhline(speed, color=colour, linestyle=style, linewidth=1.2, label=label + way)
        axes.set_title(f"a draft costs $c = {float(cost):g}$", fontsize=9)
        axes.set_xlabel("share of prepared outcomes")
    panels[0].set_ylabel("speed")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
