"""How selection rules and curves are marked in every figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from otm.figures.rules import K_SEQ, MULTI_ROUND, OPTIMUM

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RULE_LINES: dict[str, dict[str, Any]] = {
    OPTIMUM: {"linestyle": "-", "marker": "o", "markersize": 2.4},
    K_SEQ: {"linestyle": "--", "marker": "s", "markersize": 4, "markerfacecolor": "none"},
    MULTI_ROUND: {"linestyle": ":", "marker": "^", "markersize": 5.5, "markerfacecolor": "none"},
}
"""How the line of each rule is drawn in every figure; colours are left to the figure."""

RULE_LABELS = {OPTIMUM: "OTM-$k$", K_SEQ: "$k$-Seq", MULTI_ROUND: "recursive rejection"}


def label_point(
    axes: Axes, point: tuple[float, float], text: str, colour: str, side: Literal["left", "right"]
) -> None:
    """Write the name of a curve beside one of its points."""
    axes.annotate(
        text,
        point,
        xytext=(-5 if side == "left" else 8, 0),
        textcoords="offset points",
        horizontalalignment="right" if side == "left" else "left",
        verticalalignment="center",
        fontsize=8,
        color=colour,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
    )


def rule_legend(axes: Axes, rules: Sequence[str]) -> None:
    """Say which kind of line is which rule, where the colours mean something else."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color="#444444", **RULE_LINES[rule]) for rule in rules]
    axes.legend(handles, [RULE_LABELS[rule] for rule in rules], loc="lower right")
