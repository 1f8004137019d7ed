"""Rules and solutions on supports: the same laws and decisions as on the whole vocabulary."""

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
from otm._core.sparse import SparseProbs, align
from otm.coupling import (
    RULES,
    KSeq,
    OptimalPlan,
    RecursiveRejection,
    TablePlan,
    TypicalAcceptance,
)
from otm.errors import InvalidDraftsError, InvalidParameterError, InvalidUniformsError
from otm.on_tokens import OnTokens, SparseSolution, on_tokens
from otm.optimum.solvers.highs import solve_highs
from otm.optimum.solvers.linear_program import packing_form
from otm.testing.strategies import pairs

F = Fraction
HUGE = 10**12
IDS = [7, 8, 1000, 150_000, HUGE]


def by_linear_program(problem: otm.Problem) -> TablePlan:
    return TablePlan.from_linear_program(solve_highs(packing_form(problem)))


SOME_RULES = [OptimalPlan, KSeq, RecursiveRejection, by_linear_program]


def spread(pair: Any) -> list[SparseProbs]:
    """Give the tokens of a pair of laws far larger ids."""
    return [SparseProbs(IDS[: law.size], law) for law in pair]


@pytest.mark.parametrize("rule", SOME_RULES)
@given(pair=pairs(max_tokens=4, exact=True), k=st.integers(1, 3))
def test_the_laws_are_those_of_the_dense_rule(rule: Callable[..., Any], pair: Any, k: int) -> None:
    problem = otm.Problem(*pair, k)
    dense, plan = rule(problem), on_tokens(rule, *spread(pair), k)
    assert plan.acceptance == pytest.approx(dense.acceptance, abs=1e-12)
    law = plan.output_distribution()
    expected = SparseProbs.from_dense(problem.target)
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


@pytest.mark.parametrize("rule", SOME_RULES)
def test_selections_are_those_of_the_dense_rule(rule: Callable[..., Any]) -> None:
    """Catches ids and positions that are mixed up on the way in or out."""
    rng = np.random.default_rng(8)
    n, k, ids = 300, 2, np.array([11, 40, 41, 290])
    draft, target = np.zeros(n), np.zeros(n)
    draft[ids[:3]], target[ids[1:]] = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    plan = on_tokens(rule, SparseProbs.from_dense(draft), SparseProbs.from_dense(target), k)
    dense = rule(otm.Problem(draft, target, k))
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


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_rule_draws_and_selects_original_ids(rule: Callable[..., Any]) -> None:
    """Catches drafts in positions, and rules whose drafts are not i.i.d. or fewer than k."""
    plan = on_tokens(
        rule,
        SparseProbs(IDS[:4], [0.4, 0.3, 0.2, 0.1]),
        SparseProbs(IDS, [0.2] * 5),
        2,
    )
    drafts = plan.drafts.sample(np.random.default_rng(0), size=(20, 3))
    assert drafts.shape == (20, 3, plan.drafts.k)
    assert plan.drafts.k == plan.plan.drafts.k
    positions = plan.plan.drafts.sample(np.random.default_rng(0), size=(20, 3))
    assert drafts.tolist() == np.array(IDS)[positions].tolist()
    assert plan.drafts.check(drafts).tolist() == drafts.tolist()
    token, index = plan.sample(drafts, np.random.default_rng(1))
    assert np.isin(token, IDS).all()
    found = np.take_along_axis(drafts, index[..., None], -1)[..., 0]
    assert (found == token)[index >= 0].all()
    assert plan.lossless
    assert plan.acceptance_bounds.lower == plan.plan.acceptance_bounds.lower


def test_a_rule_that_is_not_lossless_says_so() -> None:
    law = SparseProbs([3, HUGE], [0.5, 0.5])
    assert not on_tokens(TypicalAcceptance, law, law, 2).lossless


def test_the_cost_is_that_of_the_supports() -> None:
    """Catches an array as long as the largest id."""
    law = SparseProbs([3, HUGE], [0.5, 0.5])
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
        OptimalPlan,
        SparseProbs([7, 1000], [0.5, 0.5]),
        SparseProbs([8, 7], [0.5, 0.5]),
        2,
    )
    with pytest.raises(InvalidDraftsError) as caught:
        plan.conditional(drafts)
    assert says in str(caught.value)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_errors_of_every_rule_name_original_ids(rule: Callable[..., Any]) -> None:
    """Catches drafts that each can be drawn, but not together, named by their positions."""
    plan = on_tokens(
        rule,
        SparseProbs([7, 8, 1000], [0.5, 0.3, 0.2]),
        SparseProbs([9, 7], [0.5] * 2),
        2,
    )
    possible = {tuple(plan.tokens[[*drafts]]) for drafts, _ in plan.plan.drafts.tuples()}
    uniforms = [0.5] * plan.uniforms_per_selection
    for drafts in itertools.product([7, 8, 9, 10, 1000], repeat=plan.drafts.k):
        if drafts in possible:
            assert plan.drafts.check(drafts).tolist() == [*drafts]
            continue
        alone = [f"draft token {token} has probability 0" for token in {9, 10}.intersection(drafts)]
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
    plan = on_tokens(KSeq, SparseProbs([7], [1.0]), SparseProbs([7], [1.0]), 2)
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


def test_a_solution_does_what_any_solution_does(tmp_path: Path) -> None:
    """Catches an attribute of `Solution` that laws by their support would lose."""
    draft, target = (
        SparseProbs(IDS[:3], [0.5, 0.25, 0.25]),
        SparseProbs(IDS[1:4], [0.25, 0.5, 0.25]),
    )
    found = otm.solve(draft, target, 2)
    tokens, *aligned = align(draft, target)
    alone = otm.solve(*aligned, 2)
    found.certificate.check()
    assert found.certificate is found.certificate
    found.certificate.save(tmp_path / "proof.json")
    assert otm.Certificate.load(tmp_path / "proof.json").upper == alone.certificate.upper
    assert found.problem.draft.tolist() == alone.problem.draft.tolist()
    assert found.problem.n == tokens.size == 4
    assert [bound.value for bound in found.bounds] == [bound.value for bound in alone.bounds]
    assert (found.method, found.why) == (alone.method, alone.why)
    assert otm.solve(draft, target, 2, method="lp-highs").method == "lp-highs"
    drafts = found.plan.drafts.sample(np.random.default_rng(0))
    assert found.plan.select(drafts, [0.5] * found.plan.uniforms_per_selection).token in IDS
    missing = {name for name in dir(alone) if name[0] != "_"} - set(dir(found)) - {"solver_plan"}
    assert not missing
