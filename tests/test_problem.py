"""The membership problem: drafts counts, exact mode, immutability, and what solving respects."""

from __future__ import annotations

import dataclasses
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from otm._core.checks import as_draft_count
from otm._core.probs.sparse import SparseProbs
from otm.drafts import IID, Greedy, HubPairs, Independent, Joint, WithoutReplacement
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftCountError,
    InvalidInputError,
    NoSuchRowError,
)
from otm.problem import Problem
from otm.testing.strategies import problems

F = Fraction
HALVES = [0.5, 0.5]


@pytest.mark.parametrize("k", [0, -1, True, np.True_, 1.0, 2.5, "2", None, F(2), [2.0]])
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


# Token ids, rows, other drafts


def test_a_problem_by_supports_lives_on_their_union() -> None:
    draft, target = SparseProbs([900, 7], [0.75, 0.25]), SparseProbs([30, 7], [0.5, 0.5])
    problem = Problem(draft, target, 2)
    assert problem.tokens.tolist() == [7, 30, 900]
    assert (problem.n, problem.shape, problem.iid) == (3, (), True)
    assert problem.draft.tolist() == [0.25, 0, 0.75]
    assert problem.target.tolist() == [0.5, 0.5, 0]
    assert problem.drafts.draw([0.1, 0.9]).tolist() == [7, 900]
    for other in (problem.to_exact(), problem.to_exact().to_floats(), problem.with_k(2)):
        assert other.tokens.tolist() == [7, 30, 900]
        assert other.draft.tolist() == problem.draft.tolist()
        assert other.drafts.draw([0.1, 0.9]).tolist() == [7, 900]


def test_the_tokens_of_a_whole_vocabulary_are_all_of_it() -> None:
    problem = Problem([0.5, 0.25, 0.25], [0.25, 0.5, 0.25], 2)
    assert problem.tokens.tolist() == [0, 1, 2]
    assert problem.tokens is problem.tokens
    assert problem.drafts.tokens is None  # drafts are not translated


@pytest.mark.parametrize("exact", [True, False])
def test_each_row_is_a_problem(exact: bool) -> None:
    number = F if exact else float
    p = np.array([[[number(1), number(0)]], [[number(F(1, 4)), number(F(3, 4))]]])
    problem = Problem(p, [number(F(1, 2))] * 2, [1, 2, 5])
    assert problem.shape == (2, 3)
    assert (problem.n, problem.exact) == (2, exact)
    for i, j in np.ndindex(problem.shape):
        row = problem[i, j]
        assert (row.shape, row.k) == ((), [1, 2, 5][j])
        assert row.draft.tolist() == p[i, 0].tolist()
        assert row.target.tolist() == [0.5, 0.5]
        assert type(row.k) is int
    assert problem[-1, -1].k == 5
    with pytest.raises(NoSuchRowError, match="there is no row"):
        problem[0]
    single = problem[0, 0]
    assert single[()] is single


@pytest.mark.parametrize("name", ["drafts", "by_ratio", "to_exact", "to_floats"])
def test_what_is_about_one_problem_is_asked_of_a_row(name: str) -> None:
    problem = Problem([HALVES, HALVES], HALVES, 2)
    with pytest.raises(InvalidInputError, match=r"use problem\[i\]"):
        getattr(problem, name)()


def test_rows_by_their_support_differ_in_k() -> None:
    law = SparseProbs([7, 900], HALVES)
    problem = Problem(law, law, [1, 2])
    assert (problem.shape, problem[1].k) == ((2,), 2)
    assert problem[1].tokens.tolist() == [7, 900]


@pytest.mark.parametrize("exact", [True, False])
def test_a_problem_takes_any_drafts(exact: bool) -> None:
    p = [F(1, 2), F(1, 4), F(1, 4)] if exact else [0.5, 0.25, 0.25]
    q = [F(1, 4), F(1, 4), F(1, 2)] if exact else [0.25, 0.25, 0.5]
    for drafts in (Greedy(p, 2), HubPairs(p), WithoutReplacement(p, 2), Independent([p, p])):
        problem = Problem(drafts, q)
        assert problem.drafts is drafts
        assert (problem.iid, problem.k, problem.exact) == (False, 2, exact)
        assert problem.draft.tolist() == p
        assert problem.to_exact().exact
        assert type(problem.to_exact().drafts) is type(drafts)
        assert not problem.to_exact().to_floats().drafts.exact
    iid = IID(p, 2)
    assert Problem(iid, q).iid
    assert Problem(iid, q).drafts is iid
    assert Problem(Joint({(0, 2): 1.0}, 3), q).draft.tolist() == [0.5, 0, 0.5]


def test_floats_on_one_side_make_all_floats() -> None:
    """Catches fractions of the drafts that meet floats of the target in a rule."""
    exact, floats = [F(1, 2), F(1, 2)], HALVES
    for draft, target in ((exact, floats), (floats, exact)):
        problem = Problem(WithoutReplacement(draft, 1), target)
        assert not problem.exact
        assert not problem.drafts.exact
        assert problem.target.dtype == np.float64


def test_a_target_by_its_support_stands_beside_the_tokens_of_the_drafts() -> None:
    target = SparseProbs([9, 70], [0.25, 0.75])
    problem = Problem(Greedy([*HALVES, 0.0], 2, tokens=[9, 10, 70]), target)
    assert problem.target.tolist() == [0.25, 0, 0.75]
    assert problem.tokens.tolist() == [9, 10, 70]
    assert Problem(Greedy([0.5] * 2, 2), SparseProbs([1], [1.0])).target.tolist() == [0, 1]


def test_drafts_of_one_problem_are_drawn_as_a_rule_needs_them() -> None:
    problem = Problem(SparseProbs([7, 900], [0.75, 0.25]), SparseProbs([7], [1]), 2)
    greedy = problem.drafts_as(Greedy, problem.k)
    assert [tokens for tokens, _ in greedy.tuples()] == [(7, 900)]
    assert Problem(greedy, [1, 0]).drafts_as(Greedy, 2) is greedy
    with pytest.raises(InvalidInputError, match=r"\(Greedy\), but this rule needs"):
        Problem(greedy, [1, 0]).drafts_as(HubPairs)


def test_problems_can_be_sent() -> None:
    """Catches ids or drafts that a pickle loses, and arrays that it makes writable."""
    law = SparseProbs([7, 900], HALVES)
    for problem in (Problem(law, law, 2), Problem(Greedy(HALVES, 2, tokens=[7, 900]), HALVES)):
        sent = pickle.loads(pickle.dumps(problem))
        assert sent.tokens.tolist() == [7, 900]
        assert str(sent.drafts) == str(problem.drafts)
        assert not sent.tokens.flags.writeable
