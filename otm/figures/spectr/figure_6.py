"""SpecTr's Figure 6: acceptance of OTM-k, k-Seq and recursive rejection for Bernoulli laws.

The draft law is Ber(0.25), the target law Ber(b).  The second panel, which the paper does not have,
shows the same numbers as a distance from the optimum.  Recursive rejection is the paper's
"multi-round" ([sun2023]_, appendix B.3).

References
----------
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from otm._core.drawing import blank_figure, journal_style
from otm.figures.drawing.style import RULE_LINES, label_point, rule_legend
from otm.figures.registry import Kind
from otm.figures.rules import K_SEQ, MULTI_ROUND, OPTIMUM
from otm.figures.spectr.bernoulli_laws import COLOUR_OF, MOST_DRAFTS, bernoulli_acceptance
from otm.figures.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.THEORY
HEADS = (0.1, 0.75, 1.0)
RULES = (OPTIMUM, K_SEQ, MULTI_ROUND)
LABELLED_LOSS = {0.1: 2, 0.75: 5, 1.0: 1}
"""Number of drafts at which the loss is labelled, by b."""


def data() -> Table:
    """Compute the acceptance probability by b, rule and k."""
    return bernoulli_acceptance(HEADS, RULES)


@journal_style()
def draw(table: Table) -> Figure:
    """Draw one colour a target law, one kind of line a rule; below, the loss to the optimum."""
    figure = blank_figure(height=4.2)
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    for b in HEADS:
        name, colour = f"$b = {b:g}$", COLOUR_OF[b]
        best = table.where(b=b, rule=OPTIMUM)["acceptance"]
        label_point(upper, (1, best[0]), name, colour, "left")
        for rule in RULES:
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
    rule_legend(upper, RULES)
    return figure
