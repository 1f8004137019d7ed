"""The exact maximum flow: the closed form is right, to the last digit."""

from __future__ import annotations

import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from otm.errors import MissingDependencyError, ProblemTooLargeError
from otm.optimum.cut import minimum_cut
from otm.optimum.solvers.max_flow import alpha_by_max_flow
from otm.problem import Problem
from otm.testing.instances import INSTANCES, instance
from otm.testing.strategies import problems

F = Fraction


@settings(max_examples=300)
@given(problems(max_tokens=6, max_drafts=4, exact=True))
def test_the_closed_form_is_the_maximum_flow(problem: Problem) -> None:
    assert minimum_cut(problem).value == alpha_by_max_flow(problem)


def test_the_closed_form_is_the_maximum_flow_of_small_weights() -> None:
    # small whole weights: many zeros and ties, and no two instances of one kind in a row
    for seed in range(200):
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(1, 8)), int(rng.integers(1, 6))
        draft, target = rng.integers(0, 5, (2, n)).tolist()
        draft[rng.integers(n)] += 1
        target[rng.integers(n)] += 1
        laws = [[F(weight, sum(weights)) for weight in weights] for weights in (draft, target)]
        problem = Problem(*laws, k)
        assert minimum_cut(problem).value == alpha_by_max_flow(problem), problem


@pytest.mark.parametrize("name", INSTANCES)
def test_known_instances(name: str) -> None:
    assert alpha_by_max_flow(instance(name)) == minimum_cut(instance(name)).value


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("b", [F(0), F(1, 10), F(1, 4), F(3, 4), F(1)])
def test_bernoulli_laws(b: Fraction, k: int) -> None:
    # SpecTr, equation 10: golden values that neither method has computed
    problem = Problem([F(3, 4), F(1, 4)], [1 - b, b], k)
    expected = min(b, 1 - F(3, 4) ** k) + min(1 - b, 1 - F(1, 4) ** k)
    assert alpha_by_max_flow(problem) == expected


def test_uniform_laws() -> None:
    # SpecTr, appendix B.1: 1 − (1 − 1/r)^k for p = U(d), q = U(d/r)
    problem = Problem([F(1, 6)] * 6, [F(1, 2)] * 2 + [F(0)] * 4, 3)
    assert alpha_by_max_flow(problem) == 1 - (1 - F(1, 3)) ** 3


@given(problems(max_tokens=4))
def test_floats_stand_for_their_fractions(problem: Problem) -> None:
    # float capacities lose digits or never end; here they become integers first
    assert alpha_by_max_flow(problem) == minimum_cut(problem.to_exact()).value


@pytest.mark.parametrize(("n", "k"), [(200, 2), (50_000, 2), (50_000, 50_000), (30, 12)])
def test_large_problems_are_refused(n: int, k: int) -> None:
    with pytest.raises(ProblemTooLargeError, match="closed-form"):
        alpha_by_max_flow(Problem(np.full(n, 1 / n), np.full(n, 1 / n), k))


def test_many_drafts_of_few_tokens_are_not_refused() -> None:
    problem = Problem([F(2, 3), F(1, 3)], [F(1, 2), F(1, 2)], 500)
    assert alpha_by_max_flow(problem) == minimum_cut(problem).value


def test_a_missing_networkx_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(MissingDependencyError, match=r"otm\[flow\]"):
        alpha_by_max_flow(instance("Bernoulli"))
