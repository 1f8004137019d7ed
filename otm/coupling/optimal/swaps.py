"""How often each bin of tokens should win, and the swaps of mass by which it does.

Order bins of tokens by q/p and let slot j be the interval (P_{j−1}, P_j] of their cumulative draft
mass.  If every draft took the slot of its own bin and the draft in the highest slot won, each token
of bin j would win W_j = (P_j^k − P_{j−1}^k) / p_j times as often as one draft is that token.  Bins
that win too rarely swap mass with higher slots of bins that win too often (Theorem 5.2 of
docs/theory/optimal-plan.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Frozen,
    Probs,
    interval_slopes,
    is_exact,
    read_only,
    zeros,
)
from otm._core.ratios.bins import RatioBins
from otm.optimum.cut import best_prefix, cap_in_bins
from otm.problem import Problem

Slots = npt.NDArray[np.int64]
"""Indices of slots, and so of the bins that they belong to."""


class TargetWinRatio(NamedTuple):
    """Probability that a token should win, over that of one draft to be it: t, for each bin.

    Bins are pure: either all tokens of a bin should win at least as often as in its slot, or all
    at most as often.
    """

    bins: RatioBins
    slope: Probs  # [m], W: the value of t if every draft kept the slot of its bin
    mean: Probs  # [m], mean of t over the drafts in the bin
    follows: npt.NDArray[np.bool_]  # [m], whether t is q/p of each token; otherwise it is the mean


def target_win_ratio(problem: Problem) -> TargetWinRatio:
    """Ratio t = max(min(q/p, c*), b); splits bins that hold c* or b, or are not pure."""
    k = problem.k
    value, _, bins = best_prefix(problem)
    cap, bins = cap_in_bins(bins, value, k)
    bins, _ = bins.split_at(cap)
    floor, bins = bins.floor_of_mass(1 - bins.capped_mass(cap))
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
    return TargetWinRatio(bins, read_only(slope), read_only(mean), read_only(follows))


class Moves(NamedTuple):
    """Moves of drafts to the slots of other bins, those of lower bins before those of higher."""

    owner: Slots  # [2 s], ascending: the bin of the drafts
    partner: Slots  # [2 s], the bin whose slot they take
    mass: Probs  # [2 s]


@dataclass(frozen=True, eq=False)
class Swaps(Frozen):
    """Equal masses that pairs of bins exchange between their slots.

    Each bin is either the lower bin in all of its swaps or the higher one in all.  Both columns
    ascend.
    """

    low: Slots  # [s], the lower bin of each swap, s < m
    high: Slots  # [s], the other; low < high where the mass is positive
    mass: Probs  # [s], mass of each of the two bins that moves to the other's slot

    @cached_property
    def moves(self) -> Moves:
        """Both moves of each swap."""
        owner = np.concatenate([self.low, self.high])
        order = owner.argsort(kind="stable")
        partner = np.concatenate([self.high, self.low])
        mass = self.mass.take(order, mode="wrap")
        return Moves(*map(read_only, (owner[order], partner[order], mass)))

    def moves_of(self, place: int) -> tuple[Slots, Probs]:
        """Partners of one bin, and the masses that it moves to their slots."""
        owners, partners = self.low, self.high
        start, stop = owners.searchsorted((place, place + 1))
        if start == stop:
            owners, partners = partners, owners
            start, stop = owners.searchsorted((place, place + 1))
        return partners[start:stop], self.mass[start:stop]


def match_swaps(lacking: Probs, slope: Probs) -> Swaps:
    """Match the winning mass that bins lack, [m], with what others have too much of (negative).

    By cumulative amount, in order (north-west corner rule).
    """
    if is_exact(lacking):
        return match_amounts(lacking, slope)
    # Sums and differences of whole numbers of a unit are exact.
    unit = 2.0**-62
    return match_amounts(np.rint(lacking / unit).astype(np.int64), slope, unit)


def match_amounts(lacking: Probs, slope: Probs, unit: float = 1) -> Swaps:
    """`match_swaps` of amounts in fractions, or in whole numbers of a unit."""
    poor, rich = (lacking > 0).nonzero()[0], (lacking < 0).nonzero()[0]
    if not (poor.size and rich.size):
        return Swaps(read_only(poor[:0]), read_only(rich[:0]), read_only(slope[:0]))
    ends = np.concatenate([lacking[poor].cumsum(), (-lacking[rich]).cumsum()])
    merged = ends.argsort(kind="stable")
    last_poor, last_rich = (merged == poor.size - 1).argmax(), (merged == ends.size - 1).argmax()
    merged = merged[: min(last_poor, last_rich) + 1]  # Then one side is used up.
    is_poor = merged < poor.size
    poor_before: Slots = is_poor.cumsum()
    poor_before -= is_poor
    low, high = poor[poor_before], rich[np.arange(merged.size) - poor_before]

    amount = ends[merged]
    amount[1:] -= amount[:-1]
    gain = slope[high] - slope[low]
    useful = (low < high) & (gain > 0)  # Only rounding makes a pair useless.
    # A swap of δ / (W_high − W_low) moves exactly δ of winning probability.
    mass = np.divide(amount * unit, gain, out=zeros(gain.size, gain), where=useful)
    return Swaps(read_only(low), read_only(high), read_only(mass))
