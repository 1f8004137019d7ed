"""`DraftDistribution`, the base class of all joint distributions of drafts."""

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
    "has probability 0 under the draft distribution, so it cannot be a draft; give the "
    "distribution from which the drafts were sampled"
)
"""End of the error message for a draft token with probability 0."""


class DraftDistribution(Frozen, ABC):
    """Joint distribution of the drafts X_1, …, X_k of one selection, on n tokens.

    The optimal acceptance probability depends only on Pr(S ⊆ H), where S = {X_1, …, X_k}::

        α(P, q) = min over H of  q(H) + 1 − Pr(S ⊆ H)

    (Theorem 2.1 of docs/theory/minimum-cut.md).  Probabilities in fractions are exact.

    Only `draw`, `sample`, `check` and `tuples` use token ids; other methods use positions 0 to
    n − 1 in `tokens`, which are also the indices of arrays [n].

    Attributes
    ----------
    k : int
        Number of drafts of one selection.
    tokens : int array [n] or None
        Token ids of the n tokens, ascending; None if they are 0 to n − 1.
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
        """Whether the probabilities are fractions."""

    @property
    def uniforms_per_draw(self) -> int:
        """Number of independent uniforms in [0, 1) for one draw: k by default."""
        return self.k

    @cached_property
    @abstractmethod
    def draftable(self) -> npt.NDArray[np.bool_]:
        """Whether each token can be a draft: array [n]."""

    @property
    @abstractmethod
    def tuple_count(self) -> int:
        """Number of tuples that `tuples` yields, computed without a list of them."""

    @abstractmethod
    def position_tuples(self) -> Iterator[tuple[tuple[int, ...], Number]]:
        """Yield the same pairs as `tuples`, with positions instead of token ids."""

    def tuples(self) -> Iterator[tuple[tuple[int, ...], Number]]:
        """Yield each tuple of drafts with positive probability, and its probability.

        Tuples with the same drafts in different orders are separate.
        """
        if self.tokens is None:
            return self.position_tuples()
        names = self.tokens.tolist()
        return ((tuple(names[i] for i in drafts), mass) for drafts, mass in self.position_tuples())

    @abstractmethod
    def miss_probability(self, order: npt.NDArray[np.int64]) -> Probs:
        """Return the probability that the first j tokens of an order miss at least one draft.

        Parameters
        ----------
        order : int array [m]
            Distinct tokens.

        Returns
        -------
        array [m + 1]
            1 − Pr(S ⊆ H_j) for j = 0, …, m, where H_j has the first j tokens of the order;
            computed without cancellation.
        """

    def distribution_of_last(self, order: npt.NDArray[np.int64]) -> Probs:
        """Return the distribution of the draft that comes last in an order of the tokens.

        A rule may pick the last draft, so the mass of this distribution can be accepted.  The mass
        of a token is the decrease of `miss_probability` at this token; subclasses compute it
        directly if the difference would lose digits by cancellation.

        Parameters
        ----------
        order : int array [m]
            Distinct tokens.

        Returns
        -------
        array [m]
            For each token, the probability that it is a draft and all other drafts come before it
            in the order.
        """
        missed = self.miss_probability(order)
        return np.asarray(np.maximum(missed[:-1] - missed[1:], zeros(1, missed)))

    def distribution_of_one(self) -> Probs:
        """Return the distribution of one draft, picked independently of the target: array [n].

        By default, this is the mean of the distributions of the last draft in two opposite orders.
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
        """Return the same distribution with its probabilities in another number type."""

    @abstractmethod
    def _draw(self, uniforms: Uniforms) -> Drafts:
        """Return the positions of drafts from checked uniforms: [B, m] → [B, k]."""

    def _is_possible(self, drafts: Drafts) -> npt.NDArray[np.bool_] | np.bool_:
        """Whether each tuple of draftable positions has positive probability: [..., k] → [...]."""
        return np.True_

    def draw(self, uniforms: npt.ArrayLike) -> Drafts:
        """Draw drafts from uniforms.

        Parameters
        ----------
        uniforms : array-like or tensor [..., m]
            Independent uniforms in [0, 1), m = `uniforms_per_draw` for each draw.

        Returns
        -------
        int array [..., k]
            Token ids of the drafts; a tensor on the same device if the uniforms are a tensor.

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
        """Call `draw` with uniforms from a generator.

        Parameters
        ----------
        rng : Generator
            Generator that draws the uniforms.
        size : int or tuple of int, optional
            Shape of the draws; one draw by default.

        Returns
        -------
        int array [..., k]
            Token ids of the drafts of each draw.

        Raises
        ------
        InvalidParameterError
            If `rng` is not a NumPy Generator, or `size` has an entry that is not an integer of at
            least 0.

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
        """Return drafts as an integer array; raise if they have probability zero.

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
            If the drafts have a wrong shape or type, lie outside the vocabulary, or have
            probability zero under this distribution.
        """
        return self.ids(self.positions(drafts))

    def positions(self, drafts: npt.ArrayLike) -> Drafts:
        """Return the positions of drafts in `tokens`; raise if the drafts have probability zero.

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
            Same as for `check`.

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
            _check_drawable(named, known)
        _check_drawable(named, self.draftable.take(places))
        possible = self._is_possible(places)
        if np.count_nonzero(possible) < possible.size:
            raise InvalidDraftsError(
                f"drafts {named[~possible].reshape(-1, self.k)[0].tolist()} have probability 0 "
                f"under the draft distribution ({type(self).__name__}); give the drafts in the "
                "order in which they were drawn"
            )
        return places

    def ids(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the token ids at positions in `tokens`.

        Parameters
        ----------
        positions : int array [...]
            Numbers in [0, n); they are not checked.

        Returns
        -------
        int array [...]
            The token ids; the argument itself if the ids are 0 to n − 1.
        """
        return positions if self.tokens is None else self.tokens[positions]


