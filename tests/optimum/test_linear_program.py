"""The linear program: solvers that share no code with the closed form find the same α."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otm.coupling.table import TablePlan
from otm.errors import MissingDependencyError, ProblemTooLargeError, SolverError
from otm.optimum.cut import minimum_cut
from otm.optimum.multisets import multisets
from otm.optimum.solvers.cvxpy import solve_cvxpy
from otm.optimum.solvers.highs import solve_highs
from otm.optimum.solvers.linear_program import (
    LinearProgramSolution,
    check_size,
    cut_from_duals,
    packing_form,
    size_of,
)
from otm.problem import Problem
from otm.testing.instances import INSTANCES, instance
from otm.testing.strategies import problems

F = Fraction
Solver = Callable[..., LinearProgramSolution]
SOLVERS: dict[str, Solver] = {"highs": solve_highs, "cvxpy": solve_cvxpy}


def skewed(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    return rng.dirichlet(np.full(n, 0.1))


def flat(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    return rng.dirichlet(np.ones(n))


def single_precision(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    """Softmax in float32: off from one by its rounding."""
    weights = np.exp(3 * rng.standard_normal(n, dtype=np.float32))
    return (weights / weights.sum()).astype(np.float64)


def whole_weights(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    """Zeros and ties."""
    weights = rng.integers(0, 4, n)
    weights[rng.integers(n)] += 1
    return weights / weights.sum()


LAWS = [skewed, flat, single_precision, whole_weights]


def random_problems(seed: int, number: int, kind: int, max_tokens: int = 8) -> list[Problem]:
    """Return problems with drafts of one kind; every tenth has p = q, or disjoint p and q."""
    rng = np.random.default_rng([seed, kind])
    drawn = []
    for i in range(number):
        n, k = int(rng.integers(1, max_tokens + 1)), int(rng.integers(1, 5))
        draft, target = LAWS[kind](rng, n), LAWS[rng.integers(len(LAWS))](rng, n)
        if i % 10 == 0:
            target = draft
        if i % 10 == 5 and n > 1:
            side = np.arange(n) < rng.integers(1, n)
            draft = np.where(side, draft + 1e-3, 0)
            target = np.where(side, 0, target + 1e-3)
            draft, target = draft / draft.sum(), target / target.sum()
        drawn.append(Problem(draft, target, k))
    return drawn


# The value


@pytest.mark.parametrize("kind", range(len(LAWS)), ids=[law.__name__ for law in LAWS])
def test_highs_finds_the_closed_form(kind: int) -> None:
    # at HiGHS's default tolerance of 1e-7 one in a hundred misses; with equality marginals a third
    # of the skewed and single-precision distributions are infeasible
    for problem in random_problems(1, 250, kind):
        found, cut = solve_highs(packing_form(problem)), minimum_cut(problem)
        assert found.value == pytest.approx(cut.value, abs=1e-9)
        assert cut_from_duals(problem, found.token_duals).value == pytest.approx(
            cut.value, abs=1e-9
        )
        check_flow(found)


def check_flow(found: LinearProgramSolution) -> None:
    """Nothing negative, no capacity exceeded: what a solver's tolerance leaves is cleaned."""
    program = found.program
    assert (found.flow >= 0).all()
    per_set = np.bincount(program.set_of, found.flow, len(program.sets))
    per_token = np.bincount(program.token_of, found.flow, program.tokens.size)
    assert (per_set <= program.set_capacity * (1 + 1e-15)).all()
    assert (per_token <= program.token_capacity * (1 + 1e-15)).all()


def test_what_a_solver_leaves_is_cleaned() -> None:
    # LP: entries of −1e-7 are never exposed
    program = packing_form(instance("four tokens"))
    rng = np.random.default_rng(0)
    flow = np.where(rng.random(program.set_of.size) < 0.3, -1e-7, 0.5)
    u, w = np.full(len(program.sets), 1 + 1e-7), np.full(program.tokens.size, -1e-7)
    found = LinearProgramSolution.from_solver(program, flow, u, w)
    check_flow(found)
    assert ((found.flow > 0) == (flow > 0)).all()
    assert (found.set_duals == 1).all()
    assert (found.token_duals == 0).all()


@pytest.mark.parametrize("kind", range(len(LAWS)), ids=[law.__name__ for law in LAWS])
def test_clarabel_agrees(kind: int) -> None:
    for problem in random_problems(2, 15, kind):
        found, cut = solve_cvxpy(packing_form(problem)), minimum_cut(problem)
        assert found.value == pytest.approx(cut.value, abs=1e-6)
        assert cut_from_duals(problem, found.token_duals).value == pytest.approx(
            cut.value, abs=1e-9
        )
        check_flow(found)


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())
@pytest.mark.parametrize("name", INSTANCES)
def test_known_instances(name: str, solver: Solver) -> None:
    # among them distributions that are equal, disjoint (no variable is left) or of one token
    found = solver(packing_form(instance(name)))
    expected = float(minimum_cut(instance(name)).value)
    assert found.value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("b", [0.0, 0.1, 0.25, 0.75, 1.0])
