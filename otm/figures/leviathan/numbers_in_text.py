"""Leviathan et al.'s numbers in the text: what its formulas give.

All numbers outside the tables that follow from a formula ([leviathan2023]_, sections 3.5, 3.6 and
appendix A.5).  The improvements for lenience in standard sampling, at the best γ, are above what
Theorem 3.8 gives for any α and c that round to the printed ones; with such α one c between 0.0075
and 0.009, instead of 0.015, would give all four, but we do not know what was used.  The printed 5
has no decimal, so that 4.79 agrees with it; and 1/0.3 is printed as 3.  Corollary 3.9 has no
number: at the best γ the improvement is never below (1 + α)/(1 + c), which a test checks on a
grid.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import e
from typing import TYPE_CHECKING

import numpy as np

from otm._core.drawing import journal_style
from otm.decoding.analysis import best_gamma, oracle_speedup, walltime_improvement
from otm.figures.drawing.tables import comparison_figure
from otm.figures.leviathan.rounded_inputs import improvement_comparison
from otm.figures.printed import Comparison, agrees, comparison_table
from otm.figures.registry import Kind
from otm.figures.table import Table
from otm.optimum.lenience import lenient_value
from otm.problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.THEORY
LENIENCE_COST = "0.015"
STANDARD = (
    ("1", "0.62", "2.5"),
    ("0.5", "0.71", "3.1"),
    ("0.3", "0.76", "3.6"),
    ("0.1", "0.84", "5"),
)
"""l, α of Table 5 (T5-small) and improvement."""
ARGMAX = (
    ("1", "0.75", "3.3"),
    ("0.5", "0.75", "3.3"),
    ("0.3", "0.80", "3.9"),
    ("0.1", "0.87", "4.9"),
)
"""l, α and improvement."""
ARGMAX_GAMMA = 8
EXCESS = (("1", "1"), ("0.5", "2"), ("0.3", "3"), ("0.1", "10"))
"""l, and how many times its target probability a token may have."""
ORACLE_COSTS = (0.01, 0.02, 0.03, 0.04, 0.05)
"""Section 3.3: always below 0.05 in the paper's experiments."""
USUAL_ALPHA = 0.9
"""Section 4.2: α is between 0.5 and 0.9 for drafts a hundred times smaller."""


def data() -> Table:
    """Compute each number from what the paper says that it follows from."""
    bigram = float(walltime_improvement(Fraction("0.2"), 3, 0))
    improvements = [
        improvement_comparison(
            f"A.5: improvement, {sampling}, l = {lenience} "
            f"(α = {alpha}, {drafts}, c = {LENIENCE_COST})",
            printed,
            alpha,
            gamma,
            LENIENCE_COST,
        )
        for sampling, settings, gamma, drafts in (
            ("standard", STANDARD, None, "best γ"),
            ("argmax", ARGMAX, ARGMAX_GAMMA, f"γ = {ARGMAX_GAMMA}"),
        )
        for lenience, alpha, printed in settings
    ]
    return comparison_table(
        [
            _oracle(),
            Comparison("3.6: improvement by bigrams (α = 0.2, γ = 3, c = 0)", "1.25", bigram),
            *_excesses(),
            *improvements,
        ]
    )


@journal_style()
def draw(table: Table) -> Figure:
    """Draw the printed and the computed numbers side by side."""
    return comparison_figure(table)


def _oracle() -> Comparison:
    """Compare the percentage that knowing γ beforehand adds to the best fixed γ."""
    costs, alphas = np.array(ORACLE_COSTS)[:, np.newaxis], np.arange(1000) / 1000
    fixed = walltime_improvement(alphas, best_gamma(alphas, costs), costs)
    gain = 100 * (oracle_speedup(alphas, costs) / fixed - 1)
    row, column = np.unravel_index(gain.argmax(), gain.shape)
    largest, usual = float(gain.max()), float(gain[:, alphas <= USUAL_ALPHA].max())
    printed, reason = "60", ""
    if not agrees(printed, largest):
        reason = (
            f'printed as "up to ~60 %": with c from 0.01 to 0.05 it is at most {largest:.1f} '
            f"(c = {ORACLE_COSTS[row]}, α = {alphas[column]}), and {usual:.1f} for α up to "
            f"{USUAL_ALPHA}; as c falls to 0, its maximum tends to "
            f"100/(e − 1) = {100 / (e - 1):.1f}"
        )
    return Comparison("3.5: gain by an oracle over a fixed γ, in %", printed, largest, reason)


def _excesses() -> Iterator[Comparison]:
    """Compare how far lenience lets a token exceed its target probability.

    The bound 1/l is attained where the draft model always proposes a token that is rare under the
    target: it is output just if it is accepted.
    """
    rare = Fraction(1, 20)
    problem = Problem([Fraction(1), Fraction(0)], [rare, 1 - rare], k=1)
    for lenience, printed in EXCESS:
        item = f"A.5: a token's probability over the target's, l = {lenience}"
        yield Comparison(item, printed, float(lenient_value(problem, Fraction(lenience)) / rare))
