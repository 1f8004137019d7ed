"""Counts of n-grams in a text, and of what follows a context, as sorted integers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.checks import as_array
from otm._core.numbers import as_positive, as_vocabulary
from otm._core.text import shown
from otm.errors import InvalidInputError, InvalidParameterError

Ids = npt.NDArray[np.int64]
Counts = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NGramCounts:
    """How often each n-gram occurs; n-grams are sorted integers in base V, tokens the digits."""

    order: int  # number n of tokens of an n-gram
    vocabulary: int  # number V of tokens
    ngrams: Ids  # [m]: the n-grams that occur, ascending
    counts: Counts  # [m]: how often each of them does

    @classmethod
    def of(
        cls, tokens: npt.ArrayLike, order: int, vocabulary: int, *, distance: int = 1
    ) -> NGramCounts:
        """Count the n-grams of a text [N], their last token `distance` places behind the others.

        Distance 1 counts what follows a context, 2 what comes after any one token more.
        """
        n, v = as_sizes(order, vocabulary)
        span = n + as_positive(distance, "distance") - 1 if n > 1 else 1
        text = as_ids(tokens, span, v)
        if text.ndim != 1:
            raise InvalidInputError(
                f"a text of shape {text.shape} was given; allowed are flat sequences of token ids"
            )
        windows = np.lib.stride_tricks.sliding_window_view(text, span)
        columns = [*range(n - 1), span - 1]
        ngrams, counts = np.unique(_in_base(windows[:, columns], v), return_counts=True)
        return cls(n, v, ngrams, counts.astype(np.float64))

    def continuations(self) -> NGramCounts:
        """Count for each (n−1)-gram the different tokens that stand before it."""
        endings = self.ngrams % self.vocabulary ** (self.order - 1)
        ngrams, counts = np.unique(endings, return_counts=True)
        return NGramCounts(self.order - 1, self.vocabulary, ngrams, counts.astype(np.float64))

    @cached_property
    def discount(self) -> float:
        """Absolute discount n₁ / (n₁ + 2 n₂), nᵢ the number of n-grams that occur i times."""
        once, twice = np.sum(self.counts == 1), np.sum(self.counts == 2)
        return float(once / max(once + 2 * twice, 1))

    def following(self, contexts: npt.ArrayLike) -> Counts:
        """Count each token [..., V] after the last n − 1 tokens of contexts [..., h]."""
        ids = as_ids(contexts, self.order - 1, self.vocabulary)
        used = ids[..., ids.shape[-1] - (self.order - 1) :]
        lowest = _in_base(used, self.vocabulary).reshape(-1) * self.vocabulary
        first = np.searchsorted(self.ngrams, lowest)
        lengths = np.searchsorted(self.ngrams, lowest + self.vocabulary) - first
        rows = np.repeat(np.arange(lowest.size), lengths)
        # the i-th n-gram of a context is entry first + i of the table
        within_row = np.arange(rows.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        entries = np.repeat(first, lengths) + within_row
        counts = np.zeros((lowest.size, self.vocabulary))
        counts[rows, self.ngrams[entries] % self.vocabulary] = self.counts[entries]
        return counts.reshape(*ids.shape[:-1], self.vocabulary)


def as_sizes(order: Any, vocabulary: Any) -> tuple[int, int]:
    """Check an order n and a vocabulary V, whose V^n n-grams must fit into 63 bits."""
    n, v = as_positive(order, "order"), as_vocabulary(vocabulary)
    if n >= 63 or v**n >= 2**63:  # trigrams of two million words still fit
        raise InvalidParameterError(
            f"order = {shown(order)} on a vocabulary of {v} tokens; the order must be below 63, "
            "and the vocabulary to its power below 2**63, so choose a lower order"
        )
    return n, v


def as_ids(tokens: npt.ArrayLike, least: int, vocabulary: int) -> Ids:
    """Take token ids [..., n ≥ least]: a wrong id would silently count as another n-gram."""
    ids = as_array(tokens, "token ids", InvalidInputError, "allowed are arrays of integers")
    if ids.size == 0:
        ids = ids.astype(np.int64)
    if ids.ndim == 0 or ids.dtype.kind not in "iu" or ids.shape[-1] < least:
        raise InvalidInputError(
            f"token ids of type {ids.dtype} and shape {ids.shape} were given; allowed are arrays "
            f"of integers with at least {shown(least)} on the last axis"
        )
    if ids.size and not 0 <= ids.min() <= ids.max() < vocabulary:
        raise InvalidInputError(
            f"token ids run from {ids.min()} to {ids.max()}; allowed are 0 to {vocabulary - 1}"
        )
    return ids.astype(np.int64, copy=False)


def _in_base(digits: Ids, base: int) -> Ids:
    """Numbers [...] whose digits [..., n] are given, the highest first."""
    number: Ids = digits @ base ** np.arange(digits.shape[-1])[::-1]
    return number
