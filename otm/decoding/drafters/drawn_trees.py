"""Best-first trees whose nodes have certain children and at most one drawn child."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.numbers import as_real
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.base import grow_by_levels
from otm.decoding.drafters.model import ReadingDrafter
from otm.decoding.drafters.trees import as_nodes
from otm.decoding.reading import Context, LogitsProcessor, ProbsAfter
from otm.decoding.sampling_parameters import SamplingParameters
from otm.drafts.top import most_probable
from otm.models.base import LanguageModel

Floats = npt.NDArray[np.float64]

STEPS = 16
"""Number of halvings of the interval of a threshold, on a logarithmic scale."""

LEAST_REST = 2.0**-40
"""Least probability of the tokens that are not certain, for a draw; rounding leaves about 2^−52."""


class DrawnTreeDrafter(ReadingDrafter):
    """Draft trees of likely tokens in which a node may also draw one child.

    Each node gets some of its most probable tokens as children, and at most one child that is drawn
    from the other tokens.  `verify_walk_and_keep` verifies such trees as whole paths.  On the
    shipped models, its steps have more tokens than steps with the most probable paths alone
    (`BestFirstDrafter`).

    The tree grows level by level.  The *belief* of a node estimates how often the output passes it:
    1 at the root; the parent's belief times the draft probability of all tokens that are not
    certain, for a drawn child; the parent's belief times the child's draft probability times
    `weight`, for a certain child.  At each level, all children with a belief above a threshold are
    drafted.  The threshold is the smallest for which the drafts of this level, and those expected
    below them, fit into the budget.

    Parameters
    ----------
    model : LanguageModel
        The draft model.
    nodes : int, optional
        The budget: maximum number of drafts of a tree, which the target scores at once.
    weight : number, optional
        Weight of a certain child in comparison with a drawn child, above 0 and at most 1.  A small
        weight gives more drawn children and deeper trees.
    sampling : SamplingParameters, optional
        How the model's scores become probabilities.
    logits_processor : LogitsProcessor, optional
        Adjusts the model's scores before `sampling` applies.

    Raises
    ------
    InvalidParameterError
        If a number is outside its range.
    ProblemTooLargeError
        If the budget exceeds 4,096 nodes.

    Notes
    -----
    The number of certain children of a node, and whether it draws another, are decided before any
    node of its level draws.  So walk and keep is lossless (Theorem 23.5 of
    docs/theory/certain-and-drawn.md).  Each level needs one call of the model.

    References
    ----------
    A method of this project.

    Examples
    --------
    >>> import numpy as np
    >>> from otm.models import TableModel
    >>> drafter = DrawnTreeDrafter(TableModel({(): [0.75, 0.125, 0.125]}), nodes=4)
    >>> [root] = drafter.draft([(0,)], [2], None, [lambda m: np.full(m, 0.75)])
    >>> [node.path for node in root.nodes()]  # (0,) is certain, (2,) is drawn
    [(), (0,), (0, 1), (2,), (2, 1)]
    """

    def __init__(
        self,
        model: LanguageModel,
        nodes: int = 32,
        weight: float = 0.6,
        sampling: SamplingParameters | None = None,
        logits_processor: LogitsProcessor | None = None,
    ) -> None:
        self.nodes = as_nodes(nodes)
        self.weight = as_real(weight, "weight", above=0, most=1)
        super().__init__(model, sampling, logits_processor)

    def draft(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft a tree for every sequence of a batch, level by level; a draw uses one uniform."""
        left = [self.nodes] * len(contexts)
        beliefs: dict[int, float] = {}  # by the identity of the node

        def expand(b: int, nodes: list[DraftNode], probs: ProbsAfter) -> list[DraftNode]:
            if not (nodes and left[b]):
                return []
            rows = [probs(b, node.path) for node in nodes]
            above = np.array([beliefs.get(id(node), 1.0) for node in nodes])
            level = Level.of([row.probabilities for row in rows], above, self.weight, left[b])
            later = depths[b] - len(nodes[0].path) - 1
            certain, draws = level.children(level.threshold(left[b], later))
            for i in np.argsort(-above, kind="stable").tolist():
                count = min(certain[i], left[b])
                is_drawn = bool(draws[i]) and count < left[b]
                if count + is_drawn:
                    node, kind = nodes[i], "Greedy" if is_drawn else "Top"
                    node.draw_children(rows[i], count + is_drawn, uniforms[b], kind)
                    left[b] -= len(node.children)
                    of_children = [*level.certain[i, :count], level.drawn[i, count]]
                    beliefs.update(zip(map(id, node.children), of_children, strict=False))
            return [child for node in nodes for child in node.children]

        return grow_by_levels(self._reader, contexts, depths, parents, expand)


class Level:
    """The beliefs of all possible children of the nodes of one level.

    `certain[i, j]` is the belief of the j-th most probable token after node i, and `drawn[i, a]`
    that of a child drawn beside a certain children.
    """

    def __init__(self, certain: Floats, drawn: Floats) -> None:
        self.certain, self.drawn = certain, drawn
        self._sums = np.cumsum(np.pad(certain, ((0, 0), (1, 0))), axis=1)
        self._nodes = np.arange(len(certain))

    @classmethod
    def of(cls, rows: Sequence[Any], above: Floats, weight: float, most: int) -> Level:
        """Return the beliefs below nodes with the beliefs `above`, for at most `most` children."""
        top = np.zeros((len(rows), most))
        for row, of_row in zip(rows, top, strict=True):
            best = row[most_probable(row, most)].astype(np.float64)
            of_row[: best.size] = best
        rest = 1 - np.cumsum(np.pad(top, ((0, 0), (1, 0))), axis=1)
        rest[rest < LEAST_REST] = 0
        return cls(above[:, None] * weight * top, above[:, None] * rest)

    def children(self, threshold: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return each node's number of certain children, and whether it draws another."""
        certain = np.count_nonzero(self.certain >= threshold, axis=1)
        return certain, self.drawn[self._nodes, certain] >= threshold

    def threshold(self, budget: int, later: int) -> float:
        """Return the threshold at which the tree fits into the budget, with `later` more levels."""
        best = float(max(self.certain.max(), self.drawn[:, 0].max()))
        low, high = best / (budget * (1 + later)), best
        for _ in range(STEPS):
            middle = (low * high) ** 0.5
            if self._size(middle, later) > budget:
                low = middle
            else:
                high = middle
        return high

    def _size(self, threshold: float, later: int) -> float:
        """Return the number of children above a threshold and of nodes expected below them.

        A path goes on until its belief falls to the threshold, or to the last level: on the shipped
        models about `later`/2 nodes follow for each multiple of the threshold.
        """
        certain, draws = self.children(threshold)
        beliefs = self._sums[self._nodes, certain] + draws * self.drawn[self._nodes, certain]
        return float((certain + draws + later / (2 * threshold) * beliefs).sum())
