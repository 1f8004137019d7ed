"""Choose a tree of certain and drawn drafts for a budget of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.numbers import as_positive
from otm._core.probs.sparse import places_of
from otm.decoding.drafters.trees import Drawn, Shape
from otm.drafts.top import most_probable
from otm.errors import InvalidInputError
from otm.gain.recording import Recording
from otm.gain.tree_budget import (
    Floats,
    PlannedTree,
    as_hits,
    as_rank_count,
    check_work,
    first_rows,
    rows_of_levels,
)

Counts = npt.NDArray[np.int64]


class Level(NamedTuple):
    """The best children of a node of one level, for each number n of nodes below it."""

    # Number of certain children [N + 1].
    certain: Counts
    # Nodes spent on the drawn child and below it [N + 1]; 0 if no child is drawn.
    drawn: Counts
    # Nodes spent on the a-th of a certain children and below it [k, N + 1].
    last: Counts


def best_drawn_tree(
    hits: npt.ArrayLike, drawn: npt.ArrayLike, nodes: int, depth: int | None = None
) -> PlannedTree:
    """Find the tree of at most N certain and drawn drafts with the most accepted drafts on average.

    The certain children of a node are its most probable tokens.  A node has at most one drawn
    child, sampled from the other tokens; the drawn child comes last.  The method is a dynamic
    program over the number of nodes, as in `best_tree` (Theorem 23.7 of
    docs/theory/certain-and-drawn.md).  The method assumes that the acceptance of a child depends
    only on its rank, the number of its certain siblings, and the level.

    Parameters
    ----------
    hits : array-like [k] or [L, k]
        Probability that the output continues from a node to its i-th certain child, as for
        `best_tree`.
    drawn : array-like [m] or [L, m]
        Probability that the output continues to the drawn child of a node with 0, 1, …, m − 1
        certain children.  `drawn_hits` measures these probabilities.  A node with m or more certain
        children has no drawn child.
    nodes : int
        The budget N.
    depth : int, optional
        Largest number of levels; by default L for two-dimensional arrays, and N otherwise.

    Returns
    -------
    PlannedTree
        The shape for `StaticTreeDrafter` with draft_kind "Greedy", in which `Drawn` marks the drawn
        children, and the mean number of accepted drafts of this tree under SpecTr's recursion with
        the greedy rule.  Walk and keep accepts at least as many.

    Raises
    ------
    InvalidInputError
        If an array has no probabilities, the probabilities of one node sum to more than one, or the
        arrays have different numbers of levels.
    InvalidParameterError
        If a number is not an integer of at least 1.
    ProblemTooLargeError
        If the dynamic program would take more than a few seconds.

    Examples
    --------
    >>> best_drawn_tree([0.5, 0.125], [0.25, 0.375], nodes=3)
    PlannedTree(shape=(((),), Drawn()), accepted=1.125)
    """
    budget = as_positive(nodes, "nodes")
    top, sampled = as_hits(hits), as_hits(drawn, of_one_child=True)
    if top.ndim != sampled.ndim or (top.ndim == 2 and len(top) != len(sampled)):
        raise InvalidInputError(
            f"hits have shape {top.shape} and drawn has shape {sampled.shape}; give both for all "
            "levels, [k] and [m], or both per level, [L, k] and [L, m]"
        )
    top, sampled = rows_of_levels(top, budget, depth), rows_of_levels(sampled, budget, depth)
    check_sums(top, sampled)
    top = top[:, :budget]
    check_work(top.shape[0], 2 * top.shape[1] + 1, budget)
    below = np.zeros(budget + 1)
    levels: list[Level] = []
    for of_rank, of_drawn in zip(top[::-1], sampled[::-1], strict=True):
        below, level = _best_children(of_rank, of_drawn, below)
        levels.append(level)
    return PlannedTree(_shape(levels[::-1], budget), below.item(budget))


def drawn_hits(recordings: Sequence[Recording], k: int) -> Floats:
    """Measure how often the drawn child of a node is accepted, for each number of certain children.

    Parameters
    ----------
    recordings : sequence of Recording
        Recordings from `otm.gain.record`, with at least one draft of a `ModelDrafter`.
    k : int
        Largest number a of certain children.

    Returns
    -------
    float64 array [k + 1]
        For a = 0, …, k: the mean over contexts of Σ min(d', t), where d' is the draft distribution
        without its a most probable tokens, normalised, and t is the target's distribution.  The
        sums are computed exactly from the distributions.

    Raises
    ------
    InvalidInputError
        If there are no recordings, or one recording has no draft distribution.
    InvalidDraftCountError
        If k is not an integer of at least 1.
    ProblemTooLargeError
        If k is above 2^20.

    Examples
    --------
    >>> from otm.decoding import ModelDrafter
    >>> from otm.gain import record
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.25, 0.75]}), TableModel({(): [0.75, 0.25]})
    >>> drawn_hits(record(target, ModelDrafter(draft), [[[0]]], 1, seed=0), 2)
    array([0.5 , 0.75, 0.  ])
    """
    sums = np.zeros(as_rank_count(k) + 1)
    for draft, target in first_rows(recordings):
        of_draft = draft.probabilities.astype(np.float64)
        place, shared = places_of(target.tokens, draft.tokens)
        of_target = np.where(shared, target.probabilities[place].astype(np.float64), 0)
        order = most_probable(of_draft, sums.size)
        for certain in range(min(sums.size, of_draft.size)):
            left = of_draft.sum()
            sums[certain] += np.minimum(of_draft / left, of_target).sum()
            if certain < order.size:
                of_draft[order[certain]] = 0
    return sums / len(recordings)


def check_sums(top: Floats, sampled: Floats) -> None:
    """Raise if the probabilities of the children of a node sum to more than one."""
    before = np.cumsum(np.pad(top, ((0, 0), (1, 0))), axis=1)
    shared = min(before.shape[1], sampled.shape[1])
    sums = before[:, :shared] + sampled[:, :shared]
    if (sums > 1 + 1e-9).any():
        level, certain = np.argwhere(sums > 1 + 1e-9)[0].tolist()
        raise InvalidInputError(
            f"on level {level + 1}, the probabilities of {certain} certain children and a drawn "
            f"child sum to {sums[level, certain]:.6g}; the output continues to at most one of them"
        )


def _best_children(hits: Floats, drawn: Floats, below: Floats) -> tuple[Floats, Level]:
    """Return the best values of n nodes below a node [N + 1], and the children that attain them.

    `below` has the best values of n nodes below a child.
    """
    k, most = hits.size, below.size
    of_certain, best = np.zeros(most), np.zeros(most)
    last = np.zeros((k, most), dtype=np.int64)
    counts, spent = np.zeros(most, dtype=np.int64), np.zeros(most, dtype=np.int64)
    for a in range(k + 1):
        if a:
            # A node of too few nodes has no a-th child.
            of_certain, last[a - 1] = _with_child(of_certain, hits[a - 1], below)
            better = of_certain > best
            best, counts = np.where(better, of_certain, best), np.where(better, a, counts)
            spent = np.where(better, 0, spent)
        if a < drawn.size:
            value, of_drawn = _with_child(of_certain, drawn[a], below)
            better = value > best
            best, counts = np.where(better, value, best), np.where(better, a, counts)
            spent = np.where(better, of_drawn, spent)
    return best, Level(counts, spent, last)


def _with_child(values: Floats, hit: float, below: Floats) -> tuple[Floats, Counts]:
    """Return the best values with one more child, and the nodes spent on it: [N + 1] each."""
    most = below.size
    n, m = np.ogrid[:most, 1:most]
    with_child = np.where(m <= n, hit * (1 + below[:-1]) + values[np.maximum(n - m, 0)], -np.inf)
    return with_child.max(axis=1), with_child.argmax(axis=1) + 1


def _shape(levels: Sequence[Level], nodes: int) -> Shape:
    """Build the shape from the tables of all levels."""
    if not levels:
        return ()
    children: list[Shape] = []
    level, below = levels[0], levels[1:]
    taken = level.drawn.item(nodes)
    drawn = [Drawn(_shape(below, taken - 1))] if taken else []
    left = nodes - taken
    for a in reversed(range(level.certain.item(nodes))):
        taken = level.last[a].item(left)
        children.append(_shape(below, taken - 1))
        left -= taken
    return (*reversed(children), *drawn)
