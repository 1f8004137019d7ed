"""Inputs and shapes that every selection rule accepts, and inputs that it rejects.

The rules are those of the fixture `rule` in `conftest.py`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm.coupling import KSeq, MaximalCoupling, OptimalPlan, SpecHub
from otm.coupling.build import PLANS, PlanBuilder
from otm.coupling.plan import TransportPlan
from otm.errors import (
    InvalidDraftsError,
    InvalidInputError,
    InvalidParameterError,
    InvalidUniformsError,
)
from otm.problem import Problem
from otm.testing.instances import instance

F = Fraction


def first(plan: TransportPlan) -> tuple[int, ...]:
    """Drafts that can be drawn."""
    return next(plan.drafts.tuples())[0]


@pytest.mark.parametrize("given", ["abc", None, [0.5, 0.5], Problem])
@pytest.mark.parametrize("rule", [KSeq, MaximalCoupling, OptimalPlan, SpecHub])
def test_what_is_no_problem_is_refused(rule: type[TransportPlan], given: Any) -> None:
    """Catches a look at what is true in place of what is a problem."""
    with pytest.raises(InvalidInputError, match="needs a Problem"):
        rule(given)


# Shapes


@pytest.mark.parametrize("exact", [False, True])
def test_many_selections_are_as_one_by_one(rule: PlanBuilder, exact: bool) -> None:
    plan = rule(instance("four tokens", exact=exact))
    rng = np.random.default_rng(0)
    chosen = plan.drafts.sample(rng, 60)
    numbers = rng.random((60, plan.uniforms_per_selection))
    together = plan.select(chosen, numbers)
    assert together.token.shape == together.index.shape == (60,)
    conditional = plan.conditional(chosen)
    for i in range(60):
        one = plan.select(chosen[i], numbers[i])
        assert (one.token, one.index) == (together.token[i], together.index[i])
        assert (plan.conditional(chosen[i]) == conditional[i]).all()


def test_leading_axes_are_kept(rule: PlanBuilder) -> None:
    plan = rule(instance("four tokens", exact=False))
    rng = np.random.default_rng(0)
    chosen = plan.drafts.sample(rng, (2, 0, 3))
    numbers = rng.random((2, 0, 3, plan.uniforms_per_selection))
    assert plan.select(chosen, numbers).token.shape == (2, 0, 3)
    chosen = plan.drafts.sample(rng, (2, 5))
    numbers = rng.random((2, 5, plan.uniforms_per_selection))
    selection = plan.select(chosen, numbers)
    assert selection.token.shape == selection.index.shape == (2, 5)
    flat = plan.select(chosen.reshape(10, -1), numbers.reshape(10, -1))
    assert selection.token.ravel().tolist() == flat.token.tolist()
    assert plan.conditional(chosen).shape == (2, 5, plan.problem.n)


def test_conditional_laws_of_no_drafts(rule: PlanBuilder) -> None:
    plan = rule(instance("Bernoulli", exact=False))
    assert plan.conditional(np.empty((0, plan.drafts.k), dtype=np.int64)).shape == (0, 2)


def test_the_index_is_that_of_the_first_equal_draft(rule: PlanBuilder) -> None:
    weights = np.array([[2, 3, 4, 5, 6, 7], [16, 6, 1, 2, 5, 4]])
    plan = rule(Problem(*(weights / weights.sum(axis=1, keepdims=True)), 3))
    rng = np.random.default_rng(0)
    chosen = plan.drafts.sample(rng, 500)
    selection = plan.select(chosen, rng.random((500, plan.uniforms_per_selection)))
    for row, token, index in zip(chosen.tolist(), selection.token, selection.index, strict=True):
        assert index == (row.index(token) if token in row else -1)
    assert {-1, 0} <= set(selection.index.tolist())


def test_sampling_is_selecting_with_uniforms_of_the_generator(rule: PlanBuilder) -> None:
    plan = rule(instance("four tokens", exact=False))
    chosen = plan.drafts.sample(np.random.default_rng(0), 20)
    numbers = np.random.default_rng(7).random((20, plan.uniforms_per_selection))
    sampled = plan.sample(chosen, np.random.default_rng(7))
    assert sampled.token.tolist() == plan.select(chosen, numbers).token.tolist()


def test_uniforms_of_an_exact_plan_are_numbers_of_any_kind(rule: PlanBuilder) -> None:
    # with the long fractions of a float distribution, which overflow beside a NumPy integer
    plan = rule(Problem([1e-9, 0.3, 0.7 - 1e-9], [0.1, 0.2, 0.7], 2).to_exact())
    chosen = first(plan)
    expected = plan.select(chosen, [F(0)] * plan.uniforms_per_selection)
    for zero in (0, np.int64(0), F(0), 0.0, np.float64(0), np.float32(0)):
        found = plan.select(chosen, np.array([zero] * plan.uniforms_per_selection))
        assert (found.token, found.index) == (expected.token, expected.index)


# Refusals


IMPOSSIBLE = [
    (0.0, "float64; draft tokens must be integers"),
    (True, "bool; draft tokens must be integers"),
    ("a", "draft tokens must be integers"),
    (5, r"draft token 5; .* in \[0, 5\)"),
    (-1, "draft token -1;"),
    (2, "draft token 2 has probability 0 under the draft distribution"),
]


@pytest.mark.parametrize("exact", [False, True])
def test_drafts_that_cannot_be_are_refused(rule: PlanBuilder, exact: bool) -> None:
    # Degenerate distributions: d(x) = 0 yet drafted
    plan = rule(instance("zeros", exact=exact))
    for token, message in IMPOSSIBLE:
        chosen = [token] * plan.drafts.k
        with pytest.raises(InvalidDraftsError, match=message):
            plan.select(chosen, [0.5] * plan.uniforms_per_selection)
        with pytest.raises(InvalidDraftsError, match=message):
            plan.conditional(chosen)
    for another_number in ([0, 1, 1, 4], 0, []):
        with pytest.raises(InvalidDraftsError, match="last axis must hold"):
            plan.select(another_number, [0.5] * plan.uniforms_per_selection)
    with pytest.raises(InvalidDraftsError):
        plan.select([[0], [0, 1]], [0.5] * plan.uniforms_per_selection)


@pytest.mark.parametrize("exact", [False, True])
def test_what_is_not_a_uniform_is_refused(rule: PlanBuilder, exact: bool) -> None:
    plan = rule(instance("Bernoulli", exact=exact))
    for bad in (1.0, -1e-300, 1.5, np.inf, -np.inf, np.nan, None, "a"):
        with pytest.raises(InvalidUniformsError, match=r"in \[0, 1\)"):
            plan.select(first(plan), [0.5] * (plan.uniforms_per_selection - 1) + [bad])
    for shape in ((), (0,), (2, 5), (9,)):
        with pytest.raises(InvalidUniformsError, match="need uniforms of shape"):
            plan.select(first(plan), np.zeros(shape))
    with pytest.raises(InvalidUniformsError):
        plan.select(first(plan), [[0.5], [0.5, 0.5]])


def test_tensors_in_tensors_out(rule: PlanBuilder) -> None:
    """Catches a rule whose tokens or indices come back as arrays, or of another type."""
    torch = pytest.importorskip("torch")
    plan = rule(instance("four tokens", exact=False))
    rng = np.random.default_rng(0)
    chosen = plan.drafts.sample(rng, 9)
    numbers = rng.random((9, plan.uniforms_per_selection))
    expected = plan.select(chosen, numbers)
    for shape in ((9,), (3, 3)):
        given = torch.from_numpy(chosen).int().reshape(*shape, -1)
        uniforms = torch.from_numpy(numbers).reshape(*shape, -1).requires_grad_()
        found = plan.select(given, uniforms)
        assert found.token.shape == found.index.shape == shape
        assert found.token.dtype == found.index.dtype == torch.int64
        assert found.token.ravel().tolist() == expected.token.tolist()
        assert found.index.ravel().tolist() == expected.index.tolist()


@pytest.mark.parametrize("seed", [0, None, np.random])
def test_a_seed_is_no_generator(seed: Any) -> None:
    """Bug: 'int' object has no attribute 'random'."""
    plan = PLANS["k-Seq"](instance("four tokens"))
    with pytest.raises(InvalidParameterError, match=r"np\.random\.default_rng\(seed\)"):
        plan.sample([0, 1], seed)
    with pytest.raises(InvalidParameterError, match=r"^rng = "):
        plan.drafts.sample(seed)


class Blind(TransportPlan):
    """A rule that draws from the target for all drafts, with unused uniforms."""

    uniforms_per_selection = 2
    acceptance = F(0)

    def output_distribution(self) -> Any:
        return self.problem.target

    def _output_given(self, drafts: Any) -> Any:
        return np.broadcast_to(self.problem.target, (len(drafts), self.problem.n))


def test_the_first_uniform_draws_the_output_in_chunks_of_sets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Catches sets beyond the first chunk that are left out, and the last uniform for the first."""
    monkeypatch.setattr("otm.coupling.plan.CHUNK_ENTRIES", 5)
    plan = Blind(Problem([0.5, 0.5], [0.25, 0.75], 2))
    numbers = np.array([[0.1, 0.9], [0.9, 0.1]] * 4)
    assert plan.select([[0, 1]] * 8, numbers).token.tolist() == [0, 1] * 4
    exact = Blind(Problem([F(1), F(0)], [F(1, 4), F(3, 4)], 2))
    fractions = [[F(0), F(0)], [F(1, 4), F(0)], [F(9, 10), F(0)]]
    assert exact.select([[0, 0]] * 3, fractions).token.tolist() == [0, 1, 1]