@dataclass(frozen=True, eq=False)
class FromProbs(DraftDistribution):
    """Drafts from the distributions in an array [..., n], stored normalised and read-only."""

    probs: Probs
    # The ascending token ids of the entries of p, [n]; None if they are 0 to n − 1.
    tokens: Tokens | None = field(default=None, kw_only=True)

    @classmethod
    def _from_checked(cls, **values: Any) -> Self:
        """Build from checked values; equivalent to the constructor but faster."""
        drafts = object.__new__(cls)
        drafts.__dict__.update(values)
        return drafts

    def __post_init__(self) -> None:
        object.__setattr__(self, "probs", self._checked())
        if self.tokens is not None:
            object.__setattr__(self, "tokens", as_token_ids(self.tokens, self.n))

    @abstractmethod
    def _checked(self) -> Probs:
        """Return the probabilities of the constructor, checked and normalised."""

    @property
    def n(self) -> int:
        """Number of tokens."""
        return int(self.probs.shape[-1])

    @property
    def exact(self) -> bool:
        """Whether the probabilities are fractions."""
        return is_exact(self.probs)

    def _with(self, numbers: Callable[[Probs], Probs]) -> Self:
        return replace(self, probs=numbers(self.probs))


class SingleDistribution(FromProbs):
    """Drafts whose joint distribution is determined by one distribution p."""

    def _checked(self) -> Probs:
        if isinstance(self.probs, SparseProbs):
            raise InvalidDistributionError(
                f"{type(self).__name__} does not take a SparseProbs; give probs.probabilities, …, "
                "tokens=probs.tokens instead"
            )
        return as_probs(self.probs, "draft")

    @cached_property
    def draftable(self) -> npt.NDArray[np.bool_]:
        """Whether each token has p > 0: array [n]."""
        return read_only(np.asarray(self.probs > 0, dtype=np.bool_))


@dataclass(frozen=True, eq=False)
class DifferentTokens(SingleDistribution):
    """k distinct drafts from one distribution p; k is at most the number of tokens with p > 0."""

    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        tokens = int(np.count_nonzero(self.probs))
        object.__setattr__(self, "k", min(as_draft_count(self.k), tokens))


def independent_tuples(probs: Sequence[Probs]) -> Iterator[tuple[tuple[int, ...], Number]]:
    """Yield each tuple of positions of independent drafts, and its probability."""
    supports = [np.flatnonzero(distribution).tolist() for distribution in probs]
    one = 1 + 0 * probs[0].item(0)
    for drafts in itertools.product(*supports):
        yield drafts, math.prod(map(Probs.item, probs, drafts), start=one)


def _check_drawable(drafts: Drafts, drawable: npt.NDArray[np.bool_]) -> None:
    """Raise if a draft is marked as not drawable."""
    if np.count_nonzero(drawable) < drawable.size:
        raise InvalidDraftsError(f"draft token {drafts[~drawable].flat[0]} {NEVER_DRAWN}")
