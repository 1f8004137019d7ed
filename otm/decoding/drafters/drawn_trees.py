"""Best-first trees whose nodes have certain children and at most one drawn child."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs
from otm._core.numbers import as_real
from otm._core.probs.sampling import locate
from otm._core.probs.sparse import SparseProbs
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
            later = depths[b] - len(nodes[0].path) - 1
            level = Level.of(
                [row.probabilities for row in rows], above, self.weight, left[b], later
            )
            certain, draws = level.children(level.threshold(left[b], later))
            for i in np.argsort(-above, kind="stable").tolist():
                count = min(certain[i], left[b])
                is_drawn = bool(draws[i]) and count < left[b]
                if count + is_drawn:
                    add_children(nodes[i], rows[i], level.ranks[i][:count], is_drawn, uniforms[b])
                    left[b] -= len(nodes[i].children)
                    of_children = [*level.certain[i, :count], level.drawn[i, count]]
                    beliefs.update(zip(map(id, nodes[i].children), of_children, strict=False))
            return [child for node in nodes for child in node.children]

        return grow_by_levels(self._reader, contexts, depths, parents, expand)


def add_children(
    node: DraftNode,
    probs: SparseProbs,
    certain: npt.NDArray[np.int64],
    is_drawn: bool,
    uniforms: Randomness,
) -> None:
    """Add certain children at these positions, and draw another from the other tokens.

    Equivalent to `DraftNode.draw_children` of the kind "Greedy" or "Top", but does not rank the
    tokens again.
    """
    tokens = probs.tokens[certain].tolist()
    if is_drawn:
        others = probs.probabilities.copy()
        others[certain] *= 0
        tokens.append(locate(probs.tokens, others, uniforms(1)[0]))
    node.draft_probs, node.draft_kind = (probs, "Greedy") if is_drawn else (None, "Top")
    node.children = [DraftNode((*node.path, token)) for token in tokens]


class Level:
    """The beliefs of all possible children of the nodes of one level.

    `certain[i, j]` is the belief of the j-th most probable token after node i, `ranks[i]` has the
    positions of these tokens, and `drawn[i, a]` is the belief of a child drawn beside a certain
    children.  Tokens that no threshold admits have the belief 0.
    """

    def __init__(
        self, certain: Floats, drawn: Floats, ranks: Sequence[npt.NDArray[np.int64]]
    ) -> None:
        self.certain, self.drawn, self.ranks = certain, drawn, ranks
        self._sums = np.cumsum(np.pad(certain, ((0, 0), (1, 0))), axis=1)
        self._nodes = np.arange(len(certain))

    @classmethod
    def of(cls, rows: Sequence[Any], above: Floats, weight: float, most: int, later: int) -> Level:
        """Return the beliefs below nodes with the beliefs `above`, for at most `most` children.

        Below this level, there are `later` more levels.
        """
        top, ranks = np.zeros((len(rows), most)), []
        # A factor covers rounding in the comparison with probabilities.
        least = _least_threshold(float(above.max()), most, later) / (above * weight) * (1 - 1e-9)
        for row, of_row, enough in zip(rows, top, least.tolist(), strict=True):
            ranks.append(ranked_above(row, enough, most))
            of_row[: ranks[-1].size] = row[ranks[-1]].astype(np.float64)
        rest = 1 - np.cumsum(np.pad(top, ((0, 0), (1, 0))), axis=1)
        rest[rest < LEAST_REST] = 0
        return cls(above[:, None] * weight * top, above[:, None] * rest, ranks)

    def children(self, threshold: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return each node's number of certain children, and whether it draws another."""
        certain = np.count_nonzero(self.certain >= threshold, axis=1)
        return certain, self.drawn[self._nodes, certain] >= threshold

    def threshold(self, budget: int, later: int) -> float:
        """Return the threshold at which the tree fits into the budget, with `later` more levels."""
        # A child that is drawn beside no other child has the belief of its parent.
        high = float(self.drawn[:, 0].max())
        low = _least_threshold(high, budget, later)
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


def _least_threshold(best: float, budget: int, later: int) -> float:
    """Return a lower bound on thresholds; `best` is the largest belief of a child."""
    return best / (budget * (1 + later))


def ranked_above(probs: Probs, least: float, most: int) -> npt.NDArray[np.int64]:
    """Return the positions of at most `most` probabilities of at least `least`, descending.

    The values that are large enough are few, so most of a vocabulary is read only once.
    """
    places = np.flatnonzero(probs >= least)
    ranked: npt.NDArray[np.int64] = places[most_probable(probs[places], most)]
    return ranked
