"""SpecTr's Figure 5: optimal acceptance for uniform laws.

The draft law is U(120), the target law U(d) on d of its tokens, so that the optimum is
1 − (1 − d/120)^k.  k-Seq attains it and is in the table, not in the drawing ([sun2023]_, appendices
B.1 and B.2).

References
----------
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from otm._core.drawing import COLOURS, MARKERS, blank_figure, journal_style
from otm.figures.drawing.style import label_point
from otm.figures.registry import Kind
from otm.figures.rules import K_SEQ, OPTIMUM, acceptance
from otm.figures.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.THEORY
VOCABULARY = 120
SUPPORTS = (12, 24, 40, 60, 120)
RULES = (OPTIMUM, K_SEQ)
MOST_DRAFTS = 20


def data() -> Table:
    """Compute the acceptance probability by d, rule and k."""
    tokens = np.arange(VOCABULARY)
    draft = np.full(VOCABULARY, 1 / VOCABULARY)
    rows = [
        (d, rule, k, acceptance(rule, draft, (tokens < d) / d, k))
        for d in SUPPORTS
        for rule in RULES
        for k in range(1, MOST_DRAFTS + 1)
    ]
    return Table(("d", "rule", "k", "acceptance"), tuple(rows))


@journal_style()
def draw(table: Table) -> Figure:
    """Draw the optimum, one colour and marker a target law."""
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
