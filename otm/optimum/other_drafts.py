"""The optimum for drafts that need not be i.i.d., by the best way that there is for their law.

The cut formula holds for every joint law P of the drafts (SpecTr, footnote 7, asks for it)::

    α(P, q) = min over H of q(H) + 1 − Pr(S ⊆ H)

For some laws a minimum cut is a prefix of a known order, for small ones it is a maximum flow, and
for all others it lies in an interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Law, Number, at_most_one, is_exact, running_sum
from otm._core.distribution import as_law_pair, to_exact
from otm._core.interval import Interval
from otm._core.ratio_order import RatioOrder, scale_of_weights
from otm.drafts import IID, DraftDistribution, Greedy, HubPairs, WithoutReplacement
from otm.optimum.cut import Cut
from otm.optimum.random_order import ITERATIONS, TOLERANCE, bounds_by_random_order
from otm.optimum.solvers.max_flow import fits_max_flow, minimum_cut_by_max_flow

__all__ = ["Optimum", "optimal_value_of", "optimum_of"]


@dataclass(frozen=True, eq=False)
class Optimum:
    """Optimal acceptance probability for a joint law of the drafts.

    Attributes
    ----------
    value : float, Fraction or Interval
        α(P, q): a number where it is known, otherwise an interval that holds it.
    cut : Cut
        A set H with q(H) + 1 − Pr(S ⊆ H) equal to the value, or to its upper end.

    Examples
    --------
    >>> optimum = optimum_of(IID([0.75, 0.25], k=1), [0.25, 0.75])
    >>> optimum.value, optimum.cut.tokens.tolist()
    (0.5, [0])
    """

    value: Number | Interval
    cut: Cut


def optimal_value_of(
    drafts: DraftDistribution,
    target: Any,
    *,
    iterations: int = ITERATIONS,
    tolerance: float = TOLERANCE,
) -> Number | Interval:
    """Optimal acceptance probability α(P, q) for any joint law of the drafts.

    The question of [sun2023]_, footnote 7.  Prefixes of an order are enough for drafts without
    replacement and for greedy drafts, as [hu2025]_ found (Theorems 9.2 and 9.4 of
    docs/theory/other-drafts.md), and so for hub pairs (Theorem 9.5); intervals rest on Theorems 9.6
    and 9.7.

    Parameters
    ----------
    drafts : DraftDistribution
        The joint law P of the drafts.
    target : array-like [n]
        The law q that the output must have.
    iterations : int, optional
        Most steps of `bounds_by_random_order`, where the answer is an interval; at least 1.
    tolerance : float, optional
        Gap, a probability, at which these stop; at least 0.

    Returns
    -------
    float, Fraction or Interval
        A number for i.i.d. drafts, drafts without replacement, greedy drafts and hub pairs, and for
        other laws that are small enough for the exact maximum flow (8 tokens and 4 drafts
        are); otherwise an `Interval` of floats.  Numbers are fractions if both laws are; a
        maximum flow of floats is exact and rounded once.

    Raises
    ------
    InvalidDistributionError
        If the target is not a law on the vocabulary of the drafts.
    InvalidParameterError
        If iterations or tolerance is outside its range, where the answer is an interval.
    ProblemTooLargeError
        If drafts without replacement are given in fractions and are too many for exact arithmetic.
    MissingDependencyError
        If the maximum flow is needed and networkx is not installed.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport",
       NeurIPS 2023, footnote 7.
    .. [hu2025] Hu et al., "Towards Optimal Multi-draft Speculative Decoding", ICLR 2025.

    Examples
    --------
    >>> from otm.drafts import Independent
    >>> p, q = [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)], [0, Fraction(1, 2), Fraction(1, 2)]
    >>> optimal_value_of(WithoutReplacement(p, k=2), q)
    Fraction(1, 1)
    >>> optimal_value_of(IID(p, k=2), q)
    Fraction(3, 4)
    >>> optimal_value_of(Independent([p, p, q]), q)
    Fraction(1, 1)
    """
    return optimum_of(drafts, target, iterations=iterations, tolerance=tolerance).value


def optimum_of(
    drafts: DraftDistribution,
    target: Any,
    *,
    iterations: int = ITERATIONS,
    tolerance: float = TOLERANCE,
) -> Optimum:
    """Optimal acceptance probability as from `optimal_value_of`, with a cut.

    Parameters
    ----------
    drafts, target, iterations, tolerance
        As for `optimal_value_of`.

    Returns
    -------
    Optimum
        The value, and a set H whose bound is that value, or the upper end of its interval.

    Raises
    ------
    InvalidDistributionError, InvalidParameterError, ProblemTooLargeError, MissingDependencyError
        As for `optimal_value_of`.

    Examples
    --------
    >>> optimum = optimum_of(Greedy([0.5, 0.25, 0.25], k=2), [0.25, 0.0, 0.75])
    >>> optimum.value, optimum.cut.tokens.tolist()
    (0.75, [0, 1])
    """
    law = _as_target(drafts, target)
    exact = drafts.exact and is_exact(law)
    if drafts.exact:
        law = to_exact(law)  # one kind of numbers to calculate in; the answer is rounded
    order = _optimal_order(drafts, law)
    if order is not None:
        cut = _best_prefix(drafts, law, order)
    elif fits_max_flow(drafts):
        cut = minimum_cut_by_max_flow(drafts, law)
    else:
        bounds, cut = bounds_by_random_order(
            drafts, law, iterations=iterations, tolerance=tolerance
        )
        return Optimum(bounds, cut)
    if not exact:
        cut = Cut(float(cut.value), cut.tokens)
    return Optimum(cut.value, cut)


def _as_target(drafts: DraftDistribution, target: Any) -> Law:
    """Check the target law beside a law of the size and the numbers of the drafts."""
    beside = np.full(drafts.n, Fraction(0) if drafts.exact else 0.0)
    beside[0] += 1
    return as_law_pair(beside, target)[1]


def _optimal_order(drafts: DraftDistribution, target: Law) -> npt.NDArray[np.int64] | None:
    """Order of which some prefix is a minimum cut, if one is known."""
    if isinstance(drafts, HubPairs):
        drafts = drafts.as_sets
    if isinstance(drafts, Greedy):
        last = RatioOrder(drafts.last, target)
        return np.append(drafts.sure, last.tokens)
    if isinstance(drafts, IID):
        return RatioOrder(drafts.law, target).tokens
    if isinstance(drafts, WithoutReplacement):
        return RatioOrder(drafts.law * scale_of_weights(drafts.law), target).tokens
    return None


def _best_prefix(drafts: DraftDistribution, target: Law, order: npt.NDArray[np.int64]) -> Cut:
    """Prefix H of an order with the least q(H) + 1 − Pr(S ⊆ H)."""
    values = running_sum(target[order], from_zero=True) + drafts.missed(order)
    size = int(values.argmin())
    return Cut(at_most_one(values[size]), order[:size])
