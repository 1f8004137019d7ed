"""OTM-k with entropic regularisation, which SpecTr names as the usual approximation (footnote 9).

This solver is for comparison only.  With the cost 1{y ∉ S}, the regularised plan also gives mass to
pairs that an optimal plan does not use, so it accepts less than α_k.
"""

from __future__ import annotations

import numpy as np

from otm._core.numbers import as_real
from otm._core.optional import require
from otm.errors import ProblemTooLargeError, SolverError
from otm.optimum.multisets import MEMORY_LIMIT, scientific
from otm.optimum.solvers.linear_program import LinearProgramSolution, packing_form, size_of
from otm.problem import Problem

TOLERANCE = 1e-9
"""Error of the target marginal at which the iteration stops."""

DENSE_MATRICES = 8
"""Upper bound on the number of arrays [sets, tokens] in memory at one time, including POT's."""


def solve_sinkhorn(
    problem: Problem,
    regularisation: float,
    memory_limit: int = MEMORY_LIMIT,
    max_iterations: int = 100_000,
) -> LinearProgramSolution:
    """Solve entropic OTM-k over draft multisets × tokens by Sinkhorn's iteration in logarithms.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts; fractions are
        rounded to float64.
    regularisation : float
        Weight ε > 0 of the entropy.  Up to the tolerance, the value is between α_k − ε H(q) and
        α_k, where H(q) is the entropy of the target.  Usually the value is much closer to α_k than
        this lower bound.
    memory_limit : int, optional
        Memory limit in bytes, 2 GiB by default.
    max_iterations : int, optional
        Largest number of iterations.

    Returns
    -------
    LinearProgramSolution
        The accepted part of the entropic plan, which `TablePlan.from_linear_program` takes, and
        prices computed from the potentials.

    Raises
    ------
    InvalidParameterError
        If the regularisation is not a positive number.
    ProblemTooLargeError
        If the dense matrices would exceed the memory limit; this is checked before allocation.
    SolverError
        If the iteration does not converge.
    MissingDependencyError
        If POT is not installed.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr", NeurIPS 2023, footnote 9.

    Examples
    --------
    >>> problem = Problem([0.75, 0.25], [0.25, 0.75], k=2)
    >>> round(solve_sinkhorn(problem, regularisation=0.05).value, 4)  # α_2 = 0.6875
    0.6875
    """
    weight = as_real(regularisation, "regularisation", above=0)
    sinkhorn_log = require("ot.bregman", "sinkhorn_log")
    _check_dense_size(problem, memory_limit)
    program = packing_form(problem, memory_limit)
    sets, tokens = len(program.sets), program.tokens.size
    # This is the target mass on tokens that are never drafted.
    elsewhere = max(1 - program.token_capacity.sum(), 0.0)
    capacity = np.append(program.token_capacity, elsewhere)
    costs = np.ones((sets, tokens + 1))
    costs[program.set_of, program.token_of] = 0
    rows, columns = np.flatnonzero(program.set_capacity), np.flatnonzero(capacity)

    # POT also returns exponentials of the potentials, which may overflow and are not used here.
    with np.errstate(over="ignore"):
        plan, log = sinkhorn_log(
            program.set_capacity[rows],
            capacity[columns],
            costs[np.ix_(rows, columns)],
            weight,
            numItermax=max_iterations,
            stopThr=TOLERANCE,
            log=True,
            warn=False,
        )
    if not log["err"][-1] < TOLERANCE:
        raise SolverError(
            f"Sinkhorn's iteration has an error of {log['err'][-1]:.1e} after {max_iterations:,} "
            f"iterations at regularisation {weight}; raise the number of iterations or "
            'the regularisation, or use the linear program: method="lp-highs"'
        )
    everywhere = np.zeros(costs.shape)
    everywhere[np.ix_(rows, columns)] = plan
    # Potentials satisfy f(S) + g(y) ≤ 1{y ∉ S} up to the regularisation.  Prices are 1 − t − f and
    # t − g, where t is the largest g.
    potentials = np.full(tokens + 1, -np.inf)
    potentials[columns] = weight * log["log_v"]
    top = potentials.max()
    set_prices = np.ones(sets)
    set_prices[rows] = 1 - top - weight * log["log_u"]
    return LinearProgramSolution.from_solver(
        program,
        everywhere[program.set_of, program.token_of],
        set_prices,
        top - potentials[:tokens],
    )


def _check_dense_size(problem: Problem, memory_limit: int) -> None:
    size = size_of(problem)
    live = int(np.count_nonzero((problem.draft > 0) & (problem.target > 0)))
    needed = 8 * DENSE_MATRICES * (size.rows - live) * (live + 1)
    if needed > memory_limit:
        raise ProblemTooLargeError(
            f"Sinkhorn's iteration for n = {problem.n:,} tokens and k = {problem.k:,} drafts needs "
            f"{scientific(size.rows - live)} rows of {live + 1:,} numbers, about "
            f"{scientific(needed)} bytes, above the limit of {memory_limit:,} bytes; "
            'method="closed-form" is exact and works at any size'
        )
