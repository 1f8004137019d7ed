"""Acceptance of list coupling by groups, against fractions and against sums over tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from otm import Problem
from otm.coupled import ListCoupling, grouped_acceptance, grouped_series, integrals
from otm.coupled.integrals import ExactClocks, FloatClocks
from otm.testing.strategies import problems

fewer = settings(max_examples=settings.default.max_examples // 4)


def by_groups(problem: Problem) -> float:
    rates = FloatClocks(problem.by_ratio, problem.k).rates
    return grouped_acceptance.grouped_acceptance(problem.by_ratio, rates, problem.k)


def by_tokens(problem: Problem) -> float:
    return float(FloatClocks(problem.by_ratio, problem.k).accepted_mass().sum())


def many_tokens(kind: str, n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    scores = 2.6 * rng.standard_normal(n)
    draft, target = np.exp(scores), np.exp(0.9 * scores + 0.7 * rng.standard_normal(n))
    if kind == "zeros":
        draft[rng.random(n) < 0.2], target[rng.random(n) < 0.2] = 0, 0
    elif kind == "ties":
        draft, target = rng.integers(1, 4, n), rng.integers(0, 4, n)
    elif kind == "near":
        target = draft * rng.uniform(1 - 1e-4, 1 + 1e-4, n)
    elif kind == "equal":
        target = draft.copy()
    elif kind == "disjoint":
        draft[::2], target[1::2] = 0, 0
    elif kind == "one token":
        draft[3], target[3] = 1e5, 1e6
    elif kind == "rare drafts":
        draft, target = np.exp(-300 * rng.random(n)), np.exp(-300 * rng.random(n))
        draft[:2], target[:2] = [5e-324, 1e-300], [0.1, 0]
    return draft / draft.sum(), target / target.sum()


KINDS = ("scores", "zeros", "ties", "near", "equal", "disjoint", "one token", "rare drafts")


@pytest.mark.parametrize("heavy", [-1, grouped_series.HEAVY, 100])
def test_groups_agree_with_fractions(heavy: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a wrong factor of a power, or a token in no sum: all, some or no tokens are heavy."""
    monkeypatch.setattr(grouped_series, "HEAVY", heavy)

    @fewer
    @given(problems(max_tokens=4, max_drafts=4, exact=True))
    def check(exact: Problem) -> None:
        problem = Problem(exact.draft.astype(float), exact.target.astype(float), exact.k)
        expected = float(ExactClocks(exact.by_ratio, exact.k).acceptance())
        assert abs(by_groups(problem) - expected) <= 1e-14

    check()


@pytest.mark.parametrize("k", [1, 2, 4, 8, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_groups_agree_with_sums_over_tokens(kind: str, k: int) -> None:
    """Bug: a tie, a zero or an overflow, or too few nodes, powers or terms."""
    problem = Problem(*many_tokens(kind, 800), k=k)
    assert abs(by_groups(problem) - by_tokens(problem)) <= 1e-14


@pytest.mark.parametrize("k", [2, 8])
@pytest.mark.parametrize("kind", ["scores", "zeros", "one token"])
def test_later_blocks_count_in_earlier_ones(
    kind: str, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a group across two blocks, or the later blocks' part of Ĝ is lost."""
    monkeypatch.setattr(grouped_acceptance, "GROUP_TOKENS", 8)
    monkeypatch.setattr(grouped_acceptance, "BLOCK_TOKENS", 32)
    problem = Problem(*many_tokens(kind, 500), k=k)
    assert abs(by_groups(problem) - by_tokens(problem)) <= 1e-14


@pytest.mark.parametrize("tolerance", [1e-5, 1e-8])
def test_the_certified_error_is_true(tolerance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a larger tolerance gives a larger error, within ten tolerances."""
    problem = Problem(*many_tokens("scores", 1500), k=8)
    for module in (grouped_series, grouped_acceptance):
        monkeypatch.setattr(module, "TOLERANCE", tolerance)
    error = abs(by_groups(problem) - by_tokens(problem))
    assert tolerance / 1e4 < error <= 10 * tolerance


def test_many_tokens_are_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: `acceptance` integrates for each token, which takes twenty times as long."""
    problem = Problem(*many_tokens("scores", 1500), k=4)
    expected = by_tokens(problem)
    monkeypatch.setattr(integrals, "log_trapezoid", None)
    assert abs(ListCoupling(problem).acceptance - expected) <= 1e-14
