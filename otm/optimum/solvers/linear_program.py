"""SpecTr's linear program for OTM-k over draft multisets, and its solutions.

Equation (4) of [sun2023]_ has n^(k+1) variables π(x, y).  For i.i.d. drafts only the multiset S of
the drafts matters, and variables are needed only for accepted drafts, y ∈ S::

    maximise    Σ f(S, y)                             over f ≥ 0
    subject to  Σ_y f(S, y) ≤ P(S)   for every S      price u(S)
                Σ_S f(S, y) ≤ q(y)   for every y      price w(y)

The inequalities (a packing form) keep the program feasible even if rounded marginals have
different sums.

References
----------
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MAX_EMAX, Context

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import at_least_once, running_sum, scatter_sum
from otm._core.display.reprs import ShortRepr
from otm._core.ratios.order import places_along
from otm.errors import ProblemTooLargeError
from otm.optimum.cut import Cut
from otm.optimum.multisets import (
    MEMORY_LIMIT,
    Multisets,
    first_occurrences,
    multiset_count,
    multiset_probabilities,
    multiset_rank,
    multisets,
    scientific,
)
from otm.problem import Problem

# These constants bound the growth of the peak memory of a fresh process that builds a program and
# solves it with highspy 1.15 on Linux.  They were measured for k from 1 to 1,000, up to 360,000
# variables, and uniform, Dirichlet and softmax distributions.  The estimate was 1.1 to 1.6 times
# the measured growth.
BYTES_FIXED = 10_000_000
BYTES_PER_VARIABLE = 1_000
BYTES_PER_ROW = 500
BYTES_PER_DRAFT = 24
"""Bytes for each draft of each multiset while the multisets are enumerated."""

Indices = npt.NDArray[np.int64]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LinearProgramSize:
    """Size of the packing form of a problem.

    Attributes
    ----------
    variables, rows : int
        Numbers of columns and rows of the constraint matrix.
    bytes : int
        Estimated peak memory of building and solving the program.

    Examples
    --------
    >>> size = size_of(Problem([0.75, 0.25], [0.25, 0.75], k=2))
    >>> size.variables, size.rows  # three multisets and two tokens
    (4, 5)
    """

    variables: int
    rows: int
    bytes: int


def size_of(problem: Problem) -> LinearProgramSize:
    """Compute the size of the packing form without building it.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Returns
    -------
    LinearProgramSize
        Numbers of variables and rows, and an estimate of the memory in bytes.

    Examples
    --------
    >>> size_of(Problem([0.5, 0.25, 0.25], [0.25, 0.25, 0.5], k=2))
    LinearProgramSize(variables=9, rows=9, bytes=10013788)
    """
    draftable = problem.draft > 0
    live = int(np.count_nonzero(draftable & (problem.target > 0)))
    m = live + int(live < np.count_nonzero(draftable))
    # The multisets that contain a token y are those of k − 1 tokens with one y added.
    variables = live * math.comb(m + problem.k - 2, problem.k - 1)
    sets = multiset_count(m, problem.k)
    rows = sets + live
    needed = BYTES_FIXED + BYTES_PER_VARIABLE * variables + BYTES_PER_ROW * rows
    return LinearProgramSize(variables, rows, needed + BYTES_PER_DRAFT * problem.k * sets)


def check_size(problem: Problem, memory_limit: int = MEMORY_LIMIT) -> None:
    """Raise if the estimated memory of the linear program exceeds `memory_limit` bytes."""
    size = size_of(problem)
    if size.bytes <= memory_limit:
        return
    form_of_equation_4 = Context(prec=9, Emax=MAX_EMAX).power(problem.n, problem.k + 1)
    raise ProblemTooLargeError(
        f"the linear program for n = {problem.n:,} tokens and k = {problem.k:,} drafts has "
        f"{scientific(size.variables)} variables over draft multisets (n^(k+1) = "
        f"{scientific(form_of_equation_4)} in SpecTr's equation 4) and would take about "
        f"{scientific(size.bytes)} bytes, above the limit of {memory_limit:,} bytes "
        '(memory_limit); method="closed-form" solves the same problem exactly at any size'
    )


@dataclass(frozen=True, eq=False)
class LinearProgram(ShortRepr):
    """The packing form of a problem, in float64.

    Only the l tokens with p > 0 and q > 0 have variables.  Tokens with p = 0 are in no multiset.
    All tokens with p > 0 and q = 0 are merged into one token with number l.

    Attributes
    ----------
    problem : Problem
        The problem that the program solves.
    tokens : int array [l]
        The tokens that have variables.
    sets : int array [R, k]
        The multisets S, as ascending positions in `tokens`.
    set_capacity : array [R]
        Probability P(S) of each multiset.
    token_capacity : array [l]
        Target probability q(y) of each token in `tokens`.
    set_of, token_of : int array [variables]
        Row of `sets` and position in `tokens` of each variable, ordered by S.

    Examples
    --------
    >>> program = packing_form(Problem([0.75, 0.25], [0.25, 0.75], k=2))
    >>> program.sets.tolist(), program.set_capacity.tolist(), program.token_capacity.tolist()
    ([[0, 0], [0, 1], [1, 1]], [0.5625, 0.375, 0.0625], [0.25, 0.75])
    """

    problem: Problem
    tokens: Indices
    sets: Multisets
    set_capacity: Floats
    token_capacity: Floats
    set_of: Indices
    token_of: Indices


@dataclass(frozen=True, eq=False)
class LinearProgramSolution(ShortRepr):
    """A feasible flow and prices; how close they are to the optimum depends on the solver.

    Attributes
    ----------
    program : LinearProgram
        The solved program.
    flow : array [variables]
        The accepted mass of each variable.  The flow is nonnegative and within the capacities for
        any precision of the solver, so it defines a transport plan.
    set_duals : array [R]
        Price u of each P(S), in [0, 1].
    token_duals : array [n]
        Price w of each q(y), in [0, 1].  The price is 1 for tokens with p > 0 and q = 0, and 0 for
        tokens with p = 0.  For y ∈ S, u(S) + w(y) ≥ 1 up to the solver's precision.

    Examples
    --------
    >>> from otm.optimum.solvers import solve_highs
    >>> solution = solve_highs(packing_form(Problem([0.75, 0.25], [0.25, 0.75], k=2)))
    >>> round(solution.value, 12), solution.token_duals.round(9).tolist()
    (0.6875, [1.0, 0.0])
    """

    program: LinearProgram
    flow: Floats
    set_duals: Floats
    token_duals: Floats

    @classmethod
    def from_solver(
        cls, program: LinearProgram, flow: Floats, set_prices: Floats, token_prices: Floats
    ) -> LinearProgramSolution:
        """Make a solver's result feasible: it may violate bounds by the solver's tolerances.

        Parameters
        ----------
        program : LinearProgram
            The solved program.
        flow : array [variables]
            The solver's flow.
        set_prices, token_prices : array [R], array [l]
            The solver's dual values, with the sign that makes prices of scarce capacities positive.
        """
        flow = np.maximum(flow, 0.0)
        for owner, capacity in (
            (program.set_of, program.set_capacity),
            (program.token_of, program.token_capacity),
        ):
            used = scatter_sum(owner, flow, capacity.size)
            scale = np.divide(capacity, used, out=np.ones(capacity.size), where=used > capacity)
            flow = flow * scale[owner]
        token_duals = (program.problem.draft > 0).astype(np.float64)
        token_duals[program.tokens] = np.clip(token_prices, 0.0, 1.0)
        return cls(program, flow, np.clip(set_prices, 0.0, 1.0), token_duals)

    @property
    def value(self) -> float:
        """Mass of the flow: an acceptance probability that the plan attains, at most α_k."""
        return float(self.flow.sum())

    def acceptance_table(self) -> Floats:
        """Compute the probability f(S, y) / P(S) of accepting y, for a `TablePlan`.

        Returns
        -------
        array [R', k]
            A row for each multiset of all m tokens with p > 0, in the order of `multisets(m, k)`.
            Tokens with q = 0, which the program merges, are separate here.

        Raises
        ------
        ProblemTooLargeError
            If the table of these multisets exceeds the default memory limit.
        """
        program, problem = self.program, self.program.problem
        capacity = program.set_capacity[program.set_of]
        share = np.divide(self.flow, capacity, out=np.zeros_like(capacity), where=capacity > 0)
        per_set = np.zeros(program.sets.shape)
        per_set[_has_variable(program.sets, program.tokens.size)] = share

        position = places_along(program.tokens, problem.n)
        support = np.flatnonzero(problem.draft)
        drafts = position[support[multisets(support.size, problem.k)]]
        order = np.argsort(drafts, axis=1, kind="stable")
        row = multiset_rank(np.take_along_axis(drafts, order, axis=1))
        table = np.empty(drafts.shape)
        np.put_along_axis(table, order, per_set[row], axis=1)
        return table


def packing_form(problem: Problem, memory_limit: int = MEMORY_LIMIT) -> LinearProgram:
    """Build the linear program of a problem.

    Parameters
    ----------
    problem : Problem
        The problem; fractions are rounded to float64.
    memory_limit : int, optional
        Memory limit in bytes for building and solving the program, 2 GiB by default.

    Returns
    -------
    LinearProgram
        The program, which `solve_highs` and `solve_cvxpy` solve.

    Raises
    ------
    ProblemTooLargeError
        If the program would exceed the memory limit; this is checked before memory is allocated.

    Examples
    --------
    >>> program = packing_form(Problem([0.75, 0.25], [0.25, 0.75], k=2))
    >>> program.sets[program.set_of].tolist(), program.token_of.tolist()
    ([[0, 0], [0, 1], [0, 1], [1, 1]], [0, 0, 1, 1])
    """
    check_size(problem, memory_limit)
    draft, target = problem.draft.astype(np.float64), problem.target.astype(np.float64)
    dead = (problem.draft > 0) & (problem.target == 0)
    tokens = np.flatnonzero((problem.draft > 0) & (problem.target > 0))
    grouped = np.append(draft[tokens], draft[dead].sum()) if dead.any() else draft[tokens]
    sets = multisets(grouped.size, problem.k, memory_limit)
    has_variable = _has_variable(sets, tokens.size)
    set_of, column = np.nonzero(has_variable)
    return LinearProgram(
        problem,
        tokens,
        sets,
        multiset_probabilities(grouped, sets),
        target[tokens],
        set_of,
        sets[set_of, column],
    )


def cut_from_duals(problem: Problem, token_duals: Floats) -> Cut:
    """Return the best cut H = {w ≥ t} over all thresholds t, for prices w [n] of the tokens.

    Any prices give a valid upper bound on α_k.  The value of a dual solution is the mean of the cut
    values over uniform t, so the least cut value is not larger.  Therefore an optimal dual solution
    gives a minimum cut.
    """
    # A token with p = 0 would only add its target mass to the cut.
    support = np.flatnonzero(problem.draft)
    order = support[np.argsort(-token_duals[support], kind="stable")]
    target_inside = running_sum(problem.target[order], from_zero=True)
    draft_outside = running_sum(problem.draft[order[::-1]], from_zero=True)[::-1]
    values = target_inside + at_least_once(draft_outside, problem.k)
    prices = token_duals[order]
    steps = np.flatnonzero(np.concatenate([[True], prices[1:] != prices[:-1], [True]]))
    size = int(steps[values[steps].argmin()])
    return Cut(values.item(size), order[:size])


def _has_variable(sets: Multisets, live: int) -> npt.NDArray[np.bool_]:
    """Mark the set entries that have a variable: the first occurrence of each token with q > 0."""
    return np.asarray(first_occurrences(sets) & (sets < live))
