"""Sparse distributions: the tokens of positive probability, as after top-k or nucleus sampling.

A sparse distribution has tens of tokens out of a vocabulary of a hundred thousand.  Tokens that
have probability zero in both distributions affect no formula of OTM, so computations use the union
of both supports.  A `Problem` stores the token ids of this union; its plans take and return ids.
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
"""Array of token ids, ascending."""


@dataclass(frozen=True, eq=False, init=False)
class SparseProbs(Frozen):
    """A distribution as a list of tokens with their probabilities.

    Parameters
    ----------
    tokens : int array-like [s]
        Distinct token ids from 0, in any order: a list, array or tensor.
    probabilities : array-like [s]
        Probabilities of the tokens: a list, a NumPy array or a torch tensor of floats, or
        fractions.

    Attributes
    ----------
    tokens : int array [m]
        The support: token ids with positive probability, ascending; read-only.
    probabilities : array [m]
        Probabilities of the tokens, normalised and read-only: float64 or fractions.

    Raises
    ------
    InvalidDistributionError
        If the tokens are not distinct integers from 0, if the numbers of tokens and probabilities
        differ, or if the probabilities do not form a distribution: after truncation they must be
        divided by their sum.

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
                f"shape {probs.shape}; give one probability per token"
            )
        order = np.argsort(ids)
        order = order[probs[order] > 0]
        object.__setattr__(self, "tokens", read_only(ids[order]))
        object.__setattr__(self, "probabilities", read_only(probs[order]))

    @classmethod
    def from_dense(cls, probs: Any) -> SparseProbs:
        """Convert a distribution on the whole vocabulary: drop all tokens of probability zero.

        Parameters
        ----------
        probs : array-like [n]
            A distribution, in any form that `otm.solve` accepts.

        Returns
        -------
        SparseProbs
            The same distribution, as tokens with probabilities.

        Raises
        ------
        InvalidDistributionError
            If `probs` is not a distribution.

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
        """Wrap arrays without checking them: equivalent to the constructor, but faster.

        Parameters
        ----------
        tokens : int64 array [m]
            Token ids, ascending.
        probabilities : array [m]
            Positive, normalised probabilities: float64 or fractions.

        Returns
        -------
        SparseProbs
            The distribution; it holds these arrays, not copies.

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
        """Return the probability of a token; it is 0 outside the support.

        Parameters
        ----------
        token : int
            A token id.

        Returns
        -------
        float or Fraction
            The probability, a Fraction if the distribution is in fractions.

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
        """Draw one token per uniform by the inverse cumulative distribution.

        Parameters
        ----------
        uniforms : array [...]
            Independent uniforms in [0, 1); they are not checked.

        Returns
        -------
        int array [...]
            One token id per uniform.

        Examples
        --------
        >>> SparseProbs([1, 3], [0.25, 0.75]).draw(np.array([0.2, 0.25])).tolist()
        [1, 3]
        """
        # Drafts are drawn one by one, and building all cumulative sums would take longer.
        if uniforms.size == 1:
            return np.full(uniforms.shape, locate(self.tokens, self.probabilities, uniforms.item()))
        return InverseCdf.from_weights(self.probabilities, self.tokens).locate(uniforms)

    def dense(self, n: int) -> Probs:
        """Convert to an array over the whole vocabulary.

        Parameters
        ----------
        n : int
            Size of the vocabulary, in tokens.

        Returns
        -------
        array [n]
            Probabilities of all n tokens: float64 or fractions.

        Raises
        ------
        InvalidParameterError
            If n is not an integer, or a token of the support is outside the vocabulary.

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
    """Return the union of two supports, ascending, and both distributions on it: [m] each.

    A distribution is zero on tokens that only the other support has.
    """
    for probs, name in ((draft, "draft"), (target, "target")):
        if not isinstance(probs, SparseProbs):
            raise InvalidDistributionError(
                f"the {name} distribution has type {type(probs).__name__}, the other is a "
                "SparseProbs; give both as SparseProbs (`SparseProbs.from_dense`), or both on the "
                "whole vocabulary (`.dense(n)`)"
            )
    draft, target = of_one_kind(draft, target)
    if np.array_equal(draft.tokens, target.tokens):
        return draft.tokens, draft.probabilities, target.probabilities
    both = np.concatenate([draft.tokens, target.tokens])
    both.sort(kind="stable")  # A stable sort merges the two sorted runs.
    tokens = both[np.append(True, both[1:] != both[:-1])]
    aligned = []
    for probs in (draft, target):
        probabilities = zeros(tokens.size, probs.probabilities)
        probabilities[np.searchsorted(tokens, probs.tokens)] = probs.probabilities
        aligned.append(read_only(probabilities))
    return read_only(tokens), aligned[0], aligned[1]


def places_of(tokens: Tokens, ids: npt.NDArray[np.int64]) -> tuple[Tokens, npt.NDArray[np.bool_]]:
    """Return the position of each id in ascending tokens, and whether it is present."""
    # Ascending tokens 0 to n − 1 are their own positions, which saves a search for each id.
    if tokens[-1] == tokens.size - 1:
        places = np.clip(ids, 0, tokens.size - 1)
        return places, places == ids
    places = np.minimum(np.searchsorted(tokens, ids), tokens.size - 1)
    return places, tokens[places] == ids


def as_token_ids(tokens: Any, n: int | None = None) -> Tokens:
    """Return n token ids as a read-only array; raise unless they ascend and start at 0 or above."""
    ids = tokens
    held = isinstance(ids, np.ndarray) and not ids.flags.writeable
    if not (held and ids.dtype == np.int64 and ids.ndim == 1):  # A problem's ids need no copy.
        ids = _as_tokens(tokens)
    if n is not None and ids.size != n:
        raise InvalidDistributionError(
            f"{ids.size} token ids for {n} tokens; give one id per probability"
        )
    if not (ids.size and ids[0] >= 0 and (ids[1:] > ids[:-1]).all()):
        raise InvalidDistributionError(
            "the token ids are not ascending integers from 0; sort them together with the "
            "probabilities"
        )
    return read_only(ids)


def of_one_kind(draft: SparseProbs, target: SparseProbs) -> tuple[SparseProbs, SparseProbs]:
    """Convert a one-token distribution (1.0 is exact) to fractions if its partner has fractions."""
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
    """Return token ids as an integer array, in the caller's order."""
    ids = as_array(tokens, "the token ids of the sparse distribution", InvalidDistributionError)
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        raise InvalidDistributionError(
            f"the sparse distribution has token ids of type {ids.dtype} and shape {ids.shape}; "
            "give a flat sequence of integers"
        )
    ids = ids.astype(np.int64)
    if ids.size and ids.min() < 0:
        raise InvalidDistributionError(
            f"the sparse distribution has token id {ids.min()}; token ids are integers from 0"
        )
    different, count = np.unique(ids, return_counts=True)
    if different.size < ids.size:
        raise InvalidDistributionError(
            f"the sparse distribution has token id {different[count > 1][0]} more than once; give "
            "each token once, with all of its probability"
        )
    return ids
