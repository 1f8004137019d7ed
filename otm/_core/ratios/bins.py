"""Two distributions seen in bins of the likelihood ratio q/p, without a sort.

Optimal cuts and plans depend on the tokens only through cumulative masses along the ratio, and
mostly through those at the edges of a few thousand bins: two histograms.  The few bins in which
the rest is decided are split further, where need be into tokens of one ratio.

The masses of bins are correct far beyond the digits of a float: each token's is split into a whole
number of units of 2^−52, which add up without rounding, and a rest
(docs/theory/closed-form.md).
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
"""Further bits that decide where a bin with many tokens is split."""

FEW = 2**13
"""Tokens up to which each ratio gets a bin of its own, which takes a sort."""


def in_bins(draft: Probs, few: int = FEW) -> bool:
    """Whether bins are worth their while: for many tokens, in floats."""
    return not is_exact(draft) and draft.size > few


@dataclass(frozen=True, eq=False)
class RatioBins(Frozen):
    """The tokens that can be drafted, in m bins of ascending ratio; each has draft mass.

    A token is in the last bin whose `least` is at most its ratio.  All masses are shares of Σp or
    Σq, correct to the last digit or two.
    """

    draft_probs: Probs  # [n], the distribution p
    target_probs: Probs  # [n], the distribution q
    least: Probs  # [m], least ratio of each bin, ascending
    most: Probs  # [m], bound on its ratios: equal to `least` where all tokens have this ratio
    parts: Probs  # [2, 2, m], whole units of draft mass and target mass, and the rests of both
    excess: Probs  # [2, 1], Σp − 1 and Σq − 1
    # whether masses were added up in whole units and rests, and not as floats
    units: bool = field(default=True, kw_only=True)
    keys: RatioKeys = field(default=NO_KEYS, kw_only=True)  # of many tokens

    @classmethod
    def of(
        cls, draft: Probs, target: Probs, few: int = FEW, bits: int = MANTISSA, units: bool = True
    ) -> RatioBins:
        """Put all tokens into bins: fractions and few tokens into one for each ratio.

        The last bits of a ratio do not decide its bin, `FINEST` at the least.  Without `units`
        the mass of a bin of many tokens is a plain sum of floats, which takes half the time.
        """
        if not in_bins(draft, few):
            parts = split_parts(np.array((draft, target)))
            return cls._by_ratio(draft, target, parts, sum_excess(parts))
        least, most, parts, keys = bins_by_key(draft, target, (LEAST, MOST), bits, units)
        sums = np.add.reduce(parts, axis=-1, keepdims=True)
        never_drafted = split_parts(target.take((keys < 0).nonzero()[0]))  # in no bin
        sums[:, 1] += np.add.reduce(never_drafted, axis=-1, keepdims=True)
        excess = sum_excess(sums)
        least, most = np.where(least > LEAST, least, 0), np.where(most > MOST, np.inf, most)
        found = map(read_only, (least, most, parts, excess))
        return cls(draft, target, *found, units=units, keys=RatioKeys(read_only(keys), bits))

    @classmethod
    def of_measures(cls, draft: Probs, target: Probs) -> RatioBins:
        """One bin for each ratio; masses are no shares of the sums."""
        parts = split_parts(np.array((draft, target)))
        return cls._by_ratio(draft, target, parts, zeros((2, 1), draft))

    @classmethod
    def _by_ratio(cls, draft: Probs, target: Probs, parts: Probs, excess: Probs) -> RatioBins:
        """One bin for each ratio, from the masses and `split_parts` of them."""
        drafted = draft.nonzero()[0]
        p, q = draft, target
        if drafted.size < draft.size:
            p, q, parts = (each.take(drafted, axis=-1) for each in (p, q, parts))
        least, parts, _ = by_ratio(ratio_of(p, q), parts)
        return cls(draft, target, *map(read_only, (least, least, parts, excess)))

    @cached_property
    def _masses(self) -> tuple[Probs, Probs]:
        """Draft mass and target mass of each bin: arrays [m]."""
        draft, target = read_only(shares(self.parts, self.excess))
        return draft, target

    @cached_property
    def _masses_of_cuts(self) -> tuple[Probs, Probs]:
        """Draft mass of all but the first j bins, and target mass of these: arrays [m + 1]."""
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
        """Draft mass of all but the first j bins: array [m + 1]."""
        return self._masses_of_cuts[0]

    @property
    def target_below(self) -> Probs:
        """Target mass of the first j bins: array [m + 1]."""
        return self._masses_of_cuts[1]

    @cached_property
    def ratio(self) -> Probs:
        """Mean ratio of each bin, as if it were one token: array [m], ascending."""
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
        """Draft mass above and target mass below a corner of each bin at these places: [w] each.

        No value of a cut inside of a bin is less than the least of those at its edges and at the
        corner.
        """
        of_bins = self.draft, self.target, self.draft_above, self.target_below
        masses = (each[places] for each in of_bins)
        with np.errstate(invalid="ignore"):
            n = self.draft_probs.size
            return corners(np, n, self.least[places], self.most[places], masses)

    def place(self, ratio: Probs) -> npt.NDArray[np.int64]:
        """Bins of tokens that can be drafted, from their ratios: [...] → [...]."""
        if ratio.size <= FEW or is_exact(ratio):
            return np.asarray(self.least.searchsorted(ratio, side="right") - 1)
        # many tokens by their keys; those of keys with several bins are searched for
        first, low, has_several = self._of_keys
        key = key_of(ratio, MANTISSA) - first
        place: npt.NDArray[np.int64] = low.take(key, mode="clip")
        several = has_several.take(key, mode="clip").nonzero()
        place[several] = np.searchsorted(self.least, ratio[several], side="right") - 1
        return place

    @cached_property
    def _of_keys(self) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The first key; for each the first bin that holds a ratio of it, and whether more do."""
        first, edges = even_bins()
        low = np.searchsorted(self.least, edges[:-1], side="right") - 1
        high = np.searchsorted(self.least, edges[1:]) - 1
        high[-1] = self.least.size - 1
        return first, read_only(low), read_only(low < high)

    def mass(self, probs: Probs, chosen: npt.NDArray[np.bool_]) -> Number:
        """Mass of chosen tokens under one of the two distributions, as a share of its sum."""
        excess = self.excess.item(0 if probs is self.draft_probs else 1)
        whole: Any = 0
        rest: Any = 0
        for start in range(0, probs.size, CACHED):
            block = slice(start, start + CACHED)
            of_whole, of_rest = split_units(probs[block][chosen[block]])
            whole, rest = whole + of_whole.sum(), rest + of_rest.sum()
        return as_number(shares((whole, rest), excess)[()])

    def tokens_below(self, size: int) -> npt.NDArray[np.int64]:
        """Tokens of the first bins, ascending."""
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
        """Capped mass Σ min(q, cap · p) over all tokens."""
        bins, place = self.split_at(cap)
        return as_number(bins.target_below[place] + cap * bins.draft_above[place])

    def cap_of_mass(self, mass: Number) -> tuple[Number | None, RatioBins]:
        """Smallest cap c with Σ min(q, c p) = mass; None if every c < max q/p falls short.

        Beside it the bins, split where the cap is inside of one.
        """

        def below(bins: RatioBins) -> int:
            """Count the bins whose least ratio as a cap gives at most this mass."""
            capped = bins.target_below[:-1] + bins.least * bins.draft_above[:-1]
            return count_up_to(capped, mass)

        bins, place = self.resolve(below)
        if place == bins.least.size:
            return None, bins
        cap = (mass - bins.target_below[place]) / bins.draft_above[place]
        # the difference can cancel where little mass is above: never leave the piece downwards
        return as_number(max(cap, bins.least[place - 1]) if place else cap), bins

    def floor_of_mass(self, mass: Number) -> tuple[Number, RatioBins]:
        """Floor b ≤ 1 with Σ max(b p − q, 0) = mass; and the bins, split where b is inside one."""
        bins, _ = self.resolve(
            lambda bins: _count_raised(bins.least, bins.draft_below, bins.target_below, mass)
        )
        return floor_of(bins.least, bins.draft_below, bins.target_below, mass), bins

    def split_at(self, ratio: Number) -> tuple[RatioBins, int]:
        """Split the bin that holds a ratio until its tokens have one ratio; count bins up to it."""
        return self.resolve(lambda bins: count_up_to(bins.least, ratio))

    def resolve(self, place: Callable[[RatioBins], int]) -> tuple[RatioBins, int]:
        """Split the last of as many bins as `place` says until its tokens have one ratio."""
        bins = self
        while (size := place(bins)) and bins.most[size - 1] > bins.least[size - 1]:
            bins = bins.split(np.array([size - 1]))
        return bins, size

    def split(self, places: npt.NDArray[np.int64]) -> RatioBins:
        """Split the bins at these places into tokens of one ratio, many tokens in two steps."""
        chosen = np.zeros(self.least.size, dtype=bool)
        chosen[places] = True
        draft, target = self._tokens(chosen)
        low, high = self.least[chosen], self.most[chosen]
        width = key_of(high, 0) - key_of(low, 0)
        if draft.size > FEW and width.min() == width.max() >= 1 << FINEST:
            bits = int(width[0]).bit_length() - 1
            least, most, parts, _ = bins_by_key(draft, target, (low[0], high[-1]), bits - FINER)
            # The first and the last of these bins can reach beyond the ends of those they split.
            # The end of the last is NaN or negative if it lies beyond all floats.
            least = np.maximum(least, low[0])
            most = np.where(most > least, np.minimum(most, high[-1]), high[-1])
        else:
            both = np.array((draft, target))
            least, parts, _ = by_ratio(ratio_of(draft, target), split_parts(both))
            most = least
        kept = (~chosen).nonzero()[0]
        rest = (each.take(kept, axis=-1) for each in (self.least, self.most, self.parts))
        least, most, parts = map(partial(np.append, axis=-1), rest, (least, most, parts))
        order = least.argsort(kind="stable")  # two runs
        least, most, parts = (read_only(x.take(order, axis=-1)) for x in (least, most, parts))
        excess = self.excess
        if not self.units:  # the tokens of a bin can have another sum than it had
            excess = read_only(excess + (sum_excess(parts) - sum_excess(self.parts)))
        return replace(self, least=least, most=most, parts=parts, excess=excess)

    def _tokens(self, chosen: npt.NDArray[np.bool_]) -> tuple[Probs, Probs]:
        """Probabilities of the tokens in some bins with several ratios: draft and target."""
        tokens, whole = self.keys.within(self.least[chosen], self.most[chosen])
        if not whole:
            place = np.searchsorted(self.least, self._ratio_of(tokens), side="right") - 1
            tokens = tokens[chosen[place]]
        return self.draft_probs[tokens], self.target_probs[tokens]

    def _ratio_of(self, tokens: npt.NDArray[np.int64]) -> Probs:
        """Ratio of some tokens that can be drafted: [t] → [t]."""
        return ratio_of(self.draft_probs[tokens], self.target_probs[tokens])


