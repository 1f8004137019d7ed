"""Solve the program for i.i.d. paths on large trees, with a polygon in place of the curve of g.

g(U) = φ(D(U)) with φ(d) = 1 − (1 − d)^k.  Take a polygon inscribed in the curve of φ.  Each edge of
the polygon lies on a line, c + λ d.  S(U) is at most the polygon at D(U) for every antichain U if
best(root; λ) ≤ c for each edge (Theorem 13.7 of docs/theory/block.md).
With the constraints

    best(y; λ) ≥ S(y) − λ D(y),   best(y; λ) ≥ Σ_z best(yz; λ)

this condition is part of one linear program without antichains, whose S is feasible.  If a
reference S clearly decides which of the two lower bounds of best(y; λ) is larger, that bound
replaces this variable.  The decision can be wrong, so the resulting S is checked.

The multipliers of antichains also give an upper bound for the curve.  The price of a node is the
sum of the multipliers of all antichains that contain it.  The height of a node is the sum of the
prices along its path.  The cheapest antichains with these prices consist of the nodes at which
paths first exceed a given height.  The bounds meet once the polygon touches the curve at D(U) of
these antichains, so these D(U) become new vertices.
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
"""Each row is divided by its c, or by this value if c is smaller."""

MOST_UNCLEAR = 120_000
"""Largest number of unclear pairs of an edge and a node.

