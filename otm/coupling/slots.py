"""The table of who sits in which slot, and the law of the winner that it really produces.

A slot is that of a bin of tokens; all tokens of a bin sit where they do with the same probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Frozen,
    Probs,
    interval_slopes,
    is_exact,
    read_only,
    running_sum,
    scatter_sum,
)
from otm._core.ratio_bins import RatioBins
from otm.coupling.swaps import Swaps

Ranks = npt.NDArray[np.int64]

KEY_BITS = 63
"""Bits of a key: the row of a token above, a cumulative probability below."""

MASS_SCALE = 2.0**62
"""Masses are summed along a row as integers of this scale."""


@dataclass(frozen=True, eq=False)
class SlotTable(Frozen):
    """Slots that the drafts of each bin take: its own or, by a swap, a partner's.

    Floats are rounded to a grid that divides the grid of the uniforms, and every law is computed
    from the rounded table: it is the law of what `slot_of` does, not of what was intended.
    """

    bins: RatioBins
    swaps: Swaps  # the s swaps between slots

    @property
    def draft(self) -> Probs:
        """Draft mass of each bin: array [m]."""
        return self.bins.draft

    @cached_property
    def row(self) -> Ranks:
        """Row of each bin: its place, plus m if it swaps as the higher one; array [m]."""
        row = np.arange(self.draft.size)
        row[self.swaps.high] += self.draft.size
        return read_only(row)

    @cached_property
    def keys(self) -> Probs:
        """Sorted keys (row, cumulative probability up to this move): array [2s]."""
        # one array for all rows: one search finds a slot, however many swaps its bin has
        moves = self.swaps.mass.size
        keys = np.empty(2 * moves, dtype=self._low.ends.dtype)
        keys[:moves] = self._key(self.swaps.low, self._low.ends)
        keys[moves:] = self._key(self.swaps.high + self.draft.size, self._high.ends)
        return read_only(keys)

    def slot_of(self, ranks: Ranks, uniforms: npt.NDArray[Any], share: Probs) -> Ranks:
        """Slot taken by each draft, one uniform a draft; all arrays have the same shape.

        A draft swaps `share` times as often as those of its bin do on average.
        """
        keys, moves = self.keys, self.swaps.mass.size
        if moves == 0:
            return ranks
        if not is_exact(self.draft):
            uniforms = np.minimum(uniforms / share, 1 - 2.0**-53)
            uniforms = _on_grid(uniforms, self._grid_bits)
        place = np.searchsorted(keys, self._key(self.row[ranks], uniforms), side="right")
        low, high = self.swaps.low[place % moves], self.swaps.high[place % moves]
        owner = np.where(place < moves, low, high)
        # otherwise the next key is of another row, or there is none
        moved = (owner == ranks) & (place < keys.size)
        return np.where(moved, np.where(place < moves, high, low), ranks)

    def slot_law(self, rank: int, share: Any = 1) -> tuple[Ranks, Probs]:
        """Slots that drafts of one bin can take, ascending, with their probabilities.

        Of a token that swaps `share` times as often as the bin on average.
        """
        lower = self.row[rank] < self.draft.size
        side, partners = (self._low, self.swaps.high) if lower else (self._high, self.swaps.low)
        start, stop = np.searchsorted(side.owner, [rank, rank + 1])
        moves = side.steps[start:stop] * self._grid * share
        slots = np.append(partners[start:stop], rank)
        law = np.append(moves, 1 - moves.sum())
        ascending = np.argsort(slots)
        return slots[ascending], law[ascending]

    def win_ratio(self, k: int) -> tuple[Probs, Probs]:
        """How many times as likely tokens win as one draft is to be them: arrays [m] and [m].

        What their own slot gives, and what swaps add on average over a bin.

        Drafts in the same slot are exchangeable, so that it does not matter which of them wins.
        """
        bins, low, high = self.bins, self.swaps.low, self.swaps.high
        upward, downward = self._low.steps * self._grid, self._high.steps * self._grid
        below, above, mass = bins.draft_below, bins.draft_above, bins.draft
        if not is_exact(mass):  # fractions swap equal masses, and slots keep their own
            surplus = downward * mass[high] - upward * mass[low]
            surplus = scatter_sum(low, surplus, mass.size) - scatter_sum(high, surplus, mass.size)
            shift = running_sum(surplus, from_zero=True)
            below, above, mass = below + shift, above - shift, mass + surplus
        slope = interval_slopes(below, above, mass, k)
        gain = slope[high] - slope[low]
        raised = scatter_sum(low, upward * gain, slope.size)
        return slope, raised - scatter_sum(high, downward * gain, slope.size)

    @cached_property
    def moved(self) -> Probs:
        """Probability that a draft of each bin swaps, on average over the bin: array [m]."""
        sides = (self._low, self._high)
        owner = np.concatenate([side.owner for side in sides])
        steps = np.concatenate([side.steps for side in sides])
        return read_only(scatter_sum(owner, steps * self._grid, self.draft.size))

    @cached_property
    def _low(self) -> _Side:
        return _Side.build(self.draft, self.swaps.low, self.swaps.mass, self._grid_bits)

    @cached_property
    def _high(self) -> _Side:
        return _Side.build(self.draft, self.swaps.high, self.swaps.mass, self._grid_bits)

    @property
    def _grid_bits(self) -> int:
        """Bits of a key below the row."""
        return min(53, KEY_BITS - (2 * self.draft.size).bit_length())

    @property
    def _grid(self) -> float | int:
        """Unit of the cumulative probabilities in keys; fractions need no grid."""
        return 1 if is_exact(self.draft) else 2.0**-self._grid_bits

    def _key(self, rows: Ranks, ends: npt.NDArray[Any]) -> Probs:
        """Numbers that sort by row first and by a cumulative probability within a row."""
        key: Probs = rows.astype(object) if is_exact(self.draft) else rows << self._grid_bits
        key += ends
        return key


@dataclass(frozen=True, eq=False)
class _Side(Frozen):
    """The moves of all tokens that swap as the lower ones, or of all that swap as the higher."""

    owner: Ranks  # [s], rank of the token that makes each move, ascending
    first: Ranks  # where the moves of each owner start
    ends: Probs  # [s], cumulative probability of an owner's moves, < 1: on the grid, or fractions

    @classmethod
    def build(cls, draft: Probs, owner: Ranks, mass: Probs, grid_bits: int) -> _Side:
        starts = np.ones(owner.size, dtype=bool)
        np.not_equal(owner[1:], owner[:-1], out=starts[1:])
        first = np.flatnonzero(starts)
        if is_exact(draft):
            sums = np.concatenate([np.cumsum(run) for run in np.split(mass, first[1:])])
            return cls(owner, read_only(first), read_only(sums / draft[owner]))
        # in integers, so that no rounding builds up along the rows: 2^−63 a move
        scaled = np.rint(mass * MASS_SCALE).astype(np.int64)
        sums = np.cumsum(scaled)
        before = np.empty(draft.size, dtype=np.int64)
        before[owner[first]] = sums[first] - scaled[first]
        sums -= before[owner]
        ends = sums / (draft * MASS_SCALE)[owner]
        # below one, so that a cumulative probability never spills into the next row
        units = np.minimum(np.rint(ends * 2.0**grid_bits), 2.0**grid_bits - 1).astype(np.int64)
        return cls(owner, read_only(first), read_only(units))

    @cached_property
    def steps(self) -> Probs:
        """Probability of each move of an owner's draft, in the units of `ends`: array [s]."""
        steps = np.empty_like(self.ends)
        np.subtract(self.ends[1:], self.ends[:-1], out=steps[1:])
        steps[self.first] = self.ends[self.first]
        return read_only(steps)


def _on_grid(fractions: npt.NDArray[np.float64], grid_bits: int) -> npt.NDArray[np.int64]:
    """Numbers in [0, 1) in units of the grid, rounded down."""
    units: npt.NDArray[np.int64] = (fractions * 2.0**grid_bits).astype(np.int64)
    return units


def winning_probabilities(laws: Sequence[tuple[Ranks, Probs]]) -> Probs:
    """Probability that each draft sits in the highest slot, before all equals: k laws → [k].

    A law is the slots that a draft can take, ascending, and their probabilities.
    """
    zero = 0 * laws[0][1][:1]
    cumulative = [np.concatenate([zero, np.cumsum(law)]) for _, law in laws]
    wins: Probs = np.resize(zero, len(laws))
    for i, (slots, law) in enumerate(laws):
        beaten = law
        for j, (others, _) in enumerate(laws):
            if j != i:  # an earlier draft must sit strictly lower, a later one not higher
                side: Literal["left", "right"] = "left" if j < i else "right"
                beaten = beaten * cumulative[j][np.searchsorted(others, slots, side=side)]
        wins[i] = beaten.sum()
    return wins
