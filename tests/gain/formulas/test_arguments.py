"""What all formulas have in common: kinds of numbers, arrays, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otm.errors import InvalidDistributionError, InvalidParameterError
from otm.gain import (
    acceptance_from_divergence,
    best_gamma,
    expected_tokens,
    lk_divergence,
    memory_accesses_factor,
    operations_factor,
    oracle_speedup,
    single_draft_improvement,
    walltime_improvement,
)

F = Fraction


@given(st.fractions(0, 1, max_denominator=30), st.integers(0, 12))
def test_results_of_fractions_are_fractions(alpha: Fraction, gamma: int) -> None:
    """Catches a float, or a whole number, on the way at α = 0, α = 1 or γ = 0."""
    for result in (
        acceptance_from_divergence(alpha),
        expected_tokens(alpha, gamma),
        memory_accesses_factor(alpha, gamma),
        operations_factor(alpha, gamma, 0),
        walltime_improvement(alpha, gamma, 1),
        single_draft_improvement(alpha, 2),
        oracle_speedup(alpha, 1),
    ):
        assert type(result) is Fraction


def test_certain_acceptance() -> None:
    """At α = 1 the printed formulas are 0/0: every draft counts."""
    for one in (1, 1.0, F(1)):
        assert expected_tokens(one, 7) == 8
        assert walltime_improvement(one, 7, one) == 1
        assert memory_accesses_factor(one, 7) == F(1, 8)
        assert operations_factor(one, 7, 0) == 1
        assert single_draft_improvement(one, 0) == 2
        assert oracle_speedup(one) == math.inf
        assert oracle_speedup(one, F(1, 4)) == 4
        assert best_gamma(one, one) == 0
        assert best_gamma(one, F(99, 100), max_gamma=10**6) == 10**6


def test_arrays_broadcast() -> None:
    """Catches a scalar rule applied to the first entry of an array."""
    alpha, gamma = np.array([0, 0.5, 1.0]), np.array([[0], [1], [3]])
    assert expected_tokens(alpha, gamma).tolist() == [[1, 1, 1], [1, 1.5, 2], [1, 1.875, 4]]
    exact = expected_tokens([F(0), F(1, 2), 1], gamma)
    assert exact.dtype == object
    assert exact.tolist() == expected_tokens(alpha, gamma).tolist()
    assert best_gamma([[0.5], [0.9]], [0.02, 0.6]).tolist() == [[4, 0], [19, 2]]
    assert best_gamma([0.5, 1.0], [0, 2.0], max_gamma=9).tolist() == [9, 0]
    assert oracle_speedup([F(1), F(1, 2)]).tolist() == [math.inf, 2]
    assert expected_tokens([], 3).shape == (0,)
    assert best_gamma([], 0.5).shape == (0,)


def test_floats_beside_fractions_give_floats() -> None:
    assert type(walltime_improvement(F(1, 2), 2, 0.5)) is float
    assert type(walltime_improvement(0.5, 2, F(1, 2))) is float
    assert type(expected_tokens(1, 2)) is float
    assert type(expected_tokens([F(1, 2), 0.5], 2)[0]) is np.float64
    assert walltime_improvement(np.float16(0.5), 2, np.float16(0.5)) == 0.875
    torch = pytest.importorskip("torch")
    assert expected_tokens(torch.tensor([0.5]), torch.tensor(1)).tolist() == [1.5]


WRONG_RATES = [-0.1, 1.0000001, np.nan, math.inf, F(-1, 9), F(10, 9), 2, [0.5, 1.5]]
NOT_RATES = ["0.5", None, True, 0.5j, [F(1, 2), True], [F(1, 2), "1"], [[0.5], [0.5, 0.5]]]
WRONG_COSTS = [-0.1, np.nan, math.inf, 1e201, F(-1, 9), -1, 10**400, [1, -1], "1", None, True]
WRONG_GAMMAS = [-1, 1.0, F(1), True, "1", None, np.nan, 2**53 + 1, 10**400, [1, -1], [1.0]]
OF_ALPHA: list[Callable[[Any], Any]] = [
    acceptance_from_divergence,
    lambda alpha: expected_tokens(alpha, 2),
    lambda alpha: walltime_improvement(alpha, 2, 0.1),
    lambda alpha: operations_factor(alpha, 2, 0.1),
    lambda alpha: memory_accesses_factor(alpha, 2),
    lambda alpha: best_gamma(alpha, 0.1),
    lambda alpha: single_draft_improvement(alpha, 0.1),
    oracle_speedup,
]
OF_COST: list[Callable[[Any], Any]] = [
    lambda cost: walltime_improvement(0.5, 2, cost),
    lambda cost: operations_factor(0.5, 2, cost),
    lambda cost: best_gamma(0.5, cost),
    lambda cost: single_draft_improvement(0.5, cost),
    lambda cost: oracle_speedup(0.5, cost),
]
OF_GAMMA: list[Callable[[Any], Any]] = [
    lambda gamma: expected_tokens(0.5, gamma),
    lambda gamma: walltime_improvement(0.5, gamma, 0.1),
    lambda gamma: operations_factor(0.5, gamma, 0.1),
    lambda gamma: memory_accesses_factor(0.5, gamma),
]


@pytest.mark.parametrize("wrong", [*WRONG_RATES, *NOT_RATES], ids=lambda wrong: f"{wrong!r:.20}")
def test_rates_outside_their_range(wrong: Any) -> None:
    for function in OF_ALPHA:
        with pytest.raises(InvalidParameterError, match=r"^(α|D_LK) .*must be a number in \[0, 1]"):
            function(wrong)


@pytest.mark.parametrize("wrong", WRONG_COSTS, ids=lambda wrong: f"{wrong!r:.20}")
def test_costs_outside_their_range(wrong: Any) -> None:
    for function in OF_COST:
        with pytest.raises(InvalidParameterError, match=r"^[cĉ] = .*must be a number from 0"):
            function(wrong)


@pytest.mark.parametrize("wrong", WRONG_GAMMAS, ids=lambda wrong: f"{wrong!r:.20}")
def test_draft_numbers_outside_their_range(wrong: Any) -> None:
    for function in OF_GAMMA:
        with pytest.raises(InvalidParameterError, match=r"^γ = .*must be an integer from 0"):
            function(wrong)
    if wrong is not None:
        with pytest.raises(
            InvalidParameterError, match=r"^max_gamma = .*must be an integer from 0"
        ):
            best_gamma(0.5, 0.1, max_gamma=wrong)


def test_arguments_that_do_not_fit_together() -> None:
    with pytest.raises(InvalidParameterError, match=r"shapes \(2,\) and \(3,\)"):
        expected_tokens([0.1, 0.2], [1, 2, 3])
    with pytest.raises(InvalidParameterError, match="max_gamma"):
        best_gamma(0.5, 0.1, max_gamma=[1, 2])  # type: ignore[arg-type]
    with pytest.raises(InvalidDistributionError):
        lk_divergence([0.5, 0.5], [1.0])
