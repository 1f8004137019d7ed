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
from otm._core.ratios.bins import RatioBins
from otm.coupling.swaps import Swaps

Ranks = npt.NDArray[np.int64]

KEY_BITS = 63
"""Bits of a key: the bin above, a cumulative probability below."""

MASS_SCALE = 2.0**62
"""Masses are summed over the moves of a bin as integers of this scale."""


@dataclass(frozen=True, eq=False)
class SlotTable(Frozen):
    """Slots that the drafts of each bin take: its own or, by a swap, a partner's.

    Floats are rounded to a grid that divides the grid of the uniforms, and every law is computed
    from the rounded table: it is the law of what `slot_of` does, not of what was intended.
    """

    bins: RatioBins
    swaps: Swaps  # the s swaps between slots: 2 s moves

    @property
    def draft(self) -> Probs:
        """Draft mass of each bin: array [m]."""
        return self.bins.draft

    @cached_property
    def _moves(self) -> tuple[Ranks, Ranks, Probs]:
        """Owner, partner and mass of each move, those of lower bins before those of higher."""
        swaps = self.swaps
        owner = np.concatenate([swaps.low, swaps.high])
        order = owner.argsort(kind="stable")
        partner = np.concatenate([swaps.high, swaps.low])[order]
        return (
            read_only(owner[order]),
            read_only(partner),
            read_only(swaps.mass.take(order, mode="wrap")),
        )

    @property
    def owner(self) -> Ranks:
        """Bin that makes each move, ascending: array [2s]."""
        return self._moves[0]

    @property
    def partner(self) -> Ranks:
        """Bin whose slot each move takes: array [2s]."""
        return self._moves[1]

    @cached_property
    def ends(self) -> Probs:
        """Cumulative probability of an owner's moves, < 1: on the grid, or fractions; [2s]."""
        owner, _, mass = self._moves
        first = self._first
        if is_exact(mass):
            runs = np.split(mass, first[1:])
            sums = np.concatenate([np.cumsum(run) for run in runs]) if mass.size else mass
            return read_only(sums / self.draft[owner])
        # in integers, so that no rounding builds up along the rows: 2^−63 a move
        scaled = np.rint(mass * MASS_SCALE).astype(np.int64)
        sums = scaled.cumsum()
        before = np.zeros(self.draft.size, dtype=np.int64)
        before[owner[first]] = sums[first] - scaled[first]
        ends = (sums - before[owner]) / (self.draft[owner] * MASS_SCALE)
        # below one, so that a cumulative probability never spills into the next row
        units = np.minimum(np.rint(ends * 2.0**self._grid_bits), 2.0**self._grid_bits - 1)
        return read_only(units.astype(np.int64))

    @cached_property
    def _first(self) -> Ranks:
        """Where the moves of each owner start."""
        first = np.ones(self.owner.size, dtype=np.bool_)
        np.not_equal(self.owner[1:], self.owner[:-1], out=first[1:])
        return read_only(first.nonzero()[0])

    @cached_property
    def steps(self) -> Probs:
        """Probability of each move of an owner's draft: array [2s]."""
        steps = self.ends.copy()
        steps[1:] -= self.ends[:-1]
        steps[self._first] = self.ends[self._first]
        return read_only(steps * (1 if is_exact(steps) else 2.0**-self._grid_bits))

    @cached_property
    def moved(self) -> Probs:
        """Probability that a draft of each bin swaps, on average over the bin: array [m]."""
        return read_only(scatter_sum(self.owner, self.steps, self.draft.size))

    @cached_property
    def keys(self) -> Probs:
        """Sorted keys (owner, cumulative probability up to this move): array [2s]."""
        # one array for all bins: one search finds a slot, however many swaps its bin has
        return read_only(self._key(self.owner, self.ends))

    @cached_property
    def _last(self) -> Probs:
        """The last of the `ends` of each bin, 0 if it does not swap: array [m]."""
        last = np.zeros(self.draft.size, dtype=self.ends.dtype)
        last[self.owner] = self.ends
        return read_only(last)

    def slot_of(self, ranks: Ranks, uniforms: npt.NDArray[Any], share: Probs) -> Ranks:
        """Slot taken by each draft, one uniform a draft; all arrays have the same shape.

        A draft swaps `share` times as often as those of its bin do on average.
        """
        if not is_exact(self.draft):
            stretched = np.minimum(uniforms / share, 1 - 2.0**-53)
            uniforms = (stretched * 2.0**self._grid_bits).astype(np.int64)
        moving = uniforms < self._last.take(ranks)
        if not np.count_nonzero(moving):
            return ranks
        slots = ranks.copy()
        keys = self._key(ranks[moving], uniforms[moving])
        slots[moving] = self.partner[self.keys.searchsorted(keys, side="right")]
        return slots

    def slots_of_few(self, ranks: Ranks, uniforms: list[float], shares: list[float]) -> list[int]:
        """Equivalent to `slot_of`, but faster for few drafts in floats; spare uniforms are fine."""
        slots: list[int] = ranks.tolist()
        bits, scale = self._grid_bits, 2.0**self._grid_bits
        for i, last in enumerate(self._last.take(ranks).tolist()):
            end = int(min(uniforms[i] / shares[i], 1 - 2.0**-53) * scale)
            if end < last:
                move = self.keys.searchsorted((slots[i] << bits) + end, side="right")
                slots[i] = self.partner.item(move)
        return slots

    def slot_law(self, rank: int, share: Any = 1) -> tuple[Ranks, Probs]:
        """Slots that drafts of one bin can take, ascending, with their probabilities.

        Of a token that swaps `share` times as often as the bin on average.
        """
        start, stop = np.searchsorted(self.owner, [rank, rank + 1])
        moves = self.steps[start:stop] * share
        slots = np.append(self.partner[start:stop], rank)
        law = np.append(moves, 1 - moves.sum())
        ascending = np.argsort(slots)
        return slots[ascending], law[ascending]

    def win_ratio(self, k: int) -> tuple[Probs, Probs]:
        """How many times as likely tokens win as one draft is to be them: arrays [m] and [m].

        What their own slot gives, and what swaps add on average over a bin.

        Drafts in the same slot are exchangeable, so that it does not matter which of them wins.
        """
        bins, (owner, partner, _) = self.bins, self._moves
        below, above, mass = bins.draft_below, bins.draft_above, bins.draft
        if not is_exact(mass):  # fractions swap equal masses, and slots keep their own
            moved = self.steps * mass[owner]
            surplus = scatter_sum(partner, moved, mass.size) - scatter_sum(owner, moved, mass.size)
            # from both ends, so that what is little there keeps its digits
            more = running_sum(np.array((surplus, surplus[::-1])), from_zero=True)
            below, above = below + more[0], above + more[1, ::-1]
            mass = mass + surplus
        slope = interval_slopes(below, above, mass, k)
        return slope, scatter_sum(owner, self.steps * (slope[partner] - slope[owner]), slope.size)

    @cached_property
    def _grid_bits(self) -> int:
        """Bits of a key below the bin."""
        return min(53, KEY_BITS - self.draft.size.bit_length())

    def _key(self, rows: Ranks, ends: npt.NDArray[Any]) -> Probs:
        """Numbers that sort by bin first and by a cumulative probability within its moves."""
        key: Probs = rows.astype(object) if is_exact(self.draft) else rows << self._grid_bits
        return np.asarray(key + ends)


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
