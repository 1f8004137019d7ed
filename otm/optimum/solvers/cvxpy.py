"""The linear program of OTM-k as it reads on paper, solved by an interior-point method.

A check on `otm.optimum.solvers.highs` that shares no solver with it: cvxpy states the problem, and
Clarabel solves it.
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

    Clarabel runs at its own tolerance of 1e-8: at 1e-9 it gives up on more than one in a hundred
    small instances with skewed distributions.

    Parameters
    ----------
    program : LinearProgram
        From `packing_form`.
    time_limit : float, optional
        Seconds after which to give up.

    Returns
    -------
    LinearProgramSolution
        In the interior of the optimal face, so that the prices are in general no vertex.  The
        value is within about 1e-6 of the optimum, the cut from the prices usually exact.

    Raises
    ------
    SolverError
        If Clarabel ends in any other way than at an optimum.
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
    if not variables:  # cvxpy has no empty variables
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
            warnings.simplefilter("ignore")  # of an inaccurate solution: it is an error below
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
