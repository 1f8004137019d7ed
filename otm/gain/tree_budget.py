"""Choose the draft tree for a budget of nodes.

References
----------
.. [chen2024] Chen et al., "Sequoia: Scalable, Robust, and Hardware-aware Speculative Decoding",
   NeurIPS 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.checks import as_draft_count
from otm._core.display.reprs import ShortRepr
from otm._core.display.text import shown
from otm._core.numbers import as_positive
from otm._core.probs.sparse import SparseProbs
from otm.decoding.drafters.trees import Shape
from otm.drafts.top import most_probable
from otm.errors import InvalidInputError, ProblemTooLargeError
from otm.gain.compared_drafts import as_recording
from otm.gain.recording import Recording

MOST_RANKS = 2**20
"""Largest number of ranks, above that of any vocabulary in use."""

MAX_WORK = 2**28
"""Largest number of steps of the dynamic program, which take about one second."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PlannedTree(ShortRepr):
    """A tree shape and its expected number of accepted drafts.

    Attributes
    ----------
    shape : tuple of tuples
        The shape, as `StaticTreeDrafter` takes it.
    accepted : float
        Mean number of accepted drafts; a step outputs one token more than it accepts.

    Examples
    --------
    >>> best_tree([0.5, 0.25], nodes=2).accepted
    0.75
    """

    shape: Shape
    accepted: float


def best_tree(hits: npt.ArrayLike, nodes: int, depth: int | None = None) -> PlannedTree:
    """Find the tree shape of at most N nodes with the most accepted drafts on average.

    The method is Sequoia's dynamic program ([chen2024]_), which assumes that the probability of
    accepting the i-th child of a node depends only on i, or only on i and the level.

    Parameters
    ----------
    hits : array-like [k] or [L, k]
        Probability that the output continues from a node to its i-th child: one row for all nodes,
        or one row per level. `rank_hits` measures these probabilities for the most probable tokens.
        For drafts that a rule verifies, the probability is the acceptance with i drafts minus the
        acceptance with i − 1 drafts.
    nodes : int
        The budget N.
    depth : int, optional
        Largest number of levels; by default L for hits [L, k], and N for hits [k].

    Returns
    -------
    PlannedTree
        The shape, and its mean number of accepted drafts if `hits` are the acceptance
        probabilities.

    Raises
    ------
    InvalidInputError
        If `hits` are not probabilities, or the probabilities of one node sum to more than one.
    InvalidParameterError
        If a number is not an integer of at least 1.
    ProblemTooLargeError
        If the program would take more than a few seconds.

    Notes
    -----
    Suppose that the hits fall with i and are the same at all levels. Then the best tree has the N
    nodes with the largest products of hits along their paths (Theorem 18.4 of
    docs/theory/trees.md).

    References
    ----------
    .. [chen2024] Chen et al., "Sequoia: Scalable, Robust, and Hardware-aware Speculative
       Decoding", NeurIPS 2024.

    Examples
    --------
    >>> best_tree([0.6, 0.2], nodes=4)
    PlannedTree(shape=((((),),), ()), accepted=1.376)
    """
    budget = as_positive(nodes, "nodes")
    rows = rows_of_levels(as_hits(hits), budget, depth)[:, :budget]
    return plan_trees(rows, budget)(budget)


def plan_trees(rows: Floats, budget: int) -> Callable[[int], PlannedTree]:
    """Run the dynamic program once; return the best tree as a function of up to `budget` nodes.

    `rows` [levels, k] has the hits of each level.
    """
    check_work(len(rows), rows.shape[1], budget)
    below = np.zeros(budget + 1)
    levels: list[npt.NDArray[np.int64]] = []
    for row in rows[::-1]:
        below, spent = _best_children(row, below)
        levels.append(spent)
    return lambda nodes: PlannedTree(_shape(levels[::-1], nodes), below.item(nodes))


def first_rows(recordings: Sequence[Recording]) -> Iterator[tuple[SparseProbs, SparseProbs]]:
    """Yield the distributions of draft and target after each context; raise if one is missing."""
    if not recordings:
        raise InvalidInputError("there are no recordings; make some with `record`")
    if not isinstance(recordings, Sequence):
        raise InvalidInputError(
            f"the recordings are a {type(recordings).__name__}; give a list of recordings from "
            "`record`"
        )
    for recording in map(as_recording, recordings):
        draft = recording.tree.draft_probs
        if draft is None:
            raise InvalidInputError(
                f"the recording after {shown(recording.context)} has no draft distribution; record "
                "drafts of a `ModelDrafter`"
            )
        yield draft, recording.target[()]


