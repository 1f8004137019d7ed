"""Entropic OTM-k: below the optimum by no more than theory allows, and lossless as a table."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import otm
from otm.coupling.table import TablePlan
from otm.errors import (
    InvalidParameterError,
    MissingDependencyError,
    ProblemTooLargeError,
    SolverError,
)
from otm.optimum.solvers import sinkhorn
from otm.optimum.solvers.linear_program import cut_from_duals
from otm.optimum.solvers.sinkhorn import TOLERANCE, solve_sinkhorn
from otm.testing.exact import exact_acceptance, exact_output_distribution
from otm.testing.instances import INSTANCES, instance

pytest.importorskip("ot")


def random_problem(n: int, k: int) -> otm.Problem:
    rng = np.random.default_rng([n, k])
    return otm.Problem(*rng.dirichlet(np.ones(n), size=2), k)


def entropy(law: Any) -> float:
    positive = law[law > 0]
    return float(-(positive * np.log(positive)).sum())


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize("regularisation", [1.0, 0.2])
def test_named_instances(name: str, regularisation: float) -> None:
    """Catches rows, columns or tokens mixed up where distributions have zeros."""
    problem = instance(name, exact=False)
    alpha = otm.alpha(problem.draft, problem.target, problem.k)
    found = solve_sinkhorn(problem, regularisation)
    allowed = regularisation * entropy(problem.target) + 100 * TOLERANCE
    assert alpha - allowed <= found.value <= alpha + 1e-12
    plan = TablePlan.from_linear_program(found)
    assert found.value - 1e-12 <= plan.acceptance <= alpha + 1e-12
    assert abs(exact_output_distribution(plan) - problem.target).max() <= 1e-12
    assert exact_acceptance(plan) == pytest.approx(plan.acceptance, abs=1e-12)
    assert cut_from_duals(problem, found.token_duals).value >= alpha - 1e-12


@pytest.mark.parametrize(("n", "k"), [(4, 2), (10, 2), (6, 3)])
def test_acceptance_rises_to_the_optimum_as_the_regularisation_falls(n: int, k: int) -> None:
    problem = random_problem(n, k)
    alpha = otm.alpha(problem.draft, problem.target, k)
    plans = [
        TablePlan.from_linear_program(solve_sinkhorn(problem, regularisation))
        for regularisation in (1.0, 0.3, 0.1, 0.03)
    ]
    losses = [alpha - plan.acceptance for plan in plans]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > 0.01  # a large regularisation is seen
    assert -1e-12 <= losses[-1] <= 1e-7
    for plan in plans:
        assert abs(plan.output_distribution() - problem.target).max() <= 1e-12


def test_small_regularisation_prices_the_minimum_cut() -> None:
    """Catches potentials of the wrong sign or scale."""
    problem = random_problem(8, 2)
    cut = cut_from_duals(problem, solve_sinkhorn(problem, 0.03).token_duals)
    assert cut.value == pytest.approx(otm.alpha(problem.draft, problem.target, 2), abs=1e-12)


def test_fractions_are_rounded_and_the_plan_exactly_lossless() -> None:
    problem = instance("four tokens")
    plan = TablePlan.from_linear_program(solve_sinkhorn(problem, 0.1))
    assert exact_output_distribution(plan).tolist() == problem.target.tolist()
    assert plan.acceptance <= otm.alpha(problem.draft, problem.target, problem.k)


def test_an_iteration_that_does_not_converge_is_an_error() -> None:
    with pytest.raises(SolverError, match=r"after 10 iterations at regularisation 0\.001"):
        solve_sinkhorn(random_problem(8, 2), 0.001, max_iterations=10)


def test_size_is_refused_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*arguments: Any) -> None:
        raise AssertionError("built")

    monkeypatch.setattr(sinkhorn, "packing_form", build)
    with pytest.raises(ProblemTooLargeError, match=r"1\.25e9 rows of 50,001 numbers"):
        solve_sinkhorn(random_problem(50_000, 2), 0.1)
    with pytest.raises(ProblemTooLargeError, match="limit of 1,000 bytes"):
        solve_sinkhorn(random_problem(4, 2), 0.1, memory_limit=1000)


@pytest.mark.parametrize("value", [0, -0.1, float("nan"), float("inf"), "0.1", None])
def test_the_regularisation_must_be_positive(value: Any) -> None:
    with pytest.raises(InvalidParameterError, match="regularisation = "):
        solve_sinkhorn(random_problem(3, 2), value)


def test_missing_pot_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ot.bregman", None)
    with pytest.raises(MissingDependencyError, match=r"otm\[sinkhorn\]"):
        solve_sinkhorn(random_problem(3, 2), 0.1)
