"""The stored table of moves between slots, and the resulting distribution of the winner.

All tokens of a bin move to the same partner slots.  How often a token moves depends on its q/p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    TINY,
    Frozen,
    Probs,
    interval_slopes,
    is_exact,
    read_only,
    running_sum,
    scatter_sum,
    zeros,
)
from otm._core.quadrature import quadrature
from otm._core.ratios.bins import RatioBins
from otm.coupling.optimal.swaps import Slots, Swaps, TargetWinRatio, match_swaps

KEY_BITS = 63
"""Number of bits of a key; the high bits are the bin, the low bits a cumulative probability."""

MASS_SCALE = 2.0**62
"""Factor on the masses of moves, which are then rounded to integers and summed."""


class SwapRates(NamedTuple):
    """Parameters [m] of the rates λ = (q/p − slope) · factor, clipped to [least, most].

    A token moves λ times as often as an average draft of its bin (Theorem 5.2).
    """

    slope: Probs
    factor: Probs
    least: Probs
    most: Probs


@dataclass(frozen=True, eq=False)
class SlotTable(Frozen):
    """Table of the slots that the drafts of each bin take: the slot of the bin or of a partner.

    In floats, probabilities are rounded to a grid that uniforms resolve exactly.  Every
    distribution is computed from the rounded table, so it is the exact distribution of `slots_of`.
    """

    target: TargetWinRatio
    k: int
    swaps: Swaps

    @classmethod
    def build(cls, target: TargetWinRatio, k: int) -> SlotTable:
        """Build the table with the swaps that give each bin its target win ratio."""
        lacking = (target.mean - target.slope) * target.bins.draft
        return cls(target, k, match_swaps(lacking, target.slope))

    @property
    def bins(self) -> RatioBins:
        """The m bins of the tokens."""
        return self.target.bins

    @property
    def draft(self) -> Probs:
        """Draft mass of each bin: array [m]."""
        return self.bins.draft

    @cached_property
    def ends(self) -> Probs:
        """Cumulative probability of the moves of each owner, below 1: array [2s].

        Floats are stored as integers in units of the grid.
        """
        owner, _, mass = self.swaps.moves
        first = self._first
        if is_exact(mass):
            runs = np.split(mass, first[1:])
            sums = np.concatenate([np.cumsum(run) for run in runs]) if mass.size else mass
            return read_only(sums / self.draft[owner])
        # Sums of integers are exact, so the only error is the rounding of each move, 2^−63.
        scaled = np.rint(mass * MASS_SCALE).astype(np.int64)
        sums = scaled.cumsum()
        before = np.zeros(self.draft.size, dtype=np.int64)
        before[owner[first]] = sums[first] - scaled[first]
        ends = (sums - before[owner]) / (self.draft[owner] * MASS_SCALE)
        # A cumulative probability below one keeps the key below the keys of the next bin.
        units = np.minimum(np.rint(ends * 2.0**self._grid_bits), 2.0**self._grid_bits - 1)
        return read_only(units.astype(np.int64))

    @cached_property
    def _first(self) -> Slots:
        """Index of the first move of each owner."""
        return read_only(np.flatnonzero(np.diff(self.swaps.moves.owner, prepend=-1)))

    @cached_property
    def steps(self) -> Probs:
        """Probability that a draft of the owner makes each move: array [2s]."""
        steps = self.ends.copy()
        steps[1:] -= self.ends[:-1]
        steps[self._first] = self.ends[self._first]
        return read_only(steps * (1 if is_exact(steps) else 2.0**-self._grid_bits))

    @cached_property
    def moved(self) -> Probs:
        """Average probability that a draft of each bin moves: array [m]."""
        return read_only(scatter_sum(self.swaps.moves.owner, self.steps, self.draft.size))

    @cached_property
    def keys(self) -> Probs:
        """Sorted keys (owner, cumulative probability) of all moves: array [2s]."""
        # One binary search over the keys of all bins finds a slot.
        return read_only(self._key(self.swaps.moves.owner, self.ends))

    @cached_property
    def _last(self) -> Probs:
        """The largest of the `ends` of each bin, 0 if the bin has no moves: array [m]."""
        last = np.zeros(self.draft.size, dtype=self.ends.dtype)
        last[self.swaps.moves.owner] = self.ends
        return read_only(last)

    @cached_property
    def _grid_bits(self) -> int:
        """Number of low bits of a key that store the cumulative probability."""
        return min(53, KEY_BITS - self.draft.size.bit_length())

    def _key(self, bins: Slots, ends: npt.NDArray[Any]) -> Probs:
        """Return keys that sort by bin, then by cumulative probability."""
        key: Probs = bins.astype(object) if is_exact(self.draft) else bins << self._grid_bits
        return np.asarray(key + ends)

    @cached_property
    def _rates(self) -> SwapRates | None:
        """Parameters of the rates; None if all rates are one, because t is constant in each bin."""
        target = self.target
        if not np.count_nonzero(target.follows):
            return None
        most = np.divide(1, self.moved, out=np.full_like(self.moved, np.inf), where=self.moved > 0)
        gap = target.mean - target.slope
        follows = target.follows & (gap != 0)
        factor = np.divide(1, gap, out=np.ones_like(gap), where=follows)
        least, most = np.where(follows, TINY, 1), np.where(follows, most, 1)
        return SwapRates(target.slope, *map(read_only, (factor, least, most)))

    def place(self, ratio: Probs) -> tuple[Slots, Probs]:
        """Return the bins and rates of tokens, from their ratios q/p: `[...] → [...], [...]`."""
        bins = self.bins.place(ratio)
        if self._rates is None:
            return bins, np.ones(ratio.shape, ratio.dtype)
        slope, factor, least, most = (each.take(bins) for each in self._rates)
        rates = (ratio - slope) * factor
        # Without rounding errors, the rates would lie in this range.
        return bins, np.minimum(np.maximum(rates, least), most)

    def place_few(self, ratio: list[float]) -> tuple[Slots, list[float]]:
        """Equivalent to `place`, but faster for a few drafts."""
        bins = self.target.bins.place(np.array(ratio))
        if self._rates is None:
            return bins, [1.0] * len(ratio)
        slope, factor, least, most = (each.item for each in self._rates)
        rates = []
        for r, i in zip(ratio, bins.tolist(), strict=True):
            rate, low, high = (r - slope(i)) * factor(i), least(i), most(i)
            rates.append(low if rate < low else high if rate > high else rate)
        return bins, rates

    def slots_of(self, bins: Slots, rates: Probs, uniforms: npt.NDArray[Any]) -> Slots:
        """Return the slot of each draft, from a uniform per draft; all arrays have one shape."""
        if not is_exact(self.draft):
            stretched = np.minimum(uniforms / rates, 1)
            uniforms = (stretched * 2.0**self._grid_bits).astype(np.int64)
        moving = uniforms < self._last.take(bins)
        if not np.count_nonzero(moving):
            return bins
        slots = bins.copy()
        keys = self._key(bins[moving], uniforms[moving])
        slots[moving] = self.swaps.moves.partner[self.keys.searchsorted(keys, side="right")]
        return slots

    def slots_of_few(self, bins: Slots, rates: list[float], uniforms: list[float]) -> list[int]:
        """Equivalent to `slots_of` but faster for a few drafts in floats; ignore extra uniforms."""
        slots: list[int] = bins.tolist()
        bits, scale = self._grid_bits, 2.0**self._grid_bits
        for i, last in enumerate(self._last.take(bins).tolist()):
            end = int(min(uniforms[i] / rates[i], 1) * scale)
            if end < last:
                move = self.keys.searchsorted((slots[i] << bits) + end, side="right")
                slots[i] = self.swaps.moves.partner.item(move)
        return slots

    def slot_distribution(self, place: int, rate: Any = 1) -> tuple[Slots, Probs]:
        """Return the possible slots of a draft of a bin, ascending, and their probabilities."""
        owner, partner, _ = self.swaps.moves
        start, stop = owner.searchsorted((place, place + 1))
        moves = self.steps[start:stop] * rate
        slots = np.append(partner[start:stop], place)
        law = np.append(moves, 1 - moves.sum())
        ascending = slots.argsort()
        return slots[ascending], law[ascending]

    @cached_property
    def win_ratio(self) -> tuple[Probs, Probs]:
        """Terms of the win ratio Pr(token wins) / p(token) for each bin: two arrays [m].

        The first term is the win ratio in the bin's slot.  The second term is the average change
        of the win ratio by moves.  Both terms are scaled so that the winner distribution is
        consistent with Σq = 1.  Drafts in one slot are exchangeable, so it does not matter which of
        them wins.
        """
        bins, (owner, partner, _) = self.bins, self.swaps.moves
        below, above, mass = bins.draft_below, bins.draft_above, bins.draft
        # In fractions, swaps are exact, so every slot keeps its mass.
        if not is_exact(mass):
            moved = self.steps * mass[owner]
            surplus = scatter_sum(partner, moved, mass.size) - scatter_sum(owner, moved, mass.size)
            # Sums from both ends keep the digits of small masses at the ends.
            more = running_sum(np.array((surplus, surplus[::-1])), from_zero=True)
            below, above = below + more[0], above + more[1, ::-1]
            mass = mass + surplus
        slope = interval_slopes(below, above, mass, self.k)
        added = scatter_sum(owner, self.steps * (slope[partner] - slope[owner]), slope.size)
        of_draft, of_target = bins.excess[:, 0]
        scale = 1 + (of_target - of_draft)
        return read_only(slope * scale), read_only(added * scale)


def winning_probabilities(laws: Sequence[tuple[Slots, Probs]]) -> Probs:
    """Return the probability that each of k drafts wins; the draft in the highest slot wins: [k].

    Each entry of `laws` has the possible slots of a draft, ascending, and their probabilities.  If
    several drafts share the highest slot, the first of them wins.
    """
    zero = 0 * laws[0][1][:1]
    cumulative = [np.concatenate([zero, np.cumsum(law)]) for _, law in laws]
    wins: Probs = np.resize(zero, len(laws))
    for i, (slots, law) in enumerate(laws):
        beaten = law
        for j, (others, _) in enumerate(laws):
            # Earlier drafts must be in a lower slot, later drafts in a lower or equal slot.
            if j != i:
                side: Literal["left", "right"] = "left" if j < i else "right"
                beaten = beaten * cumulative[j][np.searchsorted(others, slots, side=side)]
        wins[i] = beaten.sum()
    return wins


def even_winning(laws: Sequence[tuple[Slots, Probs]], counts: Sequence[int]) -> Probs:
    """Return the probability that each of n distinct drafts wins, if ties are broken evenly: [n].

    `laws` has the possible slots of each draft, ascending, and their probabilities; `counts` has
    the number of its copies.  Each copy is a point that is uniform in its slot, and the highest
    point wins.  The probability is an integral of a polynomial in each slot.
    """
    k = sum(counts)
    points, weights = quadrature(k, exact=is_exact(laws[0][1]))
    slots = np.unique(np.concatenate([slots for slots, _ in laws]))
    own = zeros((len(laws), slots.size), laws[0][1])
    for i, (of_draft, law) in enumerate(laws):
        np.add.at(own[i], np.searchsorted(slots, of_draft), law)
    # The probability that a copy is below a point: [drafts, slots, points].
    below = (own.cumsum(axis=1) - own)[..., None] + own[..., None] * points
    wins = zeros(len(laws), laws[0][1])
    for i, count in enumerate(counts):
        beaten = count * below[i] ** (count - 1)
        for j, other in enumerate(counts):
            if j != i:
                beaten = beaten * below[j] ** other
        wins[i] = (beaten * own[i][:, None] * weights).sum()
    return wins
