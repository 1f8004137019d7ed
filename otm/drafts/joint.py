"""Any joint distribution of the drafts, as a table of tuples and probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, is_exact, read_only, running_sum, scatter_sum, zeros
from otm._core.checks import Drafts, Uniforms, as_array, as_drafts
from otm._core.display.text import shown
from otm._core.numbers import as_integer
from otm._core.probs.distribution import as_probs
from otm._core.probs.sampling import InverseCdf
from otm._core.probs.sparse import Tokens, as_token_ids, places_of
from otm._core.ratios.order import places_along
from otm.drafts.base import DraftDistribution
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftsError,
    InvalidInputError,
    InvalidParameterError,
)


@dataclass(frozen=True, eq=False, init=False)
class Joint(DraftDistribution):
    """A joint distribution of k drafts as a table of tuples and probabilities.

    Parameters
    ----------
    table : mapping, or iterable of pairs
        Pairs of a tuple of k token ids and its probability; other tuples have probability 0.  The
        method `tuples` of any draft distribution yields such pairs.
    n : int, optional
        Number of tokens, with ids 0 to n − 1; leave it out if you give `tokens`.
    tokens : int array [n], optional
        The token ids, ascending.

    Attributes
    ----------
    rows : int array [R, k]
        The tuples of positive probability, as positions in `tokens`.
    probabilities : array [R]
        The normalised probabilities of the rows.

    Raises
    ------
    InvalidDraftsError
        If the tuples differ in length, a token is not an integer in [0, n) or not one of the token
        ids, or a tuple occurs twice.
    InvalidDistributionError
        If the probabilities are not a distribution, or the token ids are not ascending.
    InvalidParameterError
        If n is not an integer, or you give both n and `tokens`.
    InvalidInputError
        If the table has an entry that is not a pair.

    Examples
    --------
    >>> drafts = Joint({(0, 1): 0.5, (1, 2): 0.25, (2, 2): 0.25}, n=3)
    >>> drafts.miss_probability(np.array([1, 2, 0]))
    array([1. , 1. , 0.5, 0. ])
    >>> drafts.draw([[0.0], [0.5], [0.75]]).tolist()
    [[0, 1], [1, 2], [2, 2]]
    """

    rows: Drafts
    probabilities: Probs
    _n: int
    tokens: Tokens | None

    def __init__(
        self,
        table: Mapping[tuple[int, ...], Any] | Iterable[tuple[tuple[int, ...], Any]],
        n: int | None = None,
        *,
        tokens: npt.ArrayLike | None = None,
    ) -> None:
        try:
            pairs = list(table.items() if isinstance(table, Mapping) else table)
            tuples = [tuple(drafts) for drafts, _ in pairs]
            weights = [weight for _, weight in pairs]
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"the table is not a list of pairs (tuple of drafts, probability) ({error}); give "
                "a mapping such as {(0, 1): 0.5, (1, 1): 0.5}"
            ) from None
        probs = as_probs(weights, "joint draft")
        if tokens is None:
            size = as_integer(n, "n", 1)
            drafts = as_drafts(tuples, len(tuples[0]), size)
        else:
            if n is not None:
                raise InvalidParameterError(
                    f"n = {shown(n)} and token ids are both given; leave out n"
                )
            tokens = as_token_ids(tokens)
            size = tokens.size
            drafts, known = places_of(tokens, as_drafts(tuples, len(tuples[0]), None))
            if not known.all():
                place = tuple(np.argwhere(~known)[0])
                raise InvalidDraftsError(
                    f"the table has draft token {tuples[place[0]][place[1]]}, which is not in the "
                    "token ids; give the ids of all tokens"
                )
        if drafts.shape[1] == 0:
            raise InvalidDraftsError("the draft tuples are empty; give at least one draft")
        distinct, counts = np.unique(drafts, axis=0, return_counts=True)
        if len(distinct) < len(drafts):
            raise InvalidDraftsError(
                f"the drafts {distinct[counts.argmax()].tolist()} occur in the table "
                f"{counts.max()} times; give each tuple once, with its total probability"
            )
        possible = np.flatnonzero(probs > 0)
        self._set_fields(drafts[possible], probs[possible], size, tokens)

    def _set_fields(
        self, rows: Drafts, probabilities: Probs, n: int, tokens: Tokens | None
    ) -> None:
        arrays = {"rows": read_only(rows), "probabilities": read_only(probabilities)}
        self.__dict__.update(arrays, _n=n, tokens=tokens)

    @classmethod
    def from_array(cls, array: npt.ArrayLike) -> Self:
        """Build the distribution from an array of the probabilities of all tuples.

        Parameters
        ----------
        array : array-like or tensor [n, …, n]
            Probabilities, with one axis for each of the k drafts: entry (x_1, …, x_k) is P(x).

        Returns
        -------
        Joint
            The distribution, with rows in the order of the array.

        Raises
        ------
        InvalidDistributionError
            If the axes differ in length or the entries are not a distribution.

        Examples
        --------
        >>> list(Joint.from_array([[0.0, 0.5], [0.5, 0.0]]).tuples())
        [((0, 1), 0.5), ((1, 0), 0.5)]
        """
        probs = as_array(array, "the joint draft probabilities", InvalidDistributionError)
        if probs.ndim == 0 or len(set(probs.shape)) > 1 or probs.size == 0:
            raise InvalidDistributionError(
                f"the joint draft distribution has shape {probs.shape}; give an array with one "
                "axis of n tokens for each draft"
            )
        return cls(zip(np.argwhere(probs), probs[probs != 0], strict=True), len(probs))

    @property
    def k(self) -> int:  # type: ignore[override]
        """Number of drafts."""
        return int(self.rows.shape[1])

    @property
    def n(self) -> int:
        """Number of tokens."""
        return self._n

    @property
    def exact(self) -> bool:
        """Whether the probabilities are fractions."""
        return is_exact(self.probabilities)

    uniforms_per_draw = 1
    """One uniform, which draws the tuple."""

    @cached_property
    def draftable(self) -> npt.NDArray[np.bool_]:
        """Whether each token is in a tuple of positive probability: array [n]."""
        draftable = np.zeros(self.n, dtype=np.bool_)
        draftable[self.rows] = True
        return read_only(draftable)

    @property
    def tuple_count(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def position_tuples(self) -> Iterator[tuple[tuple[int, ...], Number]]:
        """Yield each tuple of drafts with positive probability, and its probability."""
        return zip(map(tuple, self.rows.tolist()), self.probabilities.tolist(), strict=True)

    def miss_probability(self, order: npt.NDArray[np.int64]) -> Probs:
        """Return the probability that a prefix of an order misses a draft, for each prefix."""
        missed: Probs = running_sum(self._by_last(order)[::-1])[::-1]
        # Rounding can make a sum larger than 1.
        np.minimum(missed, 1 + zeros(1, missed), out=missed)
        return missed

    def distribution_of_last(self, order: npt.NDArray[np.int64]) -> Probs:
        """Return the distribution of the draft that comes last in an order, as a sum over rows."""
        return self._by_last(order)[:-1]

    def distribution_of_one(self) -> Probs:
        """Return the distribution of a draft picked uniformly at random."""
        shares = np.repeat(self.probabilities / self.k, self.k)
        return scatter_sum(self.rows.ravel(), shares, self.n)

    def __str__(self) -> str:
        return f"{self.k} from a joint distribution"

    def _with(self, numbers: Callable[[Probs], Probs]) -> Self:
        joint = object.__new__(type(self))
        joint._set_fields(self.rows, numbers(self.probabilities), self.n, self.tokens)
        return joint

    def _is_possible(self, drafts: Drafts) -> npt.NDArray[np.bool_]:
        flat = drafts.reshape(-1, self.k).tolist()
        possible = [tuple(row) in self._row_set for row in flat]
        return np.array(possible, dtype=np.bool_).reshape(drafts.shape[:-1])

    def _draw(self, uniforms: Uniforms) -> Drafts:
        return self.rows[self._cdf.locate(uniforms[:, 0])]

    def _by_last(self, order: npt.NDArray[np.int64]) -> Probs:
        """Return the probability that the last draft is at each place of an order: [m] → [m + 1].

        The last entry is the probability that a draft is not in the order.
        """
        place = places_along(order, self.n)
        return scatter_sum(place[self.rows].max(axis=1), self.probabilities, order.size + 1)

    @cached_property
    def _row_set(self) -> frozenset[tuple[int, ...]]:
        return frozenset(map(tuple, self.rows.tolist()))

    @cached_property
    def _cdf(self) -> InverseCdf:
        return InverseCdf.from_weights(self.probabilities)
