"""i.i.d. paths on large trees: polygons for the curve of g, until they meet where it matters.

g(U) = φ(D(U)) with φ(d) = 1 − (1 − d)^k.  Take a polygon below φ that meets it at vertices.  For
every antichain S(U) is at most the polygon at D(U) if for each of its edges, with slope λ and the
value c at zero, best(root; λ) ≤ c (Theorem 13.7 of docs/theory/block.md).  With

    best(y; λ) ≥ S(y) − λ D(y),   best(y; λ) ≥ Σ_z best(yz; λ)

this is one linear program without antichains, whose S is feasible.  Where a reference S tells
clearly which of the two is larger, there is no variable but the larger one stands in its place; so
S has to be checked.

The prices of its antichains bound the optimum of the curve.  A price of a node is what all
antichains with it cost.  Their sums along each path are its height; the antichains with these
prices that cost least are where paths first rise above a level.  The bounds meet once the polygon
meets the curve at their D, so these become vertices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, at_least_once
from otm._core.display.progress import SILENT, Watch
from otm._core.optional import require
from otm.block_optimum.hull import PathDrafts, hull
from otm.block_optimum.program import (
    FLOORS,
    GAIN,
    TIGHT,
    Bounds,
    Floats,
    Lines,
    Places,
    Prices,
    upper_bound,
    value_of,
)
from otm.block_optimum.tree import RAREST
from otm.errors import SolverError

LOWEST = 1e-3
"""Rows are divided by c, or by this."""

MOST_UNCLEAR = 120_000
"""Most unclear pairs: simplex takes seconds for as many, and minutes for twice as many."""

NARROWER, NARROWEST = 0.7, 0.01
"""Factor of the width where there are more, and the width that is left alone."""

INNER = 0.2
"""How much of the width counts for the whole D(y), not for what y has more than its children."""

VERTICES = 30
"""Vertices of the first polygon, even in D, and as many even in its logarithm."""

WIDTHS = (0.4, 0.3)
"""Of the first program, and of those that follow, whose references are better."""

WIDER = 1.5
"""Factor of the width where nodes that seemed clear were not."""

SHARES = (1.0, 0.7, 0.4)
"""A feasible S is looked for between the best one so far and that of HiGHS, as far towards it."""

NEAR = 1e-10
"""Vertices that are relatively nearer to each other are one."""

SAME = 1e-10
"""Heights that are nearer to each other differ by rounding."""

LEAST = 1e-4
"""Smallest D of a vertex of the first polygon."""

SMALLEST_GAIN = 1e-12
"""Least that a new vertex is worth."""

MOST_NEW = 60
"""Most vertices of a round, those that are worth most."""

PATIENCE = 3
"""Rounds with less than a third of the gap gained, after which the rounds end."""


class Choices(NamedTuple):
    """Whether a node is unclear, or taken for sure, and the unclear node above or 0.

    Arrays [edges, nodes + 1].
    """

    unclear: npt.NDArray[np.bool_]
    taken: npt.NDArray[np.bool_]
    owner: Places


class PolygonProgram:
    """The program over a tree in floats, made anew for each polygon."""

    def __init__(self, drafts: PathDrafts, worth: Sequence[int]) -> None:
        require("highspy")
        tree, self.k = drafts.tree, drafts.k
        self.worth, self.parents = np.array(worth, dtype=np.float64), np.array(tree.parents)
        self.reach, self.targets, self.of_target, self.ends = (
            np.array(x, dtype=np.float64)
            for x in (tree.reach, tree.targets, tree.reach_of_target, drafts.ends)
        )
        self.hit = self.curve(self.reach)
        self.unit = np.maximum(np.minimum(self.hit, self.of_target), RAREST)
        depths = np.zeros(self.size + 1, dtype=np.int64)
        for y in range(1, self.size + 1):
            depths[y] = depths[self.parents[y]] + 1
        # nodes of each depth, their parents, and where the children of each of these begin
        self.levels: list[tuple[Places, Places, Places]] = []
        for depth in range(1, int(depths.max()) + 1):
            level = np.flatnonzero(depths == depth)
            begins = np.flatnonzero(np.diff(self.parents[level], prepend=-1))
            self.levels.append((level, self.parents[level][begins], begins))

    @property
    def size(self) -> int:
        """Number of nodes, without the root."""
        return self.parents.size - 1

    def curve(self, reach: Floats) -> Floats:
        """φ: how often k paths go through nodes of so much D."""
        return np.asarray(at_least_once(np.minimum(reach, 1.0), self.k), dtype=np.float64)

    def solve(
        self, vertices: Floats, references: Sequence[Floats], width: float
    ) -> tuple[Floats, Floats]:
        """Return S, and the price of each node: the multipliers of all antichains that have it.

        Vertices are from 0 to 1.  The width says how far a node of a reference must be from a tie,
        as a share of λ D, to be clear; it is narrowed where the program would be too large.
        """
        heights = self.curve(vertices)
        slopes = np.diff(heights) / np.diff(vertices)
        lines = Lines()
        edges = lines.add_edges(self.parents, self.targets, self.unit)
        choices = self._choices(slopes, references, width)
        while choices.unclear.sum() > MOST_UNCLEAR and width > NARROWEST:
            width *= NARROWER
            choices = self._choices(slopes, references, width)
        columns = self._add_polygon(lines, slopes, heights[1:] - slopes * vertices[1:], choices)
        cost, most = np.zeros(columns), np.full(columns, np.inf)
        least = np.where(np.arange(columns) < columns - slopes.size, 0, -np.inf)
        cost[: self.size] = -GAIN * (self.unit * self.worth)[1:]
        by_edge = (self.parents == 0) & (self.of_target <= self.hit)
        most[: self.size] = (np.where(by_edge, self.of_target, self.hit) / self.unit)[1:]
        values, of_rows, of_columns = lines.minimise(cost, least, most)
        of_rows[:edges] = 0
        prices = -lines.transposed(of_rows, columns)[: self.size]
        held = (values[: self.size] >= TIGHT * most[: self.size]) & ~by_edge[1:]  # by g({y})
        prices += np.where(held, np.maximum(-of_columns[: self.size], 0), 0)
        found, of_nodes = np.ones(self.size + 1), np.zeros(self.size + 1)
        found[1:] = values[: self.size] * self.unit[1:]
        of_nodes[1:] = np.maximum(prices / self.unit[1:] / GAIN, 0)
        return found, of_nodes

    def _add_polygon(self, lines: Lines, slopes: Floats, at_zero: Floats, choices: Choices) -> int:
        """Rows of best(y; λ) for each edge of the polygon; returns the number of columns.

        Columns: S of each node, best of each unclear pair of an edge and a node, and for each edge
        the sum of S over the nodes that are taken for sure.
        """
        unclear, taken, owner = choices
        edge, node = np.nonzero(unclear)  # [b]
        best = np.full(unclear.shape, -1)
        best[edge, node] = self.size + np.arange(edge.size)
        sums = self.size + edge.size + np.arange(slopes.size)
        unit = self.unit
        # best − S ≥ −λ D
        rows = lines.begin(-slopes[edge] * self.reach[node] / unit[node], np.inf)
        lines.add(rows, best[edge, node], 1)
        lines.add(rows, node - 1, -1)
        # best − Σ of what it owns: S − λ D of nodes that are taken, best of others
        taken_edge, taken_node = np.nonzero(taken & (owner > 0))
        above = owner[taken_edge, taken_node]
        least = np.zeros(best.shape)
        np.add.at(least, (taken_edge, above), -slopes[taken_edge] * self.reach[taken_node])
        owned = np.flatnonzero(owner[edge, node] > 0)
        owns = np.zeros(best.shape, dtype=bool)
        owns[taken_edge, above] = owns[edge[owned], owner[edge, node][owned]] = True
        row_of = np.full(best.shape, -1)
        row_of[owns] = lines.begin(least[owns] / np.broadcast_to(unit, owns.shape)[owns], np.inf)
        lines.add(row_of[owns], best[owns], 1)
        lines.add(row_of[taken_edge, above], taken_node - 1, -unit[taken_node] / unit[above])
        edge_below, below = edge[owned], node[owned]
        above = owner[edge_below, below]
        lines.add(row_of[edge_below, above], best[edge_below, below], -unit[below] / unit[above])
        # the sum over nodes taken for sure, and best of what the root owns, is at most c
        heights = np.maximum(at_zero, LOWEST)
        sure = taken & (owner == 0)
        rows = lines.begin(-np.inf, (at_zero + slopes * (sure * self.reach).sum(1)) / heights)
        lines.add(rows, sums, 1 / heights)
        top = np.flatnonzero(owner[edge, node] == 0)
        lines.add(rows[edge[top]], best[edge[top], node[top]], unit[node[top]] / heights[edge[top]])
        # these sums change from edge to edge in few nodes
        before = np.vstack([np.zeros_like(sure[:1]), sure[:-1]])
        rows = lines.begin(np.zeros(slopes.size), np.zeros(slopes.size))
        lines.add(rows, sums, 1)
        lines.add(rows[1:], sums[:-1], -1)
        for chosen, sign in ((sure & ~before, -1), (before & ~sure, 1)):
            at, y = np.nonzero(chosen)
            lines.add(rows[at], y - 1, sign * unit[y])
        return self.size + edge.size + slopes.size

    def _choices(self, slopes: Floats, references: Sequence[Floats], width: float) -> Choices:
        """Look at each edge of the polygon and each node.

        Only what is reached from the root by way of unclear nodes, and of those whose children are
        better for sure, is unclear or taken.
        """
        shape = (slopes.size, self.size + 1)
        taken, passed_by = np.ones(shape, dtype=bool), np.ones(shape, dtype=bool)
        for passed in references:
            more, own = self._margins(slopes, passed)
            tie = width * slopes[:, None] * (np.maximum(own, 0) + INNER * self.reach)
            taken &= more > tie
            passed_by &= more < -tie
        taken[:, 0], passed_by[:, 0] = False, True
        unclear = ~(taken | passed_by)
        reached, owner = np.ones(shape, dtype=bool), np.zeros(shape, dtype=np.int64)
        for level, _, _ in self.levels:
            above = self.parents[level]
            reached[:, level] = reached[:, above] & ~taken[:, above]
            owner[:, level] = np.where(unclear[:, above], above, owner[:, above])
        return Choices(unclear & reached, taken & reached, owner)

    def _margins(self, slopes: Floats, passed: Floats) -> tuple[Floats, Floats]:
        """How much better a node is than its children, and what it has more than them of D."""
        shape = (slopes.size, self.size + 1)
        of_children, reach_of_children = np.zeros(shape), np.zeros(shape)
        value = passed - slopes[:, None] * self.reach
        for level, above, begins in reversed(self.levels):
            best = np.maximum(value[:, level], of_children[:, level])
            itself = value[:, level] > of_children[:, level]
            reach = np.where(itself, self.reach[level], reach_of_children[:, level])
            of_children[:, above] = np.add.reduceat(best, begins, axis=1)
            reach_of_children[:, above] = np.add.reduceat(reach, begins, axis=1)
        return value - of_children, self.reach - reach_of_children


def solve_by_polygons(
    drafts: PathDrafts,
    worth: Sequence[int],
    tolerance: float,
    rounds: int,
    watch: Watch = SILENT,
) -> Bounds:
    """Refine the polygon until the bounds are within the tolerance, or it gives nothing new."""
    tree, program = drafts.tree, PolygonProgram(drafts, worth)
    passed = tree.largest(drafts.excess(tree.reach_of_target).reachable)
    best = Bounds(passed, value_of(worth, passed), {}, float(sum(worth)))
    vertices = _first_vertices(drafts)
    references, width, idle = [np.array(tree.reach_of_target, dtype=np.float64)], WIDTHS[0], 0
    for done in range(rounds):
        gap = best.gap
        watch.tell(f"gap {gap:.1e}, linear program", done + 1)
        try:
            found, of_nodes = program.solve(vertices, references, width)
        except SolverError:
            if done == 0:
                raise
            break  # what the rounds before have proved stays
        several = [levels_of_prices(program, _without_noise(program, of_nodes, x)) for x in FLOORS]
        uppers = [float(upper_bound(tree, drafts, worth, prices)) for prices in several]
        upper, prices = min(zip(uppers, several, strict=True), key=lambda pair: pair[0])
        if upper < best.upper:
            best.prices, best.upper = prices, upper
        passed = tree.largest(found.tolist())
        inside = best.passed
        for share in SHARES:
            middle = zip(passed, inside, strict=True)
            tried: list[Number] = [share * s + (1 - share) * x for s, x in middle]
            served = tree.largest(drafts.excess(tried).reachable)
            lower = value_of(worth, served)
            if lower > best.lower:
                best.passed, best.lower = served, lower
        idle = 0 if best.gap < gap * (2 / 3) else idle + 1
        if best.gap <= tolerance or idle > PATIENCE:
            break
        if idle > 1:
            width *= WIDER
        elif width == WIDTHS[0]:
            width = WIDTHS[1]
        reach = np.array([program.reach[list(U)].sum() for U in prices])
        gain = program.curve(reach) - np.interp(reach, vertices, program.curve(vertices))
        gain *= np.array(list(prices.values()))
        most = [place for place in np.argsort(-gain)[:MOST_NEW] if gain[place] > SMALLEST_GAIN]
        vertices = _apart(np.append(vertices, reach[most]))
        references = [np.array(x, dtype=np.float64) for x in (best.passed, passed)]
    return best


def _first_vertices(drafts: PathDrafts) -> Floats:
    """Corners of the hull of what the target asks for."""
    tree = drafts.tree
    segments, _ = hull(tree.parents, tree.reach, tree.reach_of_target)
    corners = np.cumsum([float(segment.width) for segment in segments])
    wanted = np.append(np.linspace(0, 1, VERTICES + 1), np.geomspace(LEAST, 1, VERTICES))
    return _apart(corners[np.minimum(np.searchsorted(corners, wanted), corners.size - 1)])


def _apart(vertices: Floats) -> Floats:
    """Sort, with 0 and 1, without those that are too near to another."""
    inside = np.unique(vertices[(vertices > 0) & (vertices < 1 - NEAR)])
    inside = inside[np.diff(inside, prepend=0) > NEAR * inside]
    return np.concatenate([[0.0], inside, [1.0]])


def _without_noise(program: PolygonProgram, of_nodes: Floats, floor: float) -> Floats:
    """Prices of all that the node is worth for what drafts rarely give, or none for the target."""
    everything = len(program.levels) * program.worth.max()
    rare = (program.hit < floor) & (program.hit < program.of_target)
    prices = np.where(program.of_target < floor, 0.0, of_nodes)
    prices[rare] = everything
    return prices


def levels_of_prices(program: PolygonProgram, of_nodes: Floats) -> Prices:
    """Antichains with their multipliers, of the prices of nodes.

    No price is above what its node is worth.
    """
    prices, left = of_nodes.copy(), program.worth - of_nodes
    for level, above, begins in reversed(program.levels):
        short = np.minimum(left[level], 0)
        prices[level] += short
        left[level] -= short
        left[above] += np.add.reduceat(left[level] * program.targets[level], begins)
    heights = np.zeros(prices.size)
    for level, _, _ in program.levels:
        heights[level] = heights[program.parents[level]] + prices[level]
    values, place = np.unique(heights, return_inverse=True)
    group = np.cumsum(np.diff(values, prepend=0.0) > SAME)
    mean = np.bincount(group, values) / np.bincount(group)
    mean[0] = 0.0
    group = group[place]
    multipliers: Prices = {}
    for i in range(1, mean.size):
        rises = (group >= i) & (group[program.parents] < i)
        rises[0] = False  # the parent of the root is no node
        antichain = tuple(np.flatnonzero(rises).tolist())
        multipliers[antichain] = float(mean[i] - mean[i - 1])
    return multipliers
