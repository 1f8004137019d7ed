"""Intervals: a lower and an upper bound in place of an unknown number."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import NoReturn

from otm._core.arithmetic import Number
from otm._core.display.text import shown
from otm._core.numbers import as_parameter
from otm.errors import InvalidParameterError


@dataclass(frozen=True)
class Interval:
    """A lower and an upper bound on a number that is not known exactly.

    An interval does not convert to a float, since one number would hide the gap between the bounds.

    Parameters
    ----------
    lower, upper : float or Fraction
        The bounds, finite; lower is at most upper.

    Raises
    ------
    InvalidParameterError
        If a bound is not a finite real number, or lower is above upper.

    Examples
    --------
    >>> interval = Interval(0.8125, 0.84375)
    >>> print(f"{interval}, {interval:.2f}")
    [0.8125, 0.84375], [0.81, 0.84]
    >>> interval.gap, interval.exact, 0.9 in interval
    (0.03125, False, False)
    """

    lower: Number
    upper: Number

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            given = getattr(self, name)
            bound = as_parameter(given, name, exact=isinstance(given, numbers.Rational))
            object.__setattr__(self, name, bound)
        if self.lower > self.upper:
            raise InvalidParameterError(
                f"lower = {shown(self.lower)} is above upper = {shown(self.upper)}; no number lies "
                "between them"
            )

    @property
    def gap(self) -> Number:
        """Width of the interval: upper − lower."""
        return self.upper - self.lower

    @property
    def exact(self) -> bool:
        """Whether both bounds are equal, so that the number is known exactly."""
        return self.lower == self.upper

    def __contains__(self, value: Number) -> bool:
        return self.lower <= value <= self.upper

    def __float__(self) -> NoReturn:
        raise TypeError(
            f"an Interval is not a number: this one is {self}; use .lower or .upper, "
            "whichever your statement needs"
        )

    def __format__(self, spec: str) -> str:
        # Fractions support the format specifiers of floats only since Python 3.12.
        ends = (float(end) if spec else end for end in (self.lower, self.upper))
        return "[" + ", ".join(format(end, spec) for end in ends) + "]"

    def __str__(self) -> str:
        return format(self)

    def __repr__(self) -> str:
        return f"Interval({self})"
