"""SpecTr's Figure 4: acceptance of OTM-k and of k-Seq for Bernoulli laws.

The draft law is Ber(0.25), the target law Ber(b).  At b = 0.25 the laws are equal and at b = 1 the
two rules; elsewhere k-Seq falls behind ([sun2023]_, appendix B).

References
----------
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otm._core.drawing import blank_figure, journal_style
from otm.figures.drawing.style import RULE_LINES, label_point, rule_legend
from otm.figures.registry import Kind
from otm.figures.rules import K_SEQ, OPTIMUM
from otm.figures.spectr.bernoulli_laws import COLOUR_OF, MOST_DRAFTS, bernoulli_acceptance
from otm.figures.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.THEORY
HEADS = (0.25, 0.1, 0.75, 1.0)  # the constant curve first, so that it covers no other
RULES = (OPTIMUM, K_SEQ)


def data() -> Table:
    """Compute the acceptance probability by b, rule and k."""
    return bernoulli_acceptance(HEADS, RULES)


@journal_style()
def draw(table: Table) -> Figure:
    """Draw one colour a target law, one kind of line a rule."""
    figure = blank_figure(height=2.5)
    axes = figure.add_subplot()
    for b in HEADS:
        for rule in RULES:
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
    rule_legend(axes, RULES)
    return figure
