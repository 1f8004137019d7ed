"""Distributions by their support, as top-k and nucleus sampling leave them.

These give tens of tokens out of a vocabulary of a hundred thousand.  No formula of OTM depends on
tokens that neither distribution can give, so that everything can be done on the union of the two
supports. A `Problem` holds the ids of these tokens, and its plans take and return them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Frozen, Number, Probs, is_exact, read_only, zeros
from otm._core.checks import as_array
from otm._core.numbers import as_integer
from otm._core.probs.distribution import as_probs, to_exact
from otm._core.probs.sampling import InverseCdf, locate
from otm.errors import InvalidDistributionError

Tokens: TypeAlias = npt.NDArray[np.int64]
"""Token ids, ascending."""


@dataclass(frozen=True, eq=False, init=False)
class SparseProbs(Frozen):
    """A distribution given by the tokens that it can give.

    Parameters
    ----------
    tokens : int array-like [s]
        Different token ids of at least 0, in any order; a tensor on any device too.
    probabilities : array-like [s]
        Their probabilities: lists, NumPy arrays, torch tensors on any device, or fractions.

    Attributes
    ----------
    tokens : int array [m]
        The support: tokens of positive probability, ascending; read-only.
    probabilities : array [m]
        Their probabilities, normalised and read-only: float64 or fractions.

    Raises
    ------
    InvalidDistributionError
        If the tokens are not different whole numbers of at least 0, their number is not that of
        the probabilities, or the probabilities are no distribution: they must sum to one after
        truncation.

    Examples
    --------
    >>> probs = SparseProbs([1200, 7, 31], [0.5, 0.5, 0])
    >>> probs.tokens.tolist(), probs.probabilities.tolist()
    ([7, 1200], [0.5, 0.5])
    """

    tokens: Tokens
    probabilities: Probs

    def __init__(self, tokens: Any, probabilities: Any) -> None:
        probs = as_probs(probabilities, "sparse")
        ids = _as_tokens(tokens)
        if ids.shape != probs.shape:
            raise InvalidDistributionError(
                f"the sparse distribution has token ids of shape {ids.shape} and probabilities of "
                f"shape {probs.shape}; give one probability for each token"
            )
        order = np.argsort(ids)
        order = order[probs[order] > 0]
        object.__setattr__(self, "tokens", read_only(ids[order]))
        object.__setattr__(self, "probabilities", read_only(probs[order]))

    @classmethod
    def from_dense(cls, probs: Any) -> SparseProbs:
        """Drop the tokens of probability zero from a distribution on the whole vocabulary.

        Parameters
        ----------
        probs : array-like [n]
            A distribution, given as for `otm.solve`.

        Returns
        -------
        SparseProbs
            The distribution by its support.

        Raises
        ------
        InvalidDistributionError
            If it is no distribution.

        Examples
        --------
        >>> SparseProbs.from_dense([0, 0.25, 0, 0.75]).tokens.tolist()
        [1, 3]
        """
        dense = as_probs(probs, "dense")
        tokens = np.flatnonzero(dense > 0)
        return cls.from_support(tokens, dense[tokens])

    @classmethod
    def from_support(cls, tokens: Tokens, probabilities: Probs) -> SparseProbs:
        """Take a distribution as it is: equivalent to the constructor, but faster and unchecked.

        Parameters
        ----------
        tokens : int64 array [m]
            Ascending.
        probabilities : array [m]
            Positive and normalised; float64 or fractions.

        Returns
        -------
        SparseProbs
            Of these arrays, which are not copied.

        Examples
        --------
        >>> SparseProbs.from_support(np.array([7, 1200]), np.array([0.5, 0.5])).tokens.tolist()
        [7, 1200]
        """
        probs = object.__new__(cls)
        object.__setattr__(probs, "tokens", read_only(tokens))
        object.__setattr__(probs, "probabilities", read_only(probabilities))
        return probs

    def of(self, token: int) -> Number:
        """Probability of a token, 0 outside the support.

        Parameters
        ----------
        token : int
            A token id.

        Returns
        -------
        float or Fraction
            Of the kind of the distribution.

        Examples
        --------
        >>> probs = SparseProbs([1, 3], [0.25, 0.75])
        >>> probs.of(3), probs.of(2)
        (0.75, 0.0)
        """
        i = int(np.searchsorted(self.tokens, token))
        present = i < self.tokens.size and self.tokens[i] == token
        probability: Number = self.probabilities.item(i if present else 0)
        return probability if present else 0 * probability

    def draw(self, uniforms: npt.NDArray[Any]) -> Tokens:
        """Draw tokens by inverse cumulative distribution, one for each uniform in [0, 1).

        Parameters
        ----------
        uniforms : array [...]
            Independent uniforms in [0, 1), which are not checked here.

        Returns
        -------
        int array [...]
            A token for each.

        Examples
        --------
        >>> SparseProbs([1, 3], [0.25, 0.75]).draw(np.array([0.2, 0.25])).tolist()
        [1, 3]
        """
        if uniforms.size == 1:  # as drafts are drawn, where building all sums would take longer
            return np.full(uniforms.shape, locate(self.tokens, self.probabilities, uniforms.item()))
        return InverseCdf.from_weights(self.probabilities, self.tokens).locate(uniforms)

    def dense(self, n: int) -> Probs:
        """Write the distribution out on a vocabulary.

        Parameters
        ----------
        n : int
            Size of the vocabulary, in tokens.

        Returns
        -------
        array [n]
            Probabilities, of the kind of the distribution.

        Raises
        ------
        InvalidParameterError
            If n is no integer, or a token of the support is outside the vocabulary.

        Examples
        --------
        >>> SparseProbs([1, 3], [0.25, 0.75]).dense(5).tolist()
        [0.0, 0.25, 0.0, 0.75, 0.0]
        """
        last = int(self.tokens[-1])
        size = as_integer(n, "n", last + 1, advice=f"since the distribution has token {last}")
        probs = zeros(size, self.probabilities)
        probs[self.tokens] = self.probabilities
        return probs


def align(draft: SparseProbs, target: SparseProbs) -> tuple[Tokens, Probs, Probs]:
    """Write a pair on the union of its supports: the tokens, ascending, draft and target [m].

    A distribution is zero where a token is in the other support alone.
    """
    for probs, name in ((draft, "draft"), (target, "target")):
        if not isinstance(probs, SparseProbs):
            raise InvalidDistributionError(
                f"the {name} distribution has type {type(probs).__name__} beside a SparseProbs; "
                "give both by their support (`SparseProbs.from_dense`), or both on the whole "
                "vocabulary (`.dense(n)`)"
            )
    draft, target = of_one_kind(draft, target)
    if np.array_equal(draft.tokens, target.tokens):
        return draft.tokens, draft.probabilities, target.probabilities
    both = np.concatenate([draft.tokens, target.tokens])
    both.sort(kind="stable")  # which merges two sorted runs
    tokens = both[np.append(True, both[1:] != both[:-1])]
    aligned = []
    for probs in (draft, target):
        probabilities = zeros(tokens.size, probs.probabilities)
        probabilities[np.searchsorted(tokens, probs.tokens)] = probs.probabilities
        aligned.append(read_only(probabilities))
    return read_only(tokens), aligned[0], aligned[1]


def places_of(tokens: Tokens, ids: npt.NDArray[np.int64]) -> tuple[Tokens, npt.NDArray[np.bool_]]:
    """Places of ids in ascending tokens, and whether they are there; of the shape of the ids."""
    places = np.minimum(np.searchsorted(tokens, ids), tokens.size - 1)
    return places, tokens[places] == ids


def as_token_ids(tokens: Any, n: int | None = None) -> Tokens:
    """Return the ids of n tokens as a read-only array, if they are ascending and from 0 on."""
    ids = tokens
    held = isinstance(ids, np.ndarray) and not ids.flags.writeable
    if not (held and ids.dtype == np.int64 and ids.ndim == 1):  # those of a problem are fine
        ids = _as_tokens(tokens)
    if n is not None and ids.size != n:
        raise InvalidDistributionError(
            f"{ids.size} token ids for {n} tokens; give one id for each probability"
        )
    if not (ids.size and ids[0] >= 0 and (ids[1:] > ids[:-1]).all()):
        raise InvalidDistributionError(
            "the token ids are not ascending whole numbers from 0 on; sort them, and the "
            "probabilities with them"
        )
    return read_only(ids)


def of_one_kind(draft: SparseProbs, target: SparseProbs) -> tuple[SparseProbs, SparseProbs]:
    """Write a distribution of one token in fractions beside fractions: its 1.0 is exact."""
    if is_exact(draft.probabilities) == is_exact(target.probabilities):
        return draft, target
    first, second = (
        SparseProbs.from_support(probs.tokens, to_exact(probs.probabilities))
        if probs.probabilities.tolist() == [1.0]
        else probs
        for probs in (draft, target)
    )
    return first, second


def _as_tokens(tokens: Any) -> npt.NDArray[np.int64]:
    """Token ids as an integer array, in the order given."""
    ids = as_array(tokens, "the token ids of the sparse distribution", InvalidDistributionError)
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        raise InvalidDistributionError(
            f"the sparse distribution has token ids of type {ids.dtype} and shape {ids.shape}; "
            "give a flat sequence of whole numbers"
        )
    ids = ids.astype(np.int64)
    if ids.size and ids.min() < 0:
        raise InvalidDistributionError(
            f"the sparse distribution has token id {ids.min()}; token ids are whole numbers from "
            "0 on"
        )
    different, count = np.unique(ids, return_counts=True)
    if different.size < ids.size:
        raise InvalidDistributionError(
            f"the sparse distribution has token id {different[count > 1][0]} more than once; give "
            "each token once, with all of its probability"
        )
    return ids
