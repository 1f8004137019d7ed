"""Lossy rules of papers and engines against their definitions, and against the best trade."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from otm._core.probs.distribution import total_variation
from otm.coupling import TransportPlan
from otm.coupling.lossy import (
    Cactus,
    CascadePlan,
    EnsemblePlan,
    RelaxedPlan,
    SyntheticAcceptance,
    distance_to_target,
)
from otm.errors import InvalidParameterError, OTMError, UnknownMethodError
from otm.optimum.lenience import acceptance_at_distance
from otm.problem import Problem
from otm.testing import exact_acceptance, exact_distribution_of_select, exact_output_distribution
from otm.testing.instances import instance
from otm.testing.strategies import problems

F = Fraction
fewer = settings(max_examples=settings.default.max_examples // 4)
shares = st.fractions(0, 1, max_denominator=6)
VERSIONS: Any = st.sampled_from(["V1", "V2", "V3"])


def kept_by(version: str, slack: Fraction, p: Fraction, q: Fraction, top: Fraction) -> bool:
    """Whether a cascade keeps the draft model for a token."""
    if version == "V3":
        return q >= (1 - slack) * top
    return (p if version == "V1" else q) >= top - slack


@fewer
@given(problems(max_tokens=4, max_drafts=3, exact=True), shares, VERSIONS)
def test_relaxed_plans_output_what_they_say(
    problem: Problem, share: Fraction, version: Any
) -> None:
    """Bug: the deferred mass drawn from the residual, or from the draft distribution."""
    p, q = problem.draft.tolist(), problem.target.tolist()
    kept = [kept_by(version, share, x, y, max(q)) for x, y in zip(p, q, strict=True)]
    deferred = sum(x for x, stays in zip(p, kept, strict=True) if not stays)
    mixed = [share * y + (1 - share) * x for x, y in zip(p, q, strict=True)]
    cascade = [(x if stays else 0) + deferred * y for x, y, stays in zip(p, q, kept, strict=True)]
    laws = {EnsemblePlan(problem, share): mixed, CascadePlan(problem, share, version): cascade}
    for plan, law in laws.items():
        assert exact_output_distribution(plan).tolist() == law
        assert plan.output_distribution().tolist() == law
        assert plan.acceptance == exact_acceptance(plan)
        assert not plan.lossless


@given(problems(max_tokens=5, max_drafts=1, exact=True), shares, VERSIONS)
def test_what_another_target_loses(problem: Problem, share: Fraction, version: Any) -> None:
    """Theorem 7.5: the detour from p over q' to q; none for an ensemble."""
    p, q = problem.draft, problem.target
    for plan in (EnsemblePlan(problem, share), CascadePlan(problem, share, version)):
        best = acceptance_at_distance(problem, distance := total_variation(plan.relaxed_target, q))
        detour = distance + total_variation(p, plan.relaxed_target) - total_variation(p, q)
        beyond = max(0, distance - total_variation(p, q))  # where everything may be accepted
        assert best - plan.acceptance == detour - beyond >= 0
        if isinstance(plan, EnsemblePlan):
            assert detour == 0


def test_an_ensemble_of_several_drafts_can_lose() -> None:
    """Smallest in the number of tokens, then of their common denominator."""
    plan = EnsemblePlan(Problem([F(0), F(1, 3), F(2, 3)], [F(1, 3), F(2, 3), F(0)], 2), F(1, 2))
    distance = distance_to_target(plan).total_variation
    assert (plan.acceptance, distance) == (F(5, 6), F(1, 3))
    assert acceptance_at_distance(plan.problem, distance) == F(8, 9)


@fewer
@given(problems(max_tokens=4, max_drafts=3, exact=True), shares)
def test_synthetic_acceptance_looks_at_nothing(problem: Problem, rate: Fraction) -> None:
    plan = SyntheticAcceptance(problem, rate)
    left = [max(y - x, F(0)) for x, y in zip(problem.draft, problem.target, strict=True)]
    left = left if sum(left) else problem.target.tolist()
    missed = (1 - rate) ** problem.k
    for drafts, _ in problem.drafts.tuples():
        law = [missed * x / sum(left) for x in left]
        for i, x in enumerate(drafts):
            law[x] += rate * (1 - rate) ** i
        assert plan.conditional(drafts).tolist() == law
    assert plan.output_distribution().tolist() == exact_output_distribution(plan).tolist()
    assert plan.acceptance == exact_acceptance(plan)
    assert plan.acceptance_by_test == 1 - missed


