"""Recursive rejection without replacement against the algorithm, written down naively."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from otm.coupling.recursive_rejection import RecursiveRejection
from otm.coupling.recursive_rejection_without_replacement import (
    RecursiveRejectionWithoutReplacement,
)
from otm.errors import InvalidDraftsError, ProblemTooLargeError
from otm.problem import Problem
from otm.testing import assert_lossless, exact_acceptance, exact_output_distribution
from otm.testing.instances import INSTANCES, instance
from otm.testing.strategies import problems

F = Fraction
fewer = settings(max_examples=settings.default.max_examples // 4)
Rule = RecursiveRejectionWithoutReplacement


def siblings(problem: Problem, drafts: Sequence[int]) -> list[Fraction]:
    """Return the output distribution given siblings that were drawn without replacement."""
    target, draft = problem.target.tolist(), problem.draft.tolist()
    law, reached = [F(0)] * problem.n, F(1)
    for token in drafts:
        accept = min(F(1), target[token] / draft[token])
        law[token] += reached * accept
        reached *= 1 - accept
        left = [max(t - p, F(0)) for t, p in zip(target, draft, strict=True)]
        if sum(left):
            target = [x / sum(left) for x in left]
        draft[token] = F(0)
        if sum(draft):
            draft = [x / sum(draft) for x in draft]
    return [x + reached * t for x, t in zip(law, target, strict=True)]


def optimum(plan: Rule) -> Fraction:
    """Largest acceptance for the drafts of a plan: the minimum cut, over all sets of tokens."""
    tuples = list(plan.drafts.tuples())
    q, n = plan.problem.target.tolist(), plan.problem.n
    return min(
        sum((q[y] for y in chosen), F(0)) + sum(p for x, p in tuples if not set(x) <= set(chosen))
        for size in range(n + 1)
        for chosen in itertools.combinations(range(n), size)
    )


@pytest.mark.parametrize("name", INSTANCES)
def test_the_code_that_decides_is_lossless(name: str) -> None:
    assert_lossless(Rule(instance(name)))


@fewer
@given(problems(max_tokens=4, max_drafts=4, exact=True))
def test_the_law_given_the_drafts_is_that_of_the_algorithm(problem: Problem) -> None:
    plan = Rule(problem)
    mean = F(0)
    for drafts, probability in plan.drafts.tuples():
        law = siblings(problem, drafts)
        assert plan.conditional(drafts).tolist() == law
        assert plan.acceptance_given(drafts) == sum(law[x] for x in drafts)
        mean += probability * plan.acceptance_given(drafts)
    assert plan.acceptance == exact_acceptance(plan) == mean <= optimum(plan)
    assert (
        plan.output_distribution().tolist()
        == exact_output_distribution(plan).tolist()
        == problem.target.tolist()
    )


@given(problems(max_tokens=5, max_drafts=3, exact=True))
def test_the_first_round_is_the_maximal_coupling(problem: Problem) -> None:
    # so that more drafts never accept less
    one_draft = sum(min(p, q) for p, q in zip(problem.draft, problem.target, strict=True))
    assert Rule(problem).acceptance >= one_draft
    one = Problem(problem.draft, problem.target, 1)
    assert Rule(one).acceptance == RecursiveRejection(one).acceptance == one_draft


@fewer
@given(problems(max_tokens=4, max_drafts=4))
def test_floats_agree_with_fractions(problem: Problem) -> None:
    plan, exact = Rule(problem), Rule(problem.to_exact())
    assert abs(plan.acceptance - float(exact.acceptance)) <= 1e-12
    assert abs(plan.output_distribution() - problem.target).max() <= 1e-14
    assert abs(exact_output_distribution(plan) - problem.target).max() <= 1e-14
    assert abs(exact_acceptance(plan) - plan.acceptance) <= 1e-12


@pytest.mark.parametrize("exact", [False, True])
def test_all_tokens_that_can_be_drafted_are_drafted(exact: bool) -> None:
    # p exhausted: what is rejected is drawn from the residual, on tokens that no draft can be
    half = F(1, 2) if exact else 0.5
    plan = Rule(Problem([half, half, 0 * half], [0 * half, half, half], 5))
    assert plan.drafts.k == 2
    assert plan.uniforms_per_selection == 3
    assert plan.acceptance == half  # rejected is token 0 alone, and t_2 = (0, 0, 1)
    assert plan.conditional([0, 1]).tolist() == [0, 0, 1]


@pytest.mark.parametrize("rare", [1e-17, 1e-200, 1e-310, 5e-324])
def test_the_last_draft_may_be_all_that_is_left(rare: float) -> None:
    # bug: 1 / (1 − p(x)) cancels, then overflows; the last draft is token 1 for sure
    plan = Rule(Problem([1.0, rare], [0.25, 0.75], 2))
    assert plan.acceptance == pytest.approx(1, abs=1e-15)


def test_two_drafts_of_a_large_vocabulary() -> None:
    n = 3_000
    rng = np.random.default_rng(0)
    draft = rng.dirichlet(np.full(n, 0.2))
    target = draft * rng.lognormal(size=n)
    target /= target.sum()
    plan = Rule(Problem(draft, target, 2))
    residual = np.maximum(target - draft, 0) / np.maximum(target - draft, 0).sum()
    expected = np.minimum(draft, target).sum()
    for x in np.flatnonzero(draft > target)[::-1]:
        second = draft / (1 - draft[x])
        second[x] = 0
        expected += (draft[x] - target[x]) * np.minimum(second, residual).sum()
    assert plan.acceptance == pytest.approx(expected, abs=1e-12)
    drafts = plan.drafts.draw(rng.random((1_000, 2)))
    given_drafts = plan.acceptance_given(drafts)
    assert abs(given_drafts.mean() - expected) <= 5 * given_drafts.std() / 1_000**0.5


def test_rows_in_chunks_are_as_one_by_one() -> None:
    # 30,000 tokens: some 70 rows at once
    n = 30_000
    rng = np.random.default_rng(0)
    draft, target = rng.dirichlet(np.full(n, 0.3), 2)
    plan = Rule(Problem(draft, target, 3))
    drafts = plan.drafts.draw(rng.random((150, 3)))
    numbers = rng.random((150, 4))
    tokens = plan.select(drafts, numbers).token
    for row in (0, 69, 70, 149):
        assert plan.select(drafts[row], numbers[row]).token == tokens[row]
    given_drafts = plan.acceptance_given(drafts)
    assert given_drafts[149] == pytest.approx(plan.acceptance_given(drafts[149]), abs=1e-14)


def test_too_many_paths_are_refused() -> None:
    plan = Rule(Problem([1e-4] * 10_000, [1e-4] * 10_000, 4))
    with pytest.raises(ProblemTooLargeError, match=r"10\^8.0 paths of 2 rejected drafts"):
        _ = plan.acceptance
    with pytest.raises(ProblemTooLargeError, match=r"10\^12.0 paths of 3 rejected drafts"):
        plan.output_distribution()


def test_a_draft_drawn_twice_is_refused() -> None:
    plan = Rule(instance("four tokens"))
    for ask in (plan.conditional, plan.acceptance_given):
        with pytest.raises(InvalidDraftsError):
            ask([1, 1])


def test_subnormal_drafts_keep_their_digits_over_the_rounds() -> None:
    # bug: normalised at every round they lost digits, and the acceptance passed the optimum
    draft = [4.4e-323, 0.4798507462686567, 0.5201492537313432, 5e-324, 4.4e-323, 2e-323]
    problem = Problem(draft, [1.0, 0, 0, 0, 0, 0], k=4)
    acceptance = RecursiveRejectionWithoutReplacement(problem).acceptance
    exact = RecursiveRejectionWithoutReplacement(problem.to_exact()).acceptance
    assert acceptance == pytest.approx(float(exact), abs=1e-12)
