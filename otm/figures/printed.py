"""Numbers as a paper prints them, beside what is computed."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from otm.figures.table import Cell, Table

AGREES = "agrees"
"""The verdict where the computed number rounds to the printed one."""


class Comparison(NamedTuple):
    """A printed number and ours.

    Attributes
    ----------
    item : str
        What the number is, such as "EnDe, T5-small, T = 0".
    printed : str
        The number as it is printed, without units; its digits say how it was rounded.
    computed : float
        The same from the paper's formula.
    reason : str
        Why they differ; empty where they agree.
    """

    item: str
    printed: str
    computed: float
    reason: str = ""


def rounding_interval(printed: str) -> tuple[Fraction, Fraction]:
    """Find the least and the largest number that may have been rounded to the printed one.

    Examples
    --------
    >>> rounding_interval("0.7")
    (Fraction(13, 20), Fraction(3, 4))
    """
    number = Decimal(printed)
    half = Fraction(Decimal(5).scaleb(int(number.as_tuple().exponent) - 1))
    return Fraction(number) - half, Fraction(number) + half


def agrees(printed: str, computed: float) -> bool:
    """Whether a number rounds to the printed one.

    A number in the middle between two printed ones may have been rounded either way.

    Examples
    --------
    >>> agrees("2.5", 2.5499), agrees("2.5", 2.56), agrees("0.75", 0.745)
    (True, False, True)
    """
    least, largest = rounding_interval(printed)
    return least <= Fraction(repr(float(computed))) <= largest


def comparison_table(comparisons: Iterable[Comparison]) -> Table:
    """Lay comparisons out, with the difference and whether they agree."""
    rows: list[tuple[Cell, ...]] = []
    for item, printed, computed, reason in comparisons:
        verdict = AGREES if agrees(printed, computed) else "differs"
        decimals = max(0, -int(Decimal(printed).as_tuple().exponent))
        difference = computed - float(printed)
        rows.append((item, float(printed), decimals, float(computed), difference, verdict, reason))
    names = ("item", "printed", "decimals", "computed", "difference", "verdict", "reason")
    return Table(names, tuple(rows))
