"""How often each token shall win: the cap and the floor of the optimal plan, in bins of q/p.

A rule that always picks a draft can give the winner the distribution p · t, where t is q/p between
a floor b and the optimal cap c*, and b is such that it sums to one.  It covers the optimal accepted
mass min(q, c* p) (Theorem 5.1 of docs/theory/optimal-plan.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, at_most_one, interval_slopes, read_only
from otm._core.ratios.bins import RatioBins, count_up_to
from otm.optimum.cut import best_prefix, cap_in_bins
from otm.problem import Problem


class WinRatio(NamedTuple):
    """How many times as likely a token shall win as one draft is to be it: t, for each bin.

    Bins are pure: all their tokens shall win at least as often as in the slot of the bin, or all at
    most as often.
    """

    bins: RatioBins
    slope: Probs  # [m], what t would be if every draft kept the slot of its bin
    mean: Probs  # [m], mean of t over the drafts that are in the bin
    follows: npt.NDArray[np.bool_]  # [m], whether t is q/p of the token; otherwise it is the mean


def optimal_win_ratio(problem: Problem) -> WinRatio:
    """Ratio t = max(min(q/p, c*), b); bins that hold c* or b or are not pure are split."""
    k = problem.k
    value, _, bins = best_prefix(problem)
    cap, bins = cap_in_bins(bins, value, k)
    bins, _ = bins.resolve(lambda bins: count_up_to(bins.least, cap))
    missing = 1 - bins.capped_mass(cap)
    bins, _ = bins.resolve(
        lambda bins: _count_raised(bins.least, bins.draft_below, bins.target_below, missing)
    )
    floor = floor_of(bins.least, bins.draft_below, bins.target_below, missing)
    while True:
        slope = interval_slopes(bins.draft_below, bins.draft_above, bins.draft, k)
        follows: npt.NDArray[np.bool_] = np.zeros(slope.size, dtype=np.bool_)
        if not bins.wide.size:
            break
        follows = (bins.least < bins.most) & (bins.least >= floor) & (bins.most <= cap)
        impure = follows & (bins.least < slope) & (slope < bins.most)
        if not np.count_nonzero(impure):
            break
        bins = bins.split(impure.nonzero()[0])
    mean = np.minimum(np.maximum(bins.least, np.asarray(floor)), np.asarray(cap))
    mean[follows] = bins.ratio[follows]
    return WinRatio(bins, read_only(slope), read_only(mean), read_only(follows))


def floor_of(ratio: Probs, draft_below: Probs, mass_below: Probs, missing: Number) -> Number:
    """Floor b ≤ 1 that raises the low end of an ascending ratio r [m], so that Σ p r = 1.

    Some draft always wins; the floor makes up for the `missing` 1 − Σ p r that the rule does not
    accept.  The masses [m + 1] are Σ p and Σ p r of the first j, as far as they can be raised.
    """
    if missing <= 0:
        return 0 * missing
    raised = _count_raised(ratio, draft_below, mass_below, missing)  # the first at least
    return at_most_one((missing + mass_below[raised]) / draft_below[raised])


def _count_raised(ratio: Probs, draft_below: Probs, mass_below: Probs, missing: Number) -> int:
    """Count those whose ratio, as the floor, adds no more than is missing."""
    return count_up_to(ratio * draft_below[:-1] - mass_below[:-1], missing)
