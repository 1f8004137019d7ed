"""HiGHS solves the linear program of OTM-k."""

from __future__ import annotations

import math

import numpy as np

from otm._core.optional import require
from otm.errors import SolverError
from otm.optimum.solvers.linear_program import LinearProgram, LinearProgramSolution

TOLERANCE = 1e-10
"""Smallest feasibility tolerance that HiGHS accepts; the default 1e-7 lowers α by up to 1e-8."""


def solve_highs(program: LinearProgram, time_limit: float = math.inf) -> LinearProgramSolution:
    """Solve the packing form with the dual simplex method of HiGHS.

    Parameters
    ----------
    program : LinearProgram
        The program, made by `packing_form`.
    time_limit : float, optional
        Time limit in seconds; no limit by default.

    Returns
    -------
    LinearProgramSolution
        A solution whose value and prices are within about 1e-10 of the optimum.

    Raises
    ------
    SolverError
        If HiGHS ends without an optimum.
    MissingDependencyError
        If highspy is not installed.

    Examples
    --------
    >>> from otm import Problem
    >>> from otm.optimum.solvers import packing_form
    >>> problem = Problem([0.75, 0.25], [0.25, 0.75], k=2)
    >>> round(solve_highs(packing_form(problem)).value, 12)
    0.6875
    """
    require("highspy")
    import highspy

    variables, sets, tokens = program.set_of.size, len(program.sets), program.tokens.size
    if not variables:  # HiGHS reports a separate status for an empty problem.
        return LinearProgramSolution.from_solver(program, np.zeros(0), np.zeros(sets), np.zeros(0))
    rows = np.empty((variables, 2), dtype=np.int32)
    rows[:, 0] = program.set_of
    rows[:, 1] = sets + program.token_of
    capacity = np.concatenate([program.set_capacity, program.token_capacity])

    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("primal_feasibility_tolerance", TOLERANCE)
    solver.setOptionValue("dual_feasibility_tolerance", TOLERANCE)
    solver.setOptionValue("time_limit", time_limit)
    solver.passModel(
        variables,
        sets + tokens,
        2 * variables,
        highspy.MatrixFormat.kColwise.value,
        highspy.ObjSense.kMinimize.value,
        0.0,
        np.full(variables, -1.0),
        np.zeros(variables),
        np.full(variables, np.inf),
        np.full(sets + tokens, -np.inf),
        capacity,
        np.arange(0, 2 * variables, 2, dtype=np.int32),
        rows.ravel(),
        np.ones(2 * variables),
        np.zeros(variables, dtype=np.int32),  # All variables are continuous.
    )
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverError(
            f"HiGHS ended with status {solver.modelStatusToString(status)!r} on a linear program "
            f'of {variables:,} variables; method="closed-form" needs no solver'
        )
    solution = solver.getSolution()
    # HiGHS minimises, so its duals have the opposite sign of the prices.
    prices = -np.asarray(solution.row_dual)
    return LinearProgramSolution.from_solver(
        program, np.asarray(solution.col_value), prices[:sets], prices[sets:]
    )
