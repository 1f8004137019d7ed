"""The winner among a random number of drafts, and the number of drafts that equal the winner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache, cached_property
from math import comb

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Number,
    Probs,
    as_fractions,
    is_exact,
    read_only,
    running_sum,
    scatter_sum,
    zeros,
)
from otm._core.probs.sampling import chunks
from otm._core.probs.sparse import SparseProbs, of_one_kind
from otm._core.quadrature import quadrature
from otm._core.ratios.bins import in_bins
from otm._core.ratios.keys import LEAST, MOST, ratio_of
from otm._core.ratios.order import places_along
from otm.coupling.optimal.slots import even_winning, winning_probabilities
from otm.coupling.optimal.swaps import Slots, Swaps, match_swaps
from otm.coupling.optimal.winner import WinnerRule
from otm.kernels.optimal.numpy import slopes_between

POINTS = 2**12
"""Largest number of quadrature points in one chunk."""

SHARED = 42
"""Number of low bits of a ratio that the slot ignores if there are many tokens."""


class AgreeingDrafts(WinnerRule):
    """Rule that selects a winner among M i.i.d. drafts, where Pr(M = m) = `numbers[m]`.

    The winner has the hull distribution: it maximises Σ min(s q, v) for every s at once, among all
    possible distributions v of a winner (Theorem 14.3 of docs/theory/walk-and-keep.md).  Each token
    has a slot, in the order of q/p.  Tokens swap mass between their slots.  The draft in the
    highest slot wins; if several drafts share this slot, the first of them wins (Theorem 14.4).  If
    there are more than 8,192 tokens, tokens with nearly equal ratios share a slot, which reduces
    the acceptance by a fraction of at most 2^−11.

    `tokens` are the tokens with p > 0, and `winner_probs` is computed from the stored swaps.
    """

    # `OptimalPlan` is not this rule with a fixed M.  Its winner has another distribution, with a
    # cap and a floor instead of the hull.  Its bins in exact units and its moves on a grid, which
    # Theorems 5.7 and 5.8 need, are too slow to build at every node of a walk.
    def __init__(self, draft: SparseProbs, target: SparseProbs, numbers: Probs) -> None:
        draft, target = of_one_kind(draft, target)
        super().__init__(draft.tokens, target)
        self._draft = draft.probabilities
        exact = is_exact(self._draft)
        self.numbers = as_fractions(numbers) if exact else numbers.astype(np.float64)
        self._slot, size = slots_by_ratio(ratio_of(self._draft, self._of_target))
        self._mass = scatter_sum(self._slot, self._draft, size)
        below = running_sum(self._mass, from_zero=True)
        self._below = below / below[-1]
        self._slope = slopes_between(self._below, self.numbers)
        self._swaps, wins = self._swap(scatter_sum(self._slot, self._of_target, size))
        self.winner_probs = wins[self._slot]
        if size < self._draft.size:
            self.winner_probs *= self._draft / self._mass[self._slot]

    def _swap(self, target: Probs) -> tuple[Swaps, Probs]:
        """Return the swaps between slots, and the win probability of each slot's tokens."""
        mass, slope = self._mass, self._slope
        wins = slope * mass
        first = hull_segments(wins, target)
        sums = np.add.reduceat(np.array((wins, target)), first, axis=1)
        lengths = np.diff(np.append(first, wins.size))
        # A segment of one slot needs no swap.
        several = lengths > 1
        share = sums[0] / np.where(several, sums[1], 1)
        hull = np.where(np.repeat(several, lengths), np.repeat(share, lengths) * target, wins)
        swaps = match_swaps(hull - wins, slope)
        low, high, moved = swaps.low, swaps.high, swaps.mass
        # With rounding, the swaps of a token can exceed its mass.
        total = scatter_sum(low, moved, wins.size) + scatter_sum(high, moved, wins.size)
        if (total > mass).any():
            fit = np.minimum(1, mass / np.where(total > mass, total, mass))
            moved = moved * np.minimum(fit[low], fit[high])
        gain = moved * (slope[high] - slope[low])
        wins = wins + scatter_sum(low, gain, wins.size) - scatter_sum(high, gain, wins.size)
        return Swaps(low, high, moved), np.maximum(wins, 0 * wins)

    def slot_distribution(self, place: int) -> tuple[Slots, Probs]:
        """Return the possible slots of a drafted token (its own last), and their probabilities."""
        slot = self._slot.item(place)
        partners, moved = self._swaps.moves_of(slot)
        steps = moved / self._mass.item(slot)
        return np.append(partners, slot), np.append(steps, 1 - steps.sum())

    def winner(self, places: Sequence[int], uniforms: Probs) -> int:
        """Return the index of the winning draft, from one uniform for each draft."""
        slots, laws = [], {place: self.slot_distribution(place) for place in set(places)}
        for place, uniform in zip(places, uniforms, strict=True):
            partners, law = laws[place]
            step = int(np.searchsorted(law[:-1].cumsum(), uniform, side="right"))
            slots.append(int(partners[step]))
        return slots.index(max(slots))

    def winning(self, places: Sequence[int]) -> Probs:
        """Return the probability that each draft wins: `[m] → [m]`."""
        return winning_probabilities([self._ascending(place) for place in places])

    def chosen(self, places: Sequence[int], weight: Number) -> dict[int, Number]:
        """Return the probability to accept each distinct draft, given all drafts, for s = `weight`.

        Drafts in the same slot win equally often here.  This changes no mean over the drafts, but
        the wins are spread over more of the drafts.
        """
        counts = Counter(places)
        laws = [self._ascending(place) for place in counts]
        wins = even_winning(laws, list(counts.values())).tolist()
        return {
            place: won * self.accepted_share(place, weight)
            for place, won in zip(counts, wins, strict=True)
        }

    def agreeing(self, place: int) -> Probs:
        """Return the distribution of the number c of drafts that equal a winning token: [k + 1].

        Let Z and R be the masses of the token and of all other tokens up to a point along the
        slots.  The token wins and equals c drafts with probability ∫ Σ_m Pr(m) C(m, c)
        R^(m − c) d(Z^c).
        """
        k = self.numbers.size - 1
        if k == 1:
            return np.append(0 * self.numbers[:1], 0 * self.numbers[:1] + 1)
        slots, law = self._ascending(place)
        own = law * self._draft.item(place)
        before = own.cumsum() - own
        others, wide = self._below[slots] - before, self._mass[slots] - own
        points, weights = quadrature(k, exact=is_exact(own))
        moments = 0
        for some in chunks(own.size, points.size, POINTS):
            # Both masses are linear within a slot; the arrays are [slots, points].
            z = before[some, None] + own[some, None] * points
            r = others[some, None] + wide[some, None] * points
            # Only a rounding error makes r negative.
            r = np.maximum(r, 0 * r)
            share = (own[some, None] * weights).ravel()
            moments = moments + (_powers(z.ravel(), k) * share) @ _powers(r.ravel(), k).T
        joint = np.append(0 * own[:1], (self._choices * moments).sum(axis=1))
        total = joint.sum()
        return joint / total if total > 0 else self.numbers

    def _ascending(self, place: int) -> tuple[Slots, Probs]:
        """Return `slot_distribution` with the slots in ascending order."""
        slots, law = self.slot_distribution(place)
        order = slots.argsort()
        return slots[order], law[order]

    @cached_property
    def _choices(self) -> Probs:
        """Products c C(m, c) Pr(m) for m = c + j, for rows c ≥ 1 and columns j ≥ 0: [k, k]."""
        k = self.numbers.size - 1
        numbers = zeros(2 * k, self.numbers)
        numbers[:k] = self.numbers[1:]
        places = np.arange(k)[:, None] + np.arange(k)
        return np.asarray(_binomials(k, exact=is_exact(numbers)) * numbers[places])


