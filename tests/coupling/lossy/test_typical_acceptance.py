"""Typical acceptance against its definition; it is not lossless, and says so."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otm.coupling.lossy.lenient import distance_to_target
from otm.coupling.lossy.typical_acceptance import TypicalAcceptance
from otm.errors import InvalidParameterError, OTMError, UnknownMethodError
from otm.problem import Problem
from otm.testing import exact_acceptance, exact_distribution_of_select, exact_output_distribution
from otm.testing.instances import instance
from otm.testing.strategies import problems

F = Fraction
fewer = settings(max_examples=settings.default.max_examples // 4)


@fewer
@given(
    problems(max_tokens=4, max_drafts=3, exact=True),
    st.fractions(0, 1, max_denominator=8),
    st.fractions(0, 1, max_denominator=8),
    st.sampled_from(["argmax", "target"]),
)
def test_the_law_given_the_drafts_is_that_of_the_definition(
    problem: Problem, epsilon: Fraction, delta: Fraction, otherwise: Any
) -> None:
    plan = TypicalAcceptance(problem, epsilon, delta, otherwise)
    q = problem.target.tolist()
    entropy = -sum(float(x) * math.log(x) for x in q if x)
    assert float(plan.threshold) == pytest.approx(
        min(float(epsilon), float(delta) * math.exp(-entropy))
    )
    for drafts, _ in problem.drafts.tuples():
        best = max(drafts, key=lambda x: q[x])
        if q[best] > plan.threshold:
            law = [F(int(x == best)) for x in range(problem.n)]
        elif otherwise == "argmax":
            law = [F(int(x == q.index(max(q)))) for x in range(problem.n)]
        else:
            law = q
        assert plan.conditional(drafts).tolist() == law
        decided = exact_distribution_of_select(plan, drafts)
        for token in range(problem.n):
            index = drafts.index(token) if token in drafts else -1
            assert decided.get((token, index), 0) == law[token]
    assert plan.output_distribution().tolist() == exact_output_distribution(plan).tolist()
    assert plan.acceptance == exact_acceptance(plan) >= plan.acceptance_by_test


@given(problems(max_tokens=5, max_drafts=3, kinds=["independent", "overlapping"]))
def test_floats_are_as_their_own_enumeration(problem: Problem) -> None:
    plan = TypicalAcceptance(problem)
    assert abs(plan.output_distribution() - exact_output_distribution(plan)).max() <= 1e-12
    assert plan.acceptance == pytest.approx(exact_acceptance(plan), abs=1e-12)


def test_it_is_not_lossless() -> None:
    plan = TypicalAcceptance(instance("four tokens", exact=False))
    assert not plan.lossless
    assert distance_to_target(plan).total_variation > 0.1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"epsilon": -0.1}, InvalidParameterError, "epsilon"),
        ({"delta": -1}, InvalidParameterError, "delta"),
        ({"epsilon": math.nan}, InvalidParameterError, "epsilon"),
        ({"delta": "a"}, InvalidParameterError, "delta"),
        ({"otherwise": "drafts"}, UnknownMethodError, "'drafts'; there are argmax, target"),
    ],
)
def test_parameters_out_of_range_are_refused(
    arguments: Any, error: type[OTMError], message: str
) -> None:
    with pytest.raises(error, match=message):
        TypicalAcceptance(instance("Bernoulli"), **arguments)
