"""Tests of every selection rule: exact distributions, decisions, degenerate distributions.

The rules are those of the fixture `rule` in `conftest.py`.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import pickle
from contextlib import suppress
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from otm import alpha
from otm.coupled.list_coupling import ListCoupling
from otm.coupling.build import PlanBuilder
from otm.coupling.grid_k_seq import GridKSeq
from otm.coupling.importance_selection import ImportanceSelection
from otm.coupling.k_seq import KSeq
from otm.coupling.lossy.cactus import Cactus
from otm.coupling.lossy.lenient import ArgmaxLenientPlan, LenientPlan
from otm.coupling.lossy.relaxed import CascadePlan
from otm.coupling.lossy.synthetic_acceptance import SyntheticAcceptance
from otm.coupling.lossy.typical_acceptance import TypicalAcceptance
from otm.coupling.naive_target_sampling import NaiveTargetSampling
from otm.coupling.residual import ResidualPlan, acceptance_ratio
from otm.coupling.table import TablePlan
from otm.coupling.target_only import TargetOnly
from otm.drafts import Greedy, HubPairs, Top
from otm.errors import ProblemTooLargeError
from otm.optimum.cut import minimum_cut
from otm.problem import Problem
from otm.testing import (
    assert_lossless,
    exact_acceptance,
    exact_output_distribution,
    paths,
)
from otm.testing.instances import INSTANCES, instance
from otm.testing.strategies import drafts, problems, uniforms

F = Fraction
fewer = settings(max_examples=settings.default.max_examples // 4)

# Rules that may reject every draft even if draft and target are equal.  All other rules accept one.
# Add a new rule of that kind here.
MAY_REJECT_EQUAL_LAWS = (NaiveTargetSampling, TargetOnly, ImportanceSelection, TablePlan)

UNTIED = ["Bernoulli", "three drafts", "four tokens", "zeros", "two cuts"]  # no ties in q/p


def well_conditioned(problem: Problem) -> bool:
    """Whether no two ratios q/p tie and no draft is so rare that rounding dominates its ratio."""
    ratio = problem.by_ratio.ratio
    common = problem.draft[problem.draft > 0].min() > 1e-6
    return bool(common and (np.diff(ratio) > 1e-6 * (1 + ratio[:-1])).all())


# Exact distributions


@pytest.mark.parametrize("name", INSTANCES)
def test_the_code_that_decides_is_lossless(rule: PlanBuilder, name: str) -> None:
    # includes: u = 0 with target probability 0 is rejected, and the index is the first equal draft
    plan = rule(instance(name))
    assert_lossless(plan)
    first = next(plan.drafts.tuples())[0]
    numbers = [plan.acceptance, *plan.output_distribution(), *plan.conditional(first)]
    if isinstance(plan, ResidualPlan):
        numbers += [plan.acceptance_by_test, *plan.accepted_mass]
    assert all(isinstance(number, Fraction) for number in numbers)


@fewer
@given(problem=problems(max_tokens=3, max_drafts=2, exact=True))
def test_the_code_that_decides_is_lossless_on_any_laws(rule: PlanBuilder, problem: Problem) -> None:
    assert_lossless(rule(problem))


@fewer
@given(problem=problems(max_tokens=4, max_drafts=3, exact=True))
@example(problem=Problem([F(1, 5), F(2, 5), F(2, 5)], [F(1, 3), F(1, 3), F(1, 3)], 2))
def test_enumerated_laws_are_exact(rule: PlanBuilder, problem: Problem) -> None:
    plan = rule(problem)
    target = problem.target.tolist()
    assert exact_output_distribution(plan).tolist() == target
    assert plan.output_distribution().tolist() == target
    assert plan.acceptance == exact_acceptance(plan) <= alpha(plan.drafts, plan.problem.target)
    if isinstance(plan, ResidualPlan):
        assert plan.acceptance_by_test <= plan.acceptance
        assert (plan.accepted_mass <= plan.problem.target).all()


@fewer
@given(problem=problems(max_tokens=4, exact=True), data=st.data())
def test_permuted_tokens_permute_the_plan(
    rule: PlanBuilder, problem: Problem, data: st.DataObject
) -> None:
    # Inputs: permuted tokens
    order = np.array(data.draw(st.permutations(range(problem.n))))
    permuted = rule(Problem(problem.draft[order], problem.target[order], problem.k))
    plan = rule(problem)
    if isinstance(plan.drafts, Greedy | HubPairs | Top):  # of equal ones they take the first
        assume(len(set(problem.draft)) == problem.n)
    assert permuted.acceptance == plan.acceptance
    assert permuted.output_distribution().tolist() == plan.output_distribution()[order].tolist()
    if isinstance(plan, ResidualPlan):
        assert permuted.accepted_mass.tolist() == plan.accepted_mass[order].tolist()


# Floats


@fewer
@given(problem=problems(max_tokens=4, max_drafts=3))
def test_floats_agree_with_fractions(rule: PlanBuilder, problem: Problem) -> None:
    plan, exact = rule(problem), rule(problem.to_exact())
    assert abs(plan.output_distribution() - plan.problem.target).max() <= 1e-12
    # the factors of this rule step along a grid, and rounding may take the next one at a tie
    tolerance = 1e-3 if isinstance(plan, GridKSeq) else 1e-12
    assert abs(plan.acceptance - float(exact.acceptance)) <= tolerance
    assert isinstance(plan.acceptance, float)
    if isinstance(plan, ResidualPlan) and isinstance(exact, ResidualPlan):
        assert abs(plan.acceptance_by_test - float(exact.acceptance_by_test)) <= tolerance
        assert isinstance(plan.acceptance_by_test, float)
        assert plan.acceptance_by_test <= plan.acceptance + 1e-15


@fewer
@given(problem=problems(max_tokens=4, max_drafts=2))
def test_enumerated_laws_of_floats(rule: PlanBuilder, problem: Problem) -> None:
    plan = rule(problem)
    assert abs(exact_output_distribution(plan) - plan.problem.target).max() <= 1e-12
    assert abs(exact_acceptance(plan) - plan.acceptance) <= 1e-12


@fewer
@given(problem=problems(max_tokens=4, max_drafts=2, kinds=["independent", "overlapping"]))
def test_conditional_laws_of_floats_agree_with_fractions(
    rule: PlanBuilder, problem: Problem
) -> None:
    assume(well_conditioned(problem))
    plan, exact = rule(problem), rule(problem.to_exact())
    for chosen, _ in exact.drafts.tuples():
        law = plan.conditional(chosen)
        assert law.sum() == pytest.approx(1, abs=1e-14)
        assert abs(law - exact.conditional(chosen).astype(np.float64)).max() <= 1e-9


# Decision for decision


@pytest.mark.parametrize("name", UNTIED)
def test_floats_decide_as_fractions_on_every_path(rule: PlanBuilder, name: str) -> None:
    exact, plan = rule(instance(name)), rule(instance(name, exact=False))
    for chosen, _ in exact.drafts.tuples():

        def select(numbers: Any, chosen: Any = chosen) -> list[int]:
            return [int(x) for x in exact.select(chosen, numbers)]

        narrow = F(0)  # ρ* is rounded up, which leaves paths of this size
        for path in paths(select, exact.uniforms_per_selection):
            if path.width <= 1e-9:
                narrow += path.probability
            else:
                example = [float(u) for u in path.example]
                assert [int(x) for x in plan.select(chosen, example)] == path.outcome
        assert narrow <= 1e-12


@fewer
@given(problem=problems(max_tokens=4, max_drafts=2), data=st.data())
def test_floats_decide_as_fractions_but_for_rounding(
    rule: PlanBuilder, problem: Problem, data: st.DataObject
) -> None:
    assume(well_conditioned(problem))
    plan, exact = rule(problem), rule(problem.to_exact())
    chosen = data.draw(drafts(plan.drafts))
    edges = acceptance_ratio(plan.problem.target, plan.problem.draft).tolist()
    m = plan.uniforms_per_selection
    numbers = data.draw(st.lists(uniforms(edges), min_size=m, max_size=m))
    around = [(u, max(u - 1e-9, 0.0), min(u + 1e-9, 1 - 2.0**-53)) for u in numbers]
    near = [list(point) for point in itertools.product(*around)]
    decisions, expected = (
        {tuple(decide.select(chosen, point)) for point in near} for decide in (plan, exact)
    )
    assert decisions & expected


def test_dyadic_laws_decide_alike_on_the_boundaries_themselves(rule: PlanBuilder) -> None:
    # Sampling: u exactly at a boundary; p = (1/2, 1/2), q = (1/4, 3/4), where floats are exact
    laws = [F(1, 2), F(1, 2)], [F(1, 4), F(3, 4)]
    exact = rule(Problem(*laws, 1))
    plan = rule(Problem(*[[float(x) for x in law] for law in laws], 1))
    if isinstance(plan, ListCoupling):
        pytest.skip("quadrature integrates its float distributions; no grid of uniforms is exact")
    grid = [F(i, 16) for i in range(16)]
    numbers = np.array([*itertools.product(grid, repeat=plan.uniforms_per_selection)])
    for chosen, _ in exact.drafts.tuples():
        drafted = np.tile(chosen, (len(numbers), 1))
        tokens, places = plan.select(drafted, numbers.astype(np.float64))
        expected = exact.select(drafted, numbers)
        assert (tokens == expected.token).all()
        assert (places == expected.index).all()


# Degenerate distributions


@pytest.mark.parametrize("exact", [False, True])
def test_a_draft_without_target_probability_is_always_rejected(
    rule: PlanBuilder, exact: bool
) -> None:
    # Degenerate distributions: t(x) = 0 and x drafted; Sampling: also at u = 0
    plan = rule(instance("zeros", exact=exact))
    for chosen, _ in plan.drafts.tuples():
        for u in (0.0, 0.5, 1 - 2.0**-53):
            token, index = plan.select(chosen, [u] * plan.uniforms_per_selection)
            assert plan.problem.target[token] > 0
            assert index == (chosen.index(token) if token in chosen else -1)


@fewer
@given(problem=problems(max_tokens=5, max_drafts=3), data=st.data())
def test_the_output_is_always_in_the_support_of_the_target(
    rule: PlanBuilder, problem: Problem, data: st.DataObject
) -> None:
    # Degenerate distributions: equal ones and ones that differ by one ulp.  Floats: zeros of f16.
    plan = rule(problem)
    m = plan.uniforms_per_selection
    numbers = data.draw(st.lists(uniforms(), min_size=m, max_size=m))
    token, _ = plan.select(data.draw(drafts(plan.drafts)), numbers)
    assert plan.problem.target[token] > 0


@fewer
@given(problem=problems(kinds=["equal"]), data=st.data())
def test_equal_laws_accept_a_draft(
    rule: PlanBuilder, problem: Problem, data: st.DataObject
) -> None:
    # Degenerate distributions: draft and target equal bit for bit
    plan = rule(problem)
    if isinstance(plan, MAY_REJECT_EQUAL_LAWS) or (isinstance(plan, KSeq) and plan.rho != 1):
        return
    name = type(plan).__name__
    assert plan.acceptance == pytest.approx(1, abs=1e-13), f"{name}: see MAY_REJECT_EQUAL_LAWS"
    assume(problem.draft[problem.draft > 0].min() > 1e-9)  # rarer drafts may be lost to rounding
    m = plan.uniforms_per_selection
    numbers = data.draw(st.lists(st.floats(0, 1 - 1e-6), min_size=m, max_size=m))
    assert plan.select(data.draw(drafts(plan.drafts)), numbers).index >= 0


@fewer
@given(problem=problems(kinds=["disjoint"]))
def test_disjoint_laws_accept_nothing(rule: PlanBuilder, problem: Problem) -> None:
    # Degenerate distributions
    plan = rule(problem)
    assert plan.acceptance == 0
    assert abs(plan.output_distribution() - problem.target).max() <= 1e-14
    if isinstance(plan, ResidualPlan):
        assert plan.acceptance_by_test == 0
        assert abs(plan.residual.probs(problem.n) - problem.target).max() <= 1e-15


# Drafts must follow the draft distribution of the plan


def test_drafts_of_another_law_bias_the_output(rule: PlanBuilder) -> None:
    # Floats: sampled in a coarse type, verified in a fine one
    # Degenerate distributions: a greedy or top-k draft, reported as its softmax
    problem = instance("four tokens", exact=False)
    plan = rule(problem)
    coarse = np.round(problem.draft * 16)
    top_2 = problem.draft * (problem.draft >= np.sort(problem.draft)[-2])
    greedy = problem.draft == problem.draft.max()
    for weights in (coarse, top_2, greedy):
        drafted = rule(Problem(weights / weights.sum(), problem.target, problem.k))
        if drafted.drafts.k < plan.drafts.k:  # one token is one draft, if drafts must differ
            continue
        distance = (
            abs(exact_output_distribution(plan, drafted.drafts.tuples()) - problem.target).sum() / 2
        )
        if isinstance(plan, NaiveTargetSampling | TargetOnly):  # which never look at the drafts
            assert distance < 1e-15
        else:
            assert distance > 1e-3


@pytest.mark.parametrize("exact", [False, True])
def test_what_a_plan_hands_out_cannot_be_changed(rule: PlanBuilder, exact: bool) -> None:
    # Bug: sorting a cut's tokens in place permuted the plan's tokens, but not its distributions.
    plan = rule(instance("Bernoulli", exact=exact))
    order = plan.problem.by_ratio
    handed_out = [plan.drafts.draftable]
    if isinstance(plan, ResidualPlan):
        handed_out += [plan.accepted_mass, plan.residual.tokens, plan.residual.cumulative]
    handed_out += [order.tokens, order.draft, order.target, order.ratio, order.draft_below]
    bins = plan.problem.bins
    handed_out += [bins.draft_above, bins.target_below, minimum_cut(plan.problem).tokens]
    assert not any(array.flags.writeable for array in handed_out)


def writable_arrays(value: Any, name: str, seen: dict[int, Any]) -> list[str]:
    """Arrays that an object holds or would cache, at any depth, and that can be written to."""
    if id(value) in seen:
        return []
    seen[id(value)] = value
    if isinstance(value, np.ndarray):
        return [name] if value.flags.writeable else []
    parts: dict[Any, Any] = {}
    if isinstance(value, tuple | list):
        parts = dict(enumerate(value))
    elif isinstance(value, dict):
        parts = value
    elif type(value).__module__.startswith("otm."):
        for attribute in dir(type(value)):
            if isinstance(inspect.getattr_static(value, attribute), cached_property):
                with suppress(ProblemTooLargeError):
                    getattr(value, attribute)
        parts = vars(value) if hasattr(value, "__dict__") else {}
    return [
        found
        for part, inner in list(parts.items())
        for found in writable_arrays(inner, f"{name}.{part}", seen)
    ]


def refuse_changes(build: PlanBuilder, exact: bool) -> None:
    """Fail if an array of a plan, of a copy or of what was pickled can be written to."""
    plan = build(instance("four tokens", exact=exact))
    drafted = plan.drafts.draw(np.full(plan.drafts.uniforms_per_draw, F(1, 2)))
    plan.select(drafted, np.full(plan.uniforms_per_selection, F(1, 2)))
    assert plan.acceptance <= plan.output_distribution().sum() + 1e-12
    assert writable_arrays(plan, "plan", {}) == []  # and now its copies hold what it caches
    for copied in (copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        assert writable_arrays(copied, "plan", {}) == []


@pytest.mark.parametrize("exact", [False, True])
def test_no_array_that_a_plan_holds_or_caches_can_be_changed(
    rule: PlanBuilder, exact: bool
) -> None:
    """Bug: a table that somebody sorts in place, after which drafts are looked up elsewhere."""
    refuse_changes(rule, exact)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    "build",
    [
        TypicalAcceptance,
        lambda problem: LenientPlan(problem, F(1, 2)),
        lambda problem: ArgmaxLenientPlan(Problem(problem.draft, problem.target, 1), F(1, 2)),
        lambda problem: CascadePlan(problem, F(1, 2)),
        lambda problem: SyntheticAcceptance(problem, F(1, 2)),
        lambda problem: Cactus(Problem(problem.draft, problem.target, 1), F(1, 2)),
    ],
)
def test_no_array_of_a_lossy_plan_can_be_changed(build: PlanBuilder, exact: bool) -> None:
    refuse_changes(build, exact)


def test_the_walk_over_arrays_finds_one() -> None:
    """Catches a walk that finds nothing and therefore approves of everything."""
    plan = ListCoupling(instance("Bernoulli"))
    plan.problem.by_ratio.place.flags.writeable = True
    assert writable_arrays(plan, "plan", {}) == ["plan.problem.by_ratio.place"]


@pytest.mark.parametrize("drafts", [[0, 1], (1, 0), [[0, 1], [1, 1]]])
def test_drafts_to_sample_for_may_be_a_list(drafts: Any) -> None:
    """Bug: the shape of an array, asked of a list."""
    plan = KSeq(Problem([0.75, 0.25], [0.25, 0.75], 2))
    chosen = plan.sample(drafts, np.random.default_rng(0))
    assert np.shape(chosen.token) == np.shape(drafts)[:-1]