def test_bernoulli_laws(b: float, k: int) -> None:
    # SpecTr, equation 10, with p = Ber(1/4) and q = Ber(b)
    found = solve_highs(packing_form(Problem([0.75, 0.25], [1 - b, b], k)))
    expected = min(b, 1 - 0.75**k) + min(1 - b, 1 - 0.25**k)
    assert found.value == pytest.approx(expected, abs=1e-12)


def test_uniform_laws() -> None:
    # SpecTr, appendix B.1: 1 − (1 − 1/r)^k for p = U(d), q = U(d/r)
    problem = Problem([1 / 12] * 12, [1 / 4] * 4 + [0] * 8, 3)
    expected = 1 - (1 - 1 / 3) ** 3
    assert solve_highs(packing_form(problem)).value == pytest.approx(expected, abs=1e-12)


# Prices and cuts


@settings(max_examples=50)
@given(problems(max_tokens=5, max_drafts=3))
def test_prices_are_a_dual_solution(problem: Problem) -> None:
    # a wrong sign, or prices of sets taken for those of tokens, violate u(S) + w(y) ≥ 1
    program = packing_form(problem)
    found = solve_highs(program)
    u, w = found.set_duals, found.token_duals
    assert ((0 <= u) & (u <= 1)).all()
    assert ((0 <= w) & (w <= 1)).all()
    assert (u[program.set_of] + w[program.tokens[program.token_of]] >= 1 - 1e-9).all()
    cost = u @ program.set_capacity + w @ problem.target
    assert cost == pytest.approx(minimum_cut(problem).value, abs=1e-9)


@settings(max_examples=50)
@given(problems(max_tokens=5, exact=True), st.data())
def test_any_prices_give_a_valid_cut(problem: Problem, data: st.DataObject) -> None:
    prices = st.sampled_from([0.0, 0.3, 0.5, 1.0])
    w = np.array(data.draw(st.lists(prices, min_size=problem.n, max_size=problem.n)))
    cut = cut_from_duals(problem, w)
    inside = cut.tokens.tolist()
    value = problem.target[inside].sum() + 1 - problem.draft[inside].sum() ** problem.k
    assert isinstance(cut.value, Fraction)
    assert cut.value == value >= minimum_cut(problem).value
    drafted = problem.draft > 0
    thresholds = [set(np.flatnonzero(drafted & (w >= t)).tolist()) for t in {*w.tolist(), 2.0}]
    assert set(inside) in thresholds
    costs = [
        problem.target[list(tokens)].sum() + 1 - problem.draft[list(tokens)].sum() ** problem.k
        for tokens in thresholds
    ]
    assert cut.value == min(costs)


def test_fractions_get_an_exact_cut_from_rounded_prices() -> None:
    problem = instance("two cuts")
    found = solve_highs(packing_form(problem))
    assert cut_from_duals(problem, found.token_duals).value == minimum_cut(problem).value


# The size


@given(problems(max_tokens=6, max_drafts=4))
def test_the_size_is_known_beforehand(problem: Problem) -> None:
    program, size = packing_form(problem), size_of(problem)
    assert program.set_of.size == program.token_of.size == size.variables
    assert len(program.sets) + program.tokens.size == size.rows


@given(problems(max_tokens=5, max_drafts=3, exact=True))
def test_there_is_a_variable_for_every_token_of_every_set(problem: Problem) -> None:
    # by enumeration; tokens with p = 0 or q = 0 are dropped, those with q = 0 count as one
    program = packing_form(problem)
    found = {
        (tuple(program.sets[s].tolist()), int(y))
        for s, y in zip(program.set_of, program.token_of, strict=True)
    }
    live = [y for y in range(problem.n) if problem.draft[y] > 0 and problem.target[y] > 0]
    place = {y: live.index(y) if y in live else len(live) for y in range(problem.n)}
    drafted = np.flatnonzero(problem.draft).tolist()
    expected = set()
    for drafts in itertools.product(drafted, repeat=problem.k):
        row = tuple(sorted(place[x] for x in drafts))
        expected |= {(row, y) for y in row if y < len(live)}
    assert found == expected
    assert program.set_of.size == len(expected)
    assert program.set_capacity.sum() == pytest.approx(1, abs=1e-14)


def test_a_large_vocabulary_is_refused_at_once() -> None:
    # LP: V = 50k, k = 2 by LP
    problem = Problem(np.full(50_000, 2e-5), np.full(50_000, 2e-5), 2)
    with pytest.raises(ProblemTooLargeError) as caught:
        packing_form(problem)
    message = str(caught.value)
    assert "2.50e9 variables" in message
    assert "n^(k+1) = 1.25e14" in message
    assert "bytes, above the limit of 2,147,483,648 bytes" in message
    assert 'method="closed-form"' in message


