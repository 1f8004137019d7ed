"""Pairs of Bernoulli laws, as SpecTr's Figures 4 and 6 have them."""

from __future__ import annotations

from collections.abc import Sequence

from otm._core.drawing import COLOURS
from otm.figures.rules import acceptance
from otm.figures.table import Table

DRAFT = (0.75, 0.25)
MOST_DRAFTS = 20
COLOUR_OF = dict(zip((0.1, 0.25, 0.75, 1.0), COLOURS, strict=False))
"""Colour of the target law Ber(b) by b."""


def bernoulli_acceptance(heads: Sequence[float], rules: Sequence[str]) -> Table:
    """Compute the acceptance of rules for the draft law Ber(0.25) and target laws Ber(b).

    Parameters
    ----------
    heads : sequence of float
        The values of b.
    rules : sequence of str
        Names from `otm.figures.rules`.

    Returns
    -------
    Table
        Acceptance by b, rule and k, for k up to `MOST_DRAFTS`.
    """
    rows = [
        (b, rule, k, acceptance(rule, DRAFT, (1 - b, b), k))
        for b in heads
        for rule in rules
        for k in range(1, MOST_DRAFTS + 1)
    ]
    return Table(("b", "rule", "k", "acceptance"), tuple(rows))
