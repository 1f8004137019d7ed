"""Lenience: the value by brute force over cuts, and the accepted masses that attain it."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otm.errors import InvalidParameterError
from otm.optimum.cut import optimal_value
from otm.optimum.lenience import (
    acceptance_at_distance,
    closest_ratio,
    lenient_cap,
    lenient_value,
)
from otm.problem import Problem
from otm.testing.strategies import problems

F = Fraction
small = problems(max_tokens=5, max_drafts=4, exact=True)
leniences = st.fractions(F(1, 50), 1, max_denominator=50)


def by_all_cuts(problem: Problem, lenience: Fraction) -> Fraction:
    draft, target = problem.draft.tolist(), problem.target.tolist()
    cuts = [cut for size in range(problem.n + 1) for cut in combinations(range(problem.n), size)]
    return min(
        sum((target[x] for x in cut), F(0)) / lenience
        + 1
        - sum((draft[x] for x in cut), F(0)) ** problem.k
        for cut in cuts
    )


@given(small, leniences)
def test_the_value_is_the_minimum_over_all_cuts(problem: Problem, lenience: Fraction) -> None:
    assert lenient_value(problem, lenience) == by_all_cuts(problem, lenience)
    assert lenient_value(problem, F(1)) == optimal_value(problem)


@given(small, leniences)
def test_both_accepted_masses_attain_it(problem: Problem, lenience: Fraction) -> None:
    order, value = problem.by_ratio, lenient_value(problem, lenience)
    capped = np.minimum(order.target / lenience, lenient_cap(problem, lenience) * order.draft)
    assert capped.sum() == value
    ratio = closest_ratio(problem, lenience)
    closest = ratio * order.draft
    assert closest.sum() == value
    assert (closest <= order.target / lenience).all()
    assert (np.diff(ratio) >= 0).all()
    # the least total variation that its acceptance can have
    excess = np.maximum(closest - order.target, F(0)).sum()
    assert excess == value - optimal_value(problem)


@given(small, leniences)
def test_floats_agree_with_fractions(problem: Problem, lenience: Fraction) -> None:
    # bug: a cap or bound far outside its piece where two sums differ by rounding alone
    draft, target = problem.draft.astype(np.float64), problem.target.astype(np.float64)
    rounded = Problem(draft, target, problem.k)
    value = float(lenient_value(problem, lenience))
    assert lenient_value(rounded, float(lenience)) == pytest.approx(value, abs=1e-12)
    mass = (closest_ratio(rounded, float(lenience)) * rounded.by_ratio.draft).sum()
    assert mass == pytest.approx(value, abs=1e-12)


def test_one_draft_is_the_formula_of_the_paper() -> None:
    p, q = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.4, 0.1, 0.25, 0.25])
    for lenience in (1.0, 0.5, 0.3, 0.1):
        expected = np.minimum(p, q / lenience).sum()
        assert lenient_value(Problem(p, q, 1), lenience) == pytest.approx(expected, abs=1e-15)


def test_acceptance_at_a_distance() -> None:
    problem = Problem([F(3, 4), F(1, 4)], [F(1, 4), F(3, 4)], 1)
    assert acceptance_at_distance(problem, F(0)) == F(1, 2)
    assert acceptance_at_distance(problem, F(1, 8)) == F(5, 8)
    assert acceptance_at_distance(problem, F(3)) == 1
    assert isinstance(acceptance_at_distance(problem, 0.125), F)
    with pytest.raises(InvalidParameterError, match="at least 0"):
        acceptance_at_distance(problem, F(-1, 8))


@pytest.mark.parametrize("lenience", [0, -0.5, 1.5])
def test_a_lenience_outside_its_range_is_refused(lenience: float) -> None:
    with pytest.raises(InvalidParameterError, match=r"\(0, 1\]"):
        lenient_value(Problem([0.5, 0.5], [0.5, 0.5], 1), lenience)
    with pytest.raises(InvalidParameterError, match=r"nan; .* \(0, 1\]"):
        lenient_value(Problem([0.5, 0.5], [0.5, 0.5], 1), float("nan"))


def test_a_float_does_not_make_fractions_inexact() -> None:
    assert lenient_value(Problem([F(1)], [F(1)], 1), 0.5) == F(1)
    assert isinstance(lenient_value(Problem([F(1)], [F(1)], 1), 0.5), F)


def test_ratios_that_overflow_do_so_silently() -> None:
    problem = Problem([1.0, 1e-308], [0.5, 0.5], 2)
    assert closest_ratio(problem, 0.25).max() <= 2
