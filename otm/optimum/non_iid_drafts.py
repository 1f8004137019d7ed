"""The optimum for any drafts, by the best way that there is for their distribution.

The cut formula holds for every joint distribution P of the drafts (SpecTr, footnote 7, asks for
it)::

    α(P, q) = min over H of q(H) + 1 − Pr(S ⊆ H)

For some distributions a minimum cut is a prefix of a known order, for small ones it is a maximum
flow, and for all others the optimum lies in an interval.

The interval comes from picking drafts in a random order.
Let g(A) = Pr(S ∩ A ≠ ∅).  The optimum is a minimum cut and a maximum mass::

    α(P, q) = min over H of q(H) + g(H^c) = max Σ v  over v ≤ q with v(A) ≤ g(A) for all A

A cut bounds it from above.  From below: order the tokens, at random but independently of the
drafts, and pick the draft that stands last.  If b is the distribution of the pick, min(q, b) is
such a v. By Edmonds' theorem on the greedy algorithm nothing is lost by picking like this.  The
best distribution of the order is looked for by the steps of Frank and Wolfe on the shortfall max(q
− b, 0).  Each brings in one order, whose prefixes are the cuts, and then moves some chance from the
worst order so far to the best one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import TINY, Number, Probs, at_most_one, running_sum, sum_error
from otm._core.display.reprs import Brief
from otm._core.interval import Interval
from otm._core.numbers import as_positive, as_real
from otm._core.ratios.order import RatioOrder, scale_of_weights
from otm.drafts import DraftDistribution, Greedy, HubPairs, Top, WithoutReplacement
from otm.optimum.cut import Cut, minimum_cut
from otm.optimum.solvers.max_flow import fits_max_flow, minimum_cut_by_max_flow
from otm.problem import Problem

Floats = npt.NDArray[np.float64]

ITERATIONS = 300
"""Most steps by default: up to ten seconds for 32,000 tokens, if the gap stays open."""

TOLERANCE = 1e-6
"""Gap between the bounds at which to stop by default."""

SMALLEST_WEIGHT = 2.0**-900
"""Shortfalls are divided by no less than this, so that no square of one overflows."""

NEWTON_STEPS = 10

MAX_ORDERS = 1_000
"""Orders that are held at most, and"""

MAX_ENTRIES = 2**25
"""numbers in them, 256 MiB; beyond that the two least likely orders become one."""


@dataclass(frozen=True, eq=False)
class Optimum(Brief):
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


def _optimal_order(drafts: DraftDistribution, target: Probs) -> npt.NDArray[np.int64] | None:
    """Order of which some prefix is a minimum cut, if one is known."""
    if isinstance(drafts, HubPairs):
        drafts = drafts.as_sets
    if isinstance(drafts, Greedy):
        last = RatioOrder(drafts.last, target)
        return np.append(drafts.sure, last.tokens)
    if isinstance(drafts, Top):
        return drafts.sure
    if isinstance(drafts, WithoutReplacement):
        return RatioOrder(drafts.probs * scale_of_weights(drafts.probs), target).tokens
    return None


def _best_prefix(drafts: DraftDistribution, target: Probs, order: npt.NDArray[np.int64]) -> Cut:
    """Prefix H of an order with the least q(H) + 1 − Pr(S ⊆ H)."""
    values = running_sum(target[order], from_zero=True) + drafts.missed(order)
    size = int(values.argmin())
    return Cut(at_most_one(values[size]), order[:size])


class BoundedOptimum(NamedTuple):
    """What is known of an optimum.

    Attributes
    ----------
    bounds : Interval
        Floats, rounded outwards: the optimum lies between them.
    cut : Cut
        The set H behind the upper bound, which is its value.

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
    """Bounds on the optimal acceptance probability α(P, q), and a cut.

    Parameters
    ----------
    drafts : DraftDistribution
        The joint distribution P; a step costs one call of its `distribution_of_last` and a sort.
    target : array [n]
        The target distribution q, checked.
    iterations : int, optional
        Most steps to take, at least 1.
    tolerance : float, optional
        Stop when the bounds are as close as this.

    Returns
    -------
    BoundedOptimum
        As for the rounding of the bounds, `distribution_of_last` is taken to have a relative error
        of at most k (`sum_error` (n) + 2^−48), as it has for `Independent` and `Joint`
        distributions.

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
        # the shortest last; of those that have enough, the largest target masses
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
    # errors of the distributions, which may sum to one within rounding only, and of the sums; then
    # of the mixture: of its terms, no more than the steps, and four roundings for each that was
    # merged
    error = (drafts.k + 2) * (sum_error(drafts.n) + 2.0**-48) + 8 * (done + 1) * 2.0**-53
    lower = max(0.0, lower * (1 - 2 * error) - TINY)
    upper = min(1.0, upper * (1 + 2 * error) + TINY)
    return BoundedOptimum(Interval(lower, upper), Cut(upper, best))


class _Mixture:
    """Distribution of the draft picked: of the last one in several orders, and their chances."""

    def __init__(self, first: Floats, iterations: int) -> None:
        places = min(iterations + 1, MAX_ORDERS, max(3, MAX_ENTRIES // first.size))
        self.picks = np.empty((places, first.size))
        self.chances = np.zeros(places)
        self.picks[0], self.chances[0] = first, 1
        self.held = 1

    def probs(self) -> Floats:
        """Distribution of the pick; a sum of terms of at least zero: its digits are right."""
        chances = self.chances[: self.held]
        return np.asarray(chances @ self.picks[: self.held] / chances.sum())

    def add(self, last: Floats, chance: float) -> None:
        """Give an order a chance, at the expense of all others in proportion."""
        place = self._free_place()
        self.chances *= 1 - chance
        self.picks[place], self.chances[place] = last, chance

    def shift(self, masses: Floats, weights: Floats) -> None:
        """Move chance from the order that serves the shortfall worst to the one that does best."""
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
    """Mass Σ min(q, b)."""
    return float(running_sum(np.minimum(masses, picked))[-1])


def _best_step(short: Floats, move: Floats, weights: Floats) -> float:
    """Step t in [0, 1] that nearly minimises Σ max(short − t · move, 0)² / weights.

    Newton's method on the derivative, which is piecewise linear, inside a shrinking bracket.
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
        if not low < step < high:  # an end of the bracket was tried before
            step = (low + high) / 2
    return step
