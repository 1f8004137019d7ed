"""Large trees with i.i.d. paths: the program with a polygon in place of the curve of g.

g(U) = φ(D(U)) with φ(d) = 1 − (1 − d)^k.  Take a polygon below φ that meets it at vertices.  For
every antichain S(U) is at most the polygon at D(U) if for each of its edges, with slope λ and the
value c at zero, best(root; λ) ≤ c (Theorem 13.7 of docs/theory/block.md).  With

    best(y; λ) ≥ S(y) − λ D(y),   best(y; λ) ≥ Σ_z best(yz; λ)

this is one linear program without antichains, whose S is feasible.  Where a reference S tells
clearly which of the two is larger, there is no variable but the larger one stands in its place; so
S has to be checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import at_least_once
from otm._core.optional import require
from otm.block.hull import PathDrafts
from otm.block.lines import Floats, Lines, Places
from otm.block.program import GAIN, TIGHT
from otm.block.tree import RAREST

LOWEST = 1e-3
"""Rows are divided by c, or by this."""

MOST_UNCLEAR = 120_000
"""Most unclear pairs: simplex takes seconds for as many, and minutes for twice as many."""

NARROWER, NARROWEST = 0.7, 0.01
"""Factor of the width where there are more, and the width that is left alone."""

INNER = 0.2
"""How much of the width counts for the whole D(y), not for what y has more than its children."""


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
        edges = self._add_edges(lines)
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

    def _add_edges(self, lines: Lines) -> int:
        """Rows S(yz) − S(y) T(z|y) ≤ 0, but at depth 1, where they are bounds; how many."""
        deep = np.flatnonzero(self.parents > 0)
        above = self.parents[deep]
        share = self.unit[above] * self.targets[deep] / self.unit[deep]
        # HiGHS takes coefficients from 1e-9 to 1e15; what is smaller by more is dropped
        largest = np.maximum(share, 1)
        rows = lines.begin(np.full(deep.size, -np.inf), np.zeros(deep.size))
        lines.add(rows, deep - 1, 1 / largest)
        lines.add(rows, above - 1, -share / largest)
        return int(deep.size)

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
