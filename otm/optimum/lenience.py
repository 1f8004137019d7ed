"""Lenience: accept more, but deviate from the target (Leviathan et al., appendix A.5).

With lenience l in (0, 1], a rule may output each token with at most 1/l times its target
probability.  For one draft, the paper's rule accepts with probability min(1, q/(l p)).  This module
computes the optimum for any number of drafts.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from otm._core.arithmetic import Number, Probs, as_number, at_least_once, at_most_one
from otm._core.numbers import as_parameter
from otm._core.ratios.bins import count_up_to
from otm.optimum.cut import optimal_cap, optimal_value
from otm.problem import Problem


def lenient_value(problem: Problem, lenience: Number) -> Number:
    """Compute the largest acceptance probability α_k(l) of rules with Pr(Y = y) ≤ q(y)/l.

    The value is that of a minimum cut: the minimum of q(H)/l + 1 − p(H)^k over prefixes H in the
    order of q/p.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    lenience : float or Fraction
        The lenience l in (0, 1]; l = 1 allows the target distribution only.

    Returns
    -------
    float or Fraction
        α_k(l), at least α_k.

    Raises
    ------
    InvalidParameterError
        If l is not in (0, 1].

    Examples
    --------
    >>> problem = Problem([0.75, 0.25], [0.25, 0.75], k=1)
    >>> lenient_value(problem, 1), lenient_value(problem, 0.5)  # Σ min(p, q/l)
    (0.5, 0.75)
    """
    lenience = check_lenience(problem, lenience)
    bins = problem._ratios
    values = bins.target_below / lenience + at_least_once(bins.draft_above, problem.k)
    return at_most_one(values.min())


def lenient_cap(problem: Problem, lenience: Number) -> Number:
    """Compute the cap c_l for which the accepted mass min(q/l, c_l p) sums to α_k(l).

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    lenience : float or Fraction
        The lenience l in (0, 1]; for l = 1 the result equals `optimal_cap`.

    Returns
    -------
    float or Fraction
        c_l, at most k.

    Raises
    ------
    InvalidParameterError
        If l is not in (0, 1].

    Examples
    --------
    >>> problem = Problem([0.5, 0.25, 0.25], [0.25, 0.25, 0.5], k=2)
    >>> lenient_cap(problem, 1), lenient_cap(problem, 0.5)
    (1.75, 1.0)
    """
    lenience = check_lenience(problem, lenience)
    value = lenient_value(problem, lenience)
    # This is the cap l c of min(q, l c p), the accepted mass multiplied by l.
    scaled, _ = problem._ratios.cap_of_mass(lenience * value)
    largest = 0 * value + problem.k
    return largest if scaled is None else min(scaled / lenience, largest)


def closest_ratio(problem: Problem, lenience: Number) -> Probs:
    """Compute v/p for the accepted mass v that sums to α_k(l) and stays closest to the target.

    v = min(q/l, max(min(q, c* p), B p)), with B chosen so that v sums to α_k(l).  With this v, the
    output has total variation α_k(l) − α_k from the target, the least that is possible with
    acceptance α_k(l).

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    lenience : float or Fraction
        The lenience l in (0, 1]; l = 1 allows the target distribution only.

    Returns
    -------
    array [m]
        v/p of the tokens with p > 0, in ascending order of q/p (`problem.by_ratio.tokens`).

    Raises
    ------
    InvalidParameterError
        If l is not in (0, 1].

    Examples
    --------
    >>> problem = Problem([0.5, 0.25, 0.25], [0.25, 0.25, 0.5], k=2)
    >>> closest_ratio(problem, 0.5)  # the target has q/p = 0.5, 1 and 2
    array([0.625, 1.   , 1.75 ])
    """
    ratio = closest_in_bins(problem, check_lenience(problem, lenience))
    return np.asarray(ratio[problem._ratios.place(problem.by_ratio.ratio)])


def closest_in_bins(problem: Problem, lenience: Number) -> Probs:
    """Compute `closest_ratio` for each distinct ratio q/p, in ascending order."""
    bins, value = problem._ratios, lenient_value(problem, lenience)
    # c_l ≤ c* holds exactly, but the computed c* may be smaller if α_k hardly depends on the cap.
    cap = max(optimal_cap(problem), lenient_cap(problem, lenience))

    def mass(bound: Number) -> Number:
        """Sum of v at B = bound."""
        whole, raised = (count_up_to(bins.least, x) for x in (lenience * bound, bound))
        between = bins.draft_below[raised] - bins.draft_below[whole]
        rest = bins.capped_mass(cap) - bins.target_below[raised]
        return as_number(bins.target_below[whole] / lenience + bound * between + rest)

    # As a function of B the sum is linear between the points q/p and q/(l p).
    with np.errstate(over="ignore"):
        largest = bins.least / lenience
    ends = np.concatenate([bins.least, largest])
    ends = np.sort(np.append(ends[ends < cap], np.asarray(cap)))
    place = min(bisect_right(ends, value, key=mass), ends.size - 1)
    start = as_number(ends[place - 1]) if place else 0 * cap
    stop = as_number(ends[place])
    low, high = mass(start), mass(stop)
    share = (value - low) / (high - low) if high > low else 1
    # The share is in [0, 1], but rounding may put the computed value outside.
    bound = start + (stop - start) * max(0, min(share, 1))
    raised = np.maximum(np.minimum(bins.least, np.asarray(cap)), np.asarray(bound))
    return np.asarray(np.minimum(largest, raised))


def acceptance_at_distance(problem: Problem, distance: Number) -> Number:
    """Compute the largest acceptance if the total variation from the target is at most `distance`.

    The result is min(1, α_k + distance).  If a rule has the acceptance α_k + x with x > 0, its
    total variation from the target is at least x.  So any lossy rule can be judged by comparison
    with this optimum.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    distance : float or Fraction
        Allowed total variation between the output distribution and the target, at least 0.

    Returns
    -------
    float or Fraction
        min(1, α_k + distance).

    Raises
    ------
    InvalidParameterError
        If the distance is negative.

    Examples
    --------
    >>> acceptance_at_distance(Problem([0.75, 0.25], [0.25, 0.75], k=1), 0.125)
    0.625
    """
    distance = as_parameter(distance, "distance", least=0, exact=problem.exact)
    return at_most_one(optimal_value(problem) + distance)


def check_lenience(problem: Problem, lenience: Number) -> Number:
    """Return the lenience in the number type of the problem; raise unless it is in (0, 1]."""
    return as_parameter(lenience, "lenience", above=0, most=1, exact=problem.exact)
