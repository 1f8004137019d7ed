"""Leviathan et al.'s Tables 1 and 4 and the numbers in the text, printed and computed."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import e
from typing import TYPE_CHECKING

import numpy as np

from figures.drawing.tables import comparison_figure
from figures.registry import theory
from figures.table import Comparison, Table, agrees, comparison_table, rounding_interval
from otm.gain.formulas import best_gamma, operations_factor, oracle_speedup, walltime_improvement
from otm.optimum.lenience import lenient_value
from otm.problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def improvement_range(alpha: str, gamma: int | None, cost: str) -> tuple[float, float]:
    """Return the least and the largest improvement over all α and c that round as printed.

    The improvement rises with α and falls with c, and so does its maximum over γ.

    Parameters
    ----------
    alpha, cost : str
        The printed numbers; their digits show how they were rounded.
    gamma : int or None
        Number of drafts; None means the best number for α and c.

    Examples
    --------
    >>> least, largest = improvement_range("0.75", 7, "0.02")
    >>> round(least, 2), round(largest, 2)
    (3.02, 3.3)
    """
    (low_alpha, high_alpha), (low_cost, high_cost) = map(rounding_interval, (alpha, cost))
    return _improvement(low_alpha, gamma, high_cost), _improvement(high_alpha, gamma, low_cost)


def improvement_comparison(
    item: str, printed: str, alpha: str, gamma: int | None, cost: str
) -> Comparison:
    """Compare a printed improvement with the improvement of the printed α and c.

    If they differ, the reason states whether some α and c that round as printed give the printed
    improvement.

    Parameters
    ----------
    item : str
        Description of the number.
    printed : str
        The printed improvement.
    alpha, gamma, cost
        Same as for `improvement_range`.
    """
    computed = _improvement(Fraction(alpha), gamma, Fraction(cost))
    if agrees(printed, computed):
        return Comparison(item, printed, computed)
    least, largest = improvement_range(alpha, gamma, cost)
    low, high = map(float, rounding_interval(printed))
    some = "some round" if least <= high and low <= largest else "none rounds"
    reason = (
        f"α and c are rounded: those that round to {alpha} and {cost} give {least:.2f} to "
        f"{largest:.2f}, and {some} to {printed}"
    )
    return Comparison(item, printed, computed, reason)


def _improvement(alpha: Fraction, gamma: int | None, cost: Fraction) -> float:
    drafts = best_gamma(alpha, cost) if gamma is None else gamma
    return float(walltime_improvement(alpha, drafts, cost))


FACTORS = (
    ("0.6", 2, "1.53", "1.96"),
    ("0.7", 3, "1.58", "2.53"),
    ("0.8", 2, "1.23", "2.44"),
    ("0.8", 5, "1.63", "3.69"),
    ("0.9", 2, "1.11", "2.71"),
    ("0.9", 10, "1.60", "6.86"),
)
"""Rows of α, γ, operations and speed."""


@theory
def table_1() -> Table:
    """Leviathan et al.'s Table 1: arithmetic operations and speed, printed and computed.

    Both are factors relative to decoding without drafts, for c = ĉ = 0 ([leviathan2023]_,
    Theorems 3.11 and 3.8).  Every printed number is the rounded computed number.
    """
    comparisons = []
    for alpha, gamma, operations, speed in FACTORS:
        rate = Fraction(alpha)
        for name, printed, computed in (
            ("operations", operations, operations_factor(rate, gamma, 0)),
            ("speed", speed, walltime_improvement(rate, gamma, 0)),
        ):
            item = f"α = {alpha}, γ = {gamma}: {name}"
            comparisons.append(Comparison(item, printed, float(computed)))
    return comparison_table(comparisons)


@table_1.drawing
def draw_table_1(table: Table) -> Figure:
    """Draw printed and computed numbers side by side."""
    return comparison_figure(table)


IMPROVEMENTS = (
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
"""Rows of task, draft model, temperature, γ, α, c and EXP; α has two digits as in Table 3."""


@theory
def table_4() -> Table:
    """Leviathan et al.'s Table 4: expected walltime improvements, printed and computed.

    The column EXP is Theorem 3.8 at the γ, α and c of the same row ([leviathan2023]_, appendix
    A.3).  Three of the twelve numbers differ.  α and c are printed with two digits, and other
    values that round to these digits do give the printed number.  For EnDe, T5-base, T = 1
    (2.347) and the last row, another α is enough; for EnDe, T5-large, T = 1, another c.  Section
    3.3 states that all c are below 0.05, but this table has 0.11.  The measured column EMP is
    not compared here.
    """
    return comparison_table(
        improvement_comparison(
            f"{task}, {draft}, T = {temperature} (γ = {gamma}, α = {alpha}, c = {cost})",
            printed,
            alpha,
            gamma,
            cost,
        )
        for task, draft, temperature, gamma, alpha, cost, printed in IMPROVEMENTS
    )


@table_4.drawing
def draw_table_4(table: Table) -> Figure:
    """Draw printed and computed numbers side by side."""
    return comparison_figure(table, item="expected speed-up (EXP)")


LENIENCE_COST = "0.015"

STANDARD = (
    ("1", "0.62", "2.5"),
    ("0.5", "0.71", "3.1"),
    ("0.3", "0.76", "3.6"),
    ("0.1", "0.84", "5"),
)
"""Rows of l, α of Table 5 (T5-small), and improvement."""

ARGMAX = (
    ("1", "0.75", "3.3"),
    ("0.5", "0.75", "3.3"),
    ("0.3", "0.80", "3.9"),
    ("0.1", "0.87", "4.9"),
)
"""Rows of l, α and improvement."""

ARGMAX_GAMMA = 8
EXCESS = (("1", "1"), ("0.5", "2"), ("0.3", "3"), ("0.1", "10"))
"""Rows of l, and the maximum ratio of a token's output to its target probability."""

