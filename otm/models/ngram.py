"""N-gram models: probabilities of the next token from counts of a text, by the last n − 1 tokens.

"The evaluation amounts to a table lookup" ([leviathan2023]_, section 3.6), so that drafts cost next
to nothing.  Two ways of smoothing, both interpolated; c are counts in the text, T(h) is the number
of different tokens seen after a context h, and h' is h without its first token:

- Witten and Bell (method C of [witten1991]_)::

      P(w | h) = (c(h w) + T(h) P(w | h')) / (c(h) + T(h))

- Kneser and Ney ([kneser1995]_), with the discount D of the order::

      P(w | h) = (max(c(h w) − D, 0) + D T(h) P(w | h')) / c(h)

  where all orders but the highest have for c(h w) the number of different tokens before h w.

The distribution of a single token is interpolated with the uniform one, and a context that does not
occur has the distribution of the next shorter one.

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


Smoothing = Callable[[NGramCounts, Counts], tuple[Counts, Counts]]
"""From a table and the counts [..., V] after contexts to what is kept of these, and to what is
reserved [..., 1] for the next lower order."""


class NGramModel(StatelessModel):
    """A model by counts of the last n − 1 tokens in a text; see the module for the formulas.

    Build one with `witten_bell` or `kneser_ney`.

    Parameters
    ----------
    tables : sequence of n NGramCounts
        Those of orders 1 to n.
    smoothing : callable
        How lower orders are interpolated.

    Examples
    --------
    >>> model = NGramModel.witten_bell([0, 1, 0, 1, 0, 2], order=2, vocabulary=3)
    >>> model.probs((1,)).round(3).tolist()  # 0 followed 1 both times
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
        """Fit a model with Witten–Bell smoothing ([witten1991]_; the module has the formula).

        Parameters
        ----------
        tokens : int array-like [N ≥ n]
            The text.
        order : int
            n, at least 1: 1 for unigrams, 2 for bigrams, 3 for trigrams.
        vocabulary : int
            Number V of tokens.
        distance : int, optional
            Which token to predict: 1 for the next one, i for the i-th behind the context, whatever
            comes between.

        Returns
        -------
        NGramModel
            In float64.

        Raises
        ------
        InvalidInputError
            If the tokens are no ids below V, or too few.
        InvalidParameterError
            If the order or the vocabulary is no such number, V is above 2²⁴, or V to the power of n
            is not below 2⁶³.

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
        """Fit a model with Kneser–Ney smoothing ([kneser1995]_; the module has the formula).

        Parameters
        ----------
        tokens, order, vocabulary
            As for `witten_bell`.

        Returns
        -------
        NGramModel
            In float64.

        Raises
        ------
        InvalidInputError, InvalidParameterError
            As for `witten_bell`.

        Notes
        -----
        D is n₁ / (n₁ + 2 n₂) where nᵢ n-grams have count i.  If none has count 1, as may be for the
        bytes of a long text, nothing is reserved, and a token that did not occur has probability 0.

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
            If the context holds no token ids below V.
        """
        return self.batch_probs(context[max(len(context) - self.order + 1, 0) :])

    def batch_probs(self, contexts: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the distributions after many contexts at once.

        Parameters
        ----------
        contexts : int array-like [..., h]
            Token ids; of those of a context only the last n − 1 matter, and fewer do.

        Returns
        -------
        float64 array [..., V]
            Read-only.

        Raises
        ------
        InvalidInputError
            If the contexts are no token ids below V.
        """
        ids = as_ids(contexts, 0, self.vocabulary)
        probs = self._unigram_probs
        for table in self._tables[: ids.shape[-1]]:
            probs = self._interpolate(table, ids, probs)
        return np.broadcast_to(probs, (*ids.shape[:-1], self.vocabulary))

    def _interpolate(self, table: NGramCounts, contexts: npt.ArrayLike, lower: Counts) -> Counts:
        """Share out what is reserved by the lower order; an unseen context has nothing else."""
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