def hull_segments(wins: Probs, target: Probs) -> npt.NDArray[np.int64]:
    """Return the first token of each segment of the upper concave hull of (Σ target, Σ wins).

    The sums are prefix sums in the order of target/draft.  Tokens without target mass come first,
    and each of them is a separate segment.
    """
    empty = int(np.count_nonzero(target <= 0))
    rise, run = wins[empty:], target[empty:]
    if not run.size:
        first = np.arange(0)
    elif is_exact(wins):
        first = np.array(_pooled(rise, run))
    else:
        from scipy.optimize import isotonic_regression

        with np.errstate(over="ignore"):
            slopes = rise / run
        first = isotonic_regression(slopes, weights=run, increasing=False).blocks[:-1]
    return np.concatenate([np.arange(empty), empty + first])


def _pooled(rise: Probs, run: Probs) -> list[int]:
    """Pool neighbours until slopes descend, as in isotonic regression; return the pools' starts."""
    pools: list[tuple[int, object, object]] = []
    for i in range(run.size):
        first, up, across = i, rise[i], run[i]
        while pools and pools[-1][1] * across <= up * pools[-1][2]:
            before = pools.pop()
            first, up, across = before[0], before[1] + up, before[2] + across
        pools.append((first, up, across))
    return [first for first, *_ in pools]


def slots_by_ratio(ratio: Probs) -> tuple[npt.NDArray[np.int64], int]:
    """Return the slot of each token, in the order of q/p, and the number of slots: `[n] → [n]`.

    Each token has its own slot.  If there are many tokens, tokens share a slot if their ratios
    agree in ten bits of the mantissa.
    """
    if not in_bins(ratio):
        return places_along(np.argsort(ratio, kind="stable"), ratio.size), ratio.size
    first, key, last = (np.asarray(x).view(np.int64) >> SHARED for x in (LEAST, ratio, MOST))
    key = np.clip(key, first, last) - first
    used = np.bincount(key) > 0
    return (used.cumsum() - 1)[key], int(np.count_nonzero(used))


def _powers(base: Probs, k: int) -> Probs:
    """Return the powers 0 to k − 1 of each number: `[x] → [k, x]`."""
    powers = np.empty((k, base.size), dtype=base.dtype)
    powers[0] = 0 * base + 1
    for i in range(1, k):
        powers[i] = powers[i - 1] * base
    return powers


@cache
def _binomials(k: int, *, exact: bool) -> Probs:
    """Return c C(c + j, c) for rows c ≥ 1 and columns j ≥ 0, but 0 if c + j > k: [k, k]."""
    table = [[c * comb(c + j, c) if c + j <= k else 0 for j in range(k)] for c in range(1, k + 1)]
    return read_only(as_fractions(table) if exact else np.array(table, dtype=np.float64))
