"""Checks of arguments: integers, real numbers, and names from a list."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, TypedDict, Unpack

import numpy as np

from otm._core.arithmetic import Number, as_fraction
from otm._core.display.text import shown
from otm.errors import InvalidParameterError, UnknownMethodError

LARGEST_VOCABULARY = 2**24
"""Largest vocabulary of a model with full distributions, far above that of any tokenizer."""


def whole(value: Any) -> int | None:
    """Convert to `int`; return None for booleans and everything else that is not an integer."""
    try:
        return None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        return None


def is_real(value: Any) -> bool:
    """Return whether a value is a real number of any type; booleans are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def as_integer(
    value: Any, name: str, least: int, most: int | None = None, *, advice: str = ""
) -> int:
    """Return an integer within two inclusive bounds, or raise; booleans are not integers.

    The error message ends with the advice, after a comma.
    """
    number = whole(value)
    if number is None or number < least or (most is not None and number > most):
        allowed = f"of at least {least}" if most is None else f"from {least} to {most:,}"
        end = f", {advice}" if advice else ""
        raise InvalidParameterError(
            f"{name} = {shown(value)}; it must be an integer {allowed}{end}"
        )
    return number


def as_positive(value: Any, name: str) -> int:
    """Return an integer of at least 1, or raise."""
    return as_integer(value, name, 1)


def as_vocabulary(value: Any) -> int:
    """Return a vocabulary size from 1 to `LARGEST_VOCABULARY`, or raise."""
    return as_integer(value, "vocabulary", 1, LARGEST_VOCABULARY)


class Bounds(TypedDict, total=False):
    """Lower bound, `least` (inclusive) or `above` (exclusive); upper bound, `most` or `below`."""

    least: float
    above: float
    most: float
    below: float
    advice: str
    """Text that ends the error message, after a comma."""


def as_real(value: Any, name: str, **bounds: Unpack[Bounds]) -> float:
    """Return a finite real number within bounds as a float, or raise; booleans raise too."""
    return float(as_parameter(value, name, exact=False, **bounds))


def as_parameter(value: Any, name: str, *, exact: bool, **bounds: Unpack[Bounds]) -> Number:
    """Return a number within bounds like `as_real`, but as a fraction in exact mode."""
    number: Number = math.nan
    if is_real(value):
        try:
            rational = exact and isinstance(value, numbers.Rational)
            number = as_fraction(value) if rational else float(value)
        except OverflowError:  # The rational number is too large for a float.
            number = math.inf
    if not (isinstance(number, Fraction) or math.isfinite(number)) or not _within(number, bounds):
        advice = f", {bounds['advice']}" if "advice" in bounds else ""
        raise InvalidParameterError(
            f"{name} = {shown(value)}; it must be {_in_words(bounds)}{advice}"
        )
    return Fraction(number) if exact else number


def _within(number: Number, bounds: Bounds) -> bool:
    return bounds.get("least", -math.inf) <= number <= bounds.get("most", math.inf) and bounds.get(
        "above", -math.inf
    ) < number < bounds.get("below", math.inf)


def _in_words(bounds: Bounds) -> str:
    # An upper bound always comes with a lower one.
    if "most" in bounds or "below" in bounds:
        low = f"[{bounds['least']:g}" if "least" in bounds else f"({bounds['above']:g}"
        return f"a number in {low}, " + (
            f"{bounds['most']:g}]" if "most" in bounds else f"{bounds['below']:g})"
        )
    if "least" in bounds:
        return f"a finite number of at least {bounds['least']:g}"
    return f"a finite number above {bounds['above']:g}" if "above" in bounds else "a finite number"


def as_level(value: Any, name: str = "level") -> float:
    """Return a probability strictly between 0 and 1, such as a confidence level, or raise."""
    return as_real(value, name, above=0, below=1)


def check_name(what: str, name: object, names: Iterable[str], *, advice: str = "") -> str:
    """Return a name (of a rule, method or backend) if it is in a list of names, or raise.

    The error message ends with the advice, after a semicolon.
    """
    known = list(names)
    if isinstance(name, str) and name in known:
        return name
    raise no_such_name(what, name, known, advice=advice)


def no_such_name(
    what: str, name: object, names: Iterable[str], *, advice: str = ""
) -> UnknownMethodError:
    """Build the "unknown name" error, which lists the known names."""
    given = shown(name) if isinstance(name, str) else f"of type {type(name).__name__}"
    end = f"; {advice}" if advice else ""
    return UnknownMethodError(f"there is no {what} {given}; there are {', '.join(names)}{end}")
