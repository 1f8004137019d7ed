"""i.i.d. paths: how often they hit an antichain, and the antichains of which S asks too much.

For k i.i.d. paths g(U) = 1 − (1 − D(U))^k depends on D(U) alone, and is concave in it.  So what
must be looked at is the upper hull of the points (D(U), S(U)) of all antichains U: if its corners
are below the curve, all points are.  With best(y; λ) = max over antichains U at or below y of S(U)
− λ D(U) = max(S(y) − λ D(y), Σ_z best(yz; λ)), the pieces of best(root; ·) are these corners.

The hull at a node is a list of segments in descending slope.  The segments of its children are
merged, since an antichain chooses in each of them independently; then the point (D(y), S(y)) comes
in at the far end, and takes over the last segments as long as they are no steeper than the way to
it.  Taking the first segments of the list means: choose their nodes, without those that have
another one above.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from otm._core.arithmetic import Number, at_least_once, total
from otm.block_optimum.tree import RAREST, Tree

SPREAD = 20
"""Cuts of a round: one for each factor e^(1/20) in D(U)."""

TOLERANCE = 1e-12
"""Relative excess over g(U) that counts as none, in floats."""

REACH_ROUNDING = 1e-14
"""Share of D(y) that is taken for a rounding error of the sum over what is below y."""


class Segment(NamedTuple):
    """A piece of the hull: its slope, how far it goes in D and S, and the node that it ends at."""

    slope: Number
    width: Number
    height: Number
    node: int


class Excess(NamedTuple):
    """Antichains of which S asks more than the drafts give, and a W that the drafts can give."""

    antichains: list[list[int]]
    reachable: list[Number]
    """W(y) ≥ 0 with W(y) ≥ Σ_z W(yz) and W(U) ≤ g(U); close to S where S asks little too much."""


def hit_probability(reach: Any, k: int) -> Any:
    """1 − (1 − reach)^k: accurate in floats, and in fractions without common divisors of powers."""
    values = np.asarray(reach)
    return 1 - (1 - reach) ** k if values.dtype == object else at_least_once(reach, k)


class PathDrafts:
    """k i.i.d. paths through a tree."""

    def __init__(self, tree: Tree, k: int) -> None:
        self.tree, self.k = tree, k
        ends = list(tree.reach)  # paths that end at a node, or leave the tree there
        for y in range(len(ends) - 1, 0, -1):
            ends[tree.parents[y]] -= tree.reach[y]
        zero = 0 * ends[-1]
        self.ends = [max(x, zero) for x in ends]

    def hit(self, nodes: list[int]) -> Number:
        """g(U): the probability that a path goes through one of the nodes of an antichain."""
        reach = total((self.tree.reach[y] for y in nodes), 0 * self.tree.reach[-1])
        hit: Number = hit_probability(min(reach, 0 * reach + 1), self.k)
        return hit

    def excess(self, passed: list[Number]) -> Excess:
        """Antichains with S(U) > g(U), and the W of what is left if the hull is cut off at g."""
        segments, taken_over = hull(self.tree.parents, self.tree.reach, passed)
        nodes = [segment.node for segment in segments]
        widths = np.array([segment.width for segment in segments])
        reach = np.minimum(np.cumsum(widths), widths[0] * 0 + 1)
        asked = np.cumsum(np.array([segment.height for segment in segments]))
        given = hit_probability(reach, self.k)
        antichains = [
            self.tree.topmost(nodes[: j + 1]) for j in _worst(asked - given, given, reach)
        ]
        # the smaller of two concave functions is concave: its slopes are in order
        cut_off = np.minimum(asked, given)
        slopes: list[Any] = [None] * len(passed)
        for j, segment in enumerate(segments):
            slope = segment.slope
            if cut_off[j] < asked[j] or (j and cut_off[j - 1] < asked[j - 1]):
                # of a short segment far out the difference has no digits left in floats
                steepest = self.k * (1 - (reach[j - 1] if j else 0)) ** (self.k - 1)
                rise = (cut_off[j] - (cut_off[j - 1] if j else 0)) / widths[j]
                slope = min(rise, max(slope, steepest))
            slopes[segment.node] = slope
        for y in range(1, len(passed)):
            if slopes[y] is None:
                slopes[y] = slopes[taken_over[y]] if taken_over[y] else 0
        slopes[0] = 0
        shares = [end * slope for end, slope in zip(self.ends, slopes, strict=True)]
        return Excess(antichains, self.tree.under(shares))


def hull(
    parents: list[int], reach: list[Number], passed: list[Number]
) -> tuple[list[Segment], list[int]]:
    """Upper hull of the points (D(U), S(U)), and the node that took each segment over, or 0."""
    below: list[list[Segment]] = [[] for _ in parents]
    taken_over = [0] * len(parents)
    for y in range(len(parents) - 1, 0, -1):
        segments = below[y]
        below[y] = []
        segments.sort(reverse=True)  # which merges the sorted lists of the children
        width = reach[y] - total(segment.width for segment in segments)
        height = passed[y] - total(segment.height for segment in segments)
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


def _worst(excess: Any, given: Any, reach: Any) -> list[int]:
    """Corners with the largest excess, one for each stretch of D."""
    exact = excess.dtype == object
    violated = np.flatnonzero(excess > (0 if exact else TOLERANCE * given))
    if not violated.size:
        return []
    excess, reach = (x[violated].astype(np.float64) for x in (excess, reach))
    stretch = np.floor(np.log(np.maximum(reach, RAREST)) * SPREAD)
    order = np.lexsort((-excess, stretch))
    first = np.append(True, np.diff(stretch[order]) > 0)
    found: list[int] = violated[order[first]].tolist()
    return found
