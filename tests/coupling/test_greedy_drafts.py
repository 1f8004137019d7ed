"""The rule for greedy drafts: its acceptance is the minimum cut of its drafts."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from otm.coupling.greedy_drafts import GreedyRule
from otm.coupling.maximal import MaximalCoupling
from otm.coupling.plan import TransportPlan
from otm.errors import InvalidDraftsError
from otm.optimum.cut import minimum_cut
from otm.problem import Problem
from otm.testing import assert_lossless, exact_acceptance, exact_output_distribution
from otm.testing.instances import INSTANCES, instance
from otm.testing.strategies import problems

F = Fraction
fewer = settings(max_examples=settings.default.max_examples // 4)


def optimum(plan: TransportPlan) -> Fraction:
    """Largest acceptance for the drafts of a plan: the minimum cut, over all sets of tokens."""
    tuples = list(plan.drafts.tuples())
    q, n = plan.problem.target.tolist(), plan.problem.n
    return min(
        sum((q[y] for y in chosen), F(0)) + sum(p for x, p in tuples if not set(x) <= set(chosen))
        for size in range(n + 1)
        for chosen in itertools.combinations(range(n), size)
    )


def formula(problem: Problem) -> Fraction:
    """Compute q(A) + Σ min(q, p̃) of Hu et al.; A are the k − 1 most probable tokens."""
    order = sorted(range(problem.n), key=lambda x: -problem.draft[x])
    sure, rest = order[: problem.k - 1], order[problem.k - 1 :]
    left = sum((problem.draft[x] for x in rest), F(0))
    last = [min(problem.target[x], problem.draft[x] / left) for x in rest] if left else []
    return sum((problem.target[x] for x in sure if problem.draft[x]), F(0)) + sum(last)


@pytest.mark.parametrize("name", INSTANCES)
def test_the_code_that_decides_is_lossless(name: str) -> None:
    assert_lossless(GreedyRule(instance(name)))


@fewer
@given(problems(max_tokens=5, max_drafts=4, exact=True))
def test_acceptance_is_the_optimum_for_greedy_drafts(problem: Problem) -> None:
    plan = GreedyRule(problem)
    assert plan.acceptance == exact_acceptance(plan) == optimum(plan) == formula(problem)
    assert (
        plan.output_distribution().tolist()
        == exact_output_distribution(plan).tolist()
        == problem.target.tolist()
    )
    assert plan.acceptance_by_test <= plan.acceptance


@given(problems(max_tokens=5, max_drafts=4))
def test_floats_agree_with_fractions(problem: Problem) -> None:
    plan, exact = GreedyRule(problem), GreedyRule(problem.to_exact())
    assert abs(plan.acceptance - float(exact.acceptance)) <= 1e-12
    assert abs(plan.output_distribution() - problem.target).max() <= 1e-15


@given(problems(max_tokens=6, exact=True))
def test_one_draft_is_coupled_maximally(problem: Problem) -> None:
    one = Problem(problem.draft, problem.target, 1)
    plan = GreedyRule(one)
    assert plan.acceptance == plan.acceptance_by_test == MaximalCoupling(one).acceptance
    assert plan.accepted_mass.tolist() == MaximalCoupling(one).accepted_mass.tolist()


def test_only_the_last_draft_is_tested() -> None:
    plan = GreedyRule(Problem([F(1, 2), F(1, 4), F(1, 4)], [F(1, 4), F(1, 8), F(5, 8)], 2))
    assert tuple(plan.select([0, 1], [F(1, 5), F(0)])) == (1, 1)  # q/p̃ = (1/8)/(1/2)
    assert tuple(plan.select([0, 1], [F(1, 4), F(0)])) == (0, 0)  # the residual draws from A
    assert tuple(plan.select([0, 1], [F(1, 4), F(9, 10)])) == (2, -1)


def test_all_tokens_drafted() -> None:
    # fewer tokens with p > 0 than drafts: S is all of them, and α = q(supp p)
    plan = GreedyRule(Problem([F(1, 4), F(3, 4), F(0)], [F(1, 2), F(1, 4), F(1, 4)], 4))
    assert plan.drafts.k == 2
    assert plan.acceptance == F(3, 4)


@pytest.mark.parametrize(
    ("weights", "target", "greedy", "independent"),
    [([3, 1], [F(1, 4), F(3, 4)], 1, F(11, 16)), ([4, 3, 3], [0, 0, 1], F(1, 2), F(51, 100))],
)
def test_it_may_accept_more_or_less_than_the_best_rule_for_independent_drafts(
    weights: list[int], target: list[Fraction], greedy: Fraction, independent: Fraction
) -> None:
    draft = [F(weight, sum(weights)) for weight in weights]
    problem = Problem(draft, target, 2)
    assert GreedyRule(problem).acceptance == greedy
    assert minimum_cut(problem).value == independent


def test_drafts_in_another_order_are_refused() -> None:
    with pytest.raises(InvalidDraftsError):
        GreedyRule(instance("four tokens")).conditional([0, 3])


def test_a_large_vocabulary() -> None:
    n = 150_000
    rng = np.random.default_rng(0)
    draft = rng.dirichlet(np.full(n, 0.1))
    target = draft * rng.lognormal(size=n)
    plan = GreedyRule(Problem(draft, target / target.sum(), 8))
    assert abs(plan.output_distribution() - plan.problem.target).sum() <= 1e-12
    sure = plan.problem.target[plan.drafts.sure].sum()
    expected = sure + np.minimum(plan.problem.target, plan.drafts.last).sum()
    assert plan.acceptance == pytest.approx(expected, abs=1e-13)
