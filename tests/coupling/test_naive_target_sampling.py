"""Naive target sampling: its acceptance, and that it looks at nothing."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from otm.coupling.naive_target_sampling import NaiveTargetSampling
from otm.optimum.cut import minimum_cut
from otm.problem import Problem
from otm.testing import assert_lossless, exact_acceptance
from otm.testing.instances import INSTANCES, instance
from otm.testing.strategies import problems

fewer = settings(max_examples=settings.default.max_examples // 4)


@pytest.mark.parametrize("name", INSTANCES)
def test_the_code_that_decides_is_lossless(name: str) -> None:
    assert_lossless(NaiveTargetSampling(instance(name)))


@fewer
@given(problems(max_tokens=4, max_drafts=3, exact=True))
def test_acceptance_is_that_of_independent_drafts(problem: Problem) -> None:
    plan = NaiveTargetSampling(problem)
    laws = zip(problem.draft, problem.target, strict=True)
    assert plan.acceptance == sum(q * (1 - (1 - p) ** problem.k) for p, q in laws)
    assert plan.acceptance == exact_acceptance(plan) <= minimum_cut(problem).value


@given(problems(max_tokens=5, max_drafts=3))
def test_floats_agree_with_fractions(problem: Problem) -> None:
    plan, exact = NaiveTargetSampling(problem), NaiveTargetSampling(problem.to_exact())
    assert abs(plan.acceptance - float(exact.acceptance)) <= 1e-15
    assert abs(plan.output_distribution() - problem.target).max() <= 1e-15


@pytest.mark.parametrize("exact", [False, True])
def test_the_drafts_do_not_matter(exact: bool) -> None:
    plan = NaiveTargetSampling(instance("four tokens", exact=exact))
    drafts = np.array([[0, 1], [3, 3], [2, 0]])
    numbers = [[Fraction(3, 8)]] * 3
    assert len(set(plan.select(drafts, numbers).token.tolist())) == 1
    assert (plan.conditional(drafts) == plan.output_distribution()).all()
