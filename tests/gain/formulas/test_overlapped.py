"""Drafting while the target verifies: by chains of phases, in fractions."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otm.errors import InvalidParameterError
from otm.gain import (
    expected_tokens,
    mean_hit_rate,
    overlapped_improvement,
    parallel_improvement,
    walltime_improvement,
)

F = Fraction
rates = st.fractions(0, 1, max_denominator=30)
costs = st.fractions(0, 3, max_denominator=50)


@given(rates, st.integers(0, 4), costs, rates, rates)
def test_prepared_blocks_by_all_outcomes(
    alpha: Fraction, gamma: int, cost: Fraction, rejected: Fraction, accepted: Fraction
) -> None:
    """Enumerate tests and hits of a block.  Bug: a hit rate of another outcome, time twice."""
    tokens = time = hits = F(0)
    for *tests, hit in itertools.product([True, False], repeat=gamma + 1):
        passed = sum(tests)
        rate = accepted if all(tests) else rejected
        chance = alpha**passed * (1 - alpha) ** (gamma - passed) * (rate if hit else 1 - rate)
        tokens += chance * ((tests.index(False) if False in tests else gamma) + 1)
        hits += chance * hit
        # the next block is ready when verification ends, or is drafted after it
        time += chance * (max(F(1), gamma * cost) + (0 if hit else gamma * cost))
    assert mean_hit_rate(alpha, gamma, rejected, accepted) == hits
    assert overlapped_improvement(alpha, gamma, cost, hits) == tokens / time


def chain_of_phases(alpha: Fraction, gamma: int) -> Fraction:
    """Tokens per phase of PEARL, from the stationary distribution of its phases.

    A phase is described by the number of drafts that the target verifies, and by the number of
    tokens that it adds: 1 draft after a rejection, then γ − 1 drafts, then γ drafts at a time.
    """
    verified = [1, gamma - 1, gamma] if gamma > 1 else [1]
    after = [1, 2, 2] if gamma > 1 else [0]
    tokens, chances = [], []
    for count in verified:
        chance = alpha**count
        chances.append(chance)
        # an accepted block adds its drafts only: the next drafts continue its last draft
        rejected = sum(alpha**j * (1 - alpha) * (j + 1) for j in range(count))
        tokens.append(rejected + chance * count)
    # visits per cycle, which begins after a rejection
    visits = [F(0)] * len(verified)
    visits[0] = 1 / (1 - chances[0]) if after[0] == 0 else F(1)
    if gamma > 1:
        visits[1] = chances[0]
        visits[2] = visits[1] * chances[1] / (1 - chances[2])
    return sum((v * t for v, t in zip(visits, tokens, strict=True)), F(0)) / sum(visits, F(0))


@given(st.fractions(0, F(29, 30), max_denominator=30), st.integers(1, 6), costs)
def test_one_chain_by_its_phases(alpha: Fraction, gamma: int, cost: Fraction) -> None:
    """Bug: a bonus token that PEARL does not have, a phase too many for one draft."""
    expected = chain_of_phases(alpha, gamma) / max(F(1), gamma * cost)
    assert parallel_improvement(alpha, gamma, cost) == expected


def test_limits() -> None:
    """Without hits the speed is Leviathan's; with certain drafts it is γ per call.

    The last line is a control: slow preparation costs time even if every outcome is a hit.
    """
    assert overlapped_improvement(F(2, 3), 4, F(1, 8), 0) == walltime_improvement(
        F(2, 3), 4, F(1, 8)
    )
    assert parallel_improvement(1, [1, 4], F(1, 8)).tolist() == [1, 4]
    assert parallel_improvement(1.0, 4, 0.5) == 2
    tokens = expected_tokens(F(2, 3), 4)
    assert overlapped_improvement(F(2, 3), 4, F(1, 8), 1, backup=7) == tokens
    assert overlapped_improvement(F(2, 3), 4, F(1, 8), 1, preparation=2) == tokens / 2


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="from 1 to"):
        parallel_improvement(0.5, 0, 0.1)
    with pytest.raises(InvalidParameterError, match="h = 2"):
        overlapped_improvement(0.5, 1, 0.1, 2)
    with pytest.raises(InvalidParameterError, match="backup"):
        overlapped_improvement(0.5, 1, 0.1, 1, backup=-1)
