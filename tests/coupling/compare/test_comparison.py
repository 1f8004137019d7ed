"""`otm.compare`: what it shows is what the rules themselves say, best first."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import otm
from otm._core.interval import Interval
from otm.coupling import PLANS, KSeq, OptimalPlan
from otm.coupling.lossy import LenientPlan
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftCountError,
    InvalidParameterError,
    UnknownMethodError,
)
from otm.problem import Problem
from otm.testing.strategies import problems

F = Fraction
fewer = settings(max_examples=settings.default.max_examples // 4)
P, Q = [0.50, 0.25, 0.15, 0.10], [0.20, 0.30, 0.10, 0.40]


@fewer
@given(problems(max_tokens=4, max_drafts=3, exact=True))
def test_every_number_is_that_of_the_rule(problem: Problem) -> None:
    comparison = otm.compare(problem.draft, problem.target, problem.k)
    left_out = {"SpecHub"} if problem.k == 1 and np.count_nonzero(problem.draft) > 1 else set()
    assert {rule.name for rule in comparison} == set(PLANS) - left_out
    for rule in comparison:
        plan = PLANS[rule.name](problem)
        assert rule.acceptance == plan.acceptance <= rule.optimum
        assert rule.optimum == otm.alpha(plan.drafts, problem.target)
        assert rule.distance is None


@fewer
@given(problems(max_tokens=4, max_drafts=3))
def test_the_best_rule_comes_first(problem: Problem) -> None:
    acceptance = [rule.acceptance for rule in otm.compare(problem.draft, problem.target, problem.k)]
    assert all(a >= b - 1e-11 for a, b in itertools.pairwise(acceptance))


def test_a_rule_without_a_number_is_ranked_by_what_is_certain() -> None:
    # bug: ranked by its upper end, it stood above the optimum
    rng = np.random.default_rng(0)
    comparison = otm.compare(rng.dirichlet(np.ones(200)), rng.dirichlet(np.ones(200)), 4)
    without = comparison["recursive rejection without replacement"]
    assert isinstance(without.acceptance, Interval)
    assert comparison["recursive rejection"].acceptance < without.acceptance.upper
    certain = [
        round(getattr(rule.acceptance, "lower", rule.acceptance), 12) for rule in comparison
    ]  # rules that are equal but for rounding stay in the order of the list
    assert certain == sorted(certain, reverse=True)
    assert f"{without.acceptance:.4f}" in repr(comparison)


def test_bounds_that_cross_by_rounding_are_one_number() -> None:
    # Bug: the acceptance 1 + 4e-16 and the optimum 1 − 2e-16 did not make a valid interval.
    for seed in range(30, 45):
        law = np.random.default_rng(seed).dirichlet(np.full(593, 0.5))
        for rule in otm.compare(law, law, 5):
            assert getattr(rule.acceptance, "upper", rule.acceptance) <= 1


def test_fractions_too_many_for_exact_sums_are_compared_in_floats() -> None:
    draft = [F(i + 1, 40 * 41 // 2) for i in range(40)]
    comparison = otm.compare(draft, draft[::-1], 4)
    assert isinstance(comparison["optimal"].acceptance, F)
    assert isinstance(comparison["list coupling"].acceptance, float)


def test_rules_are_chosen_by_name_or_given() -> None:
    named = otm.compare(P, Q, 2, rules=["k-Seq", "optimal"])
    assert [rule.name for rule in named] == ["optimal", "k-Seq"]
    lenient = partial(LenientPlan, lenience=0.5)
    given_rules = otm.compare(
        P, Q, 2, rules={"mine": KSeq, "lenient": lenient, "best": OptimalPlan}
    )
    assert [rule.name for rule in given_rules] == ["best", "mine", "lenient"]  # the lossy one last
    distance = given_rules["lenient"].distance
    assert distance is not None
    assert f"TV {distance.total_variation:.2g}" in repr(given_rules)


@pytest.mark.parametrize("rules", ["k-seq", ["k-Seq", "kseq"], [KSeq], 3])
def test_unknown_rules_are_refused_with_the_known_ones(rules: Any) -> None:
    with pytest.raises(UnknownMethodError, match=r"no rule .*; there are optimal, k-Seq"):
        otm.compare(P, Q, 2, rules=rules)
    with pytest.raises(UnknownMethodError, match="no rule 'kseq'; there are greedy, "):
        otm.compare(P, Q, 2)["kseq"]


@pytest.mark.parametrize("rule", [None, 3, lambda problem: 3, lambda problem: problem])
def test_what_is_no_rule_is_refused(rule: Any) -> None:
    with pytest.raises(InvalidParameterError, match="rule 'mine'"):
        otm.compare(P, Q, 2, rules={"mine": rule})


def test_bad_laws_are_refused_as_everywhere() -> None:
    with pytest.raises(InvalidDistributionError):
        otm.compare([0.5, 0.6], [0.5, 0.5], 2)
    with pytest.raises(InvalidDraftCountError):
        otm.compare(P, Q, 0)


def test_laws_by_their_support_are_compared_on_the_union() -> None:
    sparse = [otm.SparseProbs([3, 70, 500, 9_000], law) for law in (P, Q)]
    assert repr(otm.compare(*sparse, 2)) == repr(otm.compare(P, Q, 2))


def test_a_notebook_shows_the_same_cells() -> None:
    html = otm.compare(P, Q, 2)._repr_html_()
    assert html.count("<tr>") == len(PLANS) + 1
    assert "0.7900" in html
