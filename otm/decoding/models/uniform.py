"""The model that knows nothing: every token is as likely as any other."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.arithmetic import read_only
from otm.decoding.models.stateless import StatelessModel
from otm.errors import InvalidParameterError
from otm.shown import shown

__all__ = ["UniformModel", "as_integer", "as_positive", "as_vocabulary"]

LARGEST_VOCABULARY = 2**24
"""Most tokens of a model that holds whole laws, far above any tokenizer's."""


class UniformModel(StatelessModel):
    """The uniform law after every context, the weakest drafter that there is.

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
    >>> UniformModel(4).law((2, 0)).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = as_vocabulary(vocabulary)
        self._law = read_only(np.full(self.vocabulary, 1 / self.vocabulary))

    def law(self, context: tuple[int, ...]) -> npt.NDArray[Any]:
        """Law of the token that follows a context: array [V]."""
        return self._law


def as_vocabulary(value: Any) -> int:
    """Return a number of tokens, for each of which memory may be taken.

    Raises
    ------
    InvalidParameterError
        If it is none, or above `LARGEST_VOCABULARY`.
    """
    return as_integer(value, "vocabulary", 1, LARGEST_VOCABULARY)


def as_positive(value: Any, name: str) -> int:
    """Return a number that counts something, an integer of at least 1.

    Raises
    ------
    InvalidParameterError
        If it is none.
    """
    return as_integer(value, name, 1)


def as_integer(value: Any, name: str, least: int, most: int | None = None) -> int:
    """Return an integer between two bounds, which may be reached.

    Raises
    ------
    InvalidParameterError
        If it is none; booleans are refused too.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        allowed = f"of at least {least}" if most is None else f"from {least} to {most:,}"
        raise InvalidParameterError(f"{name} = {shown(value)}; it must be an integer {allowed}")
    return number