For this number of pairs the simplex method takes seconds, and for twice this number minutes.
"""

NARROWER, NARROWEST = 0.7, 0.01
"""Factor that reduces the width of ties if too many pairs are unclear, and the smallest width."""

INNER = 0.2
"""Weight of D(y) in the width of a tie; D(y) minus the D of the best choice below has weight 1."""

VERTICES = 30
"""Number of vertices of the first polygon that are evenly spaced in D, and also in log D."""

WIDTHS = (0.4, 0.3)
"""Relative width of a tie in the first program, and in later ones, which have better references."""

WIDER = 1.5
"""Factor that increases the width of ties after steps without enough progress."""

SHARES = (1.0, 0.7, 0.4)
"""Weights that mix the S from HiGHS with the best feasible S; each mixture gives a lower bound."""

NEAR = 1e-10
"""Relative distance below which two vertices are merged."""

SAME = 1e-10
"""Heights that differ by less than this are equal up to rounding."""

LEAST = 1e-4
"""Smallest D of a vertex of the first polygon."""

SMALLEST_GAIN = 1e-12
"""Smallest improvement of the upper bound for which a vertex is added."""

MOST_NEW = 60
"""Largest number of vertices added in one step; vertices with the largest gain come first."""

PATIENCE = 3
"""Number of consecutive steps that may each close less than a third of the gap."""


class Choices(NamedTuple):
    """State of each pair of an edge and a node, in arrays [edges, nodes + 1].

    `unclear` and `taken` are flags.  A taken node has S(y) − λ D(y) as its best value.  `owner` is
    the nearest unclear ancestor, or 0 without such an ancestor.
    """

    unclear: npt.NDArray[np.bool_]
    taken: npt.NDArray[np.bool_]
    owner: Places


class PolygonProgram:
    """The linear program over a tree in floats; `solve` builds it for one polygon."""

    def __init__(self, drafts: PathDrafts, worth: Sequence[int]) -> None:
        require("highspy")
        tree, self.k = drafts.tree, drafts.k
        self.worth, self.parents = np.array(worth, dtype=np.float64), np.array(tree.parents)
        self.reach, self.targets, self.target_reach, self.ends = (
            np.array(x, dtype=np.float64)
            for x in (tree.reach, tree.targets, tree.target_reach, drafts.ends)
        )
        self.hit = self.curve(self.reach)
        self.unit = np.maximum(np.minimum(self.hit, self.target_reach), RAREST)
        depths = np.zeros(self.size + 1, dtype=np.int64)
        for y in range(1, self.size + 1):
            depths[y] = depths[self.parents[y]] + 1
        # For each depth: its nodes, their parents, and the index of the first child of each parent.
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
        """Return φ(d), the probability that one of k paths hits nodes of total probability d."""
        return np.asarray(at_least_once(np.minimum(reach, 1.0), self.k), dtype=np.float64)

    def solve(
        self, vertices: Floats, references: Sequence[Floats], width: float
    ) -> tuple[Floats, Floats]:
        """Return S and the price of each node, the sum of multipliers of antichains with the node.

        The vertices run from 0 to 1.  A node is clear if its two bounds differ by more than `width`
        times λ D in every reference.  The width is reduced if the program is too large.
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
        by_edge = (self.parents == 0) & (self.target_reach <= self.hit)
        most[: self.size] = (np.where(by_edge, self.target_reach, self.hit) / self.unit)[1:]
        values, of_rows, of_columns = lines.minimise(cost, least, most)
        of_rows[:edges] = 0
        prices = -lines.transposed(of_rows, columns)[: self.size]
        # At these nodes the constraint S(y) ≤ g({y}) is tight.
        tight = (values[: self.size] >= TIGHT * most[: self.size]) & ~by_edge[1:]
        prices += np.where(tight, np.maximum(-of_columns[: self.size], 0), 0)
        accept_probs, node_prices = np.ones(self.size + 1), np.zeros(self.size + 1)
        accept_probs[1:] = values[: self.size] * self.unit[1:]
        node_prices[1:] = np.maximum(prices / self.unit[1:] / GAIN, 0)
        return accept_probs, node_prices

    def _add_polygon(self, lines: Lines, slopes: Floats, at_zero: Floats, choices: Choices) -> int:
        """Add the rows of best(y; λ) for each edge of the polygon; return the number of columns.

        The columns are S of each node, then best of each unclear pair of an edge and a node, then
        for each edge the sum of S over the taken nodes without an unclear ancestor.
        """
        unclear, taken, owner = choices
        edge, node = np.nonzero(unclear)
        best = np.full(unclear.shape, -1)
        best[edge, node] = self.size + np.arange(edge.size)
        sums = self.size + edge.size + np.arange(slopes.size)
        unit = self.unit
        # First row of each pair: best − S ≥ −λ D.
        rows = lines.begin(-slopes[edge] * self.reach[node] / unit[node], np.inf)
        lines.add(rows, best[edge, node], 1)
        lines.add(rows, node - 1, -1)
        # Second row of each pair: best minus the sum over its nearest taken or unclear
        # descendants, with S − λ D for a taken and best for an unclear descendant.
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
        # Row of each edge: the terms without an unclear ancestor sum to at most c.
        heights = np.maximum(at_zero, LOWEST)
        sure = taken & (owner == 0)
        rows = lines.begin(-np.inf, (at_zero + slopes * (sure * self.reach).sum(1)) / heights)
        lines.add(rows, sums, 1 / heights)
        top = np.flatnonzero(owner[edge, node] == 0)
        lines.add(rows[edge[top]], best[edge[top], node[top]], unit[node[top]] / heights[edge[top]])
        # The sums of neighbouring edges differ in few nodes, so each row adds only the difference.
        before = np.vstack([np.zeros_like(sure[:1]), sure[:-1]])
        rows = lines.begin(np.zeros(slopes.size), np.zeros(slopes.size))
        lines.add(rows, sums, 1)
        lines.add(rows[1:], sums[:-1], -1)
        for chosen, sign in ((sure & ~before, -1), (before & ~sure, 1)):
            at, y = np.nonzero(chosen)
            lines.add(rows[at], y - 1, sign * unit[y])
        return self.size + edge.size + slopes.size

    def _choices(self, slopes: Floats, references: Sequence[Floats], width: float) -> Choices:
        """Classify each pair of an edge and a node as unclear, taken or neither.

        Below a taken node, no node is unclear or taken.
        """
        shape = (slopes.size, self.size + 1)
        taken, passed_by = np.ones(shape, dtype=bool), np.ones(shape, dtype=bool)
        for accept_probs in references:
            more, own = self._margins(slopes, accept_probs)
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

    def _margins(self, slopes: Floats, accept_probs: Floats) -> tuple[Floats, Floats]:
        """Compare each node y with the best choice of nodes below y.

        Return S(y) − λ D(y) minus the total of S − λ D over the nodes of this best choice, and D(y)
        minus the total of D over the same nodes.

        Both arrays have shape [edges, nodes + 1].
        """
        shape = (slopes.size, self.size + 1)
        of_children, reach_of_children = np.zeros(shape), np.zeros(shape)
        value = accept_probs - slopes[:, None] * self.reach
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
    """Refine the polygon until the bounds are within the tolerance or stop improving."""
    tree, program = drafts.tree, PolygonProgram(drafts, worth)
    accept_probs = tree.largest_below(drafts.excess(tree.target_reach).reachable)
    best = Bounds(accept_probs, value_of(worth, accept_probs), {}, float(sum(worth)))
    vertices = _initial_vertices(drafts)
    references, width, idle = [np.array(tree.target_reach, dtype=np.float64)], WIDTHS[0], 0
    for done in range(rounds):
        gap = best.gap
        watch.tell(f"gap {gap:.1e}, linear program", done + 1)
        try:
            solved, node_prices = program.solve(vertices, references, width)
        except SolverError:
            if done == 0:
                raise
            # The bounds of earlier steps remain valid.
            break
        several = [
            antichains_from_prices(program, _replace_noise(program, node_prices, x)) for x in FLOORS
        ]
        uppers = [float(upper_bound(tree, drafts, worth, prices)) for prices in several]
        upper, prices = min(zip(uppers, several, strict=True), key=lambda pair: pair[0])
        if upper < best.upper:
            best.prices, best.upper = prices, upper
        accept_probs = tree.largest_below(solved.tolist())
        inside = best.accept_probs
        for share in SHARES:
            middle = zip(accept_probs, inside, strict=True)
            tried: list[Number] = [share * s + (1 - share) * x for s, x in middle]
            served = tree.largest_below(drafts.excess(tried).reachable)
            lower = value_of(worth, served)
            if lower > best.lower:
                best.accept_probs, best.lower = served, lower
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
        vertices = _merge_near(np.append(vertices, reach[most]))
        references = [np.array(x, dtype=np.float64) for x in (best.accept_probs, accept_probs)]
    return best


