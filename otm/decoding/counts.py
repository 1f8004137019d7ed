"""Whole numbers that are given: of tokens, of drafts, of rows."""

from __future__ import annotations

import operator
from typing import Any

from otm.errors import InvalidParameterError
from otm.shown import shown

__all__ = ["as_integer", "as_positive", "as_vocabulary"]

LARGEST_VOCABULARY = 2**24
"""Most tokens of a model that holds whole laws, far above any tokenizer's."""


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
