"""Gain of the optimum over k-Seq by the ratio q/p."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from figures.progress import progress
from figures.registry import experiment
from figures.shipped_pairs import shipped_probs
from figures.table import Cell, Table
from otm._core.drawing import COLOURS, blank_figure
from otm._core.means import clustered_mean
from otm.coupling import KSeq, OptimalPlan
from otm.optimum.cut import optimal_cap
from otm.problem import Problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEED = 0
PAIR = "medium"
PROMPTS, TOKENS, EVERY = 250, 40, 8
NUMBERS = (2, 8)
EDGES = np.arange(-4, 6.1, 0.5)
"""Edges of the bins of log₂(q/p); the first and the last bin also hold all values beyond."""

TARGET, OPTIMUM, K_SEQ, GAIN = "target", "optimum", "k-Seq", "gain"
FACTORS = {OPTIMUM: "c*", K_SEQ: "ρ*"}


def masses_by_bin(problem: Problem) -> dict[str, npt.NDArray[np.float64]]:
    """Sum the target mass and both rules' accepted masses by bins of log₂(q/p).

    Returns
    -------
    dict from names to float64 arrays [bins]
        Masses by bin.  Tokens with draft probability zero are in the last bin.
    """
    draft, target = problem.draft, problem.target
    with np.errstate(divide="ignore"):
        level = np.log2(target) - np.log2(draft)
    place = np.digitize(level, EDGES[1:-1])
    masses = {
        TARGET: target,
        OPTIMUM: OptimalPlan(problem).accepted_mass,
        K_SEQ: KSeq(problem).accepted_mass,
    }
    return {
        name: np.bincount(place, mass, EDGES.size - 1).astype(np.float64)
        for name, mass in masses.items()
    }


@experiment(seed=SEED, full=lambda: {"every": 1})
def gain_by_ratio(prompts: int = PROMPTS, every: int = EVERY) -> Table:
    """Where the optimum gains over k-Seq: accepted mass by the ratio q/p of the accepted token.

    Both rules accept a mass min(q, c p).  The factor of k-Seq is c = ρ*; the optimum's factor c*
    is larger, but at most k.  So both rules accept the whole target mass of tokens with
    q/p ≤ ρ*, and the whole gain is in tokens with q/p > ρ*.  The upper panels show masses by
    bins of log₂(q/p); the first and the last bin also hold all values beyond.  The lower panels
    show optimum minus k-Seq, with 95 % intervals over prompts.  The models are the shipped
    target and its medium draft, at contexts of texts that the target generates.  Dotted lines
    are geometric means over contexts.
    """
    probs, clusters = shipped_probs(
        (PAIR, "target"), prompts=prompts, tokens=TOKENS, every=every, seed=SEED
    )
    pairs = list(zip(probs[PAIR], probs["target"], strict=True))
    rows: list[tuple[Cell, ...]] = []
    for k in NUMBERS:
        problems = [Problem(*pair, k) for pair in pairs]
        masses_at = [masses_by_bin(at) for at in progress(problems, len(problems), "gain_by_ratio")]
        series = {
            name: np.array([at[name] for at in masses_at]) for name in (TARGET, OPTIMUM, K_SEQ)
        }
        series[GAIN] = series[OPTIMUM] - series[K_SEQ]
        for name, masses in series.items():
            for low, high, mass in zip(EDGES[:-1], EDGES[1:], masses.T, strict=True):
                rows.append((k, name, float(low), float(high), *clustered_mean(mass, clusters)))
        for name, factor in (
            (OPTIMUM, [optimal_cap(at) for at in problems]),
            (K_SEQ, [KSeq(at).rho for at in problems]),
        ):
            mean = clustered_mean(np.log2(np.asarray(factor, dtype=np.float64)), clusters)
            rows.append((k, FACTORS[name], "", "", *mean))
    return Table(("k", "quantity", "from", "to", "mean", "low", "high"), tuple(rows))


@gain_by_ratio.drawing
def draw_gain_by_ratio(table: Table) -> Figure:
    """Draw one column per k, with masses above and the gain below."""
    figure = blank_figure(height=4.2, wide=True)
    panels = figure.subplots(2, len(NUMBERS), sharex=True, sharey="row", height_ratios=(3, 2))
    for (upper, lower), k in zip(panels.T, NUMBERS, strict=True):
        of_k = table.where(k=k)
        for name, style in _STYLES.items():
            _steps(upper, of_k.where(quantity=name), **style)
        gain = of_k.where(quantity=GAIN)
        middle = (gain["from"].astype(float) + gain["to"].astype(float)) / 2
        lower.bar(middle, gain["mean"], width=0.45, color=COLOURS[2])
        lower.vlines(middle, gain["low"], gain["high"], color="black", linewidth=0.8)
        for name, factor in FACTORS.items():
            [level] = of_k.where(quantity=factor)["mean"]
            colour = _STYLES[name]["color"]
            for axes in (upper, lower):
                axes.axvline(
                    level, color=colour, linestyle=":", linewidth=1.2, label=f"mean {_SIGNS[name]}"
                )
        upper.set_title(f"$k = {k}$", fontsize=9)
        lower.set_xlabel(r"$\log_2(q/p)$ of the token")
    panels[0, 0].set(ylabel="mean mass of a bin", yscale="log", ylim=(3e-5, 1))
    panels[1, 0].set_ylabel("optimum minus k-Seq")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def _steps(axes: Axes, rows: Table, **style: Any) -> None:
    edges = [*rows["from"].astype(float), float(rows["to"][-1])]
    axes.stairs(rows["mean"], edges, **style)


_SIGNS = {OPTIMUM: r"$c^{\mathregular{*}}$", K_SEQ: r"$\rho^{\mathregular{*}}$"}

_STYLES: dict[str, dict[str, Any]] = {
    TARGET: {"color": "#DDDDDD", "fill": True, "label": "target"},
    OPTIMUM: {"color": COLOURS[0], "linewidth": 1.4, "label": "accepted by the optimum"},
    K_SEQ: {"color": COLOURS[1], "linestyle": "--", "linewidth": 1.2, "label": "accepted by k-Seq"},
}
