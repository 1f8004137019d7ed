"""Two distributions in bins of the likelihood ratio q/p, without a sort.

Optimal cuts and plans depend on the tokens only through cumulative masses along the ratio.  Usually
two histograms are enough, with the masses at the edges of a few thousand bins.  A few bins must be
split further, if necessary into tokens of one ratio.

Masses of bins are more accurate than sums of floats.  Each probability is split into a multiple of
2^−52 and a remainder; the multiples add without rounding (docs/theory/closed-form.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    CACHED,
    Frozen,
    Number,
    Probs,
    as_number,
    at_most_one,
    is_exact,
    read_only,
    running_parts,
    shares,
    split_parts,
    split_units,
    sum_excess,
    zeros,
)
from otm._core.ratios.keys import (
    FINEST,
    LEAST,
    MANTISSA,
    MOST,
    NO_KEYS,
    RatioKeys,
    bins_by_key,
    even_bins,
    key_of,
    ratio_of,
)

FINER = 6
"""Number of additional bits of the ratio that the first split of a bin with many tokens uses."""

FEW = 2**13
"""Largest number of tokens that are sorted, so that each distinct ratio has its own bin."""


def in_bins(draft: Probs, few: int = FEW) -> bool:
    """Return whether bins of many ratios are faster than a sort: for many tokens, in floats."""
    return not is_exact(draft) and draft.size > few


@dataclass(frozen=True, eq=False)
class RatioBins(Frozen):
    """The tokens with p > 0, in m bins of ascending ratio q/p.

    A token is in the last bin whose `least` is at most its ratio.  Masses are divided by Σp or Σq;
    their relative error is one or two units in the last place.
    """

    draft_probs: Probs  # [n]: the distribution p.
    target_probs: Probs  # [n]: the distribution q.
    least: Probs  # [m]: smallest ratio of each bin, ascending.
    most: Probs  # [m]: upper bound on the ratios; equal to `least` if all tokens have one ratio.
    parts: Probs  # [2, 2, m]: multiples of 2^−52 of draft and target mass, then their remainders.
    excess: Probs  # [2, 1]: Σp − 1 and Σq − 1.
    # Whether masses were added as multiples and remainders, or as plain floats.
    units: bool = field(default=True, kw_only=True)
    keys: RatioKeys = field(default=NO_KEYS, kw_only=True)  # Only for many tokens.

    @classmethod
    def of(
        cls, draft: Probs, target: Probs, few: int = FEW, bits: int = MANTISSA, units: bool = True
    ) -> RatioBins:
        """Put all tokens into bins; fractions and few tokens get one bin per distinct ratio.

        For many floats, the leading bits of a token's ratio choose its bin; at least `FINEST` low
        bits are ignored.  Without `units`, the mass of a bin is a plain sum of floats, which halves
        the time.
        """
        if not in_bins(draft, few):
            parts = split_parts(np.array((draft, target)))
            return cls._by_ratio(draft, target, parts, sum_excess(parts))
        least, most, parts, keys = bins_by_key(draft, target, (LEAST, MOST), bits, units)
        sums = np.add.reduce(parts, axis=-1, keepdims=True)
        never_drafted = split_parts(target.take((keys < 0).nonzero()[0]))  # They are in no bin.
        sums[:, 1] += np.add.reduce(never_drafted, axis=-1, keepdims=True)
        excess = sum_excess(sums)
        least, most = np.where(least > LEAST, least, 0), np.where(most > MOST, np.inf, most)
        found = map(read_only, (least, most, parts, excess))
        return cls(draft, target, *found, units=units, keys=RatioKeys(read_only(keys), bits))

    @classmethod
    def from_masses(cls, draft: Probs, target: Probs) -> RatioBins:
        """Make one bin per distinct ratio of two measures; masses are not divided by their sums."""
        parts = split_parts(np.array((draft, target)))
        return cls._by_ratio(draft, target, parts, zeros((2, 1), draft))

    @classmethod
    def _by_ratio(cls, draft: Probs, target: Probs, parts: Probs, excess: Probs) -> RatioBins:
        """Make one bin per distinct ratio, from masses and their `split_parts`."""
        drafted = draft.nonzero()[0]
        p, q = draft, target
        if drafted.size < draft.size:
            p, q, parts = (each.take(drafted, axis=-1) for each in (p, q, parts))
        least, parts, _ = by_ratio(ratio_of(p, q), parts)
        return cls(draft, target, *map(read_only, (least, least, parts, excess)))

    @cached_property
    def _masses(self) -> tuple[Probs, Probs]:
        """Compute draft mass and target mass of each bin: arrays [m]."""
        draft, target = read_only(shares(self.parts, self.excess))
        return draft, target

    @cached_property
    def _masses_of_cuts(self) -> tuple[Probs, Probs]:
        """Compute draft mass after the first j bins and target mass in them: arrays [m + 1]."""
        parts = self.parts.copy()
        parts[:, 0] = self.parts[:, 0, ::-1]
        last, first = read_only(running_parts(parts, self.excess))
        return last[::-1], first

    @property
    def draft(self) -> Probs:
        """Draft mass of each bin: array [m]."""
        return self._masses[0]

    @property
    def target(self) -> Probs:
        """Target mass of each bin: array [m]."""
        return self._masses[1]

    @cached_property
    def draft_below(self) -> Probs:
        """Draft mass of the first j bins: array [m + 1]."""
        return read_only(running_parts(self.parts[:, 0], self.excess[0]))

    @property
    def draft_above(self) -> Probs:
        """Draft mass of the bins after the first j: array [m + 1]."""
        return self._masses_of_cuts[0]

    @property
    def target_below(self) -> Probs:
        """Target mass of the first j bins: array [m + 1]."""
        return self._masses_of_cuts[1]

    @cached_property
    def ratio(self) -> Probs:
        """Target mass over draft mass of each bin: array [m], ascending."""
        if self.most is self.least:
            return self.least
        with np.errstate(over="ignore"):
            mean = self.target / self.draft
        return read_only(np.minimum(np.maximum(mean, self.least), self.most))

    @cached_property
    def wide(self) -> npt.NDArray[np.int64]:
        """Bins with tokens of several ratios: array [w]."""
        return read_only((self.most > self.least).nonzero()[0])

    def corners(self, places: npt.NDArray[np.int64]) -> tuple[Probs, Probs]:
        """Compute draft mass above and target mass below a corner of each bin in `places`.

        The value of a cut that ends inside a bin is at least the minimum of three values: those at
        both edges of the bin and at its corner.
        """
        of_bins = self.draft, self.target, self.draft_above, self.target_below
        masses = (each[places] for each in of_bins)
        with np.errstate(invalid="ignore"):
            n = self.draft_probs.size
            return corners(np, n, self.least[places], self.most[places], masses)

    def place(self, ratio: Probs) -> npt.NDArray[np.int64]:
        """Return the bin of each ratio q/p: [...] → [...]."""
        if ratio.size <= FEW or is_exact(ratio):
            return np.asarray(self.least.searchsorted(ratio, side="right") - 1)
        # Keys find the bins of many tokens; keys that have several bins need a search.
        first, low, has_several = self._of_keys
        key = key_of(ratio, MANTISSA) - first
        place: npt.NDArray[np.int64] = low.take(key, mode="clip")
        several = has_several.take(key, mode="clip").nonzero()
        place[several] = np.searchsorted(self.least, ratio[several], side="right") - 1
        return place

    @cached_property
    def _of_keys(self) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return the first key; for each key its first bin, and whether it has further bins."""
        first, edges = even_bins()
        low = np.searchsorted(self.least, edges[:-1], side="right") - 1
        high = np.searchsorted(self.least, edges[1:]) - 1
        high[-1] = self.least.size - 1
        return first, read_only(low), read_only(low < high)

    def mass(self, probs: Probs, chosen: npt.NDArray[np.bool_]) -> Number:
        """Compute the mass of chosen tokens in one of the two distributions, divided by its sum."""
        excess = self.excess.item(0 if probs is self.draft_probs else 1)
        whole: Any = 0
        rest: Any = 0
        for start in range(0, probs.size, CACHED):
            block = slice(start, start + CACHED)
            of_whole, of_rest = split_units(probs[block][chosen[block]])
            whole, rest = whole + of_whole.sum(), rest + of_rest.sum()
        return as_number(shares((whole, rest), excess)[()])

    def tokens_below(self, size: int) -> npt.NDArray[np.int64]:
        """Return the tokens of the first `size` bins, ascending."""
        if size == self.least.size:
            return read_only(np.flatnonzero(self.draft_probs))
        edge, keys = self.least[size], self.keys.of_tokens
        if keys.size:
            key = self.keys.of(edge)
            below, unsure = (keys >= 0) & (keys < key), keys == key
        else:
            below, unsure = np.zeros(self.draft_probs.size, dtype=np.bool_), self.draft_probs > 0
        tokens = unsure.nonzero()[0]
        below[tokens] = self._ratio_of(tokens) < edge
        return read_only(np.flatnonzero(below))

    def capped_mass(self, cap: Number) -> Number:
        """Compute the capped mass Σ min(q, cap · p) over all tokens."""
        bins, place = self.split_at(cap)
        return as_number(bins.target_below[place] + cap * bins.draft_above[place])

    def cap_of_mass(self, mass: Number) -> tuple[Number | None, RatioBins]:
        """Find the smallest cap c with Σ min(q, c p) = mass; None if no c < max q/p is enough.

        Also return bins in which the bin around the cap is split.
        """

        def below(bins: RatioBins) -> int:
            """Count the bins whose smallest ratio, as a cap, gives at most this mass."""
            capped = bins.target_below[:-1] + bins.least * bins.draft_above[:-1]
            return count_up_to(capped, mass)

        bins, place = self.resolve(below)
        if place == bins.least.size:
            return None, bins
        cap = (mass - bins.target_below[place]) / bins.draft_above[place]
        # The difference may cancel if little mass is above; the cap must not fall below the bin.
        return as_number(max(cap, bins.least[place - 1]) if place else cap), bins

    def floor_of_mass(self, mass: Number) -> tuple[Number, RatioBins]:
        """Find the floor b ≤ 1 with Σ max(b p − q, 0) = mass; return it and the split bins."""
        bins, _ = self.resolve(
            lambda bins: _count_raised(bins.least, bins.draft_below, bins.target_below, mass)
        )
        return floor_of(bins.least, bins.draft_below, bins.target_below, mass), bins

    def split_at(self, ratio: Number) -> tuple[RatioBins, int]:
        """Split the bin around `ratio` until it has one ratio; also count bins up to `ratio`."""
        return self.resolve(lambda bins: count_up_to(bins.least, ratio))

    def resolve(self, place: Callable[[RatioBins], int]) -> tuple[RatioBins, int]:
        """Split the bin below the edge that `place` returns until its tokens have one ratio."""
        bins = self
        while (size := place(bins)) and bins.most[size - 1] > bins.least[size - 1]:
            bins = bins.split(np.array([size - 1]))
        return bins, size

    def split(self, places: npt.NDArray[np.int64]) -> RatioBins:
        """Split the bins at `places` into bins of one ratio; split many tokens in two steps."""
        chosen = np.zeros(self.least.size, dtype=bool)
        chosen[places] = True
        draft, target = self._tokens(chosen)
        low, high = self.least[chosen], self.most[chosen]
        width = key_of(high, 0) - key_of(low, 0)
        if draft.size > FEW and width.min() == width.max() >= 1 << FINEST:
            bits = int(width[0]).bit_length() - 1
            least, most, parts, _ = bins_by_key(draft, target, (low[0], high[-1]), bits - FINER)
            # The first and the last new bin may extend beyond the bin that is split.  The upper end
            # of the last one is NaN or negative if it lies beyond all floats.
            least = np.maximum(least, low[0])
            most = np.where(most > least, np.minimum(most, high[-1]), high[-1])
        else:
            both = np.array((draft, target))
            least, parts, _ = by_ratio(ratio_of(draft, target), split_parts(both))
            most = least
        kept = (~chosen).nonzero()[0]
        rest = (each.take(kept, axis=-1) for each in (self.least, self.most, self.parts))
        least, most, parts = map(partial(np.append, axis=-1), rest, (least, most, parts))
        order = least.argsort(kind="stable")  # The array consists of two sorted runs.
        least, most, parts = (read_only(x.take(order, axis=-1)) for x in (least, most, parts))
        excess = self.excess
        if not self.units:  # In floats the sum of a bin's tokens may differ from the bin's mass.
            excess = read_only(excess + (sum_excess(parts) - sum_excess(self.parts)))
        return replace(self, least=least, most=most, parts=parts, excess=excess)

    def _tokens(self, chosen: npt.NDArray[np.bool_]) -> tuple[Probs, Probs]:
        """Return draft and target probabilities of the tokens in the chosen bins."""
        tokens, whole = self.keys.within(self.least[chosen], self.most[chosen])
        if not whole:
            place = np.searchsorted(self.least, self._ratio_of(tokens), side="right") - 1
            tokens = tokens[chosen[place]]
        return self.draft_probs[tokens], self.target_probs[tokens]

    def _ratio_of(self, tokens: npt.NDArray[np.int64]) -> Probs:
        """Compute the ratios q/p of tokens with p > 0: [t] → [t]."""
        return ratio_of(self.draft_probs[tokens], self.target_probs[tokens])


