"""The membership problem: drafts counts, exact mode, immutability, and what solving respects."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from otm._core.checks import as_draft_count
from otm.errors import InvalidDistributionError, InvalidDraftCountError
from otm.problem import Problem
from otm.testing.strategies import problems

F = Fraction
HALVES = [0.5, 0.5]


@pytest.mark.parametrize("k", [0, -1, True, np.True_, 1.0, 2.5, "2", None, F(2), [2]])
def test_what_is_not_a_number_of_drafts_is_refused(k: Any) -> None:
    # Inputs: k = 0, bool, float
    with pytest.raises(InvalidDraftCountError, match="k = "):
        Problem(HALVES, HALVES, k)


@pytest.mark.parametrize("k", [1, np.int64(3), np.uint8(2), 10**6])
def test_integers_of_all_kinds_count_drafts(k: Any) -> None:
    assert as_draft_count(k) == k
    assert type(as_draft_count(k)) is int


def test_laws_are_checked() -> None:
    with pytest.raises(InvalidDistributionError):
        Problem([0.5, 0.6], HALVES, 1)


def test_a_problem_cannot_be_changed() -> None:
    problem = Problem(HALVES, HALVES, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.k = 2  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        problem.target[0] = 1


@given(problems())
def test_the_exact_problem_has_the_same_laws(problem: Problem) -> None:
    exact = problem.to_exact()
    assert exact.exact
    assert not problem.exact
    assert (exact.n, exact.k) == (problem.n, problem.k)
    assert exact.draft.sum() == exact.target.sum() == 1
    for law, floats in ((exact.draft, problem.draft), (exact.target, problem.target)):
        assert abs(law.astype(np.float64) - floats).max() <= 1e-15
    assert exact.to_exact() is exact


def test_the_order_by_ratio_is_computed_once() -> None:
    problem = Problem([0.75, 0.25], [0.25, 0.75], 2)
    assert problem.by_ratio is problem.by_ratio
    assert problem.by_ratio.tokens.tolist() == [0, 1]
