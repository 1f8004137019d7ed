"""Powers, their differences and long sums: exact for fractions, without cancellation in floats."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otm._core.arithmetic import (
    SUM_BLOCK,
    at_least_once,
    is_exact,
    power_slopes,
    running_sum,
    scatter_sum,
    zeros,
)

F = Fraction
fractions_in_unit = st.fractions(0, 1, max_denominator=50)
floats_in_unit = st.floats(0, 1, allow_subnormal=True)
draft_counts = st.integers(1, 40)


def objects(values: list[Fraction]) -> np.ndarray:
    return np.array(values, dtype=object)


@given(fractions_in_unit, draft_counts)
def test_at_least_once_is_exact_for_fractions(mass: Fraction, k: int) -> None:
    assert at_least_once(mass, k) == 1 - (1 - mass) ** k


@given(floats_in_unit, draft_counts)
def test_at_least_once_keeps_relative_accuracy(mass: float, k: int) -> None:
    # 1 − (1 − mass)^k written naively is 0 for every mass below 2^−54
    exact = 1 - (1 - F(mass)) ** k
    assert abs(F(at_least_once(mass, k)) - exact) <= exact * F(1, 2**47) + F(1, 2**1070)


@pytest.mark.parametrize("mass", [1e-300, 1e-17, 1e-9, 1e-3, 0.5, 1 - 2.0**-53])
def test_at_least_once_for_a_million_draws(mass: float) -> None:
    expected = -math.expm1(10**6 * math.log1p(-mass))
    assert at_least_once(mass, 10**6) == pytest.approx(expected, rel=1e-12)


def test_at_least_once_takes_arrays() -> None:
    masses = np.array([0.0, 0.25, 1.0])
    assert at_least_once(masses, 2).tolist() == [0, 0.4375, 1]
    assert masses.tolist() == [0, 0.25, 1]
    assert at_least_once(objects([F(0), F(1, 4), F(1)]), 2).tolist() == [0, F(7, 16), 1]


@given(st.lists(fractions_in_unit, min_size=2, max_size=5), draft_counts)
def test_power_slopes_are_exact_for_fractions(points: list[Fraction], k: int) -> None:
    ascending = sorted(points)
    expected = [
        sum(a**i * b ** (k - 1 - i) for i in range(k)) for a, b in itertools.pairwise(ascending)
    ]
    assert power_slopes(objects(ascending), k).tolist() == expected


@given(st.lists(floats_in_unit, min_size=2, max_size=5), draft_counts)
def test_power_slopes_do_not_cancel(points: list[float], k: int) -> None:
    # (b^k − a^k) / (b − a) written naively is 0/0 at ties and noise beside them
    ascending = np.sort(points)
    slopes = power_slopes(ascending, k)
    for a, b, slope in zip(map(F, ascending[:-1]), map(F, ascending[1:]), slopes, strict=True):
        exact = sum(a**i * b ** (k - 1 - i) for i in range(k))
        assert abs(F(float(slope)) - exact) <= exact * F(1, 2**46) + F(1, 2**1060)
    assert (np.diff(slopes) >= -1e-13 * slopes[1:]).all()


def test_power_slopes_leave_the_points_alone() -> None:
    points = np.array([0.25, 0.5, 1.0])
    power_slopes(points, 5)
    assert points.tolist() == [0.25, 0.5, 1]


@pytest.mark.parametrize("n", [1, SUM_BLOCK - 1, SUM_BLOCK, SUM_BLOCK + 1, 2 * SUM_BLOCK, 5_000])
def test_running_sums_of_floats(n: int) -> None:
    terms = np.random.default_rng(0).exponential(size=n) ** 4
    before = terms.copy()
    sums = running_sum(terms)
    assert sums.shape == (n,)
    assert (terms == before).all()
    assert (np.diff(sums) >= 0).all()
    exact = np.array([math.fsum(terms[: i + 1]) for i in range(0, n, 97)])
    assert abs(sums[::97] / exact - 1).max() <= (SUM_BLOCK + n / SUM_BLOCK) * 2.0**-53


def test_running_sums_are_more_accurate_than_cumsum() -> None:
    terms = np.full(2**20, 0.1)
    exact = 2**20 * F(0.1)
    error = abs(F(float(running_sum(terms)[-1])) - exact)
    assert 10 * error < abs(F(float(np.cumsum(terms)[-1])) - exact)


@given(st.lists(fractions_in_unit, min_size=1, max_size=8))
def test_running_sums_of_fractions_are_exact(terms: list[Fraction]) -> None:
    sums = running_sum(objects(terms)).tolist()
    assert sums == [sum(terms[: i + 1]) for i in range(len(terms))]


def test_scatter_sum_adds_what_shares_an_index() -> None:
    index = np.array([2, 0, 2])
    assert scatter_sum(index, np.array([1.0, 2.0, 4.0]), 4).tolist() == [2, 0, 5, 0]
    exact = scatter_sum(index, objects([F(1, 3), F(1, 5), F(1, 3)]), 4)
    assert exact.tolist() == [F(1, 5), 0, F(2, 3), 0]
    assert all(isinstance(value, Fraction) for value in exact)
    nothing = np.array([], dtype=np.int64)
    assert scatter_sum(nothing, np.array([]), 2).tolist() == [0, 0]
    assert is_exact(scatter_sum(nothing, objects([]), 2))


def test_zeros_are_of_the_kind_asked_for() -> None:
    assert zeros(2, np.array([0.5])).dtype == np.float64
    exact = zeros(2, objects([F(1, 2)]))
    assert is_exact(exact)
    assert not is_exact(zeros(2, np.array([0.5])))
    assert all(isinstance(value, Fraction) for value in exact)
