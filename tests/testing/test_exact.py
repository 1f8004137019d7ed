"""Path exploration computes exact output distributions: small programs, NumPy searches, rules."""

from __future__ import annotations

import itertools
import operator
from collections import defaultdict
from fractions import Fraction
from math import comb, factorial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otm.coupling.k_seq import KSeq
from otm.coupling.maximal import MaximalCoupling
from otm.coupling.optimal.plan import OptimalPlan
from otm.coupling.plan import Selection
from otm.errors import InvalidInputError, InvalidParameterError
from otm.problem import Problem
from otm.testing import (
    assert_lossless,
    exact_acceptance,
    exact_distribution,
    exact_distribution_of_select,
    exact_output_distribution,
    paths,
)

F = Fraction
HALVES = Problem([F(1, 2), F(1, 2)], [F(1, 4), F(3, 4)], k=1)


@pytest.mark.parametrize(
    ("function", "probability"),
    [
        (lambda u: u[0] < F(1, 3), F(1, 3)),
        (lambda u: u[0] <= F(1, 3), F(1, 3)),
        (lambda u: u[0] > F(1, 3), F(2, 3)),
        (lambda u: u[0] >= F(1, 3), F(2, 3)),
        (lambda u: F(1, 3) < u[0], F(2, 3)),
        (lambda u: F(1, 3) >= u[0], F(1, 3)),
        (lambda u: u[0] < 0.25, F(1, 4)),
        (lambda u: np.int64(2) * u[0] + 1 < F(3, 2), F(1, 4)),
        (lambda u: 1 - 3 * u[0] <= F(1, 2), F(5, 6)),
        (lambda u: -u[0] - 1 > F(-5, 4), F(1, 4)),
        (lambda u: 0 * u[0] + 1 == 1, F(1)),
        (lambda u: min(u) < F(1, 2), F(3, 4)),
        (lambda u: u[0] < F(1, 2) and u[1] < F(1, 3) and u[0] > F(1, 4), F(1, 12)),
        (lambda u: u[0] < u[1], F(1, 2)),
        (lambda u: u[0] + 1 > u[1] + 1, F(1, 2)),
        (lambda u: -u[0] < -u[1], F(1, 2)),
        (lambda u: u[0] + 1 < u[1], F(0)),
        (lambda u: u[0] <= u[0], F(1)),
        (lambda u: u[0] < u[1] and u[1] < F(1, 2), F(1, 8)),
        (lambda u: u[0] < F(1, 2) and u[0] < u[1], F(3, 8)),
    ],
)
def test_a_comparison_holds_with_its_probability(function: Any, probability: Fraction) -> None:
    law = exact_distribution(lambda u: bool(function(u)), 2)
    assert law.get(True, 0) == probability
    assert sum(law.values()) == 1


def test_sorting_three_uniforms_gives_six_equal_orders() -> None:
    law = exact_distribution(lambda u: tuple(sorted(range(3), key=u.__getitem__)), 3)
    assert len(law) == 6
    assert set(law.values()) == {F(1, factorial(3))}


def test_the_order_of_uniforms_survives_a_later_split() -> None:
    # given u0 < u1 < u2, the number of them below 1/4 is still binomial
    def count(u: Any) -> tuple[bool, int]:
        ascending = bool(u[0] < u[1]) and bool(u[1] < u[2])
        return ascending, sum(bool(x < F(1, 4)) for x in u)

    law = exact_distribution(count, 3)
    for j in range(4):
        binomial = comb(3, j) * F(1, 4) ** j * F(3, 4) ** (3 - j)
        assert law[True, j] == binomial / 6


def test_an_outcome_at_a_single_point_is_seen_with_probability_zero() -> None:
    # `u <= ratio` at ratio 0 accepts for u = 0 alone: no enumeration of intervals would tell
    assert exact_distribution(lambda u: bool(u[0] <= 0), 1) == {True: 0, False: 1}
    assert exact_distribution(lambda u: bool(u[0] < 0), 1) == {False: 1}
    assert exact_distribution(lambda u: bool(u[0] == F(1, 2)), 1) == {True: 0, False: 1}


def test_numpy_compares_and_searches_symbolic_uniforms() -> None:
    edges = np.array([F(1, 4), F(1, 4), F(1, 2), F(1)], dtype=object)
    by_right = exact_distribution(lambda u: int(np.searchsorted(edges, u[:1], side="right")[0]), 1)
    assert by_right == {0: F(1, 4), 2: F(1, 4), 3: F(1, 2)}
    by_left = exact_distribution(lambda u: int(np.searchsorted(edges, u[:1], side="left")[0]), 1)
    assert by_left == {0: F(1, 4), 2: F(1, 4), 3: F(1, 2)}
    less = exact_distribution(lambda u: tuple(np.less(u, edges[1:3]).tolist()), 2)
    assert less[True, True] == F(1, 8)


def test_a_search_for_several_uniforms_compares_them_with_each_other() -> None:
    edges = np.array([F(1, 3), F(1, 2), F(1)], dtype=object)
    law = exact_distribution(lambda u: tuple(np.searchsorted(edges, u, side="right").tolist()), 3)
    widths = [F(1, 3), F(1, 6), F(1, 2)]
    expected = {(a, b, c): widths[a] * widths[b] * widths[c] for a, b, c in np.ndindex((3, 3, 3))}
    assert {places: p for places, p in law.items() if p} == expected


