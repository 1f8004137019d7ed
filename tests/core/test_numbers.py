"""Integers, real numbers and names from a list: rejected values and their messages."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm._core.numbers import (
    as_integer,
    as_level,
    as_parameter,
    as_real,
    check_name,
    is_real,
    whole,
)
from otm.errors import InvalidParameterError, UnknownMethodError


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.array(3)])
def test_integers_of_any_type_are_whole(value: Any) -> None:
    assert type(whole(value)) is int
    assert whole(value) == as_integer(value, "k", 1) == 3


@pytest.mark.parametrize(
    "value", [3.0, True, np.True_, "3", None, Fraction(3), [3], np.array([3, 4])]
)
def test_what_is_no_integer_is_refused(value: Any) -> None:
    assert whole(value) is None
    with pytest.raises(InvalidParameterError, match=r"^k = .*; it must be an integer of at least "):
        as_integer(value, "k", 1)


def test_the_bounds_of_an_integer_may_be_reached() -> None:
    assert [as_integer(value, "k", 0, 3) for value in (0, 3)] == [0, 3]
    for value in (-1, 4, 10**5000):
        with pytest.raises(InvalidParameterError, match=r"from 0 to 3, or None$"):
            as_integer(value, "k", 0, 3, advice="or None")


BOUNDS = [
    ({}, "a finite number", [-1, 1e308], []),
    ({"least": 0}, "a finite number of at least 0", [0, 1e308], [-5e-324]),
    ({"above": 0}, "a finite number above 0", [5e-324], [0, -1]),
    ({"least": 0, "most": 1}, r"a number in \[0, 1\]", [0, 1], [-5e-324, 1.5]),
    ({"above": 0, "most": 0.5}, r"a number in \(0, 0\.5\]", [5e-324, 0.5], [0, 0.75]),
    ({"least": -1, "below": 1}, r"a number in \[-1, 1\)", [-1, 0.5], [1, -2]),
    ({"above": 0, "below": 1}, r"a number in \(0, 1\)", [0.5], [0, 1]),
]


@pytest.mark.parametrize(("bounds", "words", "inside", "outside"), BOUNDS)
def test_real_numbers_within_bounds(
    bounds: Any, words: str, inside: list[float], outside: list[float]
) -> None:
    for value in inside:
        assert as_real(value, "x", **bounds) == value
        exact = as_parameter(value, "x", exact=True, **bounds)
        assert (type(exact), exact) == (Fraction, value)
    strange = [math.nan, math.inf, -math.inf, True, "0.5", None, 1j, Decimal("0.5"), [0.5]]
    for bad in [*outside, *strange, 10**400]:
        with pytest.raises(InvalidParameterError, match=f"^x = .*; it must be {words}$"):
            as_real(bad, "x", **bounds)
    for bad in [*outside, *strange]:
        with pytest.raises(InvalidParameterError, match=f"; it must be {words}, or so$"):
            as_parameter(bad, "x", exact=True, advice="or so", **bounds)


def test_fractions_stay_exact_whatever_a_float_could_hold() -> None:
    tiny = Fraction(1, 10**400)
    assert as_parameter(tiny, "x", exact=True, above=0) == tiny
    assert as_parameter(1 / tiny, "x", exact=True, above=0) == 1 / tiny
    assert as_parameter(np.int64(2), "x", exact=True) == 2
    with pytest.raises(InvalidParameterError):
        as_real(tiny, "x", above=0)


def test_a_level_is_neither_0_nor_1() -> None:
    assert as_level(np.float32(0.5)) == 0.5
    with pytest.raises(
        InvalidParameterError, match=r"^delta = 1; it must be a number in \(0, 1\)$"
    ):
        as_level(1, "delta")
    assert is_real(np.float16(1))
    assert not is_real(False)


def test_a_name_is_one_of_a_list() -> None:
    assert check_name("rule", "b", iter("ab")) == "b"
    with pytest.raises(UnknownMethodError, match=r"^there is no rule 'c'; there are a, b; or not$"):
        check_name("rule", "c", {"a": 1, "b": 2}, advice="or not")
    for given in (None, 3, ["a"], np.array(["a"])):  # one that cannot be looked up among it
        with pytest.raises(UnknownMethodError, match=f"no rule of type {type(given).__name__};"):
            check_name("rule", given, ("a", "b"))
