"""The linear program, by cutting planes: antichains join it when S asks too much of them.

    maximise Σ worth(y) S(y),  0 ≤ S(y) ≤ g({y}),  S(yz) ≤ S(y) T(z|y),  Σ_{y∈U} S(y) ≤ g(U)

Any multipliers of antichains prove an upper bound (`upper_bound`), and any W that drafts can give
proves a lower one (`Tree.largest`).  The rounds end when the two meet, whatever HiGHS says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number
from otm._core.optional import require
from otm.block.hull import Excess
from otm.block.tree import Tree
from otm.errors import SolverError

FEASIBILITY = 1e-10
"""Tolerance of HiGHS, the least that it takes."""

LARGEST_SIMPLEX = 200
"""Most nodes for the simplex method, whose corners ask for more cuts than points in the middle."""

CENTRED = 0.5
"""An interior point is good enough at this share of the gap: points in the middle cut deeper."""

MOST_PRECISE = 1e-12
"""The least relative gap that HiGHS is asked for."""

BETWEEN = 0.4
"""Antichains are looked for at S and between S and the best point so far, as far towards S."""


class Drafts(Protocol):
    """How often drafts hit an antichain, and which antichains they cannot serve."""

    def hit(self, nodes: list[int]) -> Number:
        """g(U)."""

    def excess(self, passed: list[Number]) -> Excess:
        """Antichains with S(U) > g(U)."""


Prices = dict[tuple[int, ...], Number]
"""Multiplier of each antichain."""


@dataclass
class Bounds:
    """What has been proved: S with its value, and multipliers with theirs."""

    passed: list[Number]
    lower: Number
    prices: Prices
    upper: Number

    @property
    def gap(self) -> Number:
        """Distance of the two values."""
        return self.upper - self.lower


def value_of(worth: Sequence[int], passed: Sequence[Number]) -> Number:
    """Expected accepted drafts Σ worth(y) S(y)."""
    return sum((w * s for w, s in zip(worth, passed, strict=True)), 0 * passed[-1])


def upper_bound(tree: Tree, drafts: Drafts, worth: Sequence[int], prices: Prices) -> Number:
    """Σ μ_U g(U) + Σ_z ν_z T(z|root), with the least ν ≥ 0 that the multipliers μ leave."""
    zero = 0 * tree.targets[-1]
    left = [w + zero for w in worth]  # worth(y) − Σ μ_U + Σ_z ν_yz T(z|y)
    bound = zero
    for antichain, price in prices.items():
        bound += price * drafts.hit(list(antichain))
        for y in antichain:
            left[y] -= price
    for y in range(len(left) - 1, 0, -1):
        if left[y] > 0:
            left[tree.parents[y]] += left[y] * tree.targets[y]
    return bound + left[0]


class CuttingPlanes:
    """The program in HiGHS.

    The variables are S(y) over min(g({y}), T(y)), and rows are divided by g(U) or so, for
    tolerances are absolute and nodes can be as unlikely as they like.
    """

    def __init__(
        self, tree: Tree, drafts: Drafts, worth: Sequence[int], *, corners: bool = False
    ) -> None:
        require("highspy")
        import highspy

        self.tree, self.drafts, self.worth = tree, drafts, worth
        self.size = len(tree.parents) - 1
        hit = np.array([float(drafts.hit([y])) for y in range(1, self.size + 1)])
        reach = np.array(tree.reach_of_target[1:], dtype=np.float64)
        self.unit = np.maximum(np.minimum(hit, reach), np.finfo(np.float64).tiny)
        self.antichains: list[tuple[int, ...]] = []
        self._known: set[tuple[int, ...]] = set()
        self.highs = solver = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("primal_feasibility_tolerance", FEASIBILITY)
        solver.setOptionValue("dual_feasibility_tolerance", FEASIBILITY)
        self.simplex = corners or self.size <= LARGEST_SIMPLEX
        if not self.simplex:
            solver.setOptionValue("solver", "ipm")
            solver.setOptionValue("run_crossover", "off")
        starts, columns, values, limits = self._edges()
        solver.passModel(
            self.size,
            self.size,
            len(columns),
            highspy.MatrixFormat.kRowwise.value,
            highspy.ObjSense.kMinimize.value,
            0.0,
            -self.unit * np.array(worth[1:]),
            np.zeros(self.size),
            hit / self.unit,
            np.full(self.size, -np.inf),
            limits,
            starts,
            columns,
            values,
            np.zeros(self.size, dtype=np.int32),  # all variables are continuous
        )

    def _edges(self) -> tuple[Any, Any, Any, npt.NDArray[np.float64]]:
        """Rows S(yz) − S(y) T(z|y) ≤ 0, and S(z) ≤ T(z|root) at the root."""
        parents = np.array(self.tree.parents[1:])
        target = np.array(self.tree.targets[1:], dtype=np.float64)
        of_root = parents == 0
        columns = np.stack([np.arange(self.size), parents - 1], axis=1)
        values = np.ones((self.size, 2))
        values[:, 1] = -self.unit[np.maximum(parents - 1, 0)] * target / self.unit
        there = np.ones((self.size, 2), dtype=bool)
        there[of_root, 1] = False
        starts = np.cumsum(there.sum(axis=1)) - there.sum(axis=1)
        limits = np.where(of_root, target / self.unit, 0.0)
        return starts.astype(np.int32), columns[there].astype(np.int32), values[there], limits

    def add(self, antichains: list[list[int]]) -> int:
        """Add rows, and return how many were new; those of one node are bounds already."""
        new = [U for U in map(tuple, antichains) if len(U) > 1 and U not in self._known]
        for antichain in new:
            self._known.add(antichain)
            self.antichains.append(antichain)
            places = np.array(antichain, dtype=np.int32) - 1
            hit = float(self.drafts.hit(list(antichain)))
            self.highs.addRow(-np.inf, 1.0, places.size, places, self.unit[places] / hit)
        return len(new)

    def solve(self, precision: float) -> tuple[list[Number], Prices]:
        """Return S, with all edges kept, and the multipliers of HiGHS."""
        import highspy

        if not self.simplex:
            self.highs.setOptionValue("ipm_optimality_tolerance", min(max(precision, MOST_PRECISE), 1e-2))
        self.highs.run()
        status = self.highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise SolverError(
                f"HiGHS ended with status {self.highs.modelStatusToString(status)!r} on "
                f"{self.size:,} nodes and {len(self.antichains):,} antichains"
            )
        solution = self.highs.getSolution()
        passed = np.asarray(solution.col_value) * self.unit
        prices: Prices = {}
        of_rows = np.maximum(-np.asarray(solution.row_dual)[self.size :], 0)
        for antichain, price in zip(self.antichains, of_rows.tolist(), strict=True):
            if price:
                prices[antichain] = price / float(self.drafts.hit(list(antichain)))
        of_bounds = np.maximum(-np.asarray(solution.col_dual), 0) / self.unit
        for i in np.flatnonzero(of_bounds).tolist():
            prices[(i + 1,)] = float(of_bounds[i])
        return self.tree.largest([1.0, *passed.tolist()]), prices


def solve_program(
    program: CuttingPlanes, tolerance: float, rounds: int, known: Bounds | None = None
) -> Bounds:
    """Add antichains until the bounds are within the tolerance, or nothing new is found."""
    tree, drafts, worth = program.tree, program.drafts, program.worth
    nothing: list[Number] = [0.0] * len(tree.parents)
    best = known or Bounds(nothing, 0.0, {}, float(sum(worth)))
    precision = 1.0
    for _ in range(rounds):
        relative = float(best.gap) / max(float(best.lower), 1e-3)
        precision = min(precision, CENTRED * relative)
        passed, prices = program.solve(precision)
        upper = float(upper_bound(tree, drafts, worth, prices))
        if upper < best.upper:
            best.prices, best.upper = prices, upper
        added = 0
        for share in (1.0, BETWEEN):
            middle = zip(passed, best.passed, strict=True)
            tried = [share * s + (1 - share) * inside for s, inside in middle]
            excess = drafts.excess(tried)
            added += program.add(excess.antichains)
            served = tree.largest(excess.reachable)
            lower = value_of(worth, served)
            if lower > best.lower:
                best.passed, best.lower = served, lower
            if best.gap <= tolerance:
                return best
        if not added:
            if program.simplex or precision < MOST_PRECISE:
                break
            precision /= 100
    return best


def levels_of(tree: Tree) -> list[list[int]]:
    """Nodes of each depth; rests stand at their own and at all that follow."""
    levels: list[list[int]] = [[] for _ in range(max(tree.depths))]
    for y, (depth, stands_for) in enumerate(zip(tree.depths, tree.levels, strict=True)):
        for i in range(depth, depth + max(stands_for, 1)):
            if y:
                levels[i - 1].append(y)
    return levels