ORACLE_COSTS = (0.01, 0.02, 0.03, 0.04, 0.05)
"""Values of c; Section 3.3 states that c is always below 0.05 in the paper's experiments."""

USUAL_ALPHA = 0.9
"""Largest usual α; Section 4.2 states 0.5 to 0.9 for drafts a hundred times smaller."""


@theory
def numbers_in_text() -> Table:
    """Leviathan et al.'s numbers in the text: what its formulas give.

    These are all numbers outside the tables that follow from a formula ([leviathan2023]_,
    sections 3.5, 3.6 and appendix A.5).  The improvements for lenience in standard sampling, at
    the best γ, exceed Theorem 3.8 for all α and c that round to the printed ones.  With such α,
    one c between 0.0075 and 0.009, instead of 0.015, would give all four; the paper does not say
    which c it used.  The printed 5 has no decimal, so 4.79 agrees with it; 1/0.3 is printed as
    3.  Corollary 3.9 has no number: at the best γ the improvement is at least (1 + α)/(1 + c),
    which a test checks on a grid.
    """
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


@numbers_in_text.drawing
def draw_numbers_in_text(table: Table) -> Figure:
    """Draw printed and computed numbers side by side."""
    return comparison_figure(table)


def _oracle() -> Comparison:
    """Compare the percentage gain of an oracle for γ over the best fixed γ."""
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
    """Compare the factors by which lenience lets a token exceed its target probability.

    The bound 1/l is attained if the draft model always proposes a token that is rare under the
    target: this token is output exactly if it is accepted.
    """
    rare = Fraction(1, 20)
    problem = Problem([Fraction(1), Fraction(0)], [rare, 1 - rare], k=1)
    for lenience, printed in EXCESS:
        item = f"A.5: a token's probability over the target's, l = {lenience}"
        yield Comparison(item, printed, float(lenient_value(problem, Fraction(lenience)) / rare))
