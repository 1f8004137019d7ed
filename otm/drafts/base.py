"""What every joint distribution of drafts offers."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Frozen, Number, Probs, is_exact, read_only, zeros
from otm._core.checks import (
    Drafts,
    Uniforms,
    as_draft_count,
    as_drafts,
    check_generator,
    check_uniforms,
    leading_shape,
)
from otm._core.numbers import as_integer
from otm._core.probs.distribution import as_probs, to_exact, to_floats
from otm._core.probs.sparse import SparseProbs, Tokens, as_token_ids, places_of
from otm._core.tensors import like
from otm.errors import InvalidDistributionError, InvalidDraftsError

NEVER_DRAWN = (
    "has probability 0 under the draft distribution, so it cannot have been drawn from it; pass "
    "the distribution that the drafts were really sampled from"
)
"""What is wrong with a draft token that no draw gives."""


class DraftDistribution(Frozen, ABC):
    """Joint distribution of the drafts X_1, …, X_k of one selection, on n tokens.

    The optimum depends on it through Pr(S ⊆ H) alone, S = {X_1, …, X_k}::

        α(P, q) = min over H of  q(H) + 1 − Pr(S ⊆ H)

    (Theorem 2.1 of docs/theory/minimum-cut.md).  Probabilities given in fractions are exact.

    `draw`, `sample`, `check` and `tuples` speak of token ids; all else, as positions 0 to n − 1 in
    `tokens`, is about entries of arrays [n].

    Attributes
    ----------
    k : int
        Number of drafts of one selection.
    tokens : int array [n] or None
        Token ids of the n tokens, ascending; None where these are 0 to n − 1.
    """

    k: int
    tokens: Tokens | None = None

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of tokens."""

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether the probabilities are given in fractions."""

    @property
    def uniforms_per_draw(self) -> int:
        """Number of independent uniforms in [0, 1) that one draw takes: k in general."""
        return self.k

    @cached_property
    @abstractmethod
    def draftable(self) -> npt.NDArray[np.bool_]:
        """Whether each token can be among the drafts: array [n]."""

    @property
    @abstractmethod
    def tuple_count(self) -> int:
        """Number of tuples that `tuples` gives, found without listing them."""

    @abstractmethod
    def position_tuples(self) -> Iterator[tuple[tuple[int, ...], Number]]:
        """`tuples` in positions instead of token ids."""

    def tuples(self) -> Iterator[tuple[tuple[int, ...], Number]]:
        """All tuples of drafts that can be drawn, in every order, with their probabilities."""
        if self.tokens is None:
            return self.position_tuples()
        names = self.tokens.tolist()
        return ((tuple(names[i] for i in drafts), mass) for drafts, mass in self.position_tuples())

    @abstractmethod
    def missed(self, order: npt.NDArray[np.int64]) -> Probs:
        """Probability that the first tokens of an order do not hold all drafts.

        Parameters
        ----------
        order : int array [m]
            Different tokens.

        Returns
        -------
        array [m + 1]
            1 − Pr(S ⊆ {the first j of them}) for j = 0, …, m, without cancellation.
        """

    def distribution_of_last(self, order: npt.NDArray[np.int64]) -> Probs:
        """Distribution of the draft that stands last in an order of the tokens.

        A rule may pick that draft, so this is a mass that can be accepted.  It is what `missed`
        falls by at each token; distributions for which that difference cancels compute it directly.

        Parameters
        ----------
        order : int array [m]
            Different tokens.

        Returns
        -------
        array [m]
            For each of them, the probability that it is a draft and all others stand before it.
        """
        missed = self.missed(order)
        return np.asarray(np.maximum(missed[:-1] - missed[1:], zeros(1, missed)))

    def distribution_of_one(self) -> Probs:
        """Distribution of one draft, picked without looking at the target: array [n].

        The mean of the last drafts in two opposite orders; distributions that know better say so.
        """
        order = np.arange(self.n)
        distribution: Probs = (
            self.distribution_of_last(order) + self.distribution_of_last(order[::-1])[::-1]
        ) / 2
        return distribution

    def to_exact(self) -> Self:
        """Return the same distribution in fractions."""
        return self._with(to_exact)

    def to_floats(self) -> Self:
        """Return the same distribution in float64."""
        return self._with(to_floats)

    @abstractmethod
    def _with(self, numbers: Callable[[Probs], Probs]) -> Self:
        """Return the same distribution with its probabilities in other numbers."""

    @abstractmethod
    def _draw(self, uniforms: Uniforms) -> Drafts:
        """Positions of drafts from checked uniforms: [B, m] → [B, k]."""

    def _together(self, drafts: Drafts) -> npt.NDArray[np.bool_] | np.bool_:
        """Whether draftable positions can be drawn as a tuple: [..., k] → [...], or one bool."""
        return np.True_

    def draw(self, uniforms: npt.ArrayLike) -> Drafts:
        """Draw drafts, with the randomness as an argument.

        Parameters
        ----------
        uniforms : array-like or tensor [..., m]
            Independent uniforms in [0, 1), m = `uniforms_per_draw` for each draw.

        Returns
        -------
        int array [..., k]
            Token ids of the drafts; a tensor on the device of the uniforms if these are one.

        Raises
        ------
        InvalidUniformsError
            If the uniforms have a wrong shape or do not lie in [0, 1).
        """
        shape = (*leading_shape(uniforms, 1), self.uniforms_per_draw)
        need = f"a draw needs {self.uniforms_per_draw} along the last axis"
        numbers = check_uniforms(uniforms, shape, self.exact, need)
        places = self._draw(numbers.reshape(math.prod(shape[:-1]), shape[-1]))
        drafts: Drafts = like(uniforms, self.ids(places.reshape(*shape[:-1], self.k)))
        return drafts

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] = ()) -> Drafts:
        """`draw` with uniforms from a generator, for convenience.

        Parameters
        ----------
        rng : Generator
            Where the uniforms come from.
        size : int or tuple of int, optional
            How many draws; a single one if left out.

        Returns
        -------
        int array [..., k]
            Token ids of the drafts of each draw.

        Raises
        ------
        InvalidParameterError
            If `rng` is no generator, or a size no integer of at least 0.

        Examples
        --------
        >>> from otm.drafts import WithoutReplacement
        >>> drafts = WithoutReplacement([0.5, 0.25, 0.25], k=2)
        >>> drafts.sample(np.random.default_rng(0), size=10).shape
        (10, 2)
        """
        check_generator(rng)
        sizes = size if isinstance(size, tuple) else (size,)
        leading = (as_integer(axis, "size", 0) for axis in sizes)
        return self.draw(rng.random((*leading, self.uniforms_per_draw)))

    def check(self, drafts: npt.ArrayLike) -> Drafts:
        """Return drafts as an integer array, if they can have been drawn.

        Parameters
        ----------
        drafts : int array-like or tensor [..., k]
            Token ids of the drafts.

        Returns
        -------
        int array [..., k]
            The drafts.

        Raises
        ------
        InvalidDraftsError
            If they have a wrong shape or type, lie outside the vocabulary, or have probability zero
            under this distribution.
        """
        return self.ids(self.positions(drafts))

    def positions(self, drafts: npt.ArrayLike) -> Drafts:
        """Positions of drafts in `tokens`, if they can have been drawn.

        Parameters
        ----------
        drafts : int array-like or tensor [..., k]
            Token ids of the drafts.

        Returns
        -------
        int array [..., k]
            Numbers in [0, n).

        Raises
        ------
        InvalidDraftsError
            As `check` does.

        Examples
        --------
        >>> from otm.drafts import IID
        >>> IID([0.25, 0.75], k=2, tokens=[5, 900]).positions([900, 5])
        array([1, 0])
        """
        if self.tokens is None:
            named = places = as_drafts(drafts, self.k, self.n)
        else:
            named = as_drafts(drafts, self.k, None)
            places, known = places_of(self.tokens, named)
            _refuse_undrawable(named, known)
        _refuse_undrawable(named, self.draftable.take(places))
        together = self._together(places)
        if np.count_nonzero(together) < together.size:
            raise InvalidDraftsError(
                f"drafts {named[~together].reshape(-1, self.k)[0].tolist()} have probability 0 "
                f"under the draft distribution ({type(self).__name__}), so they cannot have been "
                "drawn from it; pass them in the order in which they were drawn"
            )
        return places

    def ids(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Token ids of positions in `tokens`.

        Parameters
        ----------
        positions : int array [...]
            Numbers in [0, n), which are not checked.

        Returns
        -------
        int array [...]
            Their ids; the array itself where positions are ids.
        """
        return positions if self.tokens is None else self.tokens[positions]


