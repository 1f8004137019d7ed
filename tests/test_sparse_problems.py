"""Rules and solutions on supports: same results as on the whole vocabulary."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otm
from otm import Problem, SparseProbs
from otm._core.probs.sparse import align
from otm.coupling import PLANS, KSeq, OptimalPlan, RecursiveRejection, TablePlan
from otm.coupling.lossy import TypicalAcceptance
from otm.errors import InvalidDraftsError, InvalidParameterError, InvalidUniformsError
from otm.optimum.solvers.highs import solve_highs
from otm.optimum.solvers.linear_program import packing_form
from otm.testing import assert_lossless
from otm.testing.strategies import pairs

F = Fraction
HUGE = 10**12
IDS = [7, 8, 1000, 150_000, HUGE]


def by_linear_program(problem: Problem) -> TablePlan:
    return TablePlan.from_linear_program(solve_highs(packing_form(problem)))


SOME_RULES = [OptimalPlan, KSeq, RecursiveRejection, by_linear_program]


def spread(pair: Any) -> list[SparseProbs]:
    """Give the tokens of a pair of distributions far larger ids."""
    return [SparseProbs(IDS[: law.size], law) for law in pair]


@pytest.mark.parametrize("rule", SOME_RULES)
@given(pair=pairs(max_tokens=4, exact=True), k=st.integers(1, 3))
def test_the_laws_are_those_of_the_dense_rule(rule: Callable[..., Any], pair: Any, k: int) -> None:
    problem = Problem(*pair, k)
    dense, plan = rule(problem), rule(Problem(*spread(pair), k))
    assert plan.acceptance == pytest.approx(dense.acceptance, abs=1e-12)
    possible = [i for i in range(problem.n) if problem.draft[i] or problem.target[i]]
    assert plan.problem.tokens.tolist() == [IDS[i] for i in possible]
    assert plan.output_distribution().tolist() == problem.target[possible].tolist()
    for drafts, _ in problem.drafts.tuples():
        conditional = plan.conditional([IDS[token] for token in drafts])
        assert conditional.sum() == 1
        if rule is not by_linear_program:  # whose optimum need not be unique
            assert conditional.tolist() == [
                value
                for token, value in enumerate(dense.conditional(drafts))
                if problem.draft[token] or problem.target[token]
            ]


@pytest.mark.parametrize("rule", SOME_RULES)
def test_selections_are_those_of_the_dense_rule(rule: Callable[..., Any]) -> None:
    """Catches ids and positions that are mixed up on the way in or out."""
    rng = np.random.default_rng(8)
    n, k, ids = 300, 2, np.array([11, 40, 41, 290])
    draft, target = np.zeros(n), np.zeros(n)
    draft[ids[:3]], target[ids[1:]] = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    plan = rule(Problem(SparseProbs.from_dense(draft), SparseProbs.from_dense(target), k))
    dense = rule(Problem(draft, target, k))
    drafts = rng.choice(n, p=draft, size=(50, 4, k))
    uniforms = rng.random((50, 4, plan.uniforms_per_selection))
    token, index = plan.select(drafts, uniforms)
    expected = dense.select(drafts, uniforms)
    assert (token == expected.token).all()
    assert (index == expected.index).all()
    assert index.min() == -1
    assert token.max() == 290
    numbers = rng.random((50, 4, plan.drafts.uniforms_per_draw))
    assert (plan.drafts.draw(numbers) == dense.drafts.draw(numbers)).all()
    sampled = plan.sample(drafts, np.random.default_rng(1))
    assert (sampled.token == dense.sample(drafts, np.random.default_rng(1)).token).all()


@pytest.mark.parametrize("rule", PLANS.values(), ids=PLANS)
def test_every_rule_draws_and_selects_original_ids(rule: Callable[..., Any]) -> None:
    """Catches drafts in positions, and rules whose drafts are not i.i.d. or fewer than k."""
    plan = rule(
        Problem(
            SparseProbs(IDS[:4], [0.4, 0.3, 0.2, 0.1]),
            SparseProbs(IDS, [0.2] * 5),
            2,
        )
    )
    drafts = plan.drafts.sample(np.random.default_rng(0), size=(20, 3))
    assert drafts.shape == (20, 3, plan.drafts.k)
    on_union = rule(Problem(plan.problem.draft, plan.problem.target, 2))
    assert plan.drafts.k == on_union.drafts.k
    positions = on_union.drafts.sample(np.random.default_rng(0), size=(20, 3))
    assert drafts.tolist() == np.array(IDS)[positions].tolist()
    assert plan.drafts.positions(drafts).tolist() == positions.tolist()
    assert plan.drafts.check(drafts).tolist() == drafts.tolist()
    token, index = plan.sample(drafts, np.random.default_rng(1))
    assert np.isin(token, IDS).all()
    found = np.take_along_axis(drafts, index[..., None], -1)[..., 0]
    assert (found == token)[index >= 0].all()
    assert plan.lossless
    assert plan.acceptance_bounds.lower == on_union.acceptance_bounds.lower


def test_a_rule_that_is_not_lossless_says_so() -> None:
    law = SparseProbs([3, HUGE], [0.5, 0.5])
    assert not TypicalAcceptance(Problem(law, law, 2)).lossless


def test_the_cost_is_that_of_the_supports() -> None:
    """Catches an array as long as the largest id."""
    law = SparseProbs([3, HUGE], [0.5, 0.5])
    plan = OptimalPlan(Problem(law, law, 64))
    assert plan.problem.n == 2
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
    plan = OptimalPlan(
        Problem(
            SparseProbs([7, 1000], [0.5, 0.5]),
            SparseProbs([8, 7], [0.5, 0.5]),
            2,
        )
    )
    with pytest.raises(InvalidDraftsError) as caught:
        plan.conditional(drafts)
    assert says in str(caught.value)


@pytest.mark.parametrize("rule", PLANS.values(), ids=PLANS)
def test_errors_of_every_rule_name_original_ids(rule: Callable[..., Any]) -> None:
    """Catches drafts that each can be drawn, but not together, named by their positions."""
    plan = rule(
        Problem(
            SparseProbs([7, 8, 1000], [0.5, 0.3, 0.2]),
            SparseProbs([9, 7], [0.5] * 2),
            2,
        )
    )
    possible = {drafts for drafts, _ in plan.drafts.tuples()}
    names = plan.problem.tokens
    assert possible == {tuple(names[[*x]].tolist()) for x, _ in plan.drafts.position_tuples()}
    uniforms = [0.5] * plan.uniforms_per_selection
    for drafts in itertools.product([7, 8, 9, 10, 1000], repeat=plan.drafts.k):
        if drafts in possible:
            assert plan.drafts.check(drafts).tolist() == [*drafts]
            continue
        never = {9, 10, *names[~plan.drafts.draftable].tolist()}
        alone = [f"draft token {token} has probability 0" for token in never.intersection(drafts)]
        for refuse in (
            plan.drafts.check,
            plan.conditional,
            lambda drafts: plan.select(drafts, uniforms),
            lambda drafts: plan.sample(drafts, np.random.default_rng(0)),
        ):
            with pytest.raises(InvalidDraftsError) as caught:
                refuse(drafts)
            says = str(caught.value)
            assert any(text in says for text in alone or [f"drafts {[*drafts]} have probability 0"])


def test_a_seed_is_no_generator() -> None:
    """Bug: 'int' object has no attribute 'random'."""
    solution = otm.solve(
        SparseProbs([7, 900], [0.75, 0.25]), SparseProbs([7, 900], [0.25, 0.75]), 2
    )
    with pytest.raises(InvalidParameterError, match=r"np\.random\.default_rng\(seed\)"):
        solution.plan.sample([7, 900], 0)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match=r"^rng = "):
        solution.plan.drafts.sample(0)  # type: ignore[arg-type]


def test_uniforms_are_checked_by_the_plan() -> None:
    plan = KSeq(Problem(SparseProbs([7], [1.0]), SparseProbs([7], [1.0]), 2))
    with pytest.raises(InvalidUniformsError):
        plan.select([7, 7], [0.5])


@given(pairs(max_tokens=5, exact=True), st.integers(1, 3))
def test_a_solution_speaks_of_original_ids(pair: Any, k: int) -> None:
    draft, target = spread(pair)
    tokens, *_ = align(draft, target)
    solution = otm.solve(draft, target, k)
    assert solution.problem.tokens.tolist() == tokens.tolist()
    assert solution.alpha == otm.alpha(*pair, k) == solution.plan.acceptance
    in_cut = np.isin(IDS[: pair[0].size], solution.cut.tokens)
    assert pair[1][in_cut].sum() + 1 - pair[0][in_cut].sum() ** k == solution.alpha
    assert isinstance(solution.plan, OptimalPlan)
    solution.certificate.check()
    assert f"n = {tokens.size} tokens" in repr(solution)


def test_a_solution_does_what_any_solution_does(tmp_path: Path) -> None:
    """Catches an attribute of `Solution` that distributions by their support would lose."""
    draft, target = (
        SparseProbs(IDS[:3], [0.5, 0.25, 0.25]),
        SparseProbs(IDS[1:4], [0.25, 0.5, 0.25]),
    )
    solution = otm.solve(draft, target, 2)
    tokens, *aligned = align(draft, target)
    alone = otm.solve(*aligned, 2)
    solution.certificate.check()
    assert solution.certificate is solution.certificate
    solution.certificate.save(tmp_path / "proof.json")
    assert otm.Certificate.load(tmp_path / "proof.json").upper == alone.certificate.upper
    assert solution.problem.draft.tolist() == alone.problem.draft.tolist()
    assert solution.problem.n == tokens.size == 4
    assert [bound.value for bound in solution.bounds] == [bound.value for bound in alone.bounds]
    assert (solution.method, solution.why) == (alone.method, alone.why)
    assert otm.solve(draft, target, 2, method="lp-highs").method == "lp-highs"
    drafts = solution.plan.drafts.sample(np.random.default_rng(0))
    assert solution.plan.select(drafts, [0.5] * solution.plan.uniforms_per_selection).token in IDS
    assert repr(solution) == repr(alone)
    assert solution._repr_html_() == alone._repr_html_()


@pytest.mark.parametrize("rule", PLANS.values(), ids=PLANS)
def test_every_rule_is_lossless_on_token_ids(rule: Callable[..., Any]) -> None:
    """In fractions, along every path of its decisions."""
    draft = SparseProbs(IDS[:2], [F(2, 3), F(1, 3)])
    target = SparseProbs(IDS[1:3], [F(1, 4), F(3, 4)])
    assert_lossless(rule(Problem(draft, target, 2)))
