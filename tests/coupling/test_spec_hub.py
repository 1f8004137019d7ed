"""SpecHub: the published transport, written down as a table over its pairs of drafts."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings

from otm.coupling.greedy_drafts import GreedyRule
from otm.coupling.spec_hub import SpecHub
from otm.errors import InvalidDraftCountError
from otm.problem import Problem
from otm.testing import assert_lossless, exact_acceptance, exact_output_distribution
from otm.testing.instances import INSTANCES, instance
from otm.testing.strategies import problems

F = Fraction
fewer = settings(max_examples=settings.default.max_examples // 4)


def two_drafts(problem: Problem) -> Problem:
    return Problem(problem.draft, problem.target, 2)


def published(problem: Problem) -> dict[tuple[int, int], list[Fraction]]:
    """Return the output distribution for each pair, as the paper states it.

    A token takes mass from its first pair, then from its second.  The remaining mass of the pairs
    goes to the hub, up to q(a), and then to the other tokens.
    """
    p, q, n = problem.draft.tolist(), problem.target.tolist(), problem.n
    hub = p.index(max(p))
    mass, given_away = {}, {}
    left = list(q)
    for i in range(n):
        if i != hub and p[i]:
            mass[i, hub], mass[hub, i] = p[i], p[hub] * p[i] / (1 - p[hub])
            for pair in ((i, hub), (hub, i)):
                given_away[pair] = min(mass[pair], left[i])
                left[i] -= given_away[pair]
    free = sum(mass.values()) - sum(given_away.values())
    to_hub = min(F(1), left[hub] / free) if free else F(0)
    left[hub] -= to_hub * free
    rest = [x / sum(left) for x in left] if sum(left) else [F(0)] * n
    laws = {}
    for pair, total in mass.items():
        other = pair[0] if pair[1] == hub else pair[1]
        law = [F(0)] * n
        law[other] += given_away[pair] / total
        unused = 1 - given_away[pair] / total
        law[hub] += unused * to_hub
        laws[pair] = [x + unused * (1 - to_hub) * r for x, r in zip(law, rest, strict=True)]
    return laws


@pytest.mark.parametrize("name", INSTANCES)
def test_the_code_that_decides_is_lossless(name: str) -> None:
    assert_lossless(SpecHub(two_drafts(instance(name))))


@fewer
@given(problems(max_tokens=5, exact=True))
def test_the_law_given_the_drafts_is_the_published_one(problem: Problem) -> None:
    plan = SpecHub(two_drafts(problem))
    for pair, law in published(plan.problem).items():
        assert plan.conditional(pair).tolist() == law


@fewer
@given(problems(max_tokens=5, exact=True))
def test_acceptance_is_the_optimum_for_the_pairs(problem: Problem) -> None:
    # that of greedy drafts, whose sets have the same distribution; see the test of GreedyRule
    plan = SpecHub(two_drafts(problem))
    assert plan.acceptance == exact_acceptance(plan) == GreedyRule(plan.problem).acceptance
    assert (
        plan.output_distribution().tolist()
        == exact_output_distribution(plan).tolist()
        == problem.target.tolist()
    )


@given(problems(max_tokens=5))
def test_floats_agree_with_fractions(problem: Problem) -> None:
    plan, exact = SpecHub(two_drafts(problem)), SpecHub(two_drafts(problem.to_exact()))
    assert abs(plan.acceptance - float(exact.acceptance)) <= 1e-12
    assert abs(plan.output_distribution() - problem.target).max() <= 1e-15


@pytest.mark.parametrize("exact", [False, True])
def test_the_hub_may_be_the_only_draft(exact: bool) -> None:
    plan = SpecHub(instance("one token drafted", exact=exact))
    assert plan.drafts.k == 1
    assert plan.acceptance == pytest.approx(1 / 3)
    assert plan.conditional([1]).astype(float) == pytest.approx(plan.problem.target.astype(float))


@pytest.mark.parametrize("k", [1, 3])
def test_another_number_of_drafts_is_refused(k: int) -> None:
    with pytest.raises(InvalidDraftCountError, match=f"the problem has k = {k}"):
        SpecHub(Problem([0.5, 0.5], [0.25, 0.75], k))