def corners(xp: Any, n: int, low: Any, high: Any, masses: Iterable[Any]) -> tuple[Any, Any]:
    """`RatioBins.corners` by NumPy or torch, of bins of n tokens with these ends: [...] each.

    Masses are draft and target of the bin, draft above and target below its lower edge.
    """
    draft, target, above, below = masses
    finite, width, nothing = high < np.inf, high - low, xp.zeros_like(draft)
    # where the bin's least ratio cannot hold any longer and its largest takes over, to be safe in
    # both directions
    turn = xp.where(finite, (high * draft - target) / width, draft)
    margin = (8 + n) * 2.0**-53
    unsure = xp.where(finite, margin * (high * draft + target) / width, nothing)
    # minimum and maximum are faster than clip
    most, least = (
        xp.minimum(xp.maximum(x, nothing), draft) for x in (turn + unsure, turn - unsure)
    )
    return xp.maximum(above - most, nothing), below + low * least


def floor_of(ratio: Probs, draft_below: Probs, mass_below: Probs, missing: Number) -> Number:
    """Floor b ≤ 1 that adds the missing mass: Σ max(b p − p r, 0) for an ascending ratio r [m].

    The masses [m + 1] are Σ p and Σ p r of the first j bins.
    """
    if missing <= 0:
        return 0 * missing
    raised = _count_raised(ratio, draft_below, mass_below, missing)  # the first at least
    return at_most_one((missing + mass_below[raised]) / draft_below[raised])


def _count_raised(ratio: Probs, draft_below: Probs, mass_below: Probs, missing: Number) -> int:
    """Count the bins whose ratio, as the floor, adds no more than is missing."""
    return count_up_to(ratio * draft_below[:-1] - mass_below[:-1], missing)


def count_up_to(ascending: Probs, most: Number) -> int:
    """Count the entries up to a number."""
    return int(ascending.searchsorted(np.asarray(most), side="right"))


def by_ratio(ratio: Probs, parts: Probs) -> tuple[Probs, Probs, Any]:
    """Bins of tokens that can be drafted, one for each ratio: [n], or rows [R, n] one by one.

    Takes ratios and parts of the masses [2, 2, ..., n].  Gives the ratios [m] and the parts
    [2, 2, m] of the bins of all rows, and how many bins each row has.
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
