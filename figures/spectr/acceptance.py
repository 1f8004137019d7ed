"""SpecTr's Figures 4 to 6: acceptance for Bernoulli and for uniform distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from figures.drawing.style import RULE_LINES, label_point, rule_legend
from figures.registry import theory
from figures.rules import K_SEQ, MULTI_ROUND, OPTIMUM, acceptance
from figures.table import Table
from otm._core.drawing import COLOURS, MARKERS, blank_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAFT = (0.75, 0.25)
MOST_DRAFTS = 20
COLOUR_OF = dict(zip((0.1, 0.25, 0.75, 1.0), COLOURS, strict=False))
"""Colour of the target distribution Ber(b), by b."""


def bernoulli_acceptance(heads: Sequence[float], rules: Sequence[str]) -> Table:
    """Compute the acceptance of rules for the draft Ber(0.25) and targets Ber(b).

    The rows are by b, rule and k, with k up to `MOST_DRAFTS`.
    """
    rows = [
        (b, rule, k, acceptance(rule, DRAFT, (1 - b, b), k))
        for b in heads
        for rule in rules
        for k in range(1, MOST_DRAFTS + 1)
    ]
    return Table(("b", "rule", "k", "acceptance"), tuple(rows))


HEADS_4 = (0.25, 0.1, 0.75, 1.0)  # the constant curve is first, so that other curves cover it
RULES_4 = (OPTIMUM, K_SEQ)


@theory
def figure_4() -> Table:
    """SpecTr's Figure 4: acceptance of OTM-k and of k-Seq, for coins.

    The draft distribution is Ber(0.25), and the target distribution is Ber(b).  At b = 0.25 the
    distributions are equal, and at b = 1 the two rules are equal.  At other b, k-Seq accepts less
    ([sun2023]_, appendix B).
    """
    return bernoulli_acceptance(HEADS_4, RULES_4)


@figure_4.drawing
def draw_figure_4(table: Table) -> Figure:
    """Draw one colour per target distribution and one line style per rule."""
    figure = blank_figure(height=2.5)
    axes = figure.add_subplot()
    for b in HEADS_4:
        for rule in RULES_4:
            curve = table.where(b=b, rule=rule)
            axes.plot(curve["k"], curve["acceptance"], **RULE_LINES[rule], color=COLOUR_OF[b])
        label_point(axes, (1, curve["acceptance"][0]), f"$b = {b:g}$", COLOUR_OF[b], "left")
    axes.set(
        xlabel="number of drafts $k$",
        ylabel="acceptance probability",
        xlim=(-3, MOST_DRAFTS + 0.5),
        xticks=(1, 5, 10, 15, 20),
        ylim=(0.2, 1.02),
    )
    rule_legend(axes, RULES_4)
    return figure


VOCABULARY = 120
SUPPORTS = (12, 24, 40, 60, 120)


@theory
def figure_5() -> Table:
    """SpecTr's Figure 5: optimal acceptance for uniform distributions.

    The draft distribution is U(120), and the target distribution is U(d) on d of its tokens, so
    the optimum is 1 − (1 − d/120)^k.  k-Seq attains it; its numbers are in the table, but not in
    the drawing ([sun2023]_, appendices B.1 and B.2).
    """
    tokens = np.arange(VOCABULARY)
    draft = np.full(VOCABULARY, 1 / VOCABULARY)
    rows = [
        (d, rule, k, acceptance(rule, draft, (tokens < d) / d, k))
        for d in SUPPORTS
        for rule in RULES_4
        for k in range(1, MOST_DRAFTS + 1)
    ]
    return Table(("d", "rule", "k", "acceptance"), tuple(rows))


@figure_5.drawing
def draw_figure_5(table: Table) -> Figure:
    """Draw the optimum, with one colour and marker per target distribution."""
    figure = blank_figure(height=2.5)
    axes = figure.add_subplot()
    for d, colour, marker in zip(SUPPORTS, COLOURS, MARKERS, strict=True):
        curve = table.where(d=d, rule=OPTIMUM)
        axes.plot(curve["k"], curve["acceptance"], color=colour, marker=marker, markersize=3)
        label_point(axes, (1, curve["acceptance"][0]), f"$d_q = {d}$", colour, "left")
    axes.set(
        xlabel="number of drafts $k$",
        ylabel=r"optimal acceptance probability $\alpha_k$",
        xlim=(-3.8, MOST_DRAFTS + 0.5),
        xticks=(1, 5, 10, 15, 20),
        ylim=(0, 1.03),
    )
    return figure


HEADS_6 = (0.1, 0.75, 1.0)
RULES_6 = (OPTIMUM, K_SEQ, MULTI_ROUND)
LABELLED_LOSS = {0.1: 2, 0.75: 5, 1.0: 1}
"""Number of drafts at the label of the loss, by b."""


@theory
def figure_6() -> Table:
    """SpecTr's Figure 6: acceptance of OTM-k, k-Seq and recursive rejection, for coins.

    The draft distribution is Ber(0.25), and the target distribution is Ber(b).  The second
    panel, which is not in the paper, shows the same numbers as differences from the optimum.
    Recursive rejection is the paper's "multi-round" ([sun2023]_, appendix B.3).
    """
    return bernoulli_acceptance(HEADS_6, RULES_6)


@figure_6.drawing
def draw_figure_6(table: Table) -> Figure:
    """Draw one colour per target and one line style per rule, and the losses below."""
    figure = blank_figure(height=4.2)
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    for b in HEADS_6:
        name, colour = f"$b = {b:g}$", COLOUR_OF[b]
        best = table.where(b=b, rule=OPTIMUM)["acceptance"]
        label_point(upper, (1, best[0]), name, colour, "left")
        for rule in RULES_6:
            curve = table.where(b=b, rule=rule)
            upper.plot(curve["k"], curve["acceptance"], **RULE_LINES[rule], color=colour)
            if rule == OPTIMUM:
                continue
            loss = best - curve["acceptance"]
            lower.plot(curve["k"], loss, **RULE_LINES[rule], color=colour)
        at = LABELLED_LOSS[b]
        side: Literal["left", "right"] = "left" if at == 1 else "right"
        label_point(lower, (at, loss[at - 1]), name, colour, side)
    upper.set(ylabel="acceptance probability", ylim=(0.2, 1.02))
    lower.set(
        xlabel="number of drafts $k$",
        ylabel="optimum minus rule",
        xlim=(-3, MOST_DRAFTS + 0.5),
        xticks=(1, 5, 10, 15, 20),
    )
    rule_legend(upper, RULES_6)
    return figure
