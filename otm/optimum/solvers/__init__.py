"""Solvers other than the closed form: linear programs, Sinkhorn's algorithm, a maximum flow.

The closed form is in `otm.optimum.cut`.
"""

from typing import TYPE_CHECKING

from otm._core.lazy import lazy

if TYPE_CHECKING:
    from otm.optimum.solvers.cvxpy import solve_cvxpy
    from otm.optimum.solvers.highs import solve_highs
    from otm.optimum.solvers.linear_program import (
        LinearProgram,
        LinearProgramSize,
        LinearProgramSolution,
        packing_form,
        size_of,
    )
    from otm.optimum.solvers.max_flow import alpha_by_max_flow
    from otm.optimum.solvers.sinkhorn import solve_sinkhorn
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "LinearProgram",
    "LinearProgramSize",
    "LinearProgramSolution",
    "alpha_by_max_flow",
    "packing_form",
    "size_of",
    "solve_cvxpy",
    "solve_highs",
    "solve_sinkhorn",
]
