"""Sums of exponentials by groups, against sums over tokens and against fractions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otm import Problem
from otm.coupling import ImportanceSelection, grouped_exponentials, importance_selection
from otm.coupling.grouped_exponentials import GroupedExponentials


def many_tokens(seed: int, zeros: bool) -> tuple[Any, Any]:
    """Two distributions of 6,000 tokens, as language models have them."""
    rng = np.random.default_rng(seed)
    scores = 2.6 * rng.standard_normal(6000)
    draft, target = np.exp(scores), np.exp(0.9 * scores + 0.7 * rng.standard_normal(6000))
    if zeros:
        draft[rng.random(6000) < 0.1], target[rng.random(6000) < 0.1] = 0, 0
        target[7] = 1e-250
    return draft / draft.sum(), target / target.sum()


@pytest.mark.parametrize(("k", "zeros"), [(2, True), (4, False), (4, True), (8, True)])
def test_groups_give_the_sums_over_tokens(
    k: int, zeros: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a token of weight zero, an overflow, or too few terms."""
    problem = Problem(*many_tokens(k, zeros), k=k)
    grouped = ImportanceSelection(problem)
    assert grouped._groups is not None
    assert grouped._groups.size * 11 < 6000
    monkeypatch.setattr(importance_selection, "LEAST_TOKENS", 10**9)
    single = ImportanceSelection(problem)
    assert single._groups is None
    np.testing.assert_allclose(
        grouped.selected_distribution, single.selected_distribution, rtol=2e-14
    )
    assert grouped.acceptance == pytest.approx(single.acceptance, rel=1e-13)


def test_residual_tokens_of_weight_zero_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    draft, target = many_tokens(3, zeros=False)
    weights = np.where(np.arange(6000) % 3 == 0, 0, target / draft)
    found = []
    for least in (4096, 10**9):
        monkeypatch.setattr(importance_selection, "LEAST_TOKENS", least)
        found.append(ImportanceSelection(Problem(draft, target, k=3), weights).acceptance)
    assert found[0] == pytest.approx(found[1], rel=1e-13)


def by_groups(problem: Problem) -> ImportanceSelection:
    """Return a plan that uses groups for a few tokens, too."""
    plan = ImportanceSelection(problem)
    plan.__dict__["_groups"] = GroupedExponentials(plan.weights[plan.weights > 0])
    return plan


@pytest.mark.parametrize("k", [2, 4])
def test_groups_agree_with_fractions(k: int) -> None:
    """The oracle is a sum over multisets; two tokens share a group, at its edges."""
    problem = Problem([0.3, 0.25, 0.2, 0.15, 0.1], [0.3, 0.26, 0.05, 0, 0.39], k=k)
    exact = ImportanceSelection(problem.to_exact())
    plan = by_groups(problem)
    probs = exact.selected_distribution.astype(np.float64)
    np.testing.assert_allclose(plan.selected_distribution, probs, rtol=1e-14)
    assert plan.acceptance == pytest.approx(float(exact.acceptance), rel=1e-14)


def test_too_few_terms_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the certified error is (e^(1/32) − 1)^J, and J = 3 shows."""
    problem = Problem([0.3, 0.25, 0.2, 0.15, 0.1], [0.3, 0.26, 0.05, 0, 0.39], k=4)
    exact = ImportanceSelection(problem.to_exact()).selected_distribution.astype(np.float64)
    monkeypatch.setattr(grouped_exponentials, "TERMS", 3)
    off = np.abs(by_groups(problem).selected_distribution / exact - 1).max()
    assert 1e-9 < off < 1e-4