@fewer
@given(problems(max_tokens=4, max_drafts=1, exact=True), shares)
def test_cactus_bends_the_target_towards_the_draft(problem: Problem, delta: Fraction) -> None:
    """Bug: one bent target for all drafts."""
    plan = Cactus(problem, delta)
    p, q = problem.draft.tolist(), problem.target.tolist()
    for x in np.flatnonzero(problem.draft).tolist():
        high = min(q[x] + F(math.sqrt(2 * delta * q[x] * (1 - q[x]))), F(1))
        bent = [high if y == x else q[y] * (1 - high) / (1 - q[x] or 1) for y in range(problem.n)]
        accept = min(F(1), high / p[x])
        left = [max(h - drawn, F(0)) for h, drawn in zip(bent, p, strict=True)]
        law = [(1 - accept) * y / (sum(left) or 1) for y in left]
        law[x] += accept
        assert plan.conditional([x]).tolist() == law
        decided = exact_distribution_of_select(plan, (x,))
        assert all(decided.get((y, -1 if y != x else 0), 0) == law[y] for y in range(problem.n))
    assert plan.output_distribution().tolist() == exact_output_distribution(plan).tolist()
    assert plan.acceptance == exact_acceptance(plan)
    assert plan.lossless == (delta == 0)
    if plan.lossless:
        assert plan.output_distribution().tolist() == q


@given(problems(max_tokens=5, max_drafts=1), st.floats(0, 1))
@example(Problem([0.5, 0.5], [5e-324, 1.0], 1), 0.0)  # a ratio beyond floats
def test_cactus_in_floats_is_its_own_enumeration(problem: Problem, delta: float) -> None:
    plan = Cactus(problem, delta)
    given_each = plan.conditional(np.arange(problem.n)[problem.draft > 0, None])
    law = problem.draft[problem.draft > 0] @ given_each
    assert plan.output_distribution() == pytest.approx(law, abs=1e-9)


def divergence(law: Any, other: Any) -> float:
    pairs = zip(law, other, strict=True)
    return sum(float(x) * math.log(float(x) / float(y)) for x, y in pairs if x)


@pytest.mark.parametrize(
    ("draft", "target", "delta", "output"),
    [
        # The bound is a second-order expansion of the divergence of h itself.
        ([F(1), F(0)], [F(1, 2), F(1, 2)], F(1, 8), [F(3, 4), F(1, 4)]),
        # h is within δ for each draft, but the output takes something from each
        (
            [F(0), F(1, 2), F(1, 2)],
            [F(4, 5), F(1, 10), F(1, 10)],
            F(1, 18),
            [F(3, 5), F(1, 5), F(1, 5)],
        ),
    ],
)
def test_the_output_of_cactus_diverges_by_more_than_delta(
    draft: list[Fraction], target: list[Fraction], delta: Fraction, output: list[Fraction]
) -> None:
    plan = Cactus(Problem(draft, target, 1), delta)
    assert [x.limit_denominator(1000) for x in plan.output_distribution()] == output
    assert divergence(output, target) > float(delta)


ENGINES: list[Callable[[Problem], TransportPlan]] = [
    lambda problem: EnsemblePlan(problem, 0.5),
    lambda problem: CascadePlan(problem, 0.5),
    lambda problem: SyntheticAcceptance(problem, 0.5),
    lambda problem: Cactus(problem.with_k(1), 0.5),
]


@pytest.mark.parametrize("engine", ENGINES)
def test_no_rule_lies_above_the_frontier(engine: Callable[[Problem], TransportPlan]) -> None:
    plan = engine(instance("four tokens", exact=False))
    distance = distance_to_target(plan).total_variation
    assert plan.acceptance <= acceptance_at_distance(plan.problem, distance) + 1e-12


@pytest.mark.parametrize(
    ("rule", "arguments", "error"),
    [
        (EnsemblePlan, {"weight": 1.5}, InvalidParameterError),
        (CascadePlan, {"slack": -1}, InvalidParameterError),
        (CascadePlan, {"slack": 0.5, "version": "V4"}, UnknownMethodError),
        (SyntheticAcceptance, {"rate": float("nan")}, InvalidParameterError),
        (Cactus, {"delta": -0.1}, InvalidParameterError),
    ],
)
def test_bad_parameters(rule: Any, arguments: dict[str, Any], error: type[OTMError]) -> None:
    with pytest.raises(error):
        rule(Problem([0.5, 0.5], [0.25, 0.75], 1), **arguments)


def test_cactus_judges_one_draft() -> None:
    with pytest.raises(InvalidParameterError, match="k = 2"):
        Cactus(Problem([0.5, 0.5], [0.25, 0.75], 2), 0.1)
    assert issubclass(EnsemblePlan, RelaxedPlan)
