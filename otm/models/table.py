"""Language models given by tables: exact, for proofs and tests."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs, is_exact, read_only
from otm._core.display.text import shown
from otm._core.numbers import as_integer, as_vocabulary
from otm._core.probs.distribution import as_probs, to_exact
from otm.errors import InvalidDistributionError, ProblemTooLargeError
from otm.models.base import StatelessModel

LARGEST_TABLE = 2**20
"""Most fractions of a table that is drawn at random."""


class TableModel(StatelessModel):
    """A model whose distribution depends on the last tokens, as a table says.

    Parameters
    ----------
    table : mapping from tuple of int to array-like [V]
        The distribution after each context.  A context is looked up whole, then without its first
        token, and so on; the empty context () must be there, for all that is in no other row.  If
        one row is in floats, all are taken as floats; whole numbers go with either kind.

    Raises
    ------
    InvalidDistributionError
        If an entry is no distribution or a key no context, the rows have different lengths, or the
        empty context is missing.

    Examples
    --------
    A Markov chain on two tokens, in fractions:

    >>> from fractions import Fraction
    >>> half = Fraction(1, 2)
    >>> model = TableModel({(): [half, half], (0,): [half / 2, 3 * half / 2]})
    >>> model.probs((1, 0)).tolist(), model.probs((0, 1)).tolist()
    ([Fraction(1, 4), Fraction(3, 4)], [Fraction(1, 2), Fraction(1, 2)])
    """

    def __init__(self, table: Mapping[tuple[int, ...], Any]) -> None:
        _check_contexts(table)
        self._rows = _of_one_kind(
            {context: as_probs(row, f"context {shown(context)}") for context, row in table.items()}
        )
        self._longest = max(map(len, table))
        self.vocabulary = self._rows[()].size
        for context, row in self._rows.items():
            if row.size != self.vocabulary:
                raise InvalidDistributionError(
                    f"the row after context {shown(context)} has {row.size} tokens, the one after "
                    f"() has {self.vocabulary}; all rows must be on the same vocabulary"
                )

    def probs(self, context: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return the distribution of the token that follows a context: array [V]."""
        context = tuple(context)  # also of a list, which is no key
        for start in range(max(len(context) - self._longest, 0), len(context) + 1):
            if context[start:] in self._rows:
                return self._rows[context[start:]]
        raise AssertionError("the empty context is in every table")  # pragma: no cover

    @classmethod
    def random(
        cls, vocabulary: int, order: int, rng: np.random.Generator, *, max_weight: int = 4
    ) -> TableModel:
        """Draw a table of small fractions for all contexts of up to `order` tokens.

        Parameters
        ----------
        vocabulary : int
            Number of tokens, from 1 to 2^24.
        order : int
            Length of the longest contexts, in tokens.
        rng : Generator
            Where the numbers come from.
        max_weight : int, optional
            Weights are whole numbers from 0 to this, so that zeros occur.

        Returns
        -------
        TableModel
            In fractions.

        Raises
        ------
        InvalidParameterError
            If a number is out of its range.
        ProblemTooLargeError
            If the table would hold more than 2^20 fractions.

        Examples
        --------
        >>> model = TableModel.random(3, order=1, rng=np.random.default_rng(0))
        >>> model.vocabulary, bool(sum(model.probs((2,))) == 1)
        (3, True)
        """
        as_vocabulary(vocabulary)
        as_integer(order, "order", 0)
        as_integer(max_weight, "max_weight", 0, 2**62)
        contexts = order + 1 if vocabulary == 1 else vocabulary ** min(order, 20)
        if vocabulary * contexts > LARGEST_TABLE:
            raise ProblemTooLargeError(
                f"a table of {vocabulary} tokens after all contexts of up to {shown(order)} of "
                f"them; at most {LARGEST_TABLE:,} numbers are drawn, so choose a lower order"
            )
        rows = {}
        for length in range(order + 1):
            for context in itertools.product(range(vocabulary), repeat=length):
                weights = rng.integers(0, max_weight + 1, vocabulary).tolist()
                weights[int(rng.integers(vocabulary))] += 1
                rows[context] = [Fraction(weight, sum(weights)) for weight in weights]
        return cls(rows)


class UniformModel(StatelessModel):
    """The uniform distribution after every context, the weakest drafter that there is.

    It drafts tokens at random, "which guarantees some improvement (although very small) for all
    models" ([leviathan2023]_, section 3.6).

    Parameters
    ----------
    vocabulary : int
        Number of tokens, from 1 to 2^24.

    Raises
    ------
    InvalidParameterError
        If it is no such number.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> UniformModel(4).probs((2, 0)).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = as_vocabulary(vocabulary)
        self._probs = read_only(np.full(self.vocabulary, 1 / self.vocabulary))

    def probs(self, context: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return the distribution of the token that follows a context: array [V]."""
        return self._probs


def _check_contexts(table: Any) -> None:
    """Refuse what is no mapping from contexts, or lacks the empty one."""
    if not isinstance(table, Mapping):
        raise InvalidDistributionError(
            f"the table is a {type(table).__name__}; give a mapping from contexts to rows, such as "
            "{(): [0.5, 0.5]}"
        )
    for context in table:
        if not isinstance(context, tuple) or not all(
            isinstance(token, int | np.integer) for token in context
        ):
            raise InvalidDistributionError(
                f"the table has a row after {shown(context)}; a context must be a tuple of token "
                "ids, such as (0,)"
            )
    if () not in table:
        raise InvalidDistributionError(
            "the table has no row after the empty context (); every other context falls back on "
            "it, so give one"
        )


def _of_one_kind(rows: dict[tuple[int, ...], Probs]) -> dict[tuple[int, ...], Probs]:
    """Make all rows fractions or all floats; whole numbers, which are floats here, go with both."""
    if not any(map(is_exact, rows.values())):
        return rows
    exact = all(is_exact(row) or np.isin(row, (0, 1)).all() for row in rows.values())
    return {
        context: read_only(to_exact(row) if exact else row.astype(np.float64))
        for context, row in rows.items()
    }
