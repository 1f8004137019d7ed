"""Intervals: contents, printing, and rejected arguments."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pytest

from otm._core.interval import Interval
from otm.errors import InvalidParameterError

F = Fraction


def test_gap_and_membership_include_both_ends() -> None:
    interval = Interval(0.25, 0.75)
    assert interval.gap == 0.5
    assert not interval.exact
    assert all(value in interval for value in (0.25, F(1, 2), 0.75))
    assert not any(value in interval for value in (0.2499, 0.7501, float("nan")))


@pytest.mark.parametrize("value", [0.3, F(1, 3), 0, 1])
def test_equal_ends_are_exact(value: float | Fraction) -> None:
    assert Interval(value, value).exact
    assert Interval(value, value).gap == 0


def test_fractions_stay_fractions() -> None:
    """Catches a gap of thirds that is rounded and then called exact."""
    interval = Interval(F(1, 3), F(2, 3))
    assert interval.gap == F(1, 3)
    assert isinstance(interval.gap, Fraction)
    assert Interval(0, 1).lower == F(0)


def test_numpy_scalars_become_python_floats() -> None:
    interval = Interval(np.float64(0.25), np.float32(0.5))  # type: ignore[arg-type]
    assert (type(interval.lower), type(interval.upper)) == (float, float)


def test_it_prints_both_ends() -> None:
    assert str(Interval(0.5, F(2, 3))) == "[0.5, 2/3]"
    assert f"{Interval(0.5, F(2, 3)):.3f}" == "[0.500, 0.667]"
    assert repr(Interval(0.5, 0.75)) == "Interval([0.5, 0.75])"


def test_it_does_not_pretend_to_be_a_number() -> None:
    """Catches a table that prints one end as if it were α."""
    with pytest.raises(TypeError, match=r"\[0\.5, 0\.75\].*\.lower or \.upper"):
        float(Interval(0.5, 0.75))


@pytest.mark.parametrize(
    ("lower", "upper", "says"),
    [
        (0.75, 0.5, "lower = 0.75 is above upper = 0.5"),
        (float("nan"), 0.5, "lower = nan"),
        (0.5, float("nan"), "upper = nan"),
        (0.5, float("inf"), "upper = inf"),
        ("0.5", 1, "lower = '0.5'"),
        (True, 1, "lower = True"),
        (0.5, None, "upper = None"),
    ],
)
def test_what_is_no_interval_is_refused(lower: object, upper: object, says: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        Interval(lower, upper)  # type: ignore[arg-type]
    assert says in str(caught.value)


def test_it_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Interval(0, 1).lower = 2  # type: ignore[misc]
