"""Lenient plans: exact acceptance, exact output distribution, exact distance from the target."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otm._core.arithmetic import running_sum
from otm._core.ratios.bins import floor_of
from otm.coupling.lossy.lenient import ArgmaxLenientPlan, LenientPlan, distance_to_target
from otm.coupling.lossy.typical_acceptance import TypicalAcceptance
from otm.errors import InvalidParameterError, UnknownMethodError
from otm.optimum.cut import optimal_value
from otm.optimum.lenience import acceptance_at_distance, lenient_value
from otm.problem import Problem
from otm.testing import exact_acceptance, exact_distribution_of_select, exact_output_distribution
from otm.testing.strategies import problems

F = Fraction
fewer = settings(max_examples=settings.default.max_examples // 4)
small = problems(max_tokens=4, max_drafts=3, exact=True)
leniences = st.sampled_from([F(1), F(9, 10), F(1, 2), F(1, 3), F(1, 10)])


@fewer
@given(small, leniences)
def test_best_in_acceptance_and_in_total_variation(problem: Problem, lenience: F) -> None:
    plan = LenientPlan(problem, lenience)
    value, alpha = lenient_value(problem, lenience), optimal_value(problem)
    law = plan.output_distribution()
    assert plan.acceptance == exact_acceptance(plan) == value
    assert exact_output_distribution(plan).tolist() == law.tolist()
    assert (law <= problem.target / lenience).all()
    variation = distance_to_target(plan).total_variation
    assert variation == value - alpha
    assert acceptance_at_distance(problem, variation) == value


@fewer
@given(small, leniences)
def test_the_residual_of_the_paper_keeps_every_token_below(problem: Problem, lenience: F) -> None:
    plan = LenientPlan(problem, lenience, "paper")
    assert plan.acceptance == lenient_value(problem, lenience)
    assert exact_output_distribution(plan).tolist() == plan.output_distribution().tolist()
    assert (plan.output_distribution() <= problem.target / lenience).all()
    closest = distance_to_target(LenientPlan(problem, lenience)).total_variation
    assert distance_to_target(plan).total_variation >= closest


@pytest.mark.parametrize("residual_of", ["closest", "paper"])
def test_the_code_that_decides_has_the_stated_law(residual_of: str) -> None:
    problem = Problem([F(1, 2), F(1, 3), F(1, 6)], [F(1, 6), F(1, 3), F(1, 2)], 2)
    plan = LenientPlan(problem, F(1, 2), residual_of)  # type: ignore[arg-type]
    for drafts, _ in problem.drafts.tuples():
        law = [F(0)] * 3
        for (token, _), probability in exact_distribution_of_select(plan, drafts).items():
            law[token] += probability
        assert law == plan.conditional(drafts).tolist()


def test_one_draft_is_the_rule_of_the_paper() -> None:
    # written down from appendix A.5: accept with min(1, q/(l p)), otherwise max(q − l p, 0)
    p, q, lenience = [F(1, 2), F(1, 2), F(0)], [F(1, 8), F(3, 8), F(1, 2)], F(1, 2)
    accept = [min(F(1), y / (lenience * x)) if x else F(0) for x, y in zip(p, q, strict=True)]
    left = [max(y - lenience * x, F(0)) for x, y in zip(p, q, strict=True)]
    accepted = [x * a for x, a in zip(p, accept, strict=True)]
    rejected = 1 - sum(accepted)
    law = [v + rejected * w / sum(left) for v, w in zip(accepted, left, strict=True)]
    plan = LenientPlan(Problem(p, q, 1), lenience, "paper")
    assert plan.output_distribution().tolist() == law
    # the mean of what Pr(Y = y) ≤ q/l allows: 3/10 against the least possible 1/4
    assert distance_to_target(plan).total_variation == F(3, 10)
    assert distance_to_target(LenientPlan(plan.problem, lenience)).total_variation == F(1, 4)


def test_no_lenience_is_lossless() -> None:
    problem = Problem([F(1, 2), F(1, 3), F(1, 6)], [F(1, 6), F(1, 3), F(1, 2)], 3)
    for residual_of in ("closest", "paper"):
        plan = LenientPlan(problem, F(1), residual_of)
        assert plan.output_distribution().tolist() == problem.target.tolist()
        assert distance_to_target(plan).largest_ratio == 1


def test_distances() -> None:
    problem = Problem([0.75, 0.25], [0.25, 0.75], 1)
    distance = distance_to_target(LenientPlan(problem, 0.5))
    assert distance.total_variation == 0.25
    assert distance.largest_ratio == 2
    expected = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert distance.divergence == pytest.approx(expected, abs=1e-15)
    outside = ArgmaxLenientPlan(Problem([F(1), F(0)], [F(1), F(0)], 1), F(1))
    assert distance_to_target(outside).divergence == 0


@pytest.mark.parametrize("exact", [False, True])
def test_a_ratio_beyond_all_floats_has_a_divergence(exact: bool) -> None:
    """Bug: an infinite divergence, or OverflowError, beside a positive target probability."""
    least = F(1, 10**400) if exact else 5e-324
    half = F(1, 2) if exact else 0.5
    plan = TypicalAcceptance(Problem([half, half], [least, 1 - least], 1), 0, 0)
    assert plan.output_distribution().tolist() == [half, half]
    distance = distance_to_target(plan)
    expected = math.log(0.5) + (400 * math.log(10) if exact else -math.log(5e-324)) / 2
    assert distance.divergence == pytest.approx(expected, rel=1e-14)
    assert distance.largest_ratio == (half / least if exact else math.inf)
    assert distance.total_variation == half - least


@given(small, leniences)
def test_argmax_lenience_accepts_the_likely_tokens(problem: Problem, lenience: F) -> None:
    # bug: the inequality as the paper prints it, which accepts the unlikely ones
    plan = ArgmaxLenientPlan(problem, lenience)
    likely = problem.target >= lenience * problem.target.max()
    passes = problem.draft[likely].sum()
    assert plan.acceptance == 1 - (1 - passes) ** problem.k == exact_acceptance(plan)
    assert exact_output_distribution(plan).tolist() == plan.output_distribution().tolist()
    assert plan.output_distribution()[~likely].sum() == 0


@given(problems(max_tokens=8, max_drafts=4, exact=True))
def test_raising_makes_a_law(problem: Problem) -> None:
    order = problem.by_ratio
    ratio = np.minimum(order.ratio, F(1, 2))
    mass = running_sum(ratio * order.draft, from_zero=True)
    raised = np.maximum(ratio, floor_of(ratio, order.draft_below, mass, 1 - mass[-1]))
    assert (raised * order.draft).sum() == 1
    assert (raised >= ratio).all()
    assert len(set(raised[raised > ratio])) <= 1  # one floor for all that are raised


def test_large_vocabulary() -> None:
    rng = np.random.default_rng(5)
    p, q = rng.dirichlet(np.ones(20_000)), rng.dirichlet(np.ones(20_000))
    problem = Problem(p, q, 8)
    plan = LenientPlan(problem, 0.5)
    assert plan.acceptance == pytest.approx(lenient_value(problem, 0.5), abs=1e-11)
    assert (plan.output_distribution() <= 2 * problem.target * (1 + 1e-9) + 1e-15).all()


def test_bad_parameters() -> None:
    problem = Problem([0.5, 0.5], [0.5, 0.5], 1)
    with pytest.raises(InvalidParameterError, match=r"\(0, 1\]"):
        LenientPlan(problem, 0)
    with pytest.raises(UnknownMethodError, match="closest"):
        LenientPlan(problem, 0.5, "best")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match=r"\(0, 1\]"):
        ArgmaxLenientPlan(problem, 2)
