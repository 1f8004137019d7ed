"""The optimal acceptance probability for any joint distribution of the drafts.

The cut formula holds for every joint distribution P (SpecTr, footnote 7, asks for a formula)::

    α(P, q) = min over H of q(H) + 1 − Pr(S ⊆ H)

For some distributions P, a prefix of a known order is a minimum cut.  Small problems are solved by
a maximum flow.  For all other problems, this module bounds the optimum by an interval.

For the interval, one draft is picked by a random order of the tokens.  Let g(A) = Pr(S ∩ A ≠ ∅).
The optimum is both a minimum cut and a maximum mass::

    α(P, q) = min over H of q(H) + g(H^c) = max Σ v  over v ≤ q with v(A) ≤ g(A) for all A

Every cut H gives an upper bound.  For a lower bound, order the tokens at random, independently of
the drafts, and pick the draft that comes last in this order.  If b is the distribution of the pick,
then v = min(q, b) satisfies the conditions.  By Edmonds' theorem on the greedy algorithm, some
random order attains the optimum.  The algorithm of Frank and Wolfe searches for this random order.
Each step reduces the shortfall max(q − b, 0) by adding one order, whose prefixes are candidates for
the cut.  Then the algorithm moves probability from the worst order so far to the best order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import TINY, Number, Probs, at_most_one, running_sum, sum_error
from otm._core.display.reprs import ShortRepr
from otm._core.interval import Interval
from otm._core.numbers import as_positive, as_real
from otm._core.ratios.order import RatioOrder, scale_of_weights
from otm.drafts import DraftDistribution, Greedy, HubPairs, Top, WithoutReplacement
from otm.optimum.cut import Cut, minimum_cut
from otm.optimum.solvers.max_flow import fits_max_flow, minimum_cut_by_max_flow
from otm.problem import Problem

Floats = npt.NDArray[np.float64]

ITERATIONS = 300
"""Default limit on the number of steps; 300 steps take up to ten seconds for 32,000 tokens."""

TOLERANCE = 1e-6
"""Default gap between the bounds at which the search stops."""

SMALLEST_WEIGHT = 2.0**-900
"""Lower limit of the weights that divide shortfalls, so that their squares cannot overflow."""

NEWTON_STEPS = 10

MAX_ORDERS = 1_000
"""Largest number of orders in memory."""

MAX_ENTRIES = 2**25
"""Largest number of entries of all orders, 256 MiB; beyond it the two rarest orders are merged."""


@dataclass(frozen=True, eq=False)
class Optimum(ShortRepr):
    """Optimal acceptance probability of a problem.

    Attributes
    ----------
    value : float, Fraction or Interval
        α(P, q): a number if it was computed exactly, otherwise an interval that contains it.
    cut : Cut
        The set H of a cut, as positions in `problem.tokens`.  The bound q(H) + 1 − Pr(S ⊆ H) of H
        equals the value, or the upper end of the interval.
    method : str
        Method that computed the value: "closed-form", "max-flow" or "random-order".

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
    """Compute the optimal acceptance probability α(P, q) for any joint distribution P of drafts.

    Footnote 7 of [sun2023]_ asks for a formula for α(P, q).  A prefix of a known order is a minimum
    cut for i.i.d. drafts, for drafts without replacement and for greedy drafts, as [hu2025]_ found
    (Theorems 9.2 and 9.4 of docs/theory/other-drafts.md).  For hub pairs, Theorem 9.5 gives an
    order with such a prefix.  The intervals are proved in Theorems 9.6 and 9.7.

    Parameters
    ----------
    problem : Problem
        One problem, without rows.
    iterations : int, optional
        Largest number of steps of `bounds_by_random_order`, at least 1.
    tolerance : float, optional
        Gap between the bounds, a probability, at which `bounds_by_random_order` stops; at least 0.

    Returns
    -------
    Optimum
        The value is a number for i.i.d. drafts, drafts without replacement, greedy drafts and hub
        pairs.  The value is also a number for other drafts if the problem is small enough for the
        exact maximum flow (such as 8 tokens and 4 drafts).  For larger problems the value is an
        `Interval` of floats.  Numbers are fractions if the problem is exact.  For floats, the
        maximum flow is computed exactly and its value is rounded once.

    Raises
    ------
    InvalidParameterError
        If the answer is an interval, and `iterations` or `tolerance` is outside its range.
    InvalidInputError
        If the problem has rows.
    ProblemTooLargeError
        If drafts without replacement have probabilities in fractions, and too many sets for exact
        arithmetic.
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


def _optimal_order(drafts: DraftDistribution, target: Probs) -> npt.NDArray[np.int64] | None:
    """Return an order with a prefix that is a minimum cut, or None if no such order is known."""
    if isinstance(drafts, HubPairs):
        drafts = drafts.as_greedy
    if isinstance(drafts, Greedy):
        last = RatioOrder(drafts.last, target)
        return np.append(drafts.sure, last.tokens)
    if isinstance(drafts, Top):
        return drafts.sure
    if isinstance(drafts, WithoutReplacement):
        return RatioOrder(drafts.probs * scale_of_weights(drafts.probs), target).tokens
    return None


def _best_prefix(drafts: DraftDistribution, target: Probs, order: npt.NDArray[np.int64]) -> Cut:
    """Return the prefix H of an order that minimises q(H) + 1 − Pr(S ⊆ H)."""
    values = running_sum(target[order], from_zero=True) + drafts.miss_probability(order)
    size = int(values.argmin())
    return Cut(at_most_one(values[size]), order[:size])


class BoundedOptimum(NamedTuple):
    """Lower and upper bound on an optimum, with a cut.

    Attributes
    ----------
    bounds : Interval
        Bounds in floats, rounded outwards: they contain the optimum.
    cut : Cut
        The set H whose value is the upper bound.

    Examples
    --------
    >>> from otm.drafts import Independent
    >>> drafts = Independent([[0.5, 0.5], [0.25, 0.75]])
    >>> optimum = bounds_by_random_order(drafts, np.array([0.75, 0.25]))
    >>> 0.875 in optimum.bounds, optimum.cut.tokens.tolist()
    (True, [1])
    """

    bounds: Interval
    cut: Cut


def bounds_by_random_order(
    drafts: DraftDistribution,
    target: Probs,
    *,
    iterations: int = ITERATIONS,
    tolerance: float = TOLERANCE,
) -> BoundedOptimum:
    """Compute bounds on the optimal acceptance probability α(P, q), and a cut.

    Parameters
    ----------
    drafts : DraftDistribution
        The joint distribution P.  Each step calls its `distribution_of_last` once and sorts once.
    target : array [n]
        The target distribution q, already checked.
    iterations : int, optional
        Largest number of steps, at least 1.
    tolerance : float, optional
        Gap between the bounds at which the search stops.

    Returns
    -------
    BoundedOptimum
        The bounds include rounding, if `distribution_of_last` has a relative error of at most k
        (`sum_error` (n) + 2^−48).  `Independent` and `Joint` have this accuracy.

    Raises
    ------
    InvalidParameterError
        If iterations or tolerance is outside its range.

    Examples
    --------
    >>> from otm.drafts import Independent
    >>> drafts = Independent([[0.5, 0.5], [0.25, 0.75]])
    >>> bounds, cut = bounds_by_random_order(drafts, np.array([0.75, 0.25]))
    >>> print(f"{bounds:.6f}", cut.tokens)  # 1/4 + 1 − 1/2 · 3/4
    [0.875000, 0.875000] [1]
    """
    iterations = as_positive(iterations, "iterations")
    tolerance = as_real(tolerance, "tolerance", least=0)
    tokens = np.flatnonzero(drafts.draftable)
    masses = np.asarray(target[tokens], dtype=np.float64)
    picked = np.asarray(drafts.distribution_of_one()[tokens], dtype=np.float64)
    weights = np.maximum(picked, SMALLEST_WEIGHT)
    lower, upper, best = _accepted(masses, picked), 1.0, tokens[:0]
    mixture = _Mixture(picked, iterations)
    done = 0
    while done < iterations and upper - lower > tolerance:
        done += 1
        # Sort by relative shortfall.  Among tokens without shortfall, sort by target mass.
        order = np.lexsort((masses / weights, np.maximum(masses - picked, 0) / weights))
        last = np.asarray(drafts.distribution_of_last(tokens[order]), dtype=np.float64)
        cuts = running_sum(masses[order], from_zero=True)
        cuts += running_sum(last[::-1], from_zero=True)[::-1]
        size = int(cuts.argmin())
        if cuts[size] < upper:
            upper, best = float(cuts[size]), tokens[order[:size]]
        vertex = np.empty_like(last)
        vertex[order] = last
        mixture.add(vertex, _best_step(masses - picked, vertex - picked, weights))
        mixture.shift(masses, weights)
        picked = mixture.probs()
        lower = max(lower, _accepted(masses, picked), _accepted(masses, vertex))
    # The first term bounds the errors of the distributions (they sum to one only up to rounding)
    # and of the sums.  The second bounds those of the mixture, which has at most one term per step
    # and four roundings per merge.
    error = (drafts.k + 2) * (sum_error(drafts.n) + 2.0**-48) + 8 * (done + 1) * 2.0**-53
    lower = max(0.0, lower * (1 - 2 * error) - TINY)
    upper = min(1.0, upper * (1 + 2 * error) + TINY)
    return BoundedOptimum(Interval(lower, upper), Cut(upper, best))


class _Mixture:
    """Distribution of the picked draft: a mixture over orders, each with its probability."""

    def __init__(self, first: Floats, iterations: int) -> None:
        places = min(iterations + 1, MAX_ORDERS, max(3, MAX_ENTRIES // first.size))
        self.picks = np.empty((places, first.size))
        self.chances = np.zeros(places)
        self.picks[0], self.chances[0] = first, 1
        self.held = 1

    def probs(self) -> Floats:
        """Return the distribution of the pick; all terms are nonnegative, so no digits cancel."""
        chances = self.chances[: self.held]
        return np.asarray(chances @ self.picks[: self.held] / chances.sum())

    def add(self, last: Floats, chance: float) -> None:
        """Add an order with this probability, and scale down the probabilities of all others."""
        place = self._free_place()
        self.chances *= 1 - chance
        self.picks[place], self.chances[place] = last, chance

    def shift(self, masses: Floats, weights: Floats) -> None:
        """Move probability to the best order from the order that reduces the shortfall least."""
        short = masses - self.probs()
        served = self.picks[: self.held] @ (np.maximum(short, 0) / weights)
        best = int(served.argmax())
        worst = int(np.where(self.chances[: self.held] > 0, served, np.inf).argmin())
        chance = self.chances[worst]
        step = _best_step(short, (self.picks[best] - self.picks[worst]) * chance, weights)
        self.chances[worst] = chance * (1 - step)
        self.chances[best] += chance * step

    def _free_place(self) -> int:
        unused = np.flatnonzero(self.chances[: self.held] == 0)
        if unused.size:
            return int(unused[0])
        if self.held < len(self.chances):
            self.held += 1
            return self.held - 1
        free, kept = np.argsort(self.chances)[:2].tolist()
        a, b = self.chances[[free, kept]]
        self.picks[kept] = (a * self.picks[free] + b * self.picks[kept]) / (a + b)
        self.chances[kept] = a + b
        return int(free)


def _accepted(masses: Floats, picked: Floats) -> float:
    """Return the accepted mass Σ min(q, b)."""
    return float(running_sum(np.minimum(masses, picked))[-1])


def _best_step(short: Floats, move: Floats, weights: Floats) -> float:
    """Return a step t in [0, 1] that nearly minimises Σ max(short − t · move, 0)² / weights.

    The function takes Newton steps on the piecewise linear derivative, inside a shrinking bracket.
    """
    low, high, step = 0.0, 1.0, 1.0
    scaled = move / weights
    for _ in range(NEWTON_STEPS):
        left = np.maximum(short - step * move, 0)
        gain = float((left * scaled).sum())
        if gain > 0 and step == 1:
            break
        low, high = (step, high) if gain > 0 else (low, step)
        slope = float((scaled * move).sum(where=left > 0))
        step = step + gain / slope if slope > 0 else low
        if not low < step < high:  # The ends of the bracket were tried before.
            step = (low + high) / 2
    return step
