"""Language models from tables of probabilities, in fractions or floats; for proofs and tests."""

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
"""Largest number of fractions of a random table."""


class TableModel(StatelessModel):
    """A model that looks up the distribution of the next token in a table, by the last tokens.

    Parameters
    ----------
    table : mapping from tuple of int to array-like [V]
        The distribution after each context.  The model looks up the whole context, then the context
        without its first token, and so on.  The table must have the empty context () as a last
        resort.  If one row has floats, all rows are converted to floats; a row of integers fits
        floats and fractions.

    Raises
    ------
    InvalidDistributionError
        If an entry is not a distribution, a key is not a context, the rows have different lengths,
        or the empty context is missing.

    Attributes
    ----------
    order : int
        Length of the longest context of the table, in tokens.

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
        self.order = max(map(len, table))
        self.vocabulary = self._rows[()].size
        for context, row in self._rows.items():
            if row.size != self.vocabulary:
                raise InvalidDistributionError(
                    f"the row of context {shown(context)} has {row.size} tokens, but the row of "
                    f"context () has {self.vocabulary}; all rows must have the same vocabulary"
                )

    def probs(self, context: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return the distribution of the token that follows a context: array [V]."""
        # A list is also accepted, but cannot be a key.
        context = tuple(context)
        for start in range(max(len(context) - self.order, 0), len(context) + 1):
            if context[start:] in self._rows:
                return self._rows[context[start:]]
        raise AssertionError("the empty context is in every table")  # pragma: no cover

    @classmethod
    def random(
        cls, vocabulary: int, order: int, rng: np.random.Generator, *, max_weight: int = 4
    ) -> TableModel:
        """Draw a random table of fractions for all contexts of up to `order` tokens.

        Parameters
        ----------
        vocabulary : int
            Number of tokens, from 1 to 2^24.
        order : int
            Length of the longest contexts, in tokens.
        rng : Generator
            Source of randomness.
        max_weight : int, optional
            Largest weight.  Probabilities are proportional to random integer weights from 0 to this
            number; one token of each row gets an additional weight of 1.

        Returns
        -------
        TableModel
            A model in fractions.

        Raises
        ------
        InvalidParameterError
            If a number is out of its range.
        ProblemTooLargeError
            If the table would have more than 2^20 fractions.

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
                f"a table of {vocabulary} tokens with all contexts of up to {shown(order)} tokens "
                f"has more than {LARGEST_TABLE:,} entries; choose a lower order"
            )
        rows = {}
        for length in range(order + 1):
            for context in itertools.product(range(vocabulary), repeat=length):
                weights = rng.integers(0, max_weight + 1, vocabulary).tolist()
                weights[int(rng.integers(vocabulary))] += 1
                rows[context] = [Fraction(weight, sum(weights)) for weight in weights]
        return cls(rows)


class UniformModel(StatelessModel):
    """A model with the uniform distribution after every context.

    As a draft model, the uniform model "guarantees some improvement (although very small) for all
    models" ([leviathan2023]_, section 3.6).

    Parameters
    ----------
    vocabulary : int
        Number of tokens, from 1 to 2^24.

    Raises
    ------
    InvalidParameterError
        If the vocabulary is not an integer from 1 to 2^24.

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
    """Raise unless the table is a mapping from contexts that has the empty context."""
    if not isinstance(table, Mapping):
        raise InvalidDistributionError(
            f"the table is a {type(table).__name__}; give a mapping from contexts to "
            "distributions, such as {(): [0.5, 0.5]}"
        )
    for context in table:
        if not isinstance(context, tuple) or not all(
            isinstance(token, int | np.integer) for token in context
        ):
            raise InvalidDistributionError(
                f"the table has the key {shown(context)}; a context must be a tuple of token ids, "
                "such as (0,)"
            )
    if () not in table:
        raise InvalidDistributionError(
            "the table has no row for the empty context (), which is used for contexts without a "
            "row; add it"
        )


def _of_one_kind(rows: dict[tuple[int, ...], Probs]) -> dict[tuple[int, ...], Probs]:
    """Convert all rows to fractions or all rows to floats.

    Rows of zeros and ones count as either kind, although they are stored as floats.
    """
    if not any(map(is_exact, rows.values())):
        return rows
    exact = all(is_exact(row) or np.isin(row, (0, 1)).all() for row in rows.values())
    return {
        context: read_only(to_exact(row) if exact else row.astype(np.float64))
        for context, row in rows.items()
    }
