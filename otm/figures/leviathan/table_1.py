"""Leviathan et al.'s Table 1: arithmetic operations and speed, printed and computed.

Both are factors over decoding without drafts, for c = ĉ = 0 ([leviathan2023]_, Theorems 3.11 and
3.8).  Every printed number is the rounded computed one.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from otm._core.drawing import journal_style
from otm.decoding.analysis import operations_factor, walltime_improvement
from otm.figures.drawing.tables import comparison_figure
from otm.figures.printed import Comparison, comparison_table
from otm.figures.registry import Kind
from otm.figures.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.THEORY
PRINTED = (
    ("0.6", 2, "1.53", "1.96"),
    ("0.7", 3, "1.58", "2.53"),
    ("0.8", 2, "1.23", "2.44"),
    ("0.8", 5, "1.63", "3.69"),
    ("0.9", 2, "1.11", "2.71"),
    ("0.9", 10, "1.60", "6.86"),
)
"""α, γ, operations and speed."""


def data() -> Table:
    """Compute the twelve numbers from α and γ."""
    comparisons = []
    for alpha, gamma, operations, speed in PRINTED:
        rate = Fraction(alpha)
        for name, printed, computed in (
            ("operations", operations, operations_factor(rate, gamma, 0)),
            ("speed", speed, walltime_improvement(rate, gamma, 0)),
        ):
            item = f"α = {alpha}, γ = {gamma}: {name}"
            comparisons.append(Comparison(item, printed, float(computed)))
    return comparison_table(comparisons)


@journal_style()
def draw(table: Table) -> Figure:
    """Draw the printed and the computed numbers side by side."""
    return comparison_figure(table)