SIXTHS = [F(i, 6) for i in range(7)]
Program = list[tuple[int, str, int | Fraction]]

# comparisons of one of three uniforms with another one (an int) or with a constant
programs = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["lt", "le", "gt", "ge"]),
        st.sampled_from([0, 1, *SIXTHS]),
    ),
    max_size=5,
)


def run(program: Program, u: Any) -> tuple[bool, ...]:
    return tuple(
        bool(getattr(operator, name)(u[i], u[other] if isinstance(other, int) else other))
        for i, name, other in program
    )


@given(programs)
def test_explored_laws_are_volumes(program: Program) -> None:
    # one point in each cell of sixths and in each order within it: all of the same volume
    volumes: dict[tuple[bool, ...], Fraction] = defaultdict(Fraction)
    for cells in np.ndindex((6, 6, 6)):
        for ranks in itertools.permutations([F(1, 24), F(2, 24), F(3, 24)]):
            point = [F(cell, 6) + rank for cell, rank in zip(cells, ranks, strict=True)]
            volumes[run(program, point)] += F(1, 6**4)
    law = exact_distribution(lambda u: run(program, u), 3)
    assert {outcome: p for outcome, p in law.items() if p} == volumes


@given(programs)
def test_concrete_numbers_follow_the_paths(program: Program) -> None:
    found = list(paths(lambda u: run(program, u), 3))
    assert sum(path.probability for path in found) == 1
    for path in found:
        assert run(program, path.example) == path.outcome
        assert (path.width > 0) == (path.probability > 0)


def test_what_cannot_be_explored_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="as a boolean"):
        exact_distribution(lambda u: bool(u[0]), 1)
    with pytest.raises(InvalidInputError, match="cannot be compared"):
        exact_distribution(lambda u: bool(u[0] < 2 * u[1]), 2)
    with pytest.raises(TypeError):
        exact_distribution(lambda u: float(u[0]), 1)
    with pytest.raises(TypeError):
        exact_distribution(lambda u: bool(u[0] * u[1] < 1), 2)
    with pytest.raises(TypeError):
        exact_distribution(lambda u: bool(u[0] + 0.5 < 1), 1)
    with pytest.raises(TypeError):
        exact_distribution(lambda u: {u[0]: 1}, 1)


def test_drafts_are_enumerated_with_their_probabilities() -> None:
    problem = Problem([F(1, 3), 0, F(2, 3)], [F(1), 0, 0], k=2)
    expected = {(0, 0): F(1, 9), (0, 2): F(2, 9), (2, 0): F(2, 9), (2, 2): F(4, 9)}
    assert dict(problem.drafts.tuples()) == expected


def test_the_law_of_select_is_exact() -> None:
    plan = MaximalCoupling(HALVES)
    assert exact_distribution_of_select(plan, [0]) == {(0, 0): F(1, 2), (1, -1): F(1, 2)}
    assert exact_distribution_of_select(plan, [1]) == {(1, 0): F(1)}
    assert exact_output_distribution(plan).tolist() == [F(1, 4), F(3, 4)]
    assert exact_acceptance(plan) == F(3, 4)
    assert_lossless(plan)


def test_a_draft_law_other_than_the_stated_one_shows() -> None:
    plan = OptimalPlan(HALVES)
    greedy = Problem([F(1), 0], [F(1, 4), F(3, 4)], k=1)
    assert exact_output_distribution(plan, greedy.drafts.tuples()).tolist() == [F(1, 2), F(1, 2)]


def test_select_of_a_float_plan_is_not_explored() -> None:
    plan = MaximalCoupling(Problem([0.5, 0.5], [0.25, 0.75], k=1))
    with pytest.raises(InvalidParameterError, match="to_exact"):
        exact_distribution_of_select(plan, [0])


class WrongIndex(MaximalCoupling):
    def select(self, drafts: Any, uniforms: Any) -> Any:
        selection = super().select(drafts, uniforms)
        return Selection(selection.token, 0 * selection.index)


class WrongStatement(MaximalCoupling):
    def output_distribution(self) -> Any:
        return self.problem.draft


@pytest.mark.parametrize(
    ("plan", "message"),
    [(WrongIndex, "index 0 instead of -1"), (WrongStatement, r"output_distribution\(\) returns")],
)
def test_assert_lossless_says_what_is_wrong(plan: type[MaximalCoupling], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_lossless(plan(HALVES))


class OnlyTheTest(KSeq):
    @property
    def acceptance(self) -> Any:
        return self.acceptance_by_test  # the default of a `ResidualPlan`


def test_an_acceptance_without_the_residual_is_found() -> None:
    """Bug: a rejected draft may come back from the residual, and was not counted."""
    problem = Problem(HALVES.draft, HALVES.target, 2)
    assert_lossless(KSeq(problem, rho=2))
    plan = OnlyTheTest(problem, rho=2)
    assert plan.output_distribution().tolist() == problem.target.tolist()
    with pytest.raises(
        AssertionError, match=f"acceptance is 3/4 instead of {exact_acceptance(plan)}"
    ):
        assert_lossless(plan)
