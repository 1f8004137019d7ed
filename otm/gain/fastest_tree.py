"""Choose the draft tree that makes decoding fastest: nodes that gain more than they cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy.typing as npt

from otm._core.numbers import as_positive
from otm.decoding.drafters.trees import Shape
from otm.errors import InvalidInputError
from otm.gain.latency import Latency, as_latency
from otm.gain.tree_budget import PlannedTree, as_hits, plan_trees, rows_of_levels


@dataclass(frozen=True, eq=False)
class FastestTree(PlannedTree):
    """A tree shape with its speed; the shape is () if decoding without drafts is fastest.

    Attributes
    ----------
    shape : tuple of tuples
        The shape, as `StaticTreeDrafter` takes it.
    accepted : float
        Mean number of accepted drafts; a step outputs one token more than it accepts.
    speedup : float
        Speed relative to decoding without drafts.

    Examples
    --------
    >>> fastest_tree([0.5, 0.25], Latency.constant(0.0), nodes=2).accepted
    0.75
    """

    speedup: float


def fastest_tree(
    hits: npt.ArrayLike,
    latency: Latency,
    *,
    requests: int = 1,
    nodes: int = 32,
    depth: int | None = None,
) -> FastestTree:
    """Find the tree shape with the highest speed, for a number of requests in flight.

    A node is worth its cost if the accepted drafts that it adds outweigh the time that the target
    needs to read it, and the draft model to draft it.  With more requests in flight a node costs
    more, so the best tree is smaller, and drafts may not pay at all.

    Parameters
    ----------
    hits : array-like [k] or [L, k]
        Probability that the output continues from a node to its i-th child, as for `best_tree`.
    latency : Latency
        Times of both models, as from `measure_latency` with the same `requests`.
    requests : int, optional
        Number of requests that the server decodes together.
    nodes : int, optional
        Largest number of nodes N of a tree.
    depth : int, optional
        Largest number of levels, as for `best_tree`.

    Returns
    -------
    FastestTree
        The shape, its accepted drafts, and its speed.

    Raises
    ------
    InvalidInputError
        If `hits` are not probabilities, or the table has no times for these requests or for a
        single draft.
    InvalidParameterError
        If a number is not an integer of at least 1.
    ProblemTooLargeError
        If the program would take more than a few seconds.

    Notes
    -----
    For each number of levels and of nodes, the function compares the tree with the most accepted
    drafts, so the result is optimal if the draft model's time does not depend on the number of
    rows.  Trees that are larger or wider than the times in the table are left out.

    Examples
    --------
    With eight requests the target needs twice as much time for nine tokens as for one:

    >>> latency = Latency((1, 8), (1, 9), (0.05, 0.05), ((1.0, 1.0), (1.1, 2.0)))
    >>> one, eight = (fastest_tree([0.6, 0.2], latency, requests=b, nodes=8) for b in (1, 8))
    >>> one.shape, round(one.speedup, 2)
    (((((),), ((),)), (((),),)), 2.21)
    >>> eight.shape, round(eight.speedup, 2)
    ((((),),), 1.45)
    """
    loaded = as_latency(latency).under_load(requests)
    most = min(as_positive(nodes, "nodes"), loaded.tokens[-1] - 1)
    if most < 1:
        raise InvalidInputError(
            "the table has only times for one token; measure a number of drafts γ of at least 1"
        )
    found = FastestTree((), 0.0, 1.0)
    rows = rows_of_levels(as_hits(hits), most, depth)[:, :most]
    for levels in range(1, len(rows) + 1):
        tree_of = plan_trees(rows[:levels], most)
        for tree in map(tree_of, range(levels, most + 1)):
            widths = widths_of(tree.shape)
            if max([1, *widths[:-1]]) * loaded.prepared <= loaded.rows[-1]:
                found = max(found, _with_speed(tree, widths, loaded), key=lambda each: each.speedup)
    return found


def widths_of(shape: Shape) -> list[int]:
    """Return the number of nodes of each level of a shape, from the root's children on."""
    counts: Counter[int] = Counter()
    waiting = [(child, 0) for child in shape]
    while waiting:
        node, level = waiting.pop()
        counts[level] += 1
        waiting += [(child, level + 1) for child in node]
    return [counts[level] for level in range(len(counts))]


def _with_speed(tree: PlannedTree, widths: list[int], latency: Latency) -> FastestTree:
    plain = latency.autoregressive_time + latency.autoregressive_overhead
    speed = (1 + tree.accepted) * plain / latency.tree_time(widths)
    return FastestTree(tree.shape, tree.accepted, speed)
