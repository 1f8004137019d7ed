"""Recursive rejection against the multi-round algorithm, written down naively."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings

from otm.coupling.k_seq import KSeq
from otm.coupling.recursive_rejection import RecursiveRejection
from otm.errors import ProblemTooLargeError
from otm.problem import Problem
from otm.testing.strategies import problems

F = Fraction
fewer = settings(max_examples=settings.default.max_examples // 4)
List = list[Fraction]


def next_target(target: Sequence[Fraction], draft: Sequence[Fraction]) -> List:
    """Residual norm((t − p)_+); the target itself where nothing is left."""
    left = [max(t - p, F(0)) for t, p in zip(target, draft, strict=True)]
    return [x / sum(left) for x in left] if sum(left) else list(target)


def multi_round(problem: Problem, drafts: Sequence[int]) -> List:
    """Distribution of the output of the multi-round algorithm, given the drafts."""
    target, draft = problem.target.tolist(), problem.draft.tolist()
    law, reached = [F(0)] * problem.n, F(1)
    for token in drafts:
        accept = min(F(1), target[token] / draft[token])
        law[token] += reached * accept
        reached *= 1 - accept
        target = next_target(target, draft)
    return [x + reached * t for x, t in zip(law, target, strict=True)]


@fewer
@given(problems(max_tokens=4, max_drafts=3, exact=True))
def test_the_law_given_the_drafts_is_that_of_the_algorithm(problem: Problem) -> None:
    plan = RecursiveRejection(problem)
    for drafts, _ in problem.drafts.tuples():
        assert plan.conditional(drafts).tolist() == multi_round(problem, drafts)


@given(problems(max_drafts=5, exact=True))
def test_acceptance_is_a_product_over_the_rounds(problem: Problem) -> None:
    # 1 − Π (1 − β_i), β_i = Σ min(p, t_i), for i.i.d. drafts
    target, draft = problem.target.tolist(), problem.draft.tolist()
    rejected = F(1)
    for _ in range(problem.k):
        rejected *= 1 - sum(min(p, t) for p, t in zip(draft, target, strict=True))
        target = next_target(target, draft)
    assert RecursiveRejection(problem).acceptance == 1 - rejected


@given(problems(max_drafts=5, exact=True))
def test_the_accepted_mass_is_capped(problem: Problem) -> None:
    # min(q, c p) with the c after the last round: one family with k-Seq and the optimum
    plan = RecursiveRejection(problem)
    cap, mass = plan.rounds[-1]
    capped = [min(q, (cap + mass) * p) for p, q in zip(problem.draft, problem.target, strict=True)]
    assert plan.accepted_mass.tolist() == capped


def test_rounds_end_where_a_draft_is_accepted_for_sure() -> None:
    # t_2 = p: the second round accepts everything, a third is never reached
    plan = RecursiveRejection(Problem([F(1, 2), F(1, 2), 0], [F(3, 4), F(1, 4), 0], k=5))
    assert len(plan.rounds) <= 5
    equal = RecursiveRejection(Problem([F(1, 2), F(1, 2)], [F(1, 2), F(1, 2)], k=5))
    assert equal.rounds == ((0, 1),)
    assert equal.acceptance == 1


@pytest.mark.parametrize("b", [F(1, 2), F(3, 4), F(1)])
def test_bernoulli_laws_of_figure_6(b: Fraction) -> None:
    # SpecTr, figure 6: p = Ber(1/4), q = Ber(b); k-Seq is above multi-round
    problem = Problem([F(3, 4), F(1, 4)], [1 - b, b], k=2)
    first = 1 - (b - F(1, 4))  # one minus the distance; the residual is on token 1
    assert RecursiveRejection(problem).acceptance == 1 - (1 - first) * F(3, 4)
    assert RecursiveRejection(problem).acceptance <= KSeq(problem).acceptance + F(1, 2**48)


def test_rounds_that_change_nothing_are_left_out() -> None:
    # bug: one round after the other up to k, though the mass only halves towards zero
    plan = RecursiveRejection(Problem([0.5, 0.25, 0.25], [0.2, 0.3, 0.5], k=2**63 - 1))
    assert plan.acceptance == pytest.approx(1, abs=1e-15)
    assert len(plan.rounds) < 200


def test_too_many_rounds_are_refused() -> None:
    with pytest.raises(ProblemTooLargeError, match="k-Seq, which supports any k"):
        _ = RecursiveRejection(Problem([1 - 1e-7, 1e-7], [0.5, 0.5], k=10**6)).acceptance


@pytest.mark.parametrize("exact", [True, False])
def test_rounds_are_numbers_of_python(exact: bool) -> None:
    """Bug: NumPy scalars, or the integer 0 of an empty sum of fractions."""
    problem = Problem([0.75, 0.25], [0.25, 0.75], 3)
    rounds = RecursiveRejection(problem.to_exact() if exact else problem).rounds
    assert {type(number) for each in rounds for number in each} == {F if exact else float}
