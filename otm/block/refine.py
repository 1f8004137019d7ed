"""i.i.d. paths on large trees: polygons below the curve of g, until they meet where it matters.

The S of a polygon is feasible, and the prices of its antichains bound the optimum of the curve.  A
price of a node is what all antichains with it cost.  Their sums along each path are its height;
the antichains with these prices that cost least are where paths first rise above a level (Theorem
13.7 of docs/theory/block.md).  The bounds meet once the polygon meets the curve at their D, so
these become vertices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otm._core.arithmetic import Number
from otm._core.display.progress import SILENT, Watch
from otm.block.hull import PathDrafts, hull
from otm.block.lines import Floats
from otm.block.polygon import PolygonProgram
from otm.block.program import FLOORS, Bounds, Prices, upper_bound, value_of
from otm.errors import SolverError

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
