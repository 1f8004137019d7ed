"""The maximal coupling against SpecTr's Algorithm 1, written down naively."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otm._core.arithmetic import Probs
from otm._core.probs.distribution import total_variation
from otm.coupling.maximal import MaximalCoupling
from otm.errors import InvalidParameterError
from otm.problem import Problem
from otm.testing.strategies import drafts, pairs, problems, uniforms

F = Fraction
HALVES = [F(1, 2), F(1, 2)]


def algorithm_1(problem: Problem, token: int, eta: Fraction, u: Fraction) -> int:
    """SpecTr's Algorithm 1; u draws from its residual by walking along it.

    With η < … where the paper has η ≤ …: the two differ at single points, and there the paper
    accepts a token of target probability 0 at η = 0.
    """
    p, q = problem.draft.tolist(), problem.target.tolist()
    if eta < min(F(1), q[token] / p[token]):
        return token
    minimum = [min(a, b) for a, b in zip(p, q, strict=True)]
    below = F(0)
    for y in range(problem.n):
        below += (q[y] - minimum[y]) / (1 - sum(minimum))
        if u < below:
            return y
    raise AssertionError("the residual must sum to one")


@given(problems(max_drafts=1, exact=True), st.data())
def test_every_decision_is_that_of_algorithm_1(problem: Problem, data: st.DataObject) -> None:
    [token] = data.draw(drafts(problem.drafts))
    edge = problem.target[token] / problem.draft[token]
    eta, u = data.draw(uniforms([edge], exact=True)), data.draw(uniforms(exact=True))
    selection = MaximalCoupling(problem).select([token], [eta, u])
    assert selection.token == algorithm_1(problem, token, eta, u)


@given(pairs(exact=True))
def test_acceptance_is_one_minus_the_distance(pair: tuple[Probs, Probs]) -> None:
    # Inputs: k = 1 → 1 − TV
    plan = MaximalCoupling(Problem(*pair, 1))
    assert plan.acceptance == 1 - total_variation(*pair)
    assert plan.accepted_mass.tolist() == [min(p, q) for p, q in zip(*pair, strict=True)]


@pytest.mark.parametrize("factor", [None, 1])
def test_its_factor_is_a_number_of_python(factor: Any) -> None:
    """Bug: a NumPy scalar, which prints as one."""
    assert type(MaximalCoupling(Problem([0.75, 0.25], [0.5, 0.5], 1), factor).rho) is float


def test_two_uniforms_a_selection() -> None:
    assert MaximalCoupling(Problem(HALVES, HALVES, 1)).uniforms_per_selection == 2


def test_a_uniform_exactly_at_the_ratio_rejects() -> None:
    # Sampling: a uniform on the boundary; the accepted interval is [0, q/p)
    plan = MaximalCoupling(Problem([0.5, 0.5], [0.25, 0.75], 1))
    assert plan.select([0], [0.5 - 2.0**-54, 0]).token == 0
    assert plan.select([0], [0.5, 0]).token == 1


def test_more_drafts_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="k = 2"):
        MaximalCoupling(Problem(HALVES, HALVES, 2))


def test_another_factor_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="ρ = 1"):
        MaximalCoupling(Problem(HALVES, HALVES, 1), rho=2)


@pytest.mark.parametrize("factor", [None, 1, 1.0, Fraction(1)])
def test_its_own_factor_may_be_given(factor: Any) -> None:
    assert MaximalCoupling(Problem([0.5, 0.5], [0.75, 0.25], 1), rho=factor).rho == 1


@pytest.mark.parametrize("factor", [0, 0.5])
def test_a_factor_below_one_is_refused(factor: float) -> None:
    with pytest.raises(InvalidParameterError, match="supports only ρ = 1"):
        MaximalCoupling(Problem([0.5, 0.5], [0.75, 0.25], 1), rho=factor)
