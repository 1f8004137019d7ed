"""The swaps that turn "the highest draft wins" into an optimal rule.

Rank the tokens by q/p and let slot j be the interval (P_{j−1}, P_j] of their cumulative draft
mass.  If every draft sat in its own token's slot and the draft in the highest slot won, token j
would win with probability p_j W_j, where W_j = (P_j^k − P_{j−1}^k) / p_j.  Tokens that win too
rarely for the optimum swap mass with higher slots of tokens that win too often.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Frozen,
    Number,
    Probs,
    at_most_one,
    power_slopes,
    read_only,
    running_sum,
)
from otm._core.ratio_order import RatioOrder
from otm.optimum.cut import optimal_cap
from otm.problem import Problem


@dataclass(frozen=True, eq=False)
class Swaps(Frozen):
    """Equal masses that pairs of tokens exchange between their slots.

    Ranks count the m draftable tokens in ascending order of q/p.  A token swaps either always as
    the lower one or always as the higher one, and both columns ascend.
    """

    low: npt.NDArray[np.int64]  # [s], rank of the lower token of each swap, s < m
    high: npt.NDArray[np.int64]  # [s], rank of the other; low < high where the mass is positive
    mass: Probs  # [s], mass of each of the two tokens that moves to the other's slot


def optimal_win_ratio(problem: Problem) -> Probs:
    """Ratio r = max(min(q/p, c*), b) of winning to drafting along the order: array [m].

    The winning law p·r covers the optimal accepted mass min(q, c* p).
    """
    order, cap = problem.by_ratio, optimal_cap(problem)
    ratio: Probs = np.minimum(order.ratio, np.asarray(cap))
    # the floor stays below the cap, so that only tokens with r = q/p are raised
    return raise_to_one(order, ratio, order.target_below, 1 - order.capped_mass(cap))


def raise_to_one(order: RatioOrder, ratio: Probs, mass_below: Probs, missing: Number) -> Probs:
    """Raise the low end of an ascending ratio r to a floor b ≤ 1, so that Σ p r = 1.

    Some draft always wins; the floor makes up for the `missing` 1 − Σ p r that the rule does not
    accept.  `mass_below` [m + 1] is Σ p r of the first j tokens, as far as they can be raised.
    """
    if missing <= 0:
        return ratio

    def gained(j: int) -> Any:
        """Mass gained by raising to the ratio of place j; ascends with j."""
        return ratio[j] * order.draft_below[j + 1] - mass_below[j + 1]

    raised = max(1, bisect_right(range(ratio.size), missing, key=gained))
    floor = (missing + mass_below[raised]) / order.draft_below[raised]
    higher: Probs = np.maximum(ratio, np.asarray(at_most_one(floor)))
    return higher


def match_swaps(order: RatioOrder, k: int, win_ratio: Probs) -> Swaps:
    """Match the tokens that lack winning mass with those that have too much of it.

    By cumulative amount, in order (north-west corner rule).  `win_ratio` [m] is the ratio r of
    winning to drafting that is aimed at, ascending, with Σ p r = 1.
    """
    slope = power_slopes(order.draft_below, k)
    lacking = win_ratio - slope
    lacking *= order.draft
    poor, rich = np.flatnonzero(lacking > 0), np.flatnonzero(lacking < 0)
    if not (poor.size and rich.size):
        return Swaps(read_only(poor[:0]), read_only(rich[:0]), read_only(slope[:0]))

    ends = np.concatenate([running_sum(lacking[poor]), running_sum(-lacking[rich])])
    merged = np.argsort(ends, kind="stable")
    last_poor, last_rich = np.argmax(merged == poor.size - 1), np.argmax(merged == ends.size - 1)
    merged = merged[: min(last_poor, last_rich) + 1]  # then one side is used up
    is_poor = merged < poor.size
    poor_before: npt.NDArray[np.int64] = np.cumsum(is_poor)
    poor_before -= is_poor
    low, high = poor[poor_before], rich[np.arange(merged.size) - poor_before]

    mass = ends[merged]
    mass[1:] -= ends[merged[:-1]]
    gain = slope[high]
    gain -= slope[low]
    useless = (low >= high) | (gain <= 0)  # by rounding alone
    if useless.any():
        mass[useless], gain[useless] = 0 * mass[0], 0 * gain[0] + 1
    mass /= gain  # a swap of δ / (W_high − W_low) moves exactly δ of winning probability
    return Swaps(read_only(low), read_only(high), read_only(mass))
