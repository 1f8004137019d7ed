"""The optimum for any drafts, by the best way that there is for their distribution.

The cut formula holds for every joint distribution P of the drafts (SpecTr, footnote 7, asks for
it)::

    α(P, q) = min over H of q(H) + 1 − Pr(S ⊆ H)

For some distributions a minimum cut is a prefix of a known order, for small ones it is a maximum
flow, and for all others the optimum lies in an interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Law, Number, at_most_one, running_sum
from otm._core.interval import Interval
from otm._core.ratio_order import RatioOrder, scale_of_weights
from otm.drafts import DraftDistribution, Greedy, HubPairs, WithoutReplacement
from otm.optimum.cut import Cut, minimum_cut
from otm.optimum.random_order import ITERATIONS, TOLERANCE, bounds_by_random_order
from otm.optimum.solvers.max_flow import fits_max_flow, minimum_cut_by_max_flow
from otm.problem import Problem


@dataclass(frozen=True, eq=False)
class Optimum:
    """Optimal acceptance probability of a problem.

    Attributes
    ----------
    value : float, Fraction or Interval
        α(P, q): a number where it is known, otherwise an interval that holds it.
    cut : Cut
        A set H, as positions in `problem.tokens`, with q(H) + 1 − Pr(S ⊆ H) equal to the value, or
        to its upper end.
    method : str
        How it was found: "closed-form", "max-flow" or "random-order".

    Examples
    --------
    >>> optimum = optimum_of(Problem([0.75, 0.25], [0.25, 0.75], k=1))
    >>> optimum.value, optimum.cut.tokens.tolist(), optimum.method
    (0.5, [0], 'closed-form')
    """

    value: Number | Interval
    cut: Cut
    method: str


def optimum_of(
    problem: Problem, *, iterations: int = ITERATIONS, tolerance: float = TOLERANCE
) -> Optimum:
    """Optimal acceptance probability α(P, q) for any joint distribution P of the drafts.

    The question of [sun2023]_, footnote 7.  Prefixes of an order are enough for i.i.d. drafts, for
    drafts without replacement and for greedy drafts, as [hu2025]_ found (Theorems 9.2 and 9.4 of
    docs/theory/other-drafts.md), and so for hub pairs (Theorem 9.5); intervals rest on Theorems 9.6
    and 9.7.

    Parameters
    ----------
    problem : Problem
        A single one.
    iterations : int, optional
        Most steps of `bounds_by_random_order`, where the answer is an interval; at least 1.
    tolerance : float, optional
        Gap, a probability, at which these stop; at least 0.

    Returns
    -------
    Optimum
        The value is a number for i.i.d. drafts, drafts without replacement, greedy drafts and hub
        pairs, and for others that are small enough for the exact maximum flow (8 tokens and 4
        drafts are); otherwise an `Interval` of floats.  Numbers are fractions if the problem is
        exact; a maximum flow of floats is exact and rounded once.

    Raises
    ------
    InvalidParameterError
        If iterations or tolerance is outside its range, where the answer is an interval.
    InvalidInputError
        If the problem has rows.
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
    >>> from fractions import Fraction
    >>> from otm.drafts import Independent
    >>> p, q = [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)], [0, Fraction(1, 2), Fraction(1, 2)]
    >>> optimum_of(Problem(WithoutReplacement(p, k=2), q)).value
    Fraction(1, 1)
    >>> optimum_of(Problem(p, q, k=2)).value
    Fraction(3, 4)
    >>> optimum_of(Problem(Independent([p, p, q]), q)).method
    'max-flow'
    >>> optimum = optimum_of(Problem(Greedy([0.5, 0.25, 0.25], k=2), [0.25, 0.0, 0.75]))
    >>> optimum.value, optimum.cut.tokens.tolist()
    (0.75, [0, 1])
    """
    if problem.iid:
        cut = minimum_cut(problem)
        return Optimum(cut.value, cut, "closed-form")
    drafts, target = problem.drafts, problem.target
    order = _optimal_order(drafts, target)
    if order is not None:
        cut = _best_prefix(drafts, target, order)
        return Optimum(cut.value, cut, "closed-form")
    if fits_max_flow(drafts):
        cut = minimum_cut_by_max_flow(drafts, target)
        if not problem.exact:
            cut = Cut(float(cut.value), cut.tokens)
        return Optimum(cut.value, cut, "max-flow")
    bounds, cut = bounds_by_random_order(drafts, target, iterations=iterations, tolerance=tolerance)
    return Optimum(bounds, cut, "random-order")


def _optimal_order(drafts: DraftDistribution, target: Law) -> npt.NDArray[np.int64] | None:
    """Order of which some prefix is a minimum cut, if one is known."""
    if isinstance(drafts, HubPairs):
        drafts = drafts.as_sets
    if isinstance(drafts, Greedy):
        last = RatioOrder(drafts.last, target)
        return np.append(drafts.sure, last.tokens)
    if isinstance(drafts, WithoutReplacement):
        return RatioOrder(drafts.probs * scale_of_weights(drafts.probs), target).tokens
    return None


def _best_prefix(drafts: DraftDistribution, target: Law, order: npt.NDArray[np.int64]) -> Cut:
    """Prefix H of an order with the least q(H) + 1 − Pr(S ⊆ H)."""
    values = running_sum(target[order], from_zero=True) + drafts.missed(order)
    size = int(values.argmin())
    return Cut(at_most_one(values[size]), order[:size])
