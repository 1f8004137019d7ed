"""The inequalities of a certificate in floats, with every rounding error bounded.

Equivalent to, but faster than the integers of `otm.certificate`; where a bound is too coarse to
tell, the answer is no and the integers have the last word.  Sorting by rounded ratios does no harm:
rounding is monotone, so that only tokens of equal rounded ratio can stand in the wrong order, and
lowering v to the least ratio among them, which the margins cover, makes the sets that are looked at
exactly the level sets of v/p.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import TINY, at_least_once, running_sum, sum_error
from otm._core.ratio_order import RatioOrder
from otm.problem import Problem


def relative_error(problem: Problem) -> float:
    """Bound on the relative error of a sum over tokens, or of its `at_least_once`.

    On top of the sum: what Σp and Σq differ from one by, and five roundings for each bit of k.
    """
    return sum_error(problem.n) + (32 + 5 * problem.k.bit_length()) * 2.0**-53


def rounded_bounds(
    order: RatioOrder, problem: Problem, cut: npt.NDArray[np.int64], cap: float
) -> tuple[float, float]:
    """Mass accepted under the cap and value of the cut, each rounded outwards."""
    error = 2 * relative_error(problem)
    inside = np.zeros(problem.n, dtype=bool)
    inside[cut] = True
    above = running_sum(problem.draft[~inside])[-1:].sum()
    upper = running_sum(problem.target[inside])[-1:].sum() + at_least_once(above, problem.k)
    upper = float(upper) * (1 + error) + TINY if upper > 0 else 0.0  # a sum of zeros is exact
    lower = float(order.capped_mass(cap)) * (1 - error) - TINY
    return max(0.0, lower), min(1.0, upper)


def surely_accepted(order: RatioOrder, problem: Problem, cap: float) -> bool:
    """Whether v = min(q, cap · p) surely satisfies v(A) ≤ 1 − (1 − p(A))^k on its level sets.

    Each set is looked at in two ways, since one loses its digits where p(A) is near one and the
    other where it is near zero.
    """
    k, error = problem.k, relative_error(problem)
    last = int(np.searchsorted(order.ratio, cap, side="right")) + 1  # sets of capped tokens follow
    mass = order.target_below[:last]
    total = float(order.capped_mass(cap)) * (1 + error)
    capped = cap * order.draft_above[last - 1]
    kept = np.minimum(order.target, cap * order.draft)[: last - 1]
    mass_above = np.append(running_sum(kept[::-1])[::-1] + capped, capped)
    hit = at_least_once(order.draft_above[:last], k)
    surely = (mass_above * (1 + 2 * error) + TINY <= hit) | (mass_above == 0)
    if not surely.all() and k * error < 100:
        below = order.draft_below[:last]
        missed = np.power(below, k) * math.exp(2 * k * error) + TINY
        surely |= np.where(below > 0, missed, 0) <= max(0.0, 1 - total) + mass * (1 - error)
    return bool(surely.all())
