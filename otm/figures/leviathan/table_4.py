"""Leviathan et al.'s Table 4: expected walltime improvements, printed and computed.

The column EXP is Theorem 3.8 at the γ, α and c of the same row ([leviathan2023]_, appendix A.3).
Three of the twelve numbers differ: α and c are printed with two digits, and others that round to
the same digits do give the printed number.  For EnDe, T5-base, T = 1 (2.347) and the last row
another α is enough, for EnDe, T5-large, T = 1 another c.  Section 3.3 has all c below 0.05, this
table has 0.11.  The measured column EMP is not compared here.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otm._core.drawing import journal_style
from otm.figures.drawing.tables import comparison_figure
from otm.figures.leviathan.rounded_inputs import improvement_comparison
from otm.figures.printed import comparison_table
from otm.figures.registry import Kind
from otm.figures.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.THEORY
PRINTED = (
    ("EnDe", "T5-small", 0, 7, "0.75", "0.02", "3.2"),
    ("EnDe", "T5-base", 0, 7, "0.80", "0.04", "3.3"),
    ("EnDe", "T5-large", 0, 7, "0.82", "0.11", "2.5"),
    ("EnDe", "T5-small", 1, 7, "0.62", "0.02", "2.3"),
    ("EnDe", "T5-base", 1, 5, "0.68", "0.04", "2.4"),
    ("EnDe", "T5-large", 1, 3, "0.71", "0.11", "2.0"),
    ("CNNDM", "T5-small", 0, 5, "0.65", "0.02", "2.4"),
    ("CNNDM", "T5-base", 0, 5, "0.73", "0.04", "2.6"),
    ("CNNDM", "T5-large", 0, 3, "0.74", "0.11", "2.0"),
    ("CNNDM", "T5-small", 1, 5, "0.53", "0.02", "1.9"),
    ("CNNDM", "T5-base", 1, 3, "0.55", "0.04", "1.8"),
    ("CNNDM", "T5-large", 1, 3, "0.56", "0.11", "1.6"),
)
"""Task, draft model, temperature, γ, α, c and EXP; α with two digits, as Table 3 has all."""


def data() -> Table:
    """Compute the column EXP, and where it differs the range that rounding leaves."""
    return comparison_table(
        improvement_comparison(
            f"{task}, {draft}, T = {temperature} (γ = {gamma}, α = {alpha}, c = {cost})",
            printed,
            alpha,
            gamma,
            cost,
        )
        for task, draft, temperature, gamma, alpha, cost, printed in PRINTED
    )


@journal_style()
def draw(table: Table) -> Figure:
    """Draw the printed and the computed numbers side by side."""
    return comparison_figure(table)
