"""Plans as tables: SpecTr's explicit plans, exact distributions, and tables over the limits.

What every rule must do is tested for tables too, in `test_plan_protocol` and `test_plan_input`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otm import SparseProbs
from otm.coupling.table import TablePlan
from otm.drafts import Joint, WithoutReplacement
from otm.errors import InvalidParameterError, OTMError, ProblemTooLargeError
from otm.optimum.cut import minimum_cut
from otm.optimum.multisets import first_occurrences, multiset_count, multisets
from otm.optimum.non_iid_drafts import optimum_of
from otm.problem import Problem
from otm.testing.exact import (
    assert_lossless,
    exact_acceptance,
    exact_distribution_of_select,
    exact_output_distribution,
)
from otm.testing.instances import INSTANCES, instance
from otm.testing.strategies import problems

F = Fraction


# SpecTr, appendix B.1


def bernoulli_plan(b: Fraction, k: int) -> TablePlan:
    """Return the plan of appendix B.1 for p = Ber(1/4) and q = Ber(b)."""
    p, q = [F(3, 4), F(1, 4)], [1 - b, b]
    always = [p[y] ** k for y in (0, 1)]
    surely = [min(always[y], q[y]) for y in (0, 1)]  # accepted where all drafts are y
    mixed = 1 - sum(always)
    ones = min(q[1] - surely[1], mixed)  # the paper leaves open who gets the mixed drafts

    def rule(drafts: tuple[int, ...]) -> dict[int, Fraction]:
        if len(set(drafts)) == 1:
            return {drafts[0]: surely[drafts[0]] / always[drafts[0]]}
        return {0: 1 - ones / mixed, 1: ones / mixed}

    return TablePlan.from_rule(Problem(p, q, k), rule)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("b", [F(0), F(1, 10), F(1, 4), F(3, 4), F(1)])
def test_the_plan_for_bernoulli_laws(b: Fraction, k: int) -> None:
    # equation 10: optimal, with golden values that no part of OTM has computed
    plan = bernoulli_plan(b, k)
    expected = min(b, 1 - F(3, 4) ** k) + min(1 - b, 1 - F(1, 4) ** k)
    assert plan.acceptance == plan.acceptance_by_test == expected
    assert_lossless(plan)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize(("d", "r"), [(4, 2), (6, 3), (3, 3)])
def test_the_plan_for_uniform_laws(d: int, r: int, k: int) -> None:
    # Y uniform on S ∩ [d/r], and a new sample from [d/r] where that is empty: 1 − (1 − 1/r)^k
    wanted = set(range(d // r))
    problem = Problem([F(1, d)] * d, [F(r, d)] * (d // r) + [F(0)] * (d - d // r), k)

    def rule(drafts: tuple[int, ...]) -> dict[int, Fraction]:
        hits = wanted & set(drafts)
        return dict.fromkeys(hits, F(1, max(len(hits), 1)))

    plan = TablePlan.from_rule(problem, rule)
    assert plan.acceptance == 1 - (1 - F(1, r)) ** k
    assert plan.residual.probs(d).tolist() == problem.target.tolist()
    assert exact_output_distribution(plan).tolist() == problem.target.tolist()


# Any table


@st.composite
def tables(draw: st.DrawFn, exact: bool) -> TablePlan:
    """Draw a problem and any valid table: some rows accept surely, some never."""
    problem = draw(problems(max_tokens=3, max_drafts=3, exact=exact))
    m = int(np.count_nonzero(problem.draft))
    rows = []
    for _ in range(multiset_count(m, problem.k)):
        weights = draw(st.lists(st.integers(0, 3), min_size=problem.k, max_size=problem.k))
        whole = max(sum(weights) + draw(st.integers(0, 2)), 1)
        rows.append([F(weight, whole) for weight in weights])
    return TablePlan(problem, np.array(rows, dtype=object))


@settings(max_examples=150)
@given(tables(exact=True))
def test_any_table_is_lossless(plan: TablePlan) -> None:
    target = plan.problem.target
    assert (plan.accepted_mass <= target).all()
    assert (
        exact_output_distribution(plan).tolist()
        == plan.output_distribution().tolist()
        == target.tolist()
    )
    assert plan.acceptance == exact_acceptance(plan) <= minimum_cut(plan.problem).value
    assert plan.acceptance_by_test == plan.accepted_mass.sum()


@settings(max_examples=40)
@given(tables(exact=True))
def test_the_code_that_decides_follows_the_table(plan: TablePlan) -> None:
    assert_lossless(plan)


@settings(max_examples=100)
@given(tables(exact=False))
def test_any_table_of_floats_is_lossless(plan: TablePlan) -> None:
    assert plan.accept.dtype == np.float64
    assert abs(exact_output_distribution(plan) - plan.problem.target).max() <= 1e-15
    assert plan.acceptance == pytest.approx(exact_acceptance(plan), abs=1e-14)


def test_the_residual_can_hit_a_draft_that_was_not_accepted() -> None:
    # nothing is accepted: Y ~ q is independent of the drafts, and still hits with Σ q (1 − (1−p)^k)
    for name in INSTANCES:
        problem = instance(name)
        plan = TablePlan.from_rule(problem, lambda drafts: {})
        expected = (problem.target * (1 - (1 - problem.draft) ** problem.k)).sum()
        assert plan.acceptance_by_test == 0
        assert plan.acceptance == expected


def test_a_table_that_asks_for_too_much_is_scaled_to_the_target() -> None:
    # accepting every draft would output p; scaled, it outputs min(p, q) and the residual
    problem = Problem([F(3, 4), F(1, 4)], [F(1, 4), F(3, 4)], 1)
    plan = TablePlan(problem, [[1], [1]])
    assert plan.accepted_mass.tolist() == [F(1, 4), F(1, 4)]
    assert plan.accept.tolist() == [[1], [1]]
    assert_lossless(plan)


def test_a_table_that_is_exactly_right_is_left_alone() -> None:
    # scaling it twice, or by q/v where v < q, would change what is accepted
    plan = bernoulli_plan(F(3, 4), 2)
    for drafts, _ in plan.drafts.tuples():
        row = multisets(2, 2).tolist().index(sorted(drafts))
        accepted = sum(
            probability
            for (_, index), probability in exact_distribution_of_select(plan, drafts).items()
            if index >= 0
        )
        assert accepted == plan.accept[row].sum()


def test_drafts_in_any_order_find_their_row() -> None:
    problem = Problem([F(1, 2), F(0), F(1, 4), F(1, 4)], [F(1, 4)] * 4, 3)
    plan = TablePlan.from_rule(problem, lambda drafts: {3: 1} if drafts == (0, 3, 3) else {})
    for drafts, first in (([3, 0, 3], 0), ([0, 3, 3], 1), ([3, 3, 0], 0)):
        assert tuple(plan.select(drafts, [F(0), F(0)])) == (3, first)
        assert plan.conditional(drafts)[3] == 1
    assert plan.conditional([3, 3, 3])[0] > 0
    assert tuple(plan.select([2, 0, 3], [F(0), F(0)])) == (0, 1)  # from the residual


def test_the_first_column_of_a_token_is_the_one_that_is_written() -> None:
    problem = Problem([F(1, 2), F(1, 2)], [F(1, 2), F(1, 2)], 3)
    plan = TablePlan.from_rule(problem, lambda drafts: dict.fromkeys(drafts, F(1, 8)))
    expected = np.where(first_occurrences(multisets(2, 3)), F(1, 8), F(0))
    assert plan.accept.tolist() == expected.tolist()


def test_a_uniform_on_an_edge_goes_to_the_next_draft() -> None:
    problem = Problem([0.5, 0.5], [0.5, 0.5], 2)
    plan = TablePlan(problem, [[0.5, 0], [0.25, 0.25], [0, 0]])
    chosen = [plan.select([0, 1], [u, 0.0]).token for u in (0, 0.125, 0.25, 0.375)]
    assert chosen == [0, 0, 1, 1]
    assert plan.select([0, 1], [0.5, 0.999]).token == 1  # from the residual


def test_tables_of_other_numbers_become_the_numbers_of_the_problem() -> None:
    exact, floats = instance("Bernoulli"), instance("Bernoulli", exact=False)
    of_floats = TablePlan(exact, [[0.25, 0], [0, 1], [1, 0]])
    of_integers = TablePlan(exact, np.array([[0, 0], [0, 1], [1, 0]]))
    mixed = TablePlan(exact, [[F(1, 4), 0], [0, np.float32(1)], [np.int64(1), 0]])
    for plan in (of_floats, of_integers, mixed):
        assert all(type(x) is Fraction for x in plan.accept.flat)
        assert all(type(x.numerator) is int for x in plan.accept.flat)  # NumPy's would overflow
    assert mixed.accept.tolist() == of_floats.accept.tolist()
    of_fractions = TablePlan(floats, [[F(1, 4), F(0)], [F(0), F(1)], [F(1), F(0)]])
    assert of_fractions.accept.dtype == np.float64
    assert of_fractions.accept.tolist() == of_floats.accept.astype(np.float64).tolist()


def test_a_table_cannot_be_changed_afterwards() -> None:
    given_table = np.zeros((3, 2))
    plan = TablePlan(instance("Bernoulli", exact=False), given_table)
    given_table[:] = 1
    assert plan.accept.sum() == 0
    with pytest.raises(ValueError, match="read-only"):
        plan.accept[0, 0] = 1


def test_rounding_above_one_is_cut_off() -> None:
    problem = instance("Bernoulli", exact=False)
    plan = TablePlan(problem, [[0, 0], [0.5, 0.5 + 1e-12], [1, 0]])
    assert plan.conditional([0, 1]) == pytest.approx([0.5, 0.5], abs=1e-15)
    with pytest.raises(InvalidParameterError, match="row 1"):
        TablePlan(instance("Bernoulli"), [[0, 0], [F(1, 2), F(1, 2) + F(1, 10**12)], [1, 0]])


# Errors


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[0, 0], [0, 0]], r"shape \(2, 2\).*shape \(3, 2\)"),
        ([0, 0, 0], r"shape \(3,\)"),
        ([[0, 0], [0], [0, 0]], "is not an array of numbers"),
        ([["a", 0], [0, 0], [0, 0]], "is not an array of numbers"),
        ([[0, 0], [0, None], [0, 0]], "probabilit"),
        ([[0, 0], [0, float("nan")], [0, 0]], "probabilit"),
        ([[0, 0], [0, float("inf")], [0, 0]], "probabilit"),
        ([[0, 0], [-0.5, 0.5], [0, 0]], "row 1"),
        ([[0, 0], [0, 0], [0.75, 0.5]], "row 2"),
    ],
)
def test_what_is_not_a_table_is_refused(table: Any, message: str, exact: bool) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        TablePlan(instance("Bernoulli", exact=exact), table)


def test_only_drafts_can_be_accepted() -> None:
    with pytest.raises(InvalidParameterError, match=r"accepts token 1 for the drafts \(0, 0\)"):
        TablePlan.from_rule(instance("Bernoulli"), lambda drafts: {1: F(1)})


def test_a_rule_for_a_large_vocabulary_is_refused() -> None:
    n = 50_000
    problem = Problem(np.full(n, 1 / n), np.full(n, 1 / n), 2)
    with pytest.raises(ProblemTooLargeError, match="closed-form"):
        TablePlan.from_rule(problem, lambda drafts: {})
    assert issubclass(ProblemTooLargeError, OTMError)


# Drafts that are not i.i.d.


@settings(max_examples=settings.default.max_examples // 4)
@given(problems(max_tokens=4, max_drafts=3, exact=True))
def test_the_maximum_flow_gives_an_optimal_table(problem: Problem) -> None:
    """In fractions: for i.i.d. drafts by multisets, for others by tuples."""
    for drafts in (problem, Problem(WithoutReplacement(problem.draft, 2), problem.target)):
        plan = TablePlan.from_max_flow(drafts)
        assert plan.acceptance == plan.acceptance_by_test == optimum_of(drafts).value
        assert_lossless(plan)


def test_a_table_over_tuples_takes_them_in_the_order_in_which_they_were_drawn() -> None:
    """Catches rows that are looked up by the sorted drafts."""
    drafts = Joint({(0, 1): F(1, 2), (1, 0): F(1, 2)}, 2)
    problem = Problem(drafts, [F(1, 2), F(1, 2)])
    plan = TablePlan(problem, [[1, 0], [1, 0]])  # the first draft, whichever it is
    for drawn in ((0, 1), (1, 0)):
        token, index = plan.select(drawn, [0.5, 0.5])
        assert (token, index) == (drawn[0], 0)
        assert plan.conditional(drawn).tolist() == [1 - drawn[0], drawn[0]]
    assert plan.acceptance == 1
    first = TablePlan.from_rule(problem, lambda tokens: {tokens[0]: 1})
    assert first.accept.tolist() == plan.accept.tolist()
    assert_lossless(first)


def test_a_careless_table_over_tuples_is_lossless_too() -> None:
    """Catches an accepted mass that is not recomputed from the drafts' own distribution."""
    drafts = WithoutReplacement([F(1, 2), F(1, 3), F(1, 6)], 2)
    problem = Problem(drafts, [F(1, 10), F(2, 10), F(7, 10)])
    plan = TablePlan.from_rule(problem, lambda tokens: {tokens[0]: F(2, 3), tokens[1]: F(1, 3)})
    assert plan.acceptance < optimum_of(problem).value
    assert_lossless(plan)
    with pytest.raises(InvalidParameterError, match="a row for each tuple"):
        TablePlan(problem, [[1, 0]])


def test_a_table_speaks_of_token_ids() -> None:
    draft = SparseProbs([7, 900], [F(3, 4), F(1, 4)])
    target = SparseProbs([7, 900], [F(1, 4), F(3, 4)])
    accept = {(7, 7): {7: F(4, 9)}, (7, 900): {900: 1}, (900, 900): {900: 1}}
    plan = TablePlan.from_rule(Problem(draft, target, 2), accept.__getitem__)
    assert plan.acceptance == F(11, 16)
    assert_lossless(plan)