def rank_hits(recordings: Sequence[Recording], k: int) -> Floats:
    """Measure how often the target's next token is the draft model's i-th most probable token.

    Parameters
    ----------
    recordings : sequence of Recording
        Recordings from `otm.gain.record`, with at least one draft of a `ModelDrafter`.
    k : int
        Number of ranks i.

    Returns
    -------
    float64 array [k]
        The mean over the contexts, for `best_tree`. The mean is computed exactly from the
        distributions.

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
    >>> rank_hits(record(target, ModelDrafter(draft), [[[0]]], 1, seed=0), 2)
    array([0.25, 0.75])
    """
    hits = np.zeros(as_rank_count(k))
    for draft, target in first_rows(recordings):
        for place, i in enumerate(most_probable(draft.probabilities, hits.size).tolist()):
            hits[place] += float(target.of(draft.tokens.item(i)))
    return hits / len(recordings)


def as_rank_count(k: Any) -> int:
    """Return the number of ranks; raise if it needs too much memory."""
    count = as_draft_count(k)
    if count > MOST_RANKS:
        raise ProblemTooLargeError(
            f"k = {count:,} ranks, more than the tokens of any model; give at most {MOST_RANKS:,}"
        )
    return count


def as_hits(hits: Any, *, of_one_child: bool = False) -> Floats:
    """Check the probabilities of a node's children: [k] or [L, k].

    With `of_one_child`, a node has only one of the children.
    """
    try:
        rows = np.array(hits, dtype=np.float64)
    except (TypeError, ValueError):
        rows = np.empty(())
    valid = rows.ndim in {1, 2} and rows.size and (rows >= 0).all()
    sums = rows.max(axis=-1) if valid and of_one_child else rows.sum(axis=-1) if valid else rows
    if not valid or (sums > 1 + 1e-9).any():
        name, what = (
            ("drawn", "to the drawn child of a node with 0, 1, … certain children")
            if of_one_child
            else ("hits", "to each child of a node")
        )
        limit = "and at most 1" if of_one_child else "with a sum of at most 1"
        raise InvalidInputError(
            f"{name} = {shown(hits)}; give the probability that the output continues {what}, for "
            f"all nodes [k] or per level [L, k]: at least 0, {limit}"
        )
    return rows


def rows_of_levels(rows: Floats, budget: int, depth: int | None) -> Floats:
    """Return one row per level: [k] or [L, k] → [levels, k]."""
    if rows.ndim == 1:
        most = budget if depth is None else min(as_positive(depth, "depth"), budget)
        return np.tile(rows, (most, 1))
    return rows if depth is None else rows[: as_positive(depth, "depth")]


def check_work(levels: int, children: int, budget: int) -> None:
    """Raise if the dynamic program would take more than a few seconds."""
    work = levels * children * (budget + 1) ** 2
    if work > MAX_WORK:
        raise ProblemTooLargeError(
            f"{budget:,} nodes on {levels:,} levels with {children:,} children need "
            f"{work:.2g} steps, more than {MAX_WORK:.2g}; give fewer nodes, a depth or fewer hits"
        )


def _best_children(hits: Floats, below: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the best value of n nodes below a node, and the nodes spent on each child: [k, N + 1].

    `below` has the best values of n nodes below a child.
    """
    k, most = hits.size, below.size
    # n: nodes to spend; m: nodes spent on one child, including the child itself
    n, m = np.ogrid[:most, 1:most]
    rest, possible = np.maximum(n - m, 0), m <= n
    # the values without the children that come later
    value, spent = np.zeros(most), np.zeros((k, most), dtype=np.int64)
    for i in reversed(range(k)):
        values = np.where(possible, hits[i] * (1 + below[:-1]) + value[rest], 0.0)
        best = values.max(axis=1)
        spent[i] = np.where(best > 0, values.argmax(axis=1) + 1, 0)
        value = best
    return value, spent


def _shape(levels: Sequence[npt.NDArray[np.int64]], nodes: int) -> Shape:
    """Build the shape from tables of the nodes spent on each child's subtree."""
    children: list[Shape] = []
    for spent in levels[0] if levels else ():
        taken = spent.item(nodes)
        if not taken:
            break
        children.append(_shape(levels[1:], taken - 1))
        nodes -= taken
    return tuple(children)