@dataclass(frozen=True, eq=False)
class FromProbs(DraftDistribution):
    """Drafts drawn from the distributions of an array [..., n], held normalised and read-only."""

    probs: Probs
    # [n], token ids of the entries of p, ascending; 0 to n − 1 if left out
    tokens: Tokens | None = field(default=None, kw_only=True)

    @classmethod
    def _of_checked(cls, **values: Any) -> Self:
        """Equivalent to the constructor, but faster: takes values that were checked as they are."""
        drafts = object.__new__(cls)
        drafts.__dict__.update(values)
        return drafts

    def __post_init__(self) -> None:
        object.__setattr__(self, "probs", self._checked())
        if self.tokens is not None:
            object.__setattr__(self, "tokens", as_token_ids(self.tokens, self.n))

    @abstractmethod
    def _checked(self) -> Probs:
        """Check and normalise the probabilities that the constructor was given."""

    @property
    def n(self) -> int:
        """Number of tokens."""
        return int(self.probs.shape[-1])

    @property
    def exact(self) -> bool:
        """Whether the probabilities are given in fractions."""
        return is_exact(self.probs)

    def _with(self, numbers: Callable[[Probs], Probs]) -> Self:
        return replace(self, probs=numbers(self.probs))


class SingleDistribution(FromProbs):
    """Drafts drawn from one distribution p in some way, each token with p > 0 among them."""

    def _checked(self) -> Probs:
        if isinstance(self.probs, SparseProbs):
            raise InvalidDistributionError(
                f"{type(self).__name__} was given a SparseProbs; give its probabilities, and its "
                "token ids by keyword: probs.probabilities, …, tokens=probs.tokens"
            )
        return as_probs(self.probs, "draft")

    @cached_property
    def draftable(self) -> npt.NDArray[np.bool_]:
        """Whether each token has p > 0: array [n]."""
        return read_only(np.asarray(self.probs > 0, dtype=np.bool_))


@dataclass(frozen=True, eq=False)
class DifferentTokens(SingleDistribution):
    """k different drafts of one distribution; as many as it has tokens, if these are fewer."""

    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        tokens = int(np.count_nonzero(self.probs))
        object.__setattr__(self, "k", min(as_draft_count(self.k), tokens))


def independent_tuples(probs: Sequence[Probs]) -> Iterator[tuple[tuple[int, ...], Number]]:
    """All tuples of positions of independent drafts, with their probabilities."""
    supports = [np.flatnonzero(distribution).tolist() for distribution in probs]
    one = 1 + 0 * probs[0].item(0)
    for drafts in itertools.product(*supports):
        yield drafts, math.prod(map(Probs.item, probs, drafts), start=one)


def _refuse_undrawable(drafts: Drafts, drawable: npt.NDArray[np.bool_]) -> None:
    if np.count_nonzero(drawable) < drawable.size:
        raise InvalidDraftsError(f"draft token {drafts[~drawable].flat[0]} {NEVER_DRAWN}")
