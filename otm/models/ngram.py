"""N-gram models: they predict the next token from the last n − 1 tokens by counts in a text.

"The evaluation amounts to a table lookup" ([leviathan2023]_, section 3.6), so drafting costs almost
no time.  There are two smoothing methods, both interpolated.  In the formulas of both methods, c
counts occurrences in the text, T(h) is the number of distinct tokens that follow a context h, and
h' is h without its first token:

- Witten and Bell (method C of [witten1991]_)::

      P(w | h) = (c(h w) + T(h) P(w | h')) / (c(h) + T(h))

- Kneser and Ney ([kneser1995]_), with the discount D of the order::

      P(w | h) = (max(c(h w) − D, 0) + D T(h) P(w | h')) / c(h)

  For all orders below the highest, c(h w) is the number of distinct tokens that precede h w.

The unigram distribution is interpolated with the uniform distribution.  A context that does not
occur has the distribution of the next shorter context.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
.. [witten1991] Witten, Bell, "The zero-frequency problem: estimating the probabilities of novel
   events in adaptive text compression", IEEE Transactions on Information Theory 37(4), 1991,
   method C.
.. [kneser1995] Kneser, Ney, "Improved backing-off for m-gram language modeling", ICASSP 1995.
.. [chen1999] Chen, Goodman, "An empirical study of smoothing techniques for language modeling",
   Computer Speech and Language 13, 1999: both methods in their interpolated form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import read_only
from otm._core.checks import as_array
from otm._core.display.text import shown
from otm._core.numbers import as_positive, as_vocabulary
from otm.errors import InvalidInputError, InvalidParameterError
from otm.models.base import StatelessModel
from otm.models.table import UniformModel

Ids = npt.NDArray[np.int64]
Counts = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NGramCounts:
    """Counts of n-grams; an n-gram is an integer in base V whose digits are its tokens."""

    # Number n of tokens of an n-gram.
    order: int
    # Number V of tokens.
    vocabulary: int
    # [m]: the n-grams that occur, in ascending order.
    ngrams: Ids
    # [m]: number of occurrences of each n-gram.
    counts: Counts

    @classmethod
    def of(
        cls, tokens: npt.ArrayLike, order: int, vocabulary: int, *, distance: int = 1
    ) -> NGramCounts:
        """Count n-grams of a text [N] whose last token is `distance` positions after the others.

        Distance 1 counts the token directly after a context; distance 2 skips one token.
        """
        n, v = as_sizes(order, vocabulary)
        span = n + as_positive(distance, "distance") - 1 if n > 1 else 1
        text = as_ids(tokens, span, v)
        if text.ndim != 1:
            raise InvalidInputError(
                f"the text has shape {text.shape}; give a one-dimensional sequence of token ids"
            )
        windows = np.lib.stride_tricks.sliding_window_view(text, span)
        columns = [*range(n - 1), span - 1]
        ngrams, counts = np.unique(_in_base(windows[:, columns], v), return_counts=True)
        return cls(n, v, ngrams, counts.astype(np.float64))

    def continuations(self) -> NGramCounts:
        """Count the distinct tokens that precede each (n−1)-gram."""
        endings = self.ngrams % self.vocabulary ** (self.order - 1)
        ngrams, counts = np.unique(endings, return_counts=True)
        return NGramCounts(self.order - 1, self.vocabulary, ngrams, counts.astype(np.float64))

    @cached_property
    def discount(self) -> float:
        """Absolute discount n₁ / (n₁ + 2 n₂); nᵢ is the number of n-grams that occur i times."""
        once, twice = np.sum(self.counts == 1), np.sum(self.counts == 2)
        return float(once / max(once + 2 * twice, 1))

    def following(self, contexts: npt.ArrayLike) -> Counts:
        """Return how often each token follows the last n − 1 tokens of each context.

        The shapes are [..., h] → [..., V].
        """
        ids = as_ids(contexts, self.order - 1, self.vocabulary)
        used = ids[..., ids.shape[-1] - (self.order - 1) :]
        lowest = _in_base(used, self.vocabulary).reshape(-1) * self.vocabulary
        first = np.searchsorted(self.ngrams, lowest)
        lengths = np.searchsorted(self.ngrams, lowest + self.vocabulary) - first
        rows = np.repeat(np.arange(lowest.size), lengths)
        # The i-th n-gram of a context is entry `first + i` of the table.
        within_row = np.arange(rows.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        entries = np.repeat(first, lengths) + within_row
        counts = np.zeros((lowest.size, self.vocabulary))
        counts[rows, self.ngrams[entries] % self.vocabulary] = self.counts[entries]
        return counts.reshape(*ids.shape[:-1], self.vocabulary)


Smoothing = Callable[[NGramCounts, Counts], tuple[Counts, Counts]]
"""A function from an `NGramCounts` and the counts [..., V] after contexts.

