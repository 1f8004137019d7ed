"""Keys: the leading bits of likelihood ratios, which put many tokens into bins without a sort."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import CACHED, Probs, read_only, split_parts, split_units

MANTISSA = 46
"""Bits of a ratio that do not decide its bin: 64 bins an octave."""

FINEST = 44
"""The least of such bits for bins that all tokens are put into."""

LEAST, MOST = 2.0**-32, 2.0**32
"""Ratios beyond these share the first and the last bin."""


class RatioKeys(NamedTuple):
    """The key of each token: which of the bins it was first put into, counted from that of `LEAST`.

    Ratios beyond `LEAST` and `MOST` have the keys of these.
    """

    of_tokens: npt.NDArray[np.int16]  # [n]; -1 for tokens that are never drafted
    bits: int  # how many of the last bits of a ratio do not decide its key

    def of(self, ratio: Any) -> Any:
        """Keys of ratios: [...] → [...]."""
        first, last = key_of((LEAST, MOST), self.bits).tolist()
        return np.minimum(np.maximum(key_of(ratio, self.bits), first), last) - first

    def within(self, least: Probs, most: Probs) -> tuple[npt.NDArray[np.int64], bool]:
        """Tokens with the keys of the bins between these ends: least and most ratios, [b] and [b].

        Also whether the bins hold all of them; otherwise their ratios decide.
        """
        starts, stops = self.of(least), self.of(np.nextafter(most, 0)) + 1
        inside = np.zeros(self.of(np.inf) + 2, dtype=np.bool_)  # the last for key -1
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            inside[start:stop] = True
        keys = inside.nonzero()[0]
        chosen = self.of_tokens == keys[0] if keys.size == 1 else inside.take(self.of_tokens)
        ends = np.concatenate([least, most])
        in_range = ends.min() >= LEAST and ends.max() <= MOST
        whole = in_range and not (key_of(ends, 0) & ((1 << self.bits) - 1)).any()
        return chosen.nonzero()[0], bool(whole)


BLOCK = (4 * CACHED, 2 * CACHED)
"""Tokens that are put into bins at a time: without units of mass, and with two more arrays."""

NO_KEYS = RatioKeys(read_only(np.empty(0, dtype=np.int16)), MANTISSA)
"""Of tokens that are not put into bins by keys."""


def bins_by_key(
    draft: Probs, target: Probs, ends: tuple[float, float], bits: int, units: bool = True
) -> tuple[Probs, Probs, Probs, npt.NDArray[np.int16]]:
    """Least and largest ratios and parts of bins, one for each value of the leading bits of ratios.

    Tokens with a ratio beyond the two ends are in the first and the last bin.  Beside the bins
    the value of each token, less that of the first bin, and -1 for those that are never drafted.
    """
    first, last = key_of(ends, bits).tolist()
    keys = np.full(draft.size, -1, dtype=np.int16)
    parts = np.zeros((1 + units, 2, last - first + 1))
    lowest, highest = last, first
    for place, p, q in blocks(draft, target, BLOCK[units]):
        key = key_of(ratio_of(p, q), bits)
        low, high = int(key.min()), int(key.max())
        if low < first or high > last:
            np.minimum(np.maximum(key, first, out=key), last, out=key)  # faster than clip
            low, high = (min(max(end, first), last) for end in (low, high))
        key -= low
        keys[place] = key
        keys[place] += low - first
        some = parts[..., low - first : high - first + 1]  # mostly few of all keys
        for j, probs in enumerate((p, q)):
            for i, part in enumerate(split_units(probs) if units else [probs]):
                some[i, j] += np.bincount(key, part)  # The largest key is that of the last bin.
        lowest, highest = min(lowest, low), max(highest, high)
    parts = parts[..., lowest - first : highest - first + 1]
    edges = edges_of(lowest, highest, bits)
    used = (parts[:, 0].sum(axis=0) > 0).nonzero()[0]
    # an index would leave the parts of a bin side by side, and sums along the bins slow
    parts = parts.take(used, axis=-1)
    parts = parts if units else split_parts(parts[0])
    return edges.take(used), edges.take(used + 1), parts, keys


def key_of(ratio: Any, bits: int) -> Any:
    """Leading bits of floats of at least zero, all but so many: they ascend as the floats do."""
    return np.asarray(ratio, dtype=np.float64).view(np.int64) >> bits


def edges_of(first: int, last: int, bits: int) -> npt.NDArray[np.float64]:
    """Least float of each key from the first to the last, and of the next: [last − first + 2]."""
    edges: npt.NDArray[np.float64] = (np.arange(first, last + 2) << bits).view(np.float64)
    return edges


def even_bins() -> tuple[int, npt.NDArray[np.float64]]:
    """Return the key of the first bin, and the ends of all bins that tokens are first put into."""
    first, last = key_of(LEAST, MANTISSA), key_of(MOST, MANTISSA)
    edges = edges_of(first, last, MANTISSA)
    edges[0], edges[-1] = 0, np.inf
    return int(first), edges


def ratio_of(draft: Probs, target: Probs) -> Probs:
    """Ratio q/p of tokens that can be drafted, infinite where it overflows: [...] → [...]."""
    with np.errstate(over="ignore"):
        ratio: Probs = target / draft
    return ratio


def blocks(draft: Probs, target: Probs, size: int = CACHED) -> Iterator[tuple[Any, Probs, Probs]]:
    """Give the tokens that can be drafted, of so many at a time: where they are, p and q."""
    for start in range(0, draft.size, size):
        place: Any = slice(start, start + size)
        p, q = draft[place], target[place]
        if p.min() == 0:
            place = start + p.nonzero()[0]
            p, q = draft[place], target[place]
        if p.size:
            yield place, p, q
