"""Draft trees of i.i.d. paths: hit probabilities and violated antichain constraints.

For k i.i.d. paths, g(U) = 1 − (1 − D(U))^k is a concave function of D(U).  All points (D(U), S(U))
of antichains U lie below this curve if the corners of their upper hull do.  To find the corners,
let best(y; λ) be the maximum of S(U) − λ D(U) over the antichains U at or below y.  Then best(y; λ)
= max(S(y) − λ D(y), Σ_z best(yz; λ)), and each linear piece of best(root; ·) is a corner.

The code stores the hull at a node as a list of segments in descending slope.  An antichain chooses
nodes below each child independently, so the segments of the children are merged.  Then a segment
that ends at the point (D(y), S(y)) is appended.  The new segment absorbs the preceding segments
while they are not steeper than the new segment.  The first j segments stand for the antichain of
their topmost nodes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from otm._core.arithmetic import Number, at_least_once, total
from otm.block_optimum.tree import RAREST, Tree

SPREAD = 20
"""One step adds at most one antichain for each factor e^(1/20) in D(U)."""

TOLERANCE = 1e-12
"""Relative excess over g(U) that is ignored as rounding, in floats."""

REACH_ROUNDING = 1e-14
"""D(y) minus the sum over its children is set to zero if it is below this fraction of D(y)."""


class Segment(NamedTuple):
    """A segment of the hull: its slope, its extent in D and S, and its node."""

    slope: Number
    width: Number
    height: Number
    node: int


class Excess(NamedTuple):
    """Antichains with S(U) > g(U), and a feasible W close to S."""

    antichains: list[list[int]]
    reachable: list[Number]
    """W with W(y) ≥ Σ_z W(yz) ≥ 0 and W(U) ≤ g(U); W is close to S if S exceeds g(U) by little."""


def hit_probability(reach: Any, k: int) -> Any:
    """Return 1 − (1 − reach)^k, the probability that one of k paths hits a set of nodes.

    Floats use a formula without cancellation.  Fractions use Python's power, which is fast because
    it needs no reduction to lowest terms.
    """
    values = np.asarray(reach)
    return 1 - (1 - reach) ** k if values.dtype == object else at_least_once(reach, k)


class PathDrafts:
    """Draft trees that consist of k i.i.d. paths."""

    def __init__(self, tree: Tree, k: int) -> None:
        self.tree, self.k = tree, k
        # Probability that a path ends at a node or leaves the tree there.
        ends = list(tree.reach)
        for y in range(len(ends) - 1, 0, -1):
            ends[tree.parents[y]] -= tree.reach[y]
        zero = 0 * ends[-1]
        self.ends = [max(x, zero) for x in ends]

    def hit(self, nodes: list[int]) -> Number:
        """Return g(U), the probability that one of the paths passes through the antichain U."""
        reach = total((self.tree.reach[y] for y in nodes), 0 * self.tree.reach[-1])
        hit: Number = hit_probability(min(reach, 0 * reach + 1), self.k)
        return hit

    def excess(self, accept_probs: list[Number]) -> Excess:
        """Return antichains with S(U) > g(U), and W from the hull after it is cut off at g."""
        segments, taken_over = hull(self.tree.parents, self.tree.reach, accept_probs)
        nodes = [segment.node for segment in segments]
        widths = np.array([segment.width for segment in segments])
        reach = np.minimum(np.cumsum(widths), widths[0] * 0 + 1)
        accepted = np.cumsum(np.array([segment.height for segment in segments]))
        hits = hit_probability(reach, self.k)
        antichains = [
            self.tree.topmost(nodes[: j + 1]) for j in _most_violated(accepted - hits, hits, reach)
        ]
        # The minimum of two concave functions is concave, so its slopes decrease.
        cut_off = np.minimum(accepted, hits)
        slopes: list[Any] = [None] * len(accept_probs)
        for j, segment in enumerate(segments):
            slope = segment.slope
            if cut_off[j] < accepted[j] or (j and cut_off[j - 1] < accepted[j - 1]):
                # For a short segment at large D, the float difference has no correct digits.
                steepest = self.k * (1 - (reach[j - 1] if j else 0)) ** (self.k - 1)
                rise = (cut_off[j] - (cut_off[j - 1] if j else 0)) / widths[j]
                slope = min(rise, max(slope, steepest))
            slopes[segment.node] = slope
        for y in range(1, len(accept_probs)):
            if slopes[y] is None:
                slopes[y] = slopes[taken_over[y]] if taken_over[y] else 0
        slopes[0] = 0
        shares = [end * slope for end, slope in zip(self.ends, slopes, strict=True)]
        return Excess(antichains, self.tree.subtree_sums(shares))


def hull(
    parents: list[int], reach: list[Number], accept_probs: list[Number]
) -> tuple[list[Segment], list[int]]:
    """Return the upper hull of the points (D(U), S(U)).

    Also return, for each node, the node that absorbed its segment, or 0 if none did.
    """
    below: list[list[Segment]] = [[] for _ in parents]
    taken_over = [0] * len(parents)
    for y in range(len(parents) - 1, 0, -1):
        segments = below[y]
        below[y] = []
        # Sorting merges the sorted lists of the children.
        segments.sort(reverse=True)
        width = reach[y] - total(segment.width for segment in segments)
        height = accept_probs[y] - total(segment.height for segment in segments)
        if isinstance(width, float) and width < REACH_ROUNDING * reach[y]:
            width = 0.0
        height = max(height, 0 * height)
        while segments and (
            width <= 0 or segments[-1].height * width <= height * segments[-1].width
        ):
            last = segments.pop()
            width += last.width
            height += last.height
            taken_over[last.node] = y
        segments.append(Segment(height / width, width, height, y))
        below[parents[y]] += segments
    return sorted(below[0], reverse=True), taken_over


def _most_violated(excess: Any, hits: Any, reach: Any) -> list[int]:
    """Return the corner with the largest excess in each interval of log D(U)."""
    exact = excess.dtype == object
    violated = np.flatnonzero(excess > (0 if exact else TOLERANCE * hits))
    if not violated.size:
        return []
    excess, reach = (x[violated].astype(np.float64) for x in (excess, reach))
    interval = np.floor(np.log(np.maximum(reach, RAREST)) * SPREAD)
    order = np.lexsort((-excess, interval))
    first = np.append(True, np.diff(interval[order]) > 0)
    corners: list[int] = violated[order[first]].tolist()
    return corners
