"""Keys: the leading bits of likelihood ratios, which assign tokens to bins without a sort."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import CACHED, Probs, read_only, split_parts, split_units

MANTISSA = 46
"""Number of low bits of a ratio that do not affect its key: 64 keys per octave remain."""

FINEST = 44
"""Smallest number of ignored low bits for bins of all tokens."""

LEAST, MOST = 2.0**-32, 2.0**32
"""Ratios below `LEAST` share the first bin, and ratios above `MOST` share the last bin."""


class RatioKeys(NamedTuple):
    """The key of each token: the number of its first bin, counted from the bin of `LEAST`.

    Ratios below `LEAST` or above `MOST` have the keys of these limits.
    """

    of_tokens: npt.NDArray[np.int16]  # [n]: the keys; -1 for tokens with p = 0.
    bits: int  # Number of low bits of a ratio that do not affect its key.

    def of(self, ratio: Any) -> Any:
        """Compute the keys of ratios: [...] → [...]."""
        first, last = key_of((LEAST, MOST), self.bits).tolist()
        return np.minimum(np.maximum(key_of(ratio, self.bits), first), last) - first

    def within(self, least: Probs, most: Probs) -> tuple[npt.NDArray[np.int64], bool]:
        """Return the tokens whose keys occur in bins with ratios from `least` to `most`: [b], [b].

        Also return whether the tokens found are exactly those of the bins; if not, the ratios of
        the tokens must be compared.
        """
        starts, stops = self.of(least), self.of(np.nextafter(most, 0)) + 1
        inside = np.zeros(self.of(np.inf) + 2, dtype=np.bool_)  # The last entry is for key −1.
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            inside[start:stop] = True
        keys = inside.nonzero()[0]
        chosen = self.of_tokens == keys[0] if keys.size == 1 else inside.take(self.of_tokens)
        ends = np.concatenate([least, most])
        in_range = ends.min() >= LEAST and ends.max() <= MOST
        whole = in_range and not (key_of(ends, 0) & ((1 << self.bits) - 1)).any()
        return chosen.nonzero()[0], bool(whole)


BLOCK = (4 * CACHED, 2 * CACHED)
"""Block sizes: without units of mass, and with units, which need two more temporary arrays."""

NO_KEYS = RatioKeys(read_only(np.empty(0, dtype=np.int16)), MANTISSA)
"""Placeholder for tokens that have no keys."""


def bins_by_key(
    draft: Probs, target: Probs, ends: tuple[float, float], bits: int, units: bool = True
) -> tuple[Probs, Probs, Probs, npt.NDArray[np.int16]]:
    """Put tokens into bins, one per key; return the bins' ratio ranges and masses, and the keys.

    Tokens with ratios outside the range of keys go into the first and the last bin.  Keys are
    counted from the first bin of the range; tokens with p = 0 have key −1.
    """
    first, last = key_of(ends, bits).tolist()
    keys = np.full(draft.size, -1, dtype=np.int16)
    parts = np.zeros((1 + units, 2, last - first + 1))
    lowest, highest = last, first
    for place, p, q in blocks(draft, target, BLOCK[units]):
        key = key_of(ratio_of(p, q), bits)
        low, high = int(key.min()), int(key.max())
        if low < first or high > last:
            np.minimum(np.maximum(key, first, out=key), last, out=key)  # Faster than np.clip.
            low, high = (min(max(end, first), last) for end in (low, high))
        key -= low
        keys[place] = key
        keys[place] += low - first
        # This is usually a small part of the range of all keys.
        some = parts[..., low - first : high - first + 1]
        for j, probs in enumerate((p, q)):
            for i, part in enumerate(split_units(probs) if units else [probs]):
                some[i, j] += np.bincount(key, part)  # The largest key is that of the last bin.
        lowest, highest = min(lowest, low), max(highest, high)
    parts = parts[..., lowest - first : highest - first + 1]
    edges = edges_of(lowest, highest, bits)
    used = (parts[:, 0].sum(axis=0) > 0).nonzero()[0]
    # Indexing would store the parts of one bin side by side, which makes sums along bins slow.
    parts = parts.take(used, axis=-1)
    parts = parts if units else split_parts(parts[0])
    return edges.take(used), edges.take(used + 1), parts, keys


def key_of(ratio: Any, bits: int) -> Any:
    """Return nonnegative floats without their last `bits` bits, as integers in the same order."""
    return np.asarray(ratio, dtype=np.float64).view(np.int64) >> bits


def edges_of(first: int, last: int, bits: int) -> npt.NDArray[np.float64]:
    """Return the smallest float of each key from `first` to `last + 1`: [last − first + 2]."""
    edges: npt.NDArray[np.float64] = (np.arange(first, last + 2) << bits).view(np.float64)
    return edges


def even_bins() -> tuple[int, npt.NDArray[np.float64]]:
    """Return the key of the first bin, and the edges of the initial bins."""
    first, last = key_of(LEAST, MANTISSA), key_of(MOST, MANTISSA)
    edges = edges_of(first, last, MANTISSA)
    edges[0], edges[-1] = 0, np.inf
    return int(first), edges


def ratio_of(draft: Probs, target: Probs) -> Probs:
    """Compute the ratios q/p of tokens with p > 0; overflow gives ∞: [...] → [...]."""
    with np.errstate(over="ignore"):
        ratio: Probs = target / draft
    return ratio


def blocks(draft: Probs, target: Probs, size: int = CACHED) -> Iterator[tuple[Any, Probs, Probs]]:
    """Yield the tokens with p > 0 in blocks of `size` tokens: their positions, p and q."""
    for start in range(0, draft.size, size):
        place: Any = slice(start, start + size)
        p, q = draft[place], target[place]
        if p.min() == 0:
            place = start + p.nonzero()[0]
            p, q = draft[place], target[place]
        if p.size:
            yield place, p, q
