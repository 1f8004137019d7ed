"""Solve the linear program with HiGHS by cutting planes: add each violated antichain constraint.

    maximise Σ worth(y) S(y),  0 ≤ S(y) ≤ g({y}),  S(yz) ≤ S(y) T(z|y),  Σ_{y∈U} S(y) ≤ g(U)

All multipliers μ ≥ 0 of antichains prove an upper bound (`upper_bound`), and each feasible W proves
a lower bound (`Tree.largest_below`).  The loop ends when these bounds meet; it does not trust the
optimality status of HiGHS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, total
from otm._core.display.progress import Watch
from otm._core.optional import require
from otm.block_optimum.hull import Excess
from otm.block_optimum.tree import RAREST, Tree
from otm.errors import SolverError

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

FEASIBILITY = 1e-10
"""Feasibility tolerance, the smallest that HiGHS allows."""

SMALLEST = 1e-12
"""HiGHS drops coefficients below this; it allows no smaller threshold."""

GAIN = 1e6
"""Factor of the objective; it keeps more multipliers above the tolerance of HiGHS."""

TIGHT = 0.999
"""A bound of S(y) counts as tight if S(y) is at least this fraction of the bound."""

FLOORS = (0.0, 1e-13, 1e-11, 1e-9, 1e-7)
"""Thresholds of a node's probability, below which the multipliers of HiGHS are replaced.

The threshold with the best upper bound is used.
"""

SHARES = (1.0, 0.6, 0.2)
"""Weights that mix the new S with the best feasible S; each mixture is searched for new rows."""


class Drafts(Protocol):
    """A distribution of draft trees: hit probabilities and violated antichain constraints."""

    def hit(self, nodes: list[int]) -> Number:
        """Return g(U)."""

    def excess(self, accept_probs: list[Number]) -> Excess:
        """Return antichains with S(U) > g(U)."""


Prices = dict[tuple[int, ...], Number]
"""Multiplier of each antichain."""


@dataclass
class Bounds:
    """A feasible S and its lower bound; multipliers and their upper bound."""

    accept_probs: list[Number]
    lower: Number
    prices: Prices
    upper: Number

    @property
    def gap(self) -> Number:
        """Difference of the two bounds."""
        return self.upper - self.lower


def value_of(worth: Sequence[int], accept_probs: Sequence[Number]) -> Number:
    """Return the expected accepted drafts Σ worth(y) S(y)."""
    return total((w * s for w, s in zip(worth, accept_probs, strict=True)), 0 * accept_probs[-1])


def upper_bound(tree: Tree, drafts: Drafts, worth: Sequence[int], prices: Prices) -> Number:
    """Return Σ μ_U g(U) + Σ_z ν_z T(z|root), with the least feasible ν ≥ 0 for μ."""
    bound = 0 * tree.targets[-1]
    for antichain, price in prices.items():
        bound += price * drafts.hit(list(antichain))
    left = _remaining_worth(tree, worth, prices)
    for y in range(len(left) - 1, 0, -1):
        if left[y] > 0:
            left[tree.parents[y]] += left[y] * tree.targets[y]
    return bound + left[0]


def _remaining_worth(tree: Tree, worth: Sequence[int], prices: Prices) -> list[Number]:
    """Return worth(y) − Σ_{U∋y} μ_U for each node y."""
    zero = 0 * tree.targets[-1]
    left: list[Number] = [w + zero for w in worth]
    for antichain, price in prices.items():
        for y in antichain:
            left[y] -= price
    return left


class Lines:
    """The rows of a linear program, as lists of coefficients."""

    def __init__(self) -> None:
        self.rows, self.columns, self.values = [], [], []  # type: ignore[var-annotated]
        self.least, self.most = [], []  # type: ignore[var-annotated]
        self.count = 0

    def begin(self, least: Any, most: Any) -> Places:
        """Add empty rows with lower and upper limits, and return their indices."""
        least, most = np.broadcast_arrays(least, most)
        self.least.append(least)
        self.most.append(most)
        self.count += least.size
        return np.arange(self.count - least.size, self.count)

    def add(self, rows: Places, columns: Places, values: Any) -> None:
        """Add coefficients at pairs of a row and a column."""
        self.rows.append(rows)
        self.columns.append(columns)
        self.values.append(np.broadcast_to(values, rows.shape).astype(np.float64))

    def transposed(self, multipliers: Floats, size: int) -> Floats:
        """Return the sum of all rows, weighted by their multipliers."""
        rows, columns, values = map(np.concatenate, (self.rows, self.columns, self.values))
        return np.bincount(columns, values * multipliers[rows], size).astype(np.float64)

    def add_edges(self, parents: Places, targets: Floats, unit: Floats) -> int:
        """Add the rows S(yz) − S(y) T(z|y) ≤ 0, for S divided by `unit`; return their number.

        At depth 1 no rows are added, because there the constraint is an upper bound of S(z).
        """
        deep = np.flatnonzero(parents > 0)
        above = parents[deep]
        share = unit[above] * targets[deep] / unit[deep]
        # HiGHS accepts coefficients from 1e-9 to 1e15, so each row is divided by its largest
        # coefficient.  HiGHS drops much smaller coefficients.
        largest = np.maximum(share, 1)
        rows = self.begin(np.full(deep.size, -np.inf), np.zeros(deep.size))
        self.add(rows, deep - 1, 1 / largest)
        self.add(rows, above - 1, -share / largest)
        return int(deep.size)

    def highs_solver(self, cost: Floats, least: Floats, most: Floats, **options: Any) -> Any:
        """Return a HiGHS solver that minimises the cost, with variables between limits."""
        import highspy

        rows, columns, values = map(np.concatenate, (self.rows, self.columns, self.values))
        order = np.argsort(rows, kind="stable")
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in {"output_flag": False, **options}.items():
            solver.setOptionValue(name, value)
        solver.setOptionValue("primal_feasibility_tolerance", FEASIBILITY)
        solver.setOptionValue("dual_feasibility_tolerance", FEASIBILITY)
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
            # Type 0 is a continuous variable.
            np.zeros(cost.size, dtype=np.int32),
        )
        return solver

    def minimise(self, cost: Floats, least: Floats, most: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the values, the multipliers of the rows and the multipliers of the columns."""
        solver = self.highs_solver(
            cost, least, most, small_matrix_value=SMALLEST, solver="simplex", presolve="off"
        )
        solver.run()
        status, solution = solver.getModelStatus(), solver.getSolution()
        # A solution that is not optimal is also useful, because each bound is proved separately.
        if not (solution.value_valid and solution.dual_valid):
            raise SolverError(
                f"HiGHS stopped with status {solver.modelStatusToString(status)!r} on a program "
                f"with {self.count:,} rows"
            )
        return tuple(
            np.asarray(x) for x in (solution.col_value, solution.row_dual, solution.col_dual)
        )  # type: ignore[return-value]