The function returns the reduced counts [..., V] and the weight [..., 1] of the next lower order.
"""


class NGramModel(StatelessModel):
    """An n-gram model; the module docstring has the formulas.

    Build a model with `witten_bell` or `kneser_ney`.

    Parameters
    ----------
    tables : sequence of n NGramCounts
        The counts of orders 1 to n.
    smoothing : callable
        Function that interpolates an order with the next lower order.

    Examples
    --------
    >>> model = NGramModel.witten_bell([0, 1, 0, 1, 0, 2], order=2, vocabulary=3)
    >>> model.probs((1,)).round(3).tolist()  # In the text, 0 follows 1 both times.
    [0.815, 0.111, 0.074]
    """

    def __init__(self, tables: Sequence[NGramCounts], smoothing: Smoothing) -> None:
        self.vocabulary = tables[0].vocabulary
        self.order = len(tables)
        self._tables = tables[1:]
        self._smoothing = smoothing
        uniform = UniformModel(self.vocabulary).probs(())
        self._unigram_probs = read_only(self._interpolate(tables[0], [], uniform))

    @classmethod
    def witten_bell(
        cls, tokens: npt.ArrayLike, order: int, vocabulary: int, *, distance: int = 1
    ) -> NGramModel:
        """Fit a model with Witten–Bell smoothing [witten1991]_.

        Parameters
        ----------
        tokens : int array-like [N ≥ n]
            The text.
        order : int
            n, at least 1: 1 for unigrams, 2 for bigrams, 3 for trigrams.
        vocabulary : int
            Number V of tokens.
        distance : int, optional
            Position of the predicted token after the context: 1 for the next token, i to skip
            i − 1 tokens.

        Returns
        -------
        NGramModel
            A model in float64.

        Raises
        ------
        InvalidInputError
            If the tokens are not ids below V, or if there are too few tokens.
        InvalidParameterError
            If the order or the vocabulary is not a positive integer, V is above 2²⁴, or V to the
            power of n is not below 2⁶³.

        References
        ----------
        .. [witten1991] Witten, Bell, "The zero-frequency problem: estimating the probabilities of
           novel events in adaptive text compression", IEEE Transactions on Information Theory
           37(4), 1991, method C.

        Examples
        --------
        >>> NGramModel.witten_bell([0, 1, 0, 1], order=1, vocabulary=2).probs(())
        array([0.5, 0.5])
        """
        n, v = as_sizes(order, vocabulary)
        tables = [NGramCounts.of(tokens, i, v, distance=distance) for i in range(1, n + 1)]
        return cls(tables, _witten_bell)

    @classmethod
    def kneser_ney(cls, tokens: npt.ArrayLike, order: int, vocabulary: int) -> NGramModel:
        """Fit a model with Kneser–Ney smoothing [kneser1995]_.

        Parameters
        ----------
        tokens, order, vocabulary
            The text, the order n and the number of tokens, as for `witten_bell`.

        Returns
        -------
        NGramModel
            A model in float64.

        Raises
        ------
        InvalidInputError, InvalidParameterError
            If a parameter is invalid, as for `witten_bell`.

        Notes
        -----
        The discount D is n₁ / (n₁ + 2 n₂), where nᵢ is the number of n-grams with count i.  If no
        n-gram has count 1, as can happen for the bytes of a long text, then D = 0.  If D = 0, a
        token that never follows a known context has probability 0 after this context.

        References
        ----------
        .. [kneser1995] Kneser, Ney, "Improved backing-off for m-gram language modeling", ICASSP
           1995.

        Examples
        --------
        >>> NGramModel.kneser_ney([0, 1, 0, 1], order=1, vocabulary=2).probs(())
        array([0.5, 0.5])
        """
        n, v = as_sizes(order, vocabulary)
        lower = [NGramCounts.of(tokens, i, v).continuations() for i in range(2, n + 1)]
        return cls([*lower, NGramCounts.of(tokens, n, v)], _kneser_ney)

    def probs(self, context: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return the distribution of the token that follows a context: array [V].

        Raises
        ------
        InvalidInputError
            If the context is not a sequence of token ids below V.
        """
        return self.batch_probs(context[max(len(context) - self.order + 1, 0) :])

    def batch_probs(self, contexts: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the distributions of the next token after many contexts.

        Parameters
        ----------
        contexts : int array-like [..., h]
            Token ids of the contexts.  Only the last n − 1 tokens of a context are used; shorter
            contexts are allowed.

        Returns
        -------
        float64 array [..., V]
            Probabilities, as a read-only array.

        Raises
        ------
        InvalidInputError
            If the contexts are not token ids below V.
        """
        ids = as_ids(contexts, 0, self.vocabulary)
        probs = self._unigram_probs
        for table in self._tables[: ids.shape[-1]]:
            probs = self._interpolate(table, ids, probs)
        return np.broadcast_to(probs, (*ids.shape[:-1], self.vocabulary))

    def _interpolate(self, table: NGramCounts, contexts: npt.ArrayLike, lower: Counts) -> Counts:
        """Interpolate with the lower order; an unseen context gets the lower order unchanged."""
        kept, reserved = self._smoothing(table, table.following(contexts))
        total = kept.sum(axis=-1, keepdims=True)
        reserved = np.where(total + reserved > 0, reserved, 1)
        probs: Counts = (kept + reserved * lower) / (total + reserved)
        return probs


def _witten_bell(table: NGramCounts, counts: Counts) -> tuple[Counts, Counts]:
    return counts, np.sum(counts > 0, axis=-1, keepdims=True).astype(np.float64)


def _kneser_ney(table: NGramCounts, counts: Counts) -> tuple[Counts, Counts]:
    reserved = table.discount * np.sum(counts > 0, axis=-1, keepdims=True)
    return np.maximum(counts - table.discount, 0), reserved


def as_sizes(order: Any, vocabulary: Any) -> tuple[int, int]:
    """Check an order n and a vocabulary size V; raise unless V^n is below 2^63."""
    n, v = as_positive(order, "order"), as_vocabulary(vocabulary)
    # The limit allows trigrams of two million words.
    if n >= 63 or v**n >= 2**63:
        raise InvalidParameterError(
            f"order = {shown(order)} with vocabulary = {v}; the order must be below 63, and "
            "vocabulary**order must be below 2**63, so choose a lower order"
        )
    return n, v


def as_ids(tokens: npt.ArrayLike, least: int, vocabulary: int) -> Ids:
    """Check token ids [..., n ≥ least]; an invalid id would silently count as another n-gram."""
    ids = as_array(tokens, "token ids", InvalidInputError, "give an array of integers")
    if ids.size == 0:
        ids = ids.astype(np.int64)
    if ids.ndim == 0 or ids.dtype.kind not in "iu" or ids.shape[-1] < least:
        raise InvalidInputError(
            f"the token ids have type {ids.dtype} and shape {ids.shape}; give an array of integers "
            f"whose last axis has at least {shown(least)} entries"
        )
    if ids.size and not 0 <= ids.min() <= ids.max() < vocabulary:
        raise InvalidInputError(
            f"the token ids are from {ids.min()} to {ids.max()}; allowed are 0 to {vocabulary - 1}"
        )
    return ids.astype(np.int64, copy=False)


def _in_base(digits: Ids, base: int) -> Ids:
    """Return the integers with digits [..., n] in a base, the most significant digit first."""
    number: Ids = digits @ base ** np.arange(digits.shape[-1])[::-1]
    return number
