"""What a block gives and costs: by all ways in which it can end, in fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otm.gain import (
    expected_tokens,
    memory_accesses_factor,
    operations_factor,
    oracle_speedup,
    walltime_improvement,
)

F = Fraction
rates = st.fractions(0, 1, max_denominator=30)
costs = st.fractions(0, 3, max_denominator=100)


def blocks(alpha: Fraction, gamma: int) -> list[tuple[Fraction, int]]:
    """Probability and number of tokens of every way in which γ independent tests can end."""
    found = []
    for tests in itertools.product([True, False], repeat=gamma):
        passed = sum(tests)
        tokens = (tests.index(False) if False in tests else gamma) + 1
        found.append((alpha**passed * (1 - alpha) ** (gamma - passed), tokens))
    return found


@given(rates, st.integers(0, 7), costs)
def test_factors_by_all_ends_of_a_block(alpha: Fraction, gamma: int, cost: Fraction) -> None:
    """Equation (1), Theorems 3.8 and 3.11; catches γ for γ + 1, and a draft that is not counted."""
    ends = blocks(alpha, gamma)
    assert sum(probability for probability, _ in ends) == 1
    tokens = sum(probability * number for probability, number in ends)
    assert expected_tokens(alpha, gamma) == tokens
    assert memory_accesses_factor(alpha, gamma) == 1 / tokens
    assert walltime_improvement(alpha, gamma, cost) == tokens / (1 + gamma * cost)
    assert operations_factor(alpha, gamma, cost) == (gamma + 1 + gamma * cost) / tokens
    assert operations_factor(alpha, gamma, cost) >= 1


@given(
    st.floats(0, 1) | st.integers(1, 50).map(lambda bits: 1 - 2.0**-bits),
    st.integers(0, 300),
    st.floats(0, 10),
)
def test_floats_keep_their_digits(alpha: float, gamma: int, cost: float) -> None:
    """Catches (1 − α^(γ+1)) / (1 − α) as printed, which cancels near α = 1."""
    a, c = F(alpha), F(cost)
    expected = sum(a**i for i in range(gamma + 1))
    assert expected_tokens(alpha, gamma) == pytest.approx(float(expected), rel=2e-15)
    improvement = float(expected / (1 + gamma * c))
    assert walltime_improvement(alpha, gamma, cost) == pytest.approx(improvement, rel=3e-15)
    assert type(expected_tokens(alpha, gamma)) is float


def test_blocks_of_any_length() -> None:
    """Catches a loop over the drafts, and an overflow."""
    largest = 2**53
    assert expected_tokens(1.0, largest) == largest + 1.0
    assert expected_tokens(0.75, largest) == 4.0
    assert expected_tokens(1 - 2.0**-53, largest) == pytest.approx(2.0**53 * -math.expm1(-1))
    assert walltime_improvement(1.0, largest, 1e200) == pytest.approx(1e-200)
    assert operations_factor(0.0, largest, 1e200) == pytest.approx(2.0**53 * 1e200)
    assert oracle_speedup(1.0, 5e-324) == math.inf
