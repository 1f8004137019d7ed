"""The table of moves between slots as it is stored, and the winner's distribution by this table.

All tokens of a bin move to the same partners; how often each moves depends on its own ratio q/p.
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
)
from otm._core.ratios.bins import RatioBins
from otm.coupling.optimal.swaps import Slots, Swaps, TargetWinRatio, match_swaps

KEY_BITS = 63
"""Bits of a key: the bin above, a cumulative probability below."""

MASS_SCALE = 2.0**62
"""Masses are summed over the moves of a bin as integers of this scale."""


class SwapRates(NamedTuple):
    """Rates λ of tokens, from their ratios q/p: (q/p − slope) · factor between least and most.

    A token moves λ times as often as the drafts of its bin do on average (Theorem 5.2).
    """

    slope: Probs  # [m] each
    factor: Probs
    least: Probs
    most: Probs


@dataclass(frozen=True, eq=False)
class SlotTable(Frozen):
    """Slots that the drafts of each bin take: its own or, by a swap, a partner's.

    Floats are rounded to a grid that divides the grid of the uniforms, and every distribution is
    computed from the rounded table: it is that of what `slots_of` does, not of what was intended.
    """

    target: TargetWinRatio
    k: int
    swaps: Swaps

    @classmethod
    def build(cls, target: TargetWinRatio, k: int) -> SlotTable:
        """Swap between bins what they need to win as often as they should."""
        lacking = (target.mean - target.slope) * target.bins.draft
        return cls(target, k, match_swaps(lacking, target.slope))

    @property
    def bins(self) -> RatioBins:
        """The bins of the tokens, m in all."""
        return self.target.bins

    @property
    def draft(self) -> Probs:
        """Draft mass of each bin: array [m]."""
        return self.bins.draft

    @cached_property
    def ends(self) -> Probs:
        """Cumulative probability of an owner's moves, < 1: on the grid, or fractions; [2s]."""
        owner, _, mass = self.swaps.moves
        first = self._first
        if is_exact(mass):
            runs = np.split(mass, first[1:])
            sums = np.concatenate([np.cumsum(run) for run in runs]) if mass.size else mass
            return read_only(sums / self.draft[owner])
        # Integers are added, so that rounding does not build up along the rows: 2^−63 a move.
        scaled = np.rint(mass * MASS_SCALE).astype(np.int64)
        sums = scaled.cumsum()
        before = np.zeros(self.draft.size, dtype=np.int64)
        before[owner[first]] = sums[first] - scaled[first]
        ends = (sums - before[owner]) / (self.draft[owner] * MASS_SCALE)
        # The end stays below one, so that a key never spills into the next row.
        units = np.minimum(np.rint(ends * 2.0**self._grid_bits), 2.0**self._grid_bits - 1)
        return read_only(units.astype(np.int64))

    @cached_property
    def _first(self) -> Slots:
        """Index of the first move of each owner."""
        return read_only(np.flatnonzero(np.diff(self.swaps.moves.owner, prepend=-1)))

    @cached_property
    def steps(self) -> Probs:
        """Probability of each move of an owner's draft: array [2s]."""
        steps = self.ends.copy()
        steps[1:] -= self.ends[:-1]
        steps[self._first] = self.ends[self._first]
        return read_only(steps * (1 if is_exact(steps) else 2.0**-self._grid_bits))

    @cached_property
    def moved(self) -> Probs:
        """Probability that a draft of each bin moves, on average over the bin: array [m]."""
        return read_only(scatter_sum(self.swaps.moves.owner, self.steps, self.draft.size))

    @cached_property
    def keys(self) -> Probs:
        """Sorted keys (owner, cumulative probability up to this move): array [2s]."""
        # One search in one array for all bins finds a slot, however many swaps its bin has.
        return read_only(self._key(self.swaps.moves.owner, self.ends))

    @cached_property
    def _last(self) -> Probs:
        """The last of the `ends` of each bin, 0 if it does not swap: array [m]."""
        last = np.zeros(self.draft.size, dtype=self.ends.dtype)
        last[self.swaps.moves.owner] = self.ends
        return read_only(last)

    @cached_property
    def _grid_bits(self) -> int:
        """Bits of a key below the bin."""
        return min(53, KEY_BITS - self.draft.size.bit_length())

    def _key(self, bins: Slots, ends: npt.NDArray[Any]) -> Probs:
        """Numbers that sort by bin first and by a cumulative probability within its moves."""
        key: Probs = bins.astype(object) if is_exact(self.draft) else bins << self._grid_bits
        return np.asarray(key + ends)

    @cached_property
    def _rates(self) -> SwapRates | None:
        """Rates of the tokens of each bin; None if all are one, as where t is one for each bin."""
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
        """Bins of tokens and their rates, from their ratios q/p: [...] → [...], [...]."""
        bins = self.bins.place(ratio)
        if self._rates is None:
            return bins, np.ones(ratio.shape, ratio.dtype)
        slope, factor, least, most = (each.take(bins) for each in self._rates)
        rates = (ratio - slope) * factor
        return bins, np.minimum(np.maximum(rates, least), most)  # Only rounding is cut off.

    def place_few(self, ratio: list[float]) -> tuple[Slots, list[float]]:
        """Equivalent to `place`, but faster for few drafts."""
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
        """Slot that each draft takes, by one uniform a draft; all arrays have the same shape."""
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
        """Equivalent to `slots_of`, but faster for few drafts in floats, with spare uniforms."""
        slots: list[int] = bins.tolist()
        bits, scale = self._grid_bits, 2.0**self._grid_bits
        for i, last in enumerate(self._last.take(bins).tolist()):
            end = int(min(uniforms[i] / rates[i], 1) * scale)
            if end < last:
                move = self.keys.searchsorted((slots[i] << bits) + end, side="right")
                slots[i] = self.swaps.moves.partner.item(move)
        return slots

    def slot_law(self, place: int, rate: Any = 1) -> tuple[Slots, Probs]:
        """Slots that drafts of a bin can take, ascending, with their probabilities."""
        owner, partner, _ = self.swaps.moves
        start, stop = owner.searchsorted((place, place + 1))
        moves = self.steps[start:stop] * rate
        slots = np.append(partner[start:stop], place)
        law = np.append(moves, 1 - moves.sum())
        ascending = slots.argsort()
        return slots[ascending], law[ascending]

    @cached_property
    def win_ratio(self) -> tuple[Probs, Probs]:
        """Probability that a token wins, over that of one draft to be this token: two [m].

        The first is what the own slot of a token gives, the second what moves add on average over
        a bin, scaled so that the winner's distribution fits Σq = 1.  Drafts in one slot are
        exchangeable, so it does not matter which of them wins.
        """
        bins, (owner, partner, _) = self.bins, self.swaps.moves
        below, above, mass = bins.draft_below, bins.draft_above, bins.draft
        if not is_exact(mass):  # Fractions swap equal masses, so slots keep theirs.
            moved = self.steps * mass[owner]
            surplus = scatter_sum(partner, moved, mass.size) - scatter_sum(owner, moved, mass.size)
            # Sums from both ends keep the digits of small masses there.
            more = running_sum(np.array((surplus, surplus[::-1])), from_zero=True)
            below, above = below + more[0], above + more[1, ::-1]
            mass = mass + surplus
        slope = interval_slopes(below, above, mass, self.k)
        added = scatter_sum(owner, self.steps * (slope[partner] - slope[owner]), slope.size)
        of_draft, of_target = bins.excess[:, 0]
        scale = 1 + (of_target - of_draft)
        return read_only(slope * scale), read_only(added * scale)


def winning_probabilities(laws: Sequence[tuple[Slots, Probs]]) -> Probs:
    """Probability that each draft wins, by the highest slot: k laws → [k].

    Of drafts in one slot the first wins.

    A law is the slots that a draft can take, ascending, and their probabilities.
    """
    zero = 0 * laws[0][1][:1]
    cumulative = [np.concatenate([zero, np.cumsum(law)]) for _, law in laws]
    wins: Probs = np.resize(zero, len(laws))
    for i, (slots, law) in enumerate(laws):
        beaten = law
        for j, (others, _) in enumerate(laws):
            if j != i:  # Earlier drafts must sit strictly lower, later ones not higher.
                side: Literal["left", "right"] = "left" if j < i else "right"
                beaten = beaten * cumulative[j][np.searchsorted(others, slots, side=side)]
        wins[i] = beaten.sum()
    return wins