class CuttingPlanes:
    """The program in HiGHS, with a row for each antichain found so far.

    The variables are S(y) / min(g({y}), T(y)), and the row of an antichain is divided by g(U).
    This scaling makes the absolute tolerances of HiGHS accurate for nodes of small probability too.
    """

    def __init__(self, tree: Tree, drafts: Drafts, worth: Sequence[int]) -> None:
        require("highspy")
        self.tree, self.drafts, self.worth = tree, drafts, worth
        self.size = len(tree.parents) - 1
        self.hit = hit = np.array([self._hit([y]) for y in range(1, self.size + 1)])
        reach = np.array(tree.target_reach, dtype=np.float64)
        unit = np.append(1.0, np.maximum(np.minimum(hit, reach[1:]), RAREST))
        self.unit, reach = unit[1:], reach[1:]
        parents = np.array(tree.parents)
        # At depth 1, the edge constraint is an upper bound of the variable.
        self.deep = np.flatnonzero(parents[1:] > 0)
        self.by_edge = (parents[1:] == 0) & (reach <= hit)
        self.by_drafts = hit < reach
        self.floors = [floor for floor in FLOORS if not floor or self.unit.min() < floor]
        self.antichains: list[tuple[int, ...]] = []
        self._known: set[tuple[int, ...]] = set()
        lines = Lines()
        lines.add_edges(parents, np.array(tree.targets, dtype=np.float64), unit)
        self.highs = lines.highs_solver(
            -GAIN * self.unit * np.array(worth[1:]),
            np.zeros(self.size),
            np.where(self.by_edge, reach, hit) / self.unit,
        )

    def _hit(self, nodes: Sequence[int]) -> float:
        """Return g(U) as a positive float."""
        return max(float(self.drafts.hit(list(nodes))), RAREST)

    def add(self, antichains: list[list[int]]) -> int:
        """Add rows for new antichains of at least two nodes, and return their number."""
        new = [U for U in map(tuple, antichains) if len(U) > 1 and U not in self._known]
        for antichain in new:
            self._known.add(antichain)
            self.antichains.append(antichain)
            places = np.array(antichain, dtype=np.int32) - 1
            share = self.unit[places] / self._hit(antichain)
            self.highs.addRow(-np.inf, 1.0, places.size, places, share)
        return len(new)

    def solve(self) -> tuple[list[Number], list[Prices]]:
        """Return S, which satisfies all edge constraints, and multipliers for each of `floors`."""
        import highspy

        self.highs.run()
        status, solution = self.highs.getModelStatus(), self.highs.getSolution()
        if status != highspy.HighsModelStatus.kOptimal:
            raise SolverError(
                f"HiGHS stopped with status {self.highs.modelStatusToString(status)!r} on a "
                f"program with {self.size:,} nodes and {len(self.antichains):,} antichains"
            )
        accept_probs = np.asarray(solution.col_value) * self.unit
        prices: Prices = {}
        of_rows = np.maximum(-np.asarray(solution.row_dual)[self.deep.size :] / GAIN, 0)
        for antichain, price in zip(self.antichains, of_rows.tolist(), strict=True):
            if price:
                prices[antichain] = price / self._hit(antichain)
        prices_of_nodes = np.maximum(-np.asarray(solution.col_dual) / GAIN, 0)
        # HiGHS ignores multipliers below its tolerance, so tiny ones count only if S(y) is tight.
        loose = (accept_probs < TIGHT * self.hit) & (prices_of_nodes < FEASIBILITY / GAIN * 10)
        prices_of_nodes[self.by_edge | loose] = 0
        served = self.tree.largest_below([1.0, *accept_probs.tolist()])
        most = (prices_of_nodes / self.unit).tolist()
        return served, [
            self._add_single_nodes(prices, served, most, floor) for floor in self.floors
        ]

    def _add_single_nodes(
        self, prices: Prices, accept_probs: list[Number], most: list[float], floor: float
    ) -> Prices:
        """Add multipliers of single nodes, each at most the remaining worth of the node."""
        prices = dict(prices)
        left = _remaining_worth(self.tree, self.worth, prices)
        for y in range(self.size, 0, -1):
            if left[y] > 0:
                above, share = self.tree.parents[y], self.tree.targets[y]
                full = accept_probs[y] >= TIGHT * self.hit[y - 1]
                full &= accept_probs[y] < TIGHT * accept_probs[above] * share
                price = left[y] if full else min(most[y - 1], left[y])
                if self.unit[y - 1] < floor:
                    price = left[y] if self.by_drafts[y - 1] else 0.0
                if price:
                    prices[(y,)] = price
                left[above] += (left[y] - price) * share
        return prices


