"""SpecTr's linear program for OTM-k, grouped by draft multisets, and what its solution is worth.

Equation (4) of [sun2023]_ has n^(k+1) variables π(x, y).  For i.i.d. drafts only the multiset S of
the drafts matters, and a variable is needed only where a draft is accepted, y ∈ S::

    maximise    Σ f(S, y)                             over f ≥ 0
    subject to  Σ_y f(S, y) ≤ P(S)   for every S      price u(S)
                Σ_S f(S, y) ≤ q(y)   for every y      price w(y)

The inequalities (a packing form) keep it feasible where rounded marginals do not sum to the same.

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
from otm._core.display.reprs import Brief
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

# The growth of the peak resident set of a fresh process that builds a program and solves it with
# highspy 1.15 on Linux, bounded from above: k from 1 to 1,000, up to 360,000 variables, uniform,
# Dirichlet and softmax distributions.  The sum below was 1.1 to 1.6 times what was measured.
BYTES_FIXED = 10_000_000
BYTES_PER_VARIABLE = 1_000
BYTES_PER_ROW = 500
BYTES_PER_DRAFT = 24  # of every multiset, while they are listed

Indices = npt.NDArray[np.int64]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LinearProgramSize:
    """How large the packing form of a problem is.

    Attributes
    ----------
    variables, rows : int
        Of the constraint matrix.
    bytes : int
        Peak memory of building and solving it, estimated.

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
    """Size of the packing form, computed without building it.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Returns
    -------
    LinearProgramSize
        Variables, rows, and an estimate of the bytes, whatever they are.

    Examples
    --------
    >>> size_of(Problem([0.5, 0.25, 0.25], [0.25, 0.25, 0.5], k=2))
    LinearProgramSize(variables=9, rows=9, bytes=10013788)
    """
    draftable = problem.draft > 0
    live = int(np.count_nonzero(draftable & (problem.target > 0)))
    m = live + int(live < np.count_nonzero(draftable))
    # a token y is in as many multisets as there are of k − 1 tokens, to which one y is added
    variables = live * math.comb(m + problem.k - 2, problem.k - 1)
    sets = multiset_count(m, problem.k)
    rows = sets + live
    needed = BYTES_FIXED + BYTES_PER_VARIABLE * variables + BYTES_PER_ROW * rows
    return LinearProgramSize(variables, rows, needed + BYTES_PER_DRAFT * problem.k * sets)


def check_size(problem: Problem, memory_limit: int = MEMORY_LIMIT) -> None:
    """Refuse a problem whose linear program would take more than so many bytes, by estimate."""
    size = size_of(problem)
    if size.bytes <= memory_limit:
        return
    form_of_equation_4 = Context(prec=9, Emax=MAX_EMAX).power(problem.n, problem.k + 1)
    raise ProblemTooLargeError(
        f"the linear program for n = {problem.n:,} tokens and k = {problem.k:,} drafts has "
        f"{scientific(size.variables)} variables over draft multisets (n^(k+1) = "
        f"{scientific(form_of_equation_4)} as SpecTr's equation 4 has it) and would take about "
        f"{scientific(size.bytes)} bytes, above the limit of {memory_limit:,} bytes "
        '(memory_limit); method="closed-form" solves the same problem exactly at any size'
    )


@dataclass(frozen=True, eq=False)
class LinearProgram(Brief):
    """The packing form of a problem, in float64.

    Of the n tokens only the l that can be drafted and output have variables.  Tokens with p = 0
    are in no multiset, and all those with p > 0 = q count as one token, number l.

    Attributes
    ----------
    problem : Problem
        What it belongs to.
    tokens : int array [l]
        The tokens that have variables.
    sets : int array [R, k]
        The multisets S, as ascending positions in `tokens`.
    set_capacity : array [R]
        P(S).
    token_capacity : array [l]
        q(y).
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
class LinearProgramSolution(Brief):
    """A feasible flow and prices, as good as the solver that found them.

    Attributes
    ----------
    program : LinearProgram
        What was solved.
    flow : array [variables]
        At least zero and within the capacities: a transport plan, whatever the solver's precision.
    set_duals : array [R]
        Price u of each P(S), in [0, 1].
    token_duals : array [n]
        Price w of each q(y), in [0, 1], such that u(S) + w(y) ≥ 1 for y ∈ S up to the solver's
        precision; 1 where p > 0 = q and 0 where p = 0.

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
        """Clean what a solver returns: its numbers may violate bounds by its tolerances.

        Parameters
        ----------
        program : LinearProgram
            What was solved.
        flow : array [variables]
            The solver's flow.
        set_prices, token_prices : array [R], array [l]
            Its dual values, signed so that a scarce capacity has a positive price.
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
        """Mass of the flow: an acceptance probability that is attained, so at most α_k."""
        return float(self.flow.sum())

    def acceptance_table(self) -> Floats:
        """Probability f(S, y) / P(S) of accepting y, for a `TablePlan` of the same problem.

        Returns
        -------
        array [R', k]
            A row for each multiset of all m tokens with p > 0, in the order of `multisets(m, k)`:
            tokens with q = 0 are told apart again.

        Raises
        ------
        ProblemTooLargeError
            If there are too many of these multisets.
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
        Fractions are rounded to float64.
    memory_limit : int, optional
        Bytes that building and solving may take, 2 GiB if left out.

    Returns
    -------
    LinearProgram
        For `solve_highs` and `solve_cvxpy`.

    Raises
    ------
    ProblemTooLargeError
        If the program would take more; nothing is allocated then.

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
    """Best cut H = {w ≥ t} over all thresholds t of the prices w of q, an array [n].

    Its value is at most that of the dual solution, which is the mean of the values over uniform
    t: an optimal dual solution gives a minimum cut, and any prices give a valid bound on α_k.
    """
    support = np.flatnonzero(problem.draft)  # a token with p = 0 would only add q to the cut
    order = support[np.argsort(-token_duals[support], kind="stable")]
    target_inside = running_sum(problem.target[order], from_zero=True)
    draft_outside = running_sum(problem.draft[order[::-1]], from_zero=True)[::-1]
    values = target_inside + at_least_once(draft_outside, problem.k)
    prices = token_duals[order]
    steps = np.flatnonzero(np.concatenate([[True], prices[1:] != prices[:-1], [True]]))
    size = int(steps[values[steps].argmin()])
    return Cut(values.item(size), order[:size])


def _has_variable(sets: Multisets, live: int) -> npt.NDArray[np.bool_]:
    """Where a set has a variable: the first column of each token that can be output."""
    return np.asarray(first_occurrences(sets) & (sets < live))