def corners(xp: Any, n: int, low: Any, high: Any, masses: Iterable[Any]) -> tuple[Any, Any]:
    """Compute `RatioBins.corners` in NumPy or torch, for bins with ratios from `low` to `high`.

    `masses` are four masses: the draft mass in the bin, the target mass in the bin, the draft mass
    above the bin's lower edge, and the target mass below that edge.
    """
    draft, target, above, below = masses
    finite, width, nothing = high < np.inf, high - low, xp.zeros_like(draft)
    # At the corner the smallest ratio of the bin gives way to the largest.  The point is moved by
    # the rounding error in both directions, so that the bound is safe.
    turn = xp.where(finite, (high * draft - target) / width, draft)
    margin = (8 + n) * 2.0**-53
    unsure = xp.where(finite, margin * (high * draft + target) / width, nothing)
    # np.minimum and np.maximum are faster than np.clip.
    most, least = (
        xp.minimum(xp.maximum(x, nothing), draft) for x in (turn + unsure, turn - unsure)
    )
    return xp.maximum(above - most, nothing), below + low * least


def floor_of(ratio: Probs, draft_below: Probs, mass_below: Probs, missing: Number) -> Number:
    """Find the floor b ≤ 1 with Σ max(b p − p r, 0) = missing, for ascending ratios r [m].

    `draft_below` and `mass_below` [m + 1] are Σ p and Σ p r of the first j bins.
    """
    if missing <= 0:
        return 0 * missing
    # At least the first bin is raised.
    raised = _count_raised(ratio, draft_below, mass_below, missing)
    return at_most_one((missing + mass_below[raised]) / draft_below[raised])


