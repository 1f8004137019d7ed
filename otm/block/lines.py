"""A linear program that grows row by row, and HiGHS for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from otm.errors import SolverError

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

FEASIBILITY = 1e-10
"""Tolerance of HiGHS, the least that it takes."""

SMALLEST = 1e-12
"""Coefficients that HiGHS drops, the least that it takes."""


class Lines:
    """The rows of a linear program, coefficient by coefficient."""

    def __init__(self) -> None:
        self.rows, self.columns, self.values = [], [], []  # type: ignore[var-annotated]
        self.least, self.most = [], []  # type: ignore[var-annotated]
        self.count = 0

    def begin(self, least: Any, most: Any) -> Places:
        """Add empty rows between limits, and return their numbers."""
        least, most = np.broadcast_arrays(least, most)
        self.least.append(least)
        self.most.append(most)
        self.count += least.size
        return np.arange(self.count - least.size, self.count)

    def add(self, rows: Places, columns: Places, values: Any) -> None:
        """Add coefficients."""
        self.rows.append(rows)
        self.columns.append(columns)
        self.values.append(np.broadcast_to(values, rows.shape).astype(np.float64))

    def transposed(self, multipliers: Floats, size: int) -> Floats:
        """Sum the rows, each times its multiplier."""
        rows, columns, values = map(np.concatenate, (self.rows, self.columns, self.values))
        return np.bincount(columns, values * multipliers[rows], size).astype(np.float64)

    def minimise(self, cost: Floats, least: Floats, most: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the values, the multipliers of the rows, and those of the columns."""
        import highspy

        rows, columns, values = map(np.concatenate, (self.rows, self.columns, self.values))
        order = np.argsort(rows, kind="stable")
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("primal_feasibility_tolerance", FEASIBILITY)
        solver.setOptionValue("dual_feasibility_tolerance", FEASIBILITY)
        solver.setOptionValue("small_matrix_value", SMALLEST)
        solver.setOptionValue("solver", "simplex")
        solver.setOptionValue("presolve", "off")
        solver.passModel(
            cost.size,
            self.count,
            values.size,
            highspy.MatrixFormat.kRowwise.value,
            highspy.ObjSense.kMinimize.value,
            0.0,
            cost,
            least,
            most,
            np.concatenate(self.least),
            np.concatenate(self.most),
            np.searchsorted(rows[order], np.arange(self.count)).astype(np.int32),
            columns[order].astype(np.int32),
            values[order],
            np.zeros(cost.size, dtype=np.int32),  # all variables are continuous
        )
        solver.run()
        status, solution = solver.getModelStatus(), solver.getSolution()
        # what is not optimal proves what it proves all the same
        if not (solution.value_valid and solution.dual_valid):
            raise SolverError(
                f"HiGHS ended with status {solver.modelStatusToString(status)!r} on "
                f"{self.count:,} rows"
            )
        return tuple(
            np.asarray(x) for x in (solution.col_value, solution.row_dual, solution.col_dual)
        )  # type: ignore[return-value]