def solve_program(program: CuttingPlanes, tolerance: float, rounds: int, watch: Watch) -> Bounds:
    """Add antichains until the bounds are within the tolerance or a step makes no progress."""
    tree, drafts, worth = program.tree, program.drafts, program.worth
    zeros: list[Number] = [0.0] * len(tree.parents)
    best = Bounds(zeros, 0.0, {}, float(sum(worth)))
    for done in range(rounds):
        watch.tell(f"gap {best.gap:.1e}, linear program", done + 1)
        accept_probs, several = program.solve()
        for prices in several:
            upper = float(upper_bound(tree, drafts, worth, prices))
            if upper < best.upper:
                best.prices, best.upper = prices, upper
        progress = False
        for share in SHARES:
            middle = zip(accept_probs, best.accept_probs, strict=True)
            tried: list[Number] = [share * s + (1 - share) * inside for s, inside in middle]
            excess = drafts.excess(tried)
            progress |= program.add(excess.antichains) > 0
            served = tree.largest_below(excess.reachable)
            lower = value_of(worth, served)
            if lower > best.lower:
                progress |= lower > best.lower + tolerance / 10
                best.accept_probs, best.lower = served, lower
            if best.gap <= tolerance:
                return best
        if not progress:
            break
    return best


def nodes_by_depth(tree: Tree) -> list[list[int]]:
    """Return lists of nodes by depth; a remainder node is in the list of each depth it replaces."""
    last = [depth + max(n, 1) - 1 for depth, n in zip(tree.depths, tree.levels, strict=True)]
    levels: list[list[int]] = [[] for _ in range(max(last))]
    for y in range(1, len(last)):
        for i in range(tree.depths[y], last[y] + 1):
            levels[i - 1].append(y)
    return levels
