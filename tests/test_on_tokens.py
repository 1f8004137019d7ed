"""Rules and solutions on supports: the same laws and decisions as on the whole vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otm
from otm.coupling import KSeq, OptimalPlan, RecursiveRejection, TablePlan
from otm.errors import InvalidDraftsError, InvalidUniformsError
from otm.membership.highs_ import solve_highs
from otm.membership.linear_program import packing_form
from otm.on_tokens import OnTokens, SparseSolution, on_tokens
from otm.sparse import SparseLaw, align
from otm.testing.strategies import pairs

F = Fraction
HUGE = 10**12
IDS = [7, 8, 1000, 150_000, HUGE]


def by_linear_program(problem: otm.MembershipProblem) -> TablePlan:
    return TablePlan.from_linear_program(solve_highs(packing_form(problem)))


RULES = [OptimalPlan, KSeq, RecursiveRejection, by_linear_program]


def spread(pair: Any) -> list[SparseLaw]:
    """Give the tokens of a pair of laws far larger ids."""
    return [SparseLaw(IDS[: law.size], law) for law in pair]


@pytest.mark.parametrize("rule", RULES)
@given(pair=pairs(max_tokens=4, exact=True), k=st.integers(1, 3))
def test_the_laws_are_those_of_the_dense_rule(rule: Callable[..., Any], pair: Any, k: int) -> None:
    problem = otm.MembershipProblem(*pair, k)
    dense, plan = rule(problem), on_tokens(rule, *spread(pair), k)
    assert plan.acceptance == pytest.approx(dense.acceptance, abs=1e-12)
    law = plan.output_law()
    expected = SparseLaw.from_dense(problem.target)
    assert law.tokens.tolist() == [IDS[token] for token in expected.tokens]
    assert law.probabilities.tolist() == expected.probabilities.tolist()
    for drafts, _ in problem.drafts.tuples():
        conditional = plan.conditional([IDS[token] for token in drafts])
        assert conditional.sum() == 1
        if rule is not by_linear_program:  # whose optimum need not be unique
            assert conditional.tolist() == [
                value
                for token, value in enumerate(dense.conditional(drafts))
                if problem.draft[token] or problem.target[token]
            ]


@pytest.mark.parametrize("rule", RULES)
def test_selections_are_those_of_the_dense_rule(rule: Callable[..., Any]) -> None:
    """Catches ids and positions that are mixed up on the way in or out."""
    rng = np.random.default_rng(8)
    n, k, ids = 300, 2, np.array([11, 40, 41, 290])
    draft, target = np.zeros(n), np.zeros(n)
    draft[ids[:3]], target[ids[1:]] = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    plan = on_tokens(rule, SparseLaw.from_dense(draft), SparseLaw.from_dense(target), k)
    dense = rule(otm.MembershipProblem(draft, target, k))
    drafts = rng.choice(n, p=draft, size=(50, 4, k))
    uniforms = rng.random((50, 4, plan.uniforms_per_selection))
    token, index = plan.select(drafts, uniforms)
    expected = dense.select(drafts, uniforms)
    assert (token == expected.token).all()
    assert (index == expected.index).all()
    assert index.min() == -1
    assert token.max() == 290
    sampled = plan.sample(drafts, np.random.default_rng(1))
    assert (sampled.token == dense.sample(drafts, np.random.default_rng(1)).token).all()


def test_the_cost_is_that_of_the_supports() -> None:
    """Catches an array as long as the largest id."""
    law = SparseLaw([3, HUGE], [0.5, 0.5])
    plan = on_tokens(OptimalPlan, law, law, 64)
    assert plan.plan.problem.n == 2
    assert plan.select([HUGE] * 64, [0.5] * plan.uniforms_per_selection).token == HUGE


@pytest.mark.parametrize(
    ("drafts", "says"),
    [
        ([1000, 9], "draft token 9 has probability 0"),
        ([1000, 8], "draft token 8 has probability 0"),  # in the target's support alone
        ([1000, HUGE + 1], f"draft token {HUGE + 1} has"),
        ([1000, -1], "draft token -1 has"),
        ([1000], "drafts of shape (1,)"),
        ([1000.0, 7.0], "type float64"),
        ([[1000], 7], "not array-like"),
    ],
)
def test_errors_name_original_ids(drafts: Any, says: str) -> None:
    plan = on_tokens(
        OptimalPlan, SparseLaw([7, 1000], [0.5, 0.5]), SparseLaw([8, 7], [0.5, 0.5]), 2
    )
    with pytest.raises(InvalidDraftsError) as caught:
        plan.conditional(drafts)
    assert says in str(caught.value)


def test_uniforms_are_checked_by_the_plan() -> None:
    plan = on_tokens(KSeq, SparseLaw([7], [1.0]), SparseLaw([7], [1.0]), 2)
    with pytest.raises(InvalidUniformsError):
        plan.select([7, 7], [0.5])


@given(pairs(max_tokens=5, exact=True), st.integers(1, 3))
def test_a_solution_speaks_of_original_ids(pair: Any, k: int) -> None:
    draft, target = spread(pair)
    tokens, *aligned = align(draft, target)
    solution = SparseSolution(otm.solve(*aligned, k), tokens)
    assert solution.alpha == otm.alpha(*pair, k) == solution.plan.acceptance
    in_cut = np.isin(IDS[: pair[0].size], solution.cut.tokens)
    assert pair[1][in_cut].sum() + 1 - pair[0][in_cut].sum() ** k == solution.alpha
    assert isinstance(solution.plan, OnTokens)
    solution.solution.certificate.check()
    assert "original ids" in repr(solution)
