"""Language models given by tables: exact, for proofs and tests."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.decoding.models.stateless import StatelessModel
from otm.distribution import as_law
from otm.errors import InvalidLawError

__all__ = ["TableModel"]


class TableModel(StatelessModel):
    """A model whose law depends on the last tokens, as a table says.

    Parameters
    ----------
    laws : mapping from tuple of int to array-like [V]
        The law after each context.  A context is looked up whole, then without its first token, and
        so on; the empty context () must be there, for all that is in no other row.

    Raises
    ------
    InvalidLawError
        If an entry is no law, they have different lengths, or the empty context is missing.

    Examples
    --------
    A Markov chain on two tokens, in fractions:

    >>> from fractions import Fraction
    >>> half = Fraction(1, 2)
    >>> model = TableModel({(): [half, half], (0,): [half / 2, 3 * half / 2]})
    >>> model.law((1, 0)).tolist(), model.law((0, 1)).tolist()
    ([Fraction(1, 4), Fraction(3, 4)], [Fraction(1, 2), Fraction(1, 2)])
    """

    def __init__(self, laws: Mapping[tuple[int, ...], Any]) -> None:
        if () not in laws:
            raise InvalidLawError(
                "the table has no law after the empty context (); every other context falls back "
                "on it, so give one"
            )
        self._laws = {context: as_law(law, f"context {context}") for context, law in laws.items()}
        self._longest = max(map(len, laws))
        self.vocabulary = self._laws[()].size
        for context, law in self._laws.items():
            if law.size != self.vocabulary:
                raise InvalidLawError(
                    f"the law after context {context} has {law.size} tokens, the one after () has "
                    f"{self.vocabulary}; all laws must be on the same vocabulary"
                )

    def law(self, context: tuple[int, ...]) -> npt.NDArray[Any]:
        """Law of the token that follows a context: array [V]."""
        for start in range(max(len(context) - self._longest, 0), len(context) + 1):
            if context[start:] in self._laws:
                return self._laws[context[start:]]
        raise AssertionError("the empty context is in every table")  # pragma: no cover

    @classmethod
    def random(
        cls, vocabulary: int, order: int, rng: np.random.Generator, *, largest: int = 4
    ) -> TableModel:
        """Draw a table of small fractions for all contexts of up to `order` tokens.

        Parameters
        ----------
        vocabulary : int
            Number of tokens.
        order : int
            Length of the longest contexts.
        rng : Generator
            Where the numbers come from.
        largest : int, optional
            Weights are whole numbers from 0 to this, so that zeros occur.

        Examples
        --------
        >>> model = TableModel.random(3, order=1, rng=np.random.default_rng(0))
        >>> model.vocabulary, bool(sum(model.law((2,))) == 1)
        (3, True)
        """
        laws = {}
        for length in range(order + 1):
            for context in itertools.product(range(vocabulary), repeat=length):
                weights = rng.integers(0, largest + 1, vocabulary).tolist()
                weights[int(rng.integers(vocabulary))] += 1
                laws[context] = [Fraction(weight, sum(weights)) for weight in weights]
        return cls(laws)
