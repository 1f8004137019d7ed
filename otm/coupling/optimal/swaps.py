"""Target win ratio of each bin of tokens, and the swaps of mass that achieve it.

Order the bins of tokens by q/p; slot j is the interval (P_{j−1}, P_j] of cumulative draft mass.
The win ratio of a token is Pr(the winner is the token) / p(token).  If every draft takes the slot
of its bin and the highest slot wins, tokens of bin j have the win ratio
W_j = (P_j^k − P_{j−1}^k) / p_j.  Bins with W_j below the target ratio swap mass with the higher
slots of bins with W_j above it (Theorem 5.2 of docs/theory/optimal-plan.md).
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
"""Array of slot indices; slot j belongs to bin j."""


class TargetWinRatio(NamedTuple):
    """Target win ratio t = Pr(the winner is the token) / p(token), for each of m bins.

    Bins are pure: if W is the win ratio in the slot of a bin, either t ≥ W for all tokens of the
    bin, or t ≤ W for all of them.
    """

    bins: RatioBins
    # The win ratio W of the bin if no draft moves, [m].
    slope: Probs
    # The mean of t over the drafts in the bin, [m].
    mean: Probs
    # Whether t = q/p for each token of the bin, [m]; otherwise t is the mean for all its tokens.
    follows: npt.NDArray[np.bool_]


def target_win_ratio(problem: Problem) -> TargetWinRatio:
    """Compute t = max(min(q/p, c*), b); split bins that contain c* or b, or are not pure."""
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
    """Moves of drafts to the slots of other bins, in ascending order of the owner: arrays [2 s]."""

    # The bin of the drafts that move.
    owner: Slots
    # The bin whose slot they take.
    partner: Slots
    # The draft mass that moves.
    mass: Probs


@dataclass(frozen=True, eq=False)
class Swaps(Frozen):
    """Equal masses that pairs of bins exchange between their slots: arrays [s], s < m.

    A bin is the lower bin in all of its swaps, or the higher bin in all of them.  `low` and `high`
    are in ascending order.
    """

    # The lower bin of each swap.
    low: Slots
    # The higher bin of each swap; low < high if the mass is positive.
    high: Slots
    # The mass that each of the two bins moves to the slot of the other.
    mass: Probs

    @cached_property
    def moves(self) -> Moves:
        """The two moves of each swap."""
        owner = np.concatenate([self.low, self.high])
        order = owner.argsort(kind="stable")
        partner = np.concatenate([self.high, self.low])
        mass = self.mass.take(order, mode="wrap")
        return Moves(*map(read_only, (owner[order], partner[order], mass)))

    def moves_of(self, place: int) -> tuple[Slots, Probs]:
        """Return the partners of a bin, and the mass that it moves to the slot of each partner."""
        owners, partners = self.low, self.high
        start, stop = owners.searchsorted((place, place + 1))
        if start == stop:
            owners, partners = partners, owners
            start, stop = owners.searchsorted((place, place + 1))
        return partners[start:stop], self.mass[start:stop]


def match_swaps(lacking: Probs, slope: Probs) -> Swaps:
    """Match bins that lack win probability (`lacking` > 0) with bins that have an excess (< 0).

    Bins are matched in order, by cumulative amount (north-west corner rule).
    """
    if is_exact(lacking):
        return match_amounts(lacking, slope)
    # Sums and differences of integers are exact.
    unit = 2.0**-62
    return match_amounts(np.rint(lacking / unit).astype(np.int64), slope, unit)


def match_amounts(lacking: Probs, slope: Probs, unit: float = 1) -> Swaps:
    """Implement `match_swaps` for amounts in fractions or as integer multiples of a unit."""
    poor, rich = (lacking > 0).nonzero()[0], (lacking < 0).nonzero()[0]
    if not (poor.size and rich.size):
        return Swaps(read_only(poor[:0]), read_only(rich[:0]), read_only(slope[:0]))
    ends = np.concatenate([lacking[poor].cumsum(), (-lacking[rich]).cumsum()])
    merged = ends.argsort(kind="stable")
    last_poor, last_rich = (merged == poor.size - 1).argmax(), (merged == ends.size - 1).argmax()
    # After this many pairs, one side has no mass left.
    merged = merged[: min(last_poor, last_rich) + 1]
    is_poor = merged < poor.size
    poor_before: Slots = is_poor.cumsum()
    poor_before -= is_poor
    low, high = poor[poor_before], rich[np.arange(merged.size) - poor_before]

    amount = ends[merged]
    amount[1:] -= amount[:-1]
    gain = slope[high] - slope[low]
    # Only a rounding error can make a pair useless.
    useful = (low < high) & (gain > 0)
    # A swap of the mass δ / (W_high − W_low) moves the win probability δ.
    mass = np.divide(amount * unit, gain, out=zeros(gain.size, gain), where=useful)
    return Swaps(read_only(low), read_only(high), read_only(mass))
