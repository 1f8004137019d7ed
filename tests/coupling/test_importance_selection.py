"""Importance selection against a naive two-step version, and the chosen draft's distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from otm.coupling.importance_selection import ImportanceSelection
from otm.coupling.maximal import MaximalCoupling
from otm.coupling.optimal.plan import OptimalPlan
from otm.errors import InvalidParameterError, ProblemTooLargeError
from otm.optimum.cut import minimum_cut
from otm.problem import Problem
from otm.testing import assert_lossless, exact_acceptance, exact_output_distribution
from otm.testing.instances import INSTANCES, instance
from otm.testing.strategies import problems

F = Fraction
fewer = settings(max_examples=settings.default.max_examples // 4)
List = list[Fraction]


def shares(weights: Sequence[Fraction], drafts: Sequence[int]) -> List:
    """Probability of choosing each draft: importance weights, or all alike if all are zero."""
    of_drafts = [weights[x] for x in drafts]
    if sum(of_drafts) == 0:
        return [F(1, len(drafts))] * len(drafts)
    return [weight / sum(of_drafts) for weight in of_drafts]


def two_steps(problem: Problem, weights: Sequence[Fraction]) -> dict[Any, List]:
    """Return output distributions by draft tuple: choose a draft, then accept or reject it."""
    tuples = list(problem.drafts.tuples())
    chosen = [F(0)] * problem.n
    for drafts, probability in tuples:
        for x, share in zip(drafts, shares(weights, drafts), strict=True):
            chosen[x] += probability * share
    target = problem.target.tolist()
    left = [max(q - c, F(0)) for q, c in zip(target, chosen, strict=True)]
    residual = [x / sum(left) for x in left] if sum(left) else target
    laws = {}
    for drafts, _ in tuples:
        law = [F(0)] * problem.n
        for x, share in zip(drafts, shares(weights, drafts), strict=True):
            law[x] += share * min(F(1), target[x] / chosen[x])
        rejected = 1 - sum(law)
        laws[drafts] = [x + rejected * r for x, r in zip(law, residual, strict=True)]
    return laws


@pytest.mark.parametrize("name", INSTANCES)
def test_the_code_that_decides_is_lossless(name: str) -> None:
    assert_lossless(ImportanceSelection(instance(name)))


@fewer
@given(problems(max_tokens=4, max_drafts=3, exact=True), st.data())
def test_the_law_given_the_drafts_is_that_of_the_two_steps(
    problem: Problem, data: st.DataObject
) -> None:
    n = problem.n
    few = st.integers(0, 3).map(F)
    chosen = data.draw(st.none() | st.lists(few, min_size=n, max_size=n))
    plan = ImportanceSelection(problem, chosen)
    p, q = problem.draft.tolist(), problem.target.tolist()
    ratios = [b / a if a else F(0) for a, b in zip(p, q, strict=True)]
    for drafts, law in two_steps(problem, ratios if chosen is None else chosen).items():
        assert plan.conditional(drafts).tolist() == law
    assert exact_output_distribution(plan).tolist() == q
    assert plan.acceptance_by_test <= plan.acceptance == exact_acceptance(plan)
    assert plan.acceptance <= minimum_cut(problem).value


@fewer
@given(problems(max_tokens=4, max_drafts=3), st.data())
def test_floats_agree_with_fractions(problem: Problem, data: st.DataObject) -> None:
    n = problem.n
    few = st.sampled_from([0.0, 0.0, 1e-100, 0.3, 1.0, 1e90])
    chosen = data.draw(st.none() | st.lists(few, min_size=n, max_size=n))
    plan = ImportanceSelection(problem, chosen)
    exact = ImportanceSelection(problem.to_exact(), chosen)
    # float weights below 2^−1000 of the largest count as zero, which changes the rule
    assume(all(weight == 0 or weight > 2.0**-999 for weight in exact.weights))
    assert (
        abs(plan.selected_distribution - exact.selected_distribution.astype(np.float64)).max()
        <= 1e-13
    )
    assert abs(plan.acceptance - float(exact.acceptance)) <= 1e-12
    assert abs(exact_output_distribution(plan) - problem.target).max() <= 1e-12


def drafts_added_up(draft: Any, weights: Any, k: int) -> npt.NDArray[np.float64]:
    """Add up the chosen distribution in floats, over all tuples of two or three drafts."""
    others, sums = draft, weights
    for _ in range(k - 2):
        others, sums = np.multiply.outer(others, draft).ravel(), np.add.outer(sums, weights).ravel()
    return k * draft * weights * ((others / (weights[:, None] + sums)).sum(axis=1))


@pytest.mark.parametrize(("n", "k"), [(400, 2), (80, 3)])
def test_the_integral_has_a_small_relative_error(n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    draft = rng.dirichlet(np.full(n, 0.2))
    target = draft * 10.0 ** rng.uniform(-12, 12, n)
    problem = Problem(draft, target / target.sum(), k)
    expected = drafts_added_up(problem.draft, problem.target / problem.draft, k)
    assert abs(ImportanceSelection(problem).selected_distribution / expected - 1).max() <= 1e-13


@pytest.mark.parametrize("k", [1, 2, 64, 10**6])
def test_two_weights_have_a_closed_form(k: int) -> None:
    # of weights 1 and 0, a draft of weight 1 is chosen if there is one; bug: φ^(k−1) cancels
    draft = np.array([0.5, 0.25, 1e-7, 0.25 - 1e-7])
    plan = ImportanceSelection(Problem(draft, draft[::-1], k), [0, 0, 1, 1])
    likely = draft[2:].sum()
    once = -math.expm1(k * math.log1p(-likely))
    assert plan.selected_distribution[2:] == pytest.approx(draft[2:] / likely * once, rel=1e-12)
    assert plan.selected_distribution.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("k", [2, 1_000])
def test_equal_weights_choose_by_the_draft_law(k: int) -> None:
    problem = Problem([0.2, 0.3, 0.5], [0.5, 0.3, 0.2], k)
    plan = ImportanceSelection(problem, [7, 7, 7])
    assert plan.selected_distribution == pytest.approx(problem.draft, rel=1e-12)
    assert plan.acceptance_by_test == pytest.approx(0.7, abs=1e-12)


@given(problems(max_tokens=6, exact=True))
def test_one_draft_is_coupled_maximally(problem: Problem) -> None:
    one = Problem(problem.draft, problem.target, 1)
    assert ImportanceSelection(one).acceptance == MaximalCoupling(one).acceptance


@fewer
@given(problems(max_tokens=5, max_drafts=3, exact=True))
def test_the_optimal_plan_is_at_least_as_good(problem: Problem) -> None:
    assert ImportanceSelection(problem).acceptance <= OptimalPlan(problem).acceptance


def test_the_residual_hits_where_all_weights_are_zero() -> None:
    # drafts {0, 1}: 0 is chosen and rejected, and 1 drawn
    draft, target = [F(2, 5), F(2, 5), F(1, 5)], [F(1, 10), F(7, 10), F(1, 5)]
    exact = ImportanceSelection(Problem(draft, target, 2), [0, 0, 1])
    assert exact.selected_distribution.tolist() == [F(8, 25), F(8, 25), F(9, 25)]
    floats = Problem(*[[float(x) for x in law] for law in (draft, target)], 2)
    plan = ImportanceSelection(floats, [0, 0, 1])
    assert exact.acceptance == exact_acceptance(exact) > exact.acceptance_by_test
    assert plan.acceptance == pytest.approx(float(exact.acceptance), abs=1e-14)


def test_an_overflowing_ratio_leaves_the_other_weights_as_they_are() -> None:
    # bug: relative to a ratio of 1e308 all others were zero, and chosen all alike
    problem = Problem([5e-324, 0.2, 0.2, 0.6], [0.25] * 4, 2)
    exact = ImportanceSelection(problem.to_exact())
    assert ImportanceSelection(problem).acceptance == pytest.approx(float(exact.acceptance))


def test_only_ratios_of_weights_matter() -> None:
    problem = instance("four tokens")
    weights = [F(3), F(1), F(1, 2), F(2)]
    scaled = [5 * weight for weight in weights]
    laws = [
        ImportanceSelection(problem, chosen).selected_distribution for chosen in (weights, scaled)
    ]
    assert laws[0].tolist() == laws[1].tolist()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2], r"shape \(2,\)"),
        ([1, 2, -1, 1], "token 2 is -1"),
        ([1, 2, "a", 1], "is not an array of numbers"),
        ([1, 2, math.nan, 1], "weight"),
        ([1, 2, math.inf, 1], "weight"),
    ],
)
def test_what_are_no_weights_is_refused(exact: bool, weights: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        ImportanceSelection(instance("four tokens", exact=exact), weights)


def test_too_many_multisets_are_refused_in_fractions_only() -> None:
    uniform = Problem([F(1, 200)] * 200, [F(1, 200)] * 200, 4)
    with pytest.raises(ProblemTooLargeError, match="use floats, which work at any size"):
        _ = ImportanceSelection(uniform).acceptance
    floats = Problem([1 / 200] * 200, [1 / 200] * 200, 4)
    assert ImportanceSelection(floats).acceptance == pytest.approx(1, abs=1e-12)


def test_a_large_vocabulary() -> None:
    n, k = 20_000, 4
    rng = np.random.default_rng(1)
    draft = rng.dirichlet(np.full(n, 0.1))
    target = draft * rng.lognormal(size=n)
    plan = ImportanceSelection(Problem(draft, target / target.sum(), k))
    assert plan.selected_distribution.sum() == pytest.approx(1, abs=1e-12)
    assert abs(plan.output_distribution() - plan.problem.target).sum() <= 1e-12
    assert plan.acceptance_by_test < plan.acceptance <= minimum_cut(plan.problem).value


def test_a_transform_that_underflows_is_no_warning() -> None:
    # bug: the logarithm of zero
    problem = Problem([4.4e-308, 1, 2e-300], [2e-320, 1, 2e-100], 2)
    assert ImportanceSelection(problem).acceptance == pytest.approx(1, abs=1e-12)


def test_a_share_of_numbers_that_underflow_is_no_warning() -> None:
    # bug: the exponential of a positive difference overflowed, before a tiny p took it back
    problem = Problem([1.0, 5e-324], [0.5, 0.5], 2)
    plan = ImportanceSelection(problem, weights=[0.3, 1e-100])
    assert plan.acceptance == pytest.approx(0.5, abs=1e-12)
