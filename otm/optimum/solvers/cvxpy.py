"""The linear program of OTM-k as the paper states it, solved by an interior-point method.

cvxpy states the problem and Clarabel solves it.  This is an independent check of
`otm.optimum.solvers.highs`, with another solver.
"""

from __future__ import annotations

import math
import warnings

import numpy as np

from otm._core.optional import require
from otm.errors import SolverError
from otm.optimum.solvers.linear_program import LinearProgram, LinearProgramSolution


def solve_cvxpy(program: LinearProgram, time_limit: float = math.inf) -> LinearProgramSolution:
    """Solve the packing form with cvxpy and Clarabel.

    Clarabel uses its default tolerance of 1e-8.  With a tolerance of 1e-9, Clarabel fails on more
    than one percent of small instances with skewed distributions.

    Parameters
    ----------
    program : LinearProgram
        The program, made by `packing_form`.
    time_limit : float, optional
        Time limit in seconds; no limit by default.

    Returns
    -------
    LinearProgramSolution
        A solution in the interior of the optimal face, so its prices are usually not a vertex.  The
        value is within about 1e-6 of the optimum.  The cut from the prices is usually exact.

    Raises
    ------
    SolverError
        If Clarabel ends without an optimum.
    MissingDependencyError
        If cvxpy or Clarabel is not installed.

    Examples
    --------
    >>> from otm import Problem
    >>> from otm.optimum.solvers import packing_form
    >>> problem = Problem([0.75, 0.25], [0.25, 0.75], k=2)
    >>> round(solve_cvxpy(packing_form(problem)).value, 4)
    0.6875
    """
    cvxpy, _ = require("cvxpy"), require("clarabel")
    from scipy.sparse import csr_array

    variables, sets = program.set_of.size, len(program.sets)
    if not variables:  # cvxpy does not support empty variables.
        return LinearProgramSolution.from_solver(program, np.zeros(0), np.zeros(sets), np.zeros(0))
    each = np.arange(variables)
    one = np.ones(variables)
    by_set = csr_array((one, (program.set_of, each)), shape=(sets, variables))
    by_token = csr_array((one, (program.token_of, each)), shape=(program.tokens.size, variables))

    flow = cvxpy.Variable(variables, nonneg=True)
    within_draft_probs = by_set @ flow <= program.set_capacity
    within_target_probs = by_token @ flow <= program.token_capacity
    problem = cvxpy.Problem(
        cvxpy.Maximize(cvxpy.sum(flow)), [within_draft_probs, within_target_probs]
    )
    try:
        with warnings.catch_warnings():
            # The status check below raises an error for inaccurate solutions.
            warnings.simplefilter("ignore")
            problem.solve(solver=cvxpy.CLARABEL, time_limit=time_limit)
    except cvxpy.SolverError as error:
        raise SolverError(f"Clarabel failed: {error}") from error
    if problem.status != cvxpy.OPTIMAL:
        raise SolverError(
            f"Clarabel ended with status {problem.status!r} on a linear program of {variables:,} "
            'variables; method="closed-form" needs no solver'
        )
    return LinearProgramSolution.from_solver(
        program, flow.value, within_draft_probs.dual_value, within_target_probs.dual_value
    )