def _count_raised(ratio: Probs, draft_below: Probs, mass_below: Probs, missing: Number) -> int:
    """Count the bins whose ratio, as the floor, adds at most the missing mass."""
    return count_up_to(ratio * draft_below[:-1] - mass_below[:-1], missing)


def count_up_to(ascending: Probs, most: Number) -> int:
    """Count the entries that are at most `most`."""
    return int(ascending.searchsorted(np.asarray(most), side="right"))


def by_ratio(ratio: Probs, parts: Probs) -> tuple[Probs, Probs, Any]:
    """Group tokens with p > 0 by their ratio, for one row [n] or several rows [R, n].

    `parts` [2, 2, ..., n] are the `split_parts` of both masses.  Return, for the bins of all rows
    together, their ratios [m] and the sums of their parts [2, 2, m]; and the number of bins of each
    row.
    """
    *rows, n = ratio.shape
    order, sizes = np.argsort(ratio, axis=-1), np.full(rows, n) if rows else n
    if rows:
        order = (order + np.arange(0, ratio.size, n)[:, None]).ravel()
    ratio, parts = ratio.take(order), parts.reshape(2, 2, -1).take(order, axis=-1)
    new = ratio[1:] != ratio[:-1]
    if rows:
        new[n - 1 :: n] = True
    if np.count_nonzero(new) < new.size:
        new = np.append(True, new)
        first = new.nonzero()[0]
        ratio, parts = ratio[first], np.add.reduceat(parts, first, axis=-1)
        sizes = np.count_nonzero(new.reshape(*rows, n), axis=-1)
    return ratio, parts, sizes
