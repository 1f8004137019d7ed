"""Counts of n-grams in a text, and of what follows a context, as sorted integers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm.errors import InvalidInputError

__all__ = ["Ids", "Laws", "NGramCounts"]

Ids = npt.NDArray[np.int64]
Laws = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NGramCounts:
    """How often each n-gram occurs; n-grams are sorted integers in base V, tokens the digits.

    V to the power of the order must stay below 2⁶³: two million words for trigrams.
    """

    order: int
    vocabulary_size: int
    ngrams: Ids
    counts: Laws

    @classmethod
    def of(cls, tokens: npt.ArrayLike, order: int, vocabulary_size: int) -> NGramCounts:
        """Count the n-grams of a text."""
        ids = _checked_ids(tokens, order, vocabulary_size)
        windows = np.lib.stride_tricks.sliding_window_view(ids, order)
        ngrams, counts = np.unique(_in_base(windows, vocabulary_size), return_counts=True)
        return cls(order, vocabulary_size, ngrams, counts.astype(np.float64))

    def continuations(self) -> NGramCounts:
        """Count for each (n−1)-gram the different tokens that stand before it."""
        endings = self.ngrams % self.vocabulary_size ** (self.order - 1)
        ngrams, counts = np.unique(endings, return_counts=True)
        return NGramCounts(self.order - 1, self.vocabulary_size, ngrams, counts.astype(np.float64))

    @cached_property
    def discount(self) -> float:
        """Absolute discount n₁ / (n₁ + 2 n₂), nᵢ the number of n-grams that occur i times."""
        once, twice = np.sum(self.counts == 1), np.sum(self.counts == 2)
        return float(once / max(once + 2 * twice, 1))

    def following(self, context_ids: npt.ArrayLike) -> Laws:
        """Count each token [..., V] after the last n − 1 tokens of contexts [..., h]."""
        contexts = _checked_ids(context_ids, self.order - 1, self.vocabulary_size)
        used = contexts[..., contexts.shape[-1] - (self.order - 1) :]
        lowest = _in_base(used, self.vocabulary_size).reshape(-1) * self.vocabulary_size
        first = np.searchsorted(self.ngrams, lowest)
        lengths = np.searchsorted(self.ngrams, lowest + self.vocabulary_size) - first
        rows = np.repeat(np.arange(lowest.size), lengths)
        # the i-th n-gram of a context is entry first + i of the table
        within_row = np.arange(rows.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        entries = np.repeat(first, lengths) + within_row
        counts = np.zeros((lowest.size, self.vocabulary_size))
        counts[rows, self.ngrams[entries] % self.vocabulary_size] = self.counts[entries]
        return counts.reshape(*contexts.shape[:-1], self.vocabulary_size)


def _in_base(digits: Ids, base: int) -> Ids:
    """Numbers [...] whose digits [..., n] are given, the highest first."""
    number: Ids = digits @ base ** np.arange(digits.shape[-1])[::-1]
    return number


def _checked_ids(tokens: npt.ArrayLike, least: int, vocabulary_size: int) -> Ids:
    """Take token ids [..., n ≥ least]: a wrong id would silently count as another n-gram."""
    ids = np.asarray(tokens)
    if ids.size == 0:
        ids = ids.astype(np.int64)
    if ids.ndim == 0 or ids.dtype.kind not in "iu" or ids.shape[-1] < least:
        raise InvalidInputError(
            f"token ids of type {ids.dtype} and shape {ids.shape} were given; allowed are arrays "
            f"of integers with at least {least} on the last axis"
        )
    if ids.size and not 0 <= ids.min() <= ids.max() < vocabulary_size:
        raise InvalidInputError(
            f"token ids run from {ids.min()} to {ids.max()}; allowed are 0 to {vocabulary_size - 1}"
        )
    return ids.astype(np.int64, copy=False)
