"""Two distributions seen in bins of the likelihood ratio q/p, without a sort.

Optimal cuts and plans depend on the tokens only through cumulative masses along the ratio, and
mostly through those at the edges of a few thousand bins: two histograms.  The few bins in which
the rest is decided are split further, where need be into tokens of one ratio.

The masses of bins are correct far beyond the digits of a float: each token's is split into a whole
number of units of 2^−52, which add up without rounding, and a rest
(docs/theory/closed-form.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    CACHED,
    Frozen,
    Number,
    Probs,
    as_number,
    is_exact,
    read_only,
    running_parts,
    shares,
    split_units,
    sum_excess,
)

MANTISSA = 46
"""Bits of a ratio that do not decide its bin: 64 bins an octave."""

FINER = 6
"""Further bits that decide where a bin with many tokens is split."""

FINEST = 44
"""The least of such bits for bins that all tokens are put into."""

LEAST, MOST = 2.0**-32, 2.0**32
"""Ratios beyond these share the first and the last bin."""

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
    parts: Probs  # [4, m], draft mass and target mass, each as whole units and a rest
    excess: tuple[Number, Number]  # Σp − 1 and Σq − 1

    @classmethod
    def of(
        cls,
        draft: Probs,
        target: Probs,
        few: int = FEW,
        bits: int = MANTISSA,
        *,
        rough: bool = False,
    ) -> RatioBins:
        """Put all tokens into bins: fractions and few tokens into one for each ratio.

        The last bits of a ratio do not decide its bin, `FINEST` at the least.  Rough masses of bins
        are correct up to the rounding of a sum of many.
        """
        excess = (as_number(sum_excess(draft)[0]), as_number(sum_excess(target)[0]))
        if not in_bins(draft, few):
            drafted = draft > 0
            bins = _by_ratio(draft[drafted], target[drafted])
        else:
            least, most, parts = _by_key(draft, target, (LEAST, MOST), bits, rough=rough)
            bins = np.where(least > LEAST, least, 0), np.where(most > MOST, np.inf, most), parts
        least, most, parts = map(read_only, bins)
        return cls(draft, target, least, most, parts, excess)

    @cached_property
    def draft(self) -> Probs:
        """Draft mass of each bin: array [m]."""
        return read_only(shares(self.parts[:2], self.excess[0]))

    @cached_property
    def target(self) -> Probs:
        """Target mass of each bin: array [m]."""
        return read_only(shares(self.parts[2:], self.excess[1]))

    @cached_property
    def draft_below(self) -> Probs:
        """Draft mass of the first j bins: array [m + 1]."""
        whole, rest = self.parts[:2]
        return read_only(running_parts(whole, rest, self.excess[0]))

    @cached_property
    def draft_above(self) -> Probs:
        """Draft mass of all but the first j bins: array [m + 1]."""
        whole, rest = self.parts[:2, ::-1]
        return read_only(running_parts(whole, rest, self.excess[0])[::-1])

    @cached_property
    def target_below(self) -> Probs:
        """Target mass of the first j bins: array [m + 1]."""
        whole, rest = self.parts[2:]
        return read_only(running_parts(whole, rest, self.excess[1]))

    @cached_property
    def ratio(self) -> Probs:
        """Mean ratio of each bin, as if it were one token: array [m], ascending."""
        with np.errstate(over="ignore"):
            mean = self.target / self.draft
        return read_only(np.clip(mean, self.least, self.most))

    @cached_property
    def corners(self) -> tuple[npt.NDArray[np.int64], Probs, Probs]:
        """Bins with tokens of several ratios, and a corner below all prefixes that end in each.

        With its draft mass above and its target mass below, [w] each, no value of a cut inside of
        the bin is less than the least of those at its edges and at the corner.
        """
        wide = np.flatnonzero(self.most > self.least)
        low, high = self.least[wide], self.most[wide]
        draft, target = self.draft[wide], self.target[wide]
        # where the bin's least ratio cannot hold any longer and its largest takes over, to be safe
        # in both directions
        with np.errstate(invalid="ignore"):
            turn = np.where(high < np.inf, (high * draft - target) / (high - low), draft)
            unsure = (8 + self.draft_probs.size) * 2.0**-53 * (high * draft + target) / (high - low)
            unsure = np.where(high < np.inf, unsure, 0)
        above = np.maximum(self.draft_above[wide] - np.clip(turn + unsure, 0, draft), 0)
        below = self.target_below[wide] + low * np.clip(turn - unsure, 0, draft)
        return read_only(wide), read_only(above), read_only(below)

    def place(self, ratio: Probs) -> npt.NDArray[np.int64]:
        """Bins of tokens that can be drafted, from their ratios: [...] → [...]."""
        if ratio.size <= FEW or is_exact(ratio):
            return np.asarray(np.searchsorted(self.least, ratio, side="right") - 1)
        # many tokens by their keys; those of keys with several bins are searched for
        first, edges = even_bins()
        low = np.searchsorted(self.least, edges[:-1], side="right") - 1
        high = np.searchsorted(self.least, edges[1:]) - 1
        high[-1] = self.least.size - 1
        key = np.clip(_key(ratio, MANTISSA) - first, 0, low.size - 1)
        place: npt.NDArray[np.int64] = low[key]
        several = (low < high)[key]
        place[several] = np.searchsorted(self.least, ratio[several], side="right") - 1
        return place

    def mass(self, probs: Probs, chosen: npt.NDArray[np.bool_]) -> Number:
        """Mass of chosen tokens under one of the two distributions, as a share of its sum."""
        excess = self.excess[0] if probs is self.draft_probs else self.excess[1]
        return as_number(shares((part.sum() for part in split_units(probs[chosen])), excess))

    def tokens_below(self, size: int) -> npt.NDArray[np.int64]:
        """Tokens of the first bins, ascending."""
        if size == self.least.size:
            return np.flatnonzero(self.draft_probs)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            ratio = self.target_probs / self.draft_probs
        return np.flatnonzero(ratio < self.least[size])

    def capped_mass(self, cap: Number) -> Number:
        """Capped mass Σ min(q, cap · p) over all tokens."""
        bins, place = self.resolve(lambda bins: count_up_to(bins.least, cap))
        return as_number(bins.target_below[place] + cap * bins.draft_above[place])

    def cap_of_mass(self, mass: Number) -> Number | None:
        """Smallest cap c with Σ min(q, c p) = mass; None if every c < max q/p falls short."""

        def below(bins: RatioBins) -> int:
            """Count the bins whose least ratio as a cap gives at most this mass."""
            capped = bins.target_below[:-1] + bins.least * bins.draft_above[:-1]
            return count_up_to(capped, mass)

        bins, place = self.resolve(below)
        if place == bins.least.size:
            return None
        cap = (mass - bins.target_below[place]) / bins.draft_above[place]
        # the difference can cancel where little mass is above: never leave the piece downwards
        return as_number(max(cap, bins.least[place - 1]) if place else cap)

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
        width = _key(high, 0) - _key(low, 0)
        if draft.size > FEW and width.min() == width.max() >= 1 << FINEST:
            bits = int(width[0]).bit_length() - 1
            bins = _by_key(draft, target, (low[0], high[-1]), bits - FINER)
        else:
            bins = _by_ratio(draft, target)
        least, most, parts = bins
        least = np.concatenate([self.least[~chosen], least])
        order = np.argsort(least, kind="stable")  # two runs
        most = np.concatenate([self.most[~chosen], most])[order]
        parts = np.concatenate([self.parts[:, ~chosen], parts], axis=1)[:, order]
        least, most, parts = map(read_only, (least[order], most, parts))
        return replace(self, least=least, most=most, parts=parts)

    def _tokens(self, chosen: npt.NDArray[np.bool_]) -> tuple[Probs, Probs]:
        """Probabilities of the tokens in some bins: draft and target."""
        low, high = (_key(ends[chosen], 0) for ends in (self.least, self.most))
        # a token may be inside by its key; a search decides where bins are narrower than keys
        possible = np.zeros((_key(np.inf, 0) >> FINEST) + 1, dtype=np.bool_)
        beyond = -(-high >> FINEST)  # rounded up
        for first, last in zip((low >> FINEST).tolist(), beyond.tolist(), strict=True):
            possible[first:last] = True
        possible[-1] = self.most[chosen].max() == np.inf
        whole = not ((low | high) & ((1 << FINEST) - 1)).any()
        drafts, targets = [], []
        for p, q in _blocks(self.draft_probs, self.target_probs):
            ratio = ratio_of(p, q)
            inside = np.flatnonzero(possible.take(_key(ratio, FINEST), mode="clip"))
            if not whole:
                place = np.searchsorted(self.least, ratio[inside], side="right") - 1
                inside = inside[chosen[place]]
            drafts.append(p[inside])
            targets.append(q[inside])
        return np.concatenate(drafts), np.concatenate(targets)


def even_bins() -> tuple[int, npt.NDArray[np.float64]]:
    """Return the key of the first bin, and the ends of all bins that tokens are first put into."""
    first, last = _key(LEAST, MANTISSA), _key(MOST, MANTISSA)
    edges = _edges(first, last, MANTISSA)
    edges[0], edges[-1] = 0, np.inf
    return int(first), edges


def ratio_of(draft: Probs, target: Probs) -> Probs:
    """Ratio q/p of tokens that can be drafted, infinite where it overflows: [...] → [...]."""
    with np.errstate(over="ignore"):
        ratio: Probs = target / draft
    return ratio


def count_up_to(ascending: Probs, most: Number) -> int:
    """Count the entries up to a number."""
    return int(np.searchsorted(ascending, np.asarray(most), side="right"))


def _blocks(draft: Probs, target: Probs) -> Iterator[tuple[Probs, Probs]]:
    """Give the tokens that can be drafted, some at a time."""
    for start in range(0, draft.size, CACHED):
        p, q = draft[start : start + CACHED], target[start : start + CACHED]
        if p.min() == 0:
            drafted = p > 0
            p, q = p[drafted], q[drafted]
        yield p, q


def _by_ratio(draft: Probs, target: Probs) -> tuple[Probs, Probs, Probs]:
    """Least and largest ratio and parts of the masses of bins, one for each ratio."""
    ratio = ratio_of(draft, target)
    order = np.argsort(ratio)
    ratio = ratio[order]
    new = np.ones(ratio.size, dtype=bool)
    np.not_equal(ratio[1:], ratio[:-1], out=new[1:])
    least, first = ratio[new], np.flatnonzero(new)
    parts = _parts(draft[order], target[order])
    return least, least, np.array([np.add.reduceat(part, first) for part in parts])


def _by_key(
    draft: Probs, target: Probs, ends: tuple[float, float], bits: int, *, rough: bool = False
) -> tuple[Probs, Probs, Probs]:
    """Bins as `_by_ratio` gives them, one for each value of the leading bits of ratios.

    Tokens with a ratio beyond the two ends are in the first and the last bin.
    """
    first, last = _key(ends, bits).tolist()
    parts = np.zeros((4, last - first + 1))
    for p, q in _blocks(draft, target):
        key = _key(ratio_of(p, q), bits)
        np.clip(key, first, last, out=key)
        key -= first
        for i, part in ((0, p), (2, q)) if rough else enumerate(_parts(p, q)):
            parts[i] += np.bincount(key, part, parts.shape[1])
    edges = _edges(first, last, bits)
    used = parts[0] + parts[1] > 0
    return edges[:-1][used], edges[1:][used], parts[:, used]


def _parts(draft: Probs, target: Probs) -> tuple[Probs, Probs, Probs, Probs]:
    """Split draft and target probabilities, in this order."""
    return *split_units(draft), *split_units(target)


def _key(ratio: Any, bits: int) -> Any:
    """Leading bits of floats of at least zero, all but so many: they ascend as the floats do."""
    return np.asarray(ratio, dtype=np.float64).view(np.int64) >> bits


def _edges(first: int, last: int, bits: int) -> npt.NDArray[np.float64]:
    """Least float of each key from the first to the last, and of the next: [last − first + 2]."""
    edges: npt.NDArray[np.float64] = (np.arange(first, last + 2) << bits).view(np.float64)
    return edges
