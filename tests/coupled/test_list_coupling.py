"""List coupling: the clocks themselves, and the distribution that they give the output."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otm.coupled.list_coupling import ListCoupling
from otm.errors import InvalidUniformsError, ProblemTooLargeError
from otm.optimum.cut import minimum_cut
from otm.problem import Problem
from otm.testing import assert_lossless, exact_acceptance, exact_output_distribution
from otm.testing.instances import INSTANCES, instance
from otm.testing.strategies import pairs, problems

F = Fraction
fewer = settings(max_examples=settings.default.max_examples // 4)


def race(problem: Problem, uniforms: Any) -> tuple[list[int], int]:
    """Draw drafts and output from clocks, as the paper has it."""
    p, q, n = problem.draft.tolist(), problem.target.tolist(), problem.n
    clocks = [[-math.log(1 - u) for u in row] for row in uniforms]
    drafts = [min((row[i] / p[i], i) for i in range(n) if p[i])[1] for row in clocks]
    first = [min(row[i] for row in clocks) for i in range(n)]
    return drafts, min((first[i] / q[i], i) for i in range(n) if q[i])[1]


def both_rings_first(problem: Problem, x: int, y: int) -> Fraction:
    """Pr(X = x, Y = y) for one list, from the integral over the two clocks that decide.

    For x ≠ y let v = S_x/S_y: q_x/q_y < v < p_x/p_y, and the other clocks are above
    max(q_i/q_y, v p_i/p_x) S_y.  With S_y integrated out, ∫ dv / (1 + v + Σ max(…))².
    """
    p, q, n = problem.draft.tolist(), problem.target.tolist(), problem.n
    if p[x] == 0 or q[y] == 0:
        return F(0)
    if x == y:
        return 1 / sum(max(q[i] / q[y], p[i] / p[x]) for i in range(n))
    others = [(q[i] / q[y], p[i] / p[x]) for i in range(n) if i not in (x, y)]
    kinks = {a / b for a, b in others if b}
    if p[y]:
        kinks.add(p[x] / p[y])
    start = q[x] / q[y]
    end = p[x] / p[y] if p[y] else None
    ends = [start, *sorted(v for v in kinks if v > start and (end is None or v <= end))]
    ends += [None] if end is None else []
    total = F(0)
    for low, high in itertools.pairwise(ends):
        middle = low + 1 if high is None else (low + high) / 2
        constant = 1 + sum(a for a, b in others if a > middle * b)
        slope = 1 + sum(b for a, b in others if a <= middle * b)
        at_low = 1 / (constant + slope * low)
        total += (at_low - (1 / (constant + slope * high) if high is not None else 0)) / slope
    return total


@pytest.mark.parametrize("name", INSTANCES)
def test_the_code_that_decides_is_lossless(name: str) -> None:
    assert_lossless(ListCoupling(instance(name)))


# The distribution of the output


@fewer
@given(pairs(max_tokens=4, exact=True))
def test_one_list_has_the_joint_law_of_two_races(pair: Any) -> None:
    problem = Problem(*pair, 1)
    plan = ListCoupling(problem)
    for x in np.flatnonzero(problem.draft).tolist():
        expected = [both_rings_first(problem, x, y) / problem.draft[x] for y in range(problem.n)]
        assert plan.conditional([x]).tolist() == expected
        q, p = problem.target, problem.draft
        if q[x]:
            missed = sum(max(q[i] * p[x] / q[x] - p[i], F(0)) for i in range(problem.n))
            assert expected[x] == 1 / (1 + missed)


@fewer
@given(problems(max_tokens=4, max_drafts=3, exact=True))
def test_the_joint_law_has_both_marginals(problem: Problem) -> None:
    # Before normalisation, the conditional distributions sum to one, so the drafts follow p^k.
    plan = ListCoupling(problem)
    sets = np.array([drafts for drafts, _ in problem.drafts.tuples()])
    laws = plan._on_vocabulary(
        plan._clocks.probs_given(np.sort(plan.problem.by_ratio.place[sets], axis=1))
    )
    assert laws.sum(axis=1).tolist() == [1] * len(sets)
    assert exact_output_distribution(plan).tolist() == problem.target.tolist()
    assert plan.acceptance == exact_acceptance(plan)  # two different integrals


@pytest.mark.parametrize("name", ["four tokens", "two cuts", "zeros"])
def test_the_clocks_have_the_law_that_is_stated(name: str) -> None:
    # Monte Carlo with a fixed seed: tuples of drafts and output, within 5 standard deviations
    problem = instance(name, exact=False)
    plan, draws = ListCoupling(problem), 100_000
    drafts, token = plan.couple(np.random.default_rng(0).random((draws, problem.k, problem.n)))
    for chosen, probability in problem.drafts.tuples():
        drawn = (drafts == chosen).all(axis=1)
        expected = probability * plan.conditional(list(chosen))
        found = np.bincount(token[drawn], minlength=problem.n) / draws
        assert (abs(found - expected) <= 5 * np.sqrt(expected / draws)).all()


@given(problems(max_tokens=5, max_drafts=4, exact=True))
def test_the_list_matching_lemma(problem: Problem) -> None:
    p, q, k = problem.draft.tolist(), problem.target.tolist(), problem.k
    bound = F(0)
    for j in range(problem.n):
        if p[j] and q[j]:
            rates = sum(max(b / q[j], a / p[j]) for a, b in zip(p, q, strict=True))
            bound += k / (rates + (k - 1) / q[j])
    plan = ListCoupling(problem)
    assert plan.lower_bound == bound <= plan.acceptance <= minimum_cut(problem).value
    if k == 1:
        assert plan.acceptance == bound


@fewer
@given(problems(max_tokens=4, max_drafts=3, exact=True), st.data())
def test_the_order_of_the_drafts_does_not_matter(problem: Problem, data: st.DataObject) -> None:
    plan = ListCoupling(problem)
    support = np.flatnonzero(problem.draft).tolist()
    drafts = [data.draw(st.sampled_from(support)) for _ in range(problem.k)]
    shuffled = data.draw(st.permutations(drafts))
    assert plan.conditional(drafts).tolist() == plan.conditional(shuffled).tolist()


# Floats


@fewer
@given(problems(max_tokens=4, max_drafts=3))
def test_floats_agree_with_fractions(problem: Problem) -> None:
    plan, exact = ListCoupling(problem), ListCoupling(problem.to_exact())
    assert abs(plan.acceptance - float(exact.acceptance)) <= 1e-13
    assert abs(plan.lower_bound - float(exact.lower_bound)) <= 1e-13
    assert abs(plan.output_distribution() - problem.target).max() <= 1e-14
    assert abs(exact_output_distribution(plan) - problem.target).max() <= 1e-13


@pytest.mark.parametrize("name", INSTANCES)
def test_laws_given_the_drafts_agree_with_fractions(name: str) -> None:
    plan, exact = (ListCoupling(instance(name, exact=exact)) for exact in (False, True))
    for drafts, _ in exact.drafts.tuples():
        law = exact.conditional(drafts).astype(np.float64)
        assert abs(plan.conditional(drafts) - law).max() <= 1e-14


@pytest.mark.parametrize("k", [1, 4, 200])
def test_rare_drafts_and_many_drafts(k: int) -> None:
    # bug: 1/P overflows for a rare first token, and Π Ĝ for many drafts
    draft = [5e-324, 1e-300, 1e-20, 0.5, 0.5]
    for target in ([0.1, 0.2, 0.3, 0.2, 0.2], [0, 0, 0, 0.4, 0.6], [0, 0, 0, 0, 1]):
        plan = ListCoupling(Problem(draft, target, k))
        assert abs(plan.output_distribution() - plan.problem.target).max() <= 1e-13
        for token in range(5):
            laws = plan._clocks.probs_given(plan.problem.by_ratio.place[[[token] * k]])
            assert laws[:, :-1].sum() == pytest.approx(1, abs=1e-11)
        assert plan.lower_bound <= plan.acceptance + 1e-13


def test_a_large_vocabulary() -> None:
    n, k = 5_000, 4
    rng = np.random.default_rng(2)
    draft = rng.dirichlet(np.full(n, 0.1))
    target = draft * rng.lognormal(size=n)
    plan = ListCoupling(Problem(draft, target / target.sum(), k))
    assert abs(plan.output_distribution() - plan.problem.target).sum() <= 1e-12
    assert plan.lower_bound < plan.acceptance <= minimum_cut(plan.problem).value
    drafts = plan.drafts.draw(rng.random((20, k)))
    laws = plan._clocks.probs_given(np.sort(plan.problem.by_ratio.place[drafts], axis=1))
    assert laws[:, :-1].sum(axis=1) == pytest.approx(np.ones(20), abs=1e-12)
    accepted = [law[row].sum() for law, row in zip(plan.conditional(drafts), drafts, strict=True)]
    assert 0.5 < np.mean(accepted) <= 1


# The rule as published


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", ["three drafts", "zeros", "disjoint", "V = 1"])
def test_coupling_is_the_race_of_the_paper(name: str, exact: bool) -> None:
    plan = ListCoupling(instance(name, exact=exact))
    problem = instance(name, exact=False)
    numbers = np.random.default_rng(3).random((4, 25, problem.k, problem.n))
    drafts, token = plan.couple(numbers)
    assert drafts.shape == (4, 25, problem.k)
    assert token.shape == (4, 25)
    for place in np.ndindex(4, 25):
        assert (drafts[place].tolist(), token[place]) == race(problem, numbers[place].tolist())


def test_the_output_does_not_depend_on_the_drafter() -> None:
    rng = np.random.default_rng(4)
    target, *drafters = rng.dirichlet(np.ones(5), 4)
    numbers = rng.random((200, 3, 5))
    coupled = [ListCoupling(Problem(p, target, 3)).couple(numbers) for p in drafters]
    assert all((token == coupled[0][1]).all() for _, token in coupled)
    assert not (coupled[0][0] == coupled[1][0]).all()
    other = ListCoupling(Problem(drafters[0], drafters[1], 3)).couple(numbers)
    assert (other[0] == coupled[0][0]).all()  # nor the drafts on the target


def test_a_clock_that_rings_at_once() -> None:
    # u = 0: 0/0 for a token without probability must not win
    plan = ListCoupling(Problem([0, 0.5, 0.5], [0, 0, 1], 2))
    drafts, token = plan.couple(np.zeros((2, 3)))
    assert (drafts.tolist(), int(token)) == ([1, 1], 2)


@pytest.mark.parametrize("shape", [(2,), (3, 4), (2, 5), (7, 2, 3)])
def test_clocks_of_a_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidUniformsError, match="one for each list and token"):
        ListCoupling(instance("four tokens", exact=False)).couple(np.zeros(shape))


def test_too_many_terms_are_refused_in_fractions_only() -> None:
    laws = [F(1, 40)] * 40, [F(1, 40)] * 40
    with pytest.raises(ProblemTooLargeError, match="floats have no limit"):
        _ = ListCoupling(Problem(*laws, 4)).acceptance
    floats = [[1 / 40] * 40] * 2
    assert ListCoupling(Problem(*floats, 4)).acceptance == pytest.approx(1, abs=1e-13)


def test_clocks_that_never_ring_are_no_warning() -> None:
    # bug: a time over a subnormal speed overflowed
    drafts, token = ListCoupling(Problem([1e-320, 1], [0, 1], 2)).couple([[0.5] * 2] * 2)
    assert (drafts.tolist(), int(token)) == ([1, 1], 1)