def _initial_vertices(drafts: PathDrafts) -> Floats:
    """Return vertices among the corners of the hull of the points (D(U), T(U))."""
    tree = drafts.tree
    segments, _ = hull(tree.parents, tree.reach, tree.target_reach)
    corners = np.cumsum([float(segment.width) for segment in segments])
    grid = np.append(np.linspace(0, 1, VERTICES + 1), np.geomspace(LEAST, 1, VERTICES))
    return _merge_near(corners[np.minimum(np.searchsorted(corners, grid), corners.size - 1)])


def _merge_near(vertices: Floats) -> Floats:
    """Sort the vertices, merge near vertices and add 0 and 1."""
    inside = np.unique(vertices[(vertices > 0) & (vertices < 1 - NEAR)])
    inside = inside[np.diff(inside, prepend=0) > NEAR * inside]
    return np.concatenate([[0.0], inside, [1.0]])


def _replace_noise(program: PolygonProgram, node_prices: Floats, floor: float) -> Floats:
    """Replace the prices of rare nodes, because these prices are noise.

    A node that the target rarely reaches gets price zero.  A node that the drafts hit rarely gets
    a price as large as its whole worth.
    """
    everything = len(program.levels) * program.worth.max()
    rare = (program.hit < floor) & (program.hit < program.target_reach)
    prices = np.where(program.target_reach < floor, 0.0, node_prices)
    prices[rare] = everything
    return prices


def antichains_from_prices(program: PolygonProgram, node_prices: Floats) -> Prices:
    """Convert prices of nodes to antichains with multipliers; lower each price to its node's worth.

    The antichain of a height consists of the nodes at which a path first reaches this height.
    """
    prices, left = node_prices.copy(), program.worth - node_prices
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
        # The parent of the root has index −1, which is not a node.
        rises[0] = False
        antichain = tuple(np.flatnonzero(rises).tolist())
        multipliers[antichain] = float(mean[i] - mean[i - 1])
    return multipliers
