"""Non-iterative rejection against appendix A.2 of Leviathan et al., written down naively."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings

from otm.coupling.k_seq import KSeq
from otm.coupling.naive_target_sampling import NaiveTargetSampling
from otm.coupling.non_iterative_rejection import NonIterativeRejection
from otm.optimum.cut import minimum_cut
from otm.problem import Problem
from otm.testing import assert_lossless, exact_acceptance, exact_output_distribution
from otm.testing.instances import INSTANCES, instance
from otm.testing.strategies import problems

F = Fraction
fewer = settings(max_examples=settings.default.max_examples // 4)


def rejection_sampling(problem: Problem, drafts: Sequence[int]) -> list[Fraction]:
    """Distribution of the output given the drafts: accept with q/(M p), at last draw from q."""
    p, q = problem.draft.tolist(), problem.target.tolist()
    bound = max((b / a if a else math.inf) for a, b in zip(p, q, strict=True) if b)
    law, reached = [F(0)] * problem.n, F(1)
    for x in drafts:
        accept = F(0) if bound == math.inf else q[x] / (bound * p[x])
        law[x] += reached * accept
        reached *= 1 - accept
    return [mass + reached * b for mass, b in zip(law, q, strict=True)]


@pytest.mark.parametrize("name", INSTANCES)
def test_the_code_that_decides_is_lossless(name: str) -> None:
    assert_lossless(NonIterativeRejection(instance(name)))


@fewer
@given(problems(max_tokens=4, max_drafts=3, exact=True))
def test_the_law_given_the_drafts_is_that_of_the_paper(problem: Problem) -> None:
    plan = NonIterativeRejection(problem)
    for drafts, _ in problem.drafts.tuples():
        assert plan.conditional(drafts).tolist() == rejection_sampling(problem, drafts)
    assert plan.acceptance == exact_acceptance(plan) <= minimum_cut(problem).value


@given(problems(max_tokens=6, max_drafts=4, exact=True))
def test_its_test_accepts_no_more_than_that_of_k_seq(problem: Problem) -> None:
    # k-Seq's test accepts less the larger ρ, and ρ* ≤ max q/p (SpecTr, Lemma 4)
    plan = NonIterativeRejection(problem)
    slack = F(1, 2**48)  # ρ* is rounded up
    assert plan.acceptance_by_test <= KSeq(problem).acceptance_by_test + slack
    if plan.rho != math.inf:
        assert plan.acceptance_by_test == 1 - (1 - 1 / plan.rho) ** problem.k
        assert plan.accepted_mass.tolist() == KSeq(problem, rho=plan.rho).accepted_mass.tolist()


@given(problems(exact=True, max_drafts=4, kinds=["disjoint", "overlapping"]))
def test_a_target_that_cannot_be_drafted_is_never_covered(problem: Problem) -> None:
    # bug: 0 · ∞ in the acceptance probability of tokens that are never drafted
    plan = NonIterativeRejection(problem)
    assert plan.rho == math.inf
    assert plan.acceptance_by_test == 0
    assert plan.acceptance == NaiveTargetSampling(problem).acceptance


@given(problems(max_tokens=4, max_drafts=3))
def test_floats_agree_with_fractions(problem: Problem) -> None:
    plan, exact = NonIterativeRejection(problem), NonIterativeRejection(problem.to_exact())
    assert abs(plan.acceptance - float(exact.acceptance)) <= 1e-12
    assert abs(plan.acceptance_by_test - float(exact.acceptance_by_test)) <= 1e-12
    assert abs(exact_output_distribution(plan) - problem.target).max() <= 1e-12


def test_a_ratio_that_overflows_is_infinite() -> None:
    plan = NonIterativeRejection(Problem([5e-324, 1.0], [0.5, 0.5], 2))
    assert plan.rho == math.inf
    assert plan.acceptance == 0.5
