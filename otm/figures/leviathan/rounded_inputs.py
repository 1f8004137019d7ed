"""Walltime improvements of Theorem 3.8 from an α and a c that the paper prints rounded."""

from __future__ import annotations

from fractions import Fraction

from otm.decoding.analysis import best_gamma, walltime_improvement
from otm.figures.printed import Comparison, agrees, rounding_interval


def improvement_range(alpha: str, gamma: int | None, cost: str) -> tuple[float, float]:
    """Find the least and the largest improvement of all α and c that round to the printed ones.

    The improvement rises with α and falls with c, and so does its maximum over γ.

    Parameters
    ----------
    alpha, cost : str
        As they are printed; their digits say how they were rounded.
    gamma : int or None
        Number of drafts; without it the best for α and c.

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
    """Compare a printed improvement with that of the printed α and c.

    Where they differ, the reason says whether any α and c that round to the printed ones give the
    printed improvement.

    Parameters
    ----------
    item : str
        What the number is.
    printed : str
        The improvement.
    alpha, gamma, cost
        As for `improvement_range`.
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