@pytest.mark.parametrize(("n", "k"), [(2, 10**6), (50_000, 10**5), (150_000, 64)])
def test_counts_that_no_float_can_hold_are_refused_too(n: int, k: int) -> None:
    with pytest.raises(ProblemTooLargeError, match="closed-form"):
        check_size(Problem(np.full(n, 1 / n), np.full(n, 1 / n), k))


def test_the_limit_is_an_argument() -> None:
    problem = instance("four tokens")
    needed = size_of(problem).bytes
    packing_form(problem, memory_limit=needed)
    with pytest.raises(ProblemTooLargeError, match=f"limit of {needed - 1:,} bytes"):
        packing_form(problem, memory_limit=needed - 1)


MEASURE = """
import numpy as np
from otm.optimum.solvers.highs import solve_highs
from otm.optimum.solvers.linear_program import packing_form
from otm.problem import Problem

def peak():
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM"))

rng = np.random.default_rng(0)
problem = Problem(rng.dirichlet(np.ones({n})), rng.dirichlet(np.ones({n})), {k})
before = peak()
solve_highs(packing_form(problem))
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("n", "k"), [(200, 2), (20_000, 1), (2, 1000)])
def test_the_memory_is_estimated_well(n: int, k: int) -> None:
    # an estimate that forgets variables, rows or listed drafts is off by more than this
    command = [sys.executable, "-c", MEASURE.format(n=n, k=k)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    estimate = size_of(Problem(np.full(n, 1 / n), np.full(n, 1 / n), k)).bytes
    assert 0.7 * int(done.stdout) <= estimate <= 3 * int(done.stdout)


# The plan


@settings(max_examples=40)
@given(problems(max_tokens=4, max_drafts=3))
def test_the_plan_attains_the_value(problem: Problem) -> None:
    found = solve_highs(packing_form(problem))
    plan = TablePlan.from_linear_program(found)
    assert plan.problem is problem
    assert abs(plan.output_distribution() - problem.target).max() <= 1e-14
    assert plan.acceptance_by_test == pytest.approx(found.value, abs=1e-12)
    assert plan.acceptance == pytest.approx(minimum_cut(problem).value, abs=1e-9)


@settings(max_examples=30)
@given(problems(max_tokens=4, max_drafts=3, exact=True))
def test_a_rounded_flow_gives_an_exactly_lossless_plan(problem: Problem) -> None:
    plan = TablePlan.from_linear_program(solve_highs(packing_form(problem)))
    assert plan.output_distribution().tolist() == problem.target.tolist()
    assert 0 <= minimum_cut(problem).value - plan.acceptance <= 1e-9


def test_tokens_without_target_probability_are_told_apart_again() -> None:
    # tokens 0 and 2 are one token in the program, and two in the plan
    problem = Problem([F(1, 2), F(1, 4), F(1, 4)], [F(0), F(1), F(0)], 2)
    program = packing_form(problem)
    assert len(program.sets) == 3
    plan = TablePlan.from_linear_program(solve_highs(program))
    expected = [
        [float(y == 1 and 1 not in row[:i]) for i, y in enumerate(row)]
        for row in multisets(3, 2).tolist()
    ]
    assert plan.accept.astype(np.float64).tolist() == expected
    assert plan.acceptance == 1 - F(3, 4) ** 2


def test_a_plan_over_too_many_drafts_is_refused() -> None:
    # the program is tiny, since all but one token are alike to it; the plan is not
    n = 50_000
    problem = Problem(np.full(n, 1 / n), 1.0 * (np.arange(n) == 7), 2)
    found = solve_highs(packing_form(problem))
    assert found.value == pytest.approx(1 - (1 - 1 / n) ** 2, rel=1e-6)
    with pytest.raises(ProblemTooLargeError, match="multisets"):
        TablePlan.from_linear_program(found)


# Solvers that fail


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())
def test_a_solver_that_does_not_finish_is_an_error(solver: Solver) -> None:
    # LP: a status other than optimal
    target = flat(np.random.default_rng(0), 40)
    program = packing_form(Problem(np.full(40, 1 / 40), target, 2))
    with pytest.raises(SolverError, match=r"status '.*limit.*'.*closed-form"):
        solver(program, time_limit=0.0)


@pytest.mark.parametrize(
    ("solver", "module", "hint"),
    [
        (solve_highs, "highspy", "pip install highspy"),
        (solve_cvxpy, "cvxpy", r"otm\[cvxpy\]"),
        (solve_cvxpy, "clarabel", r"clarabel .*otm\[cvxpy\]"),
    ],
)
def test_a_missing_solver_names_what_to_install(
    solver: Solver, module: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = packing_form(instance("Bernoulli"))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=hint):
        solver(program)
