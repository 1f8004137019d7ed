"""Sampled draft trees that grow where another draft is most useful."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from otm._core.arithmetic import Number
from otm._core.numbers import as_parameter
from otm._core.probs.sampling import locate
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.base import grow_by_levels
from otm.decoding.drafters.model import ReadingDrafter
from otm.decoding.drafters.trees import as_nodes
from otm.decoding.reading import Context, LogitsProcessor, ProbsAfter
from otm.decoding.sampling_parameters import SamplingParameters
from otm.models.base import LanguageModel


class DynamicTreeDrafter(ReadingDrafter):
    """Draw siblings without replacement until further siblings are not worthwhile (DySpec).

    D(v) is the probability of the path of a node v under the draft model.  Node v gets another
    child while D(v), times the total probability of tokens that are not its children yet, is at
    least a threshold.  So one child is enough where the draft model is certain.

    Only the rule "recursive rejection without replacement" is lossless for these trees.  The
    decision to draw a child does not depend on its token, and earlier siblings are rejected before
    the rule verifies this child (Theorem 18.5 of docs/theory/trees.md).

    Parameters
    ----------
    model : LanguageModel
        The draft model.
    nodes : int, optional
        Maximum number of drafts of a tree.
    threshold : number, optional
        Smallest probability that justifies another draft, above 0 and at most 1.  The default
        2/nodes uses about the whole budget; a smaller threshold gives shallower trees.
    sampling : SamplingParameters, optional
        How to sample from the model; may differ from the target's parameters.
    logits_processor : LogitsProcessor, optional
        Adjusts the model's scores before sampling.

    Raises
    ------
    InvalidParameterError
        If a number is outside its range.
    ProblemTooLargeError
        If the budget exceeds 4,096 nodes.

    Notes
    -----
    [xiong2024]_ describes two variants: expand the node of largest estimate first, or expand all
    nodes above a threshold, level by level.  This class expands all nodes above a threshold.

    References
    ----------
    .. [xiong2024] Xiong et al., "DySpec: Faster Speculative Decoding with Dynamic Token Tree
       Structure", 2024, section 4.

    Examples
    --------
    >>> from otm.models import TableModel
    >>> model = TableModel({(): [0.75, 0.25], (0,): [1, 0], (1,): [0.5, 0.5]})
    >>> drafter = DynamicTreeDrafter(model, nodes=6, threshold=0.2)
    >>> [root] = drafter.draft([(0, 1)], [2], None, [lambda m: np.full(m, 0.25)])
    >>> [node.path for node in root.nodes()]
    [(), (0,), (0, 0), (1,), (1, 0), (1, 1)]
    """

    def __init__(
        self,
        model: LanguageModel,
        nodes: int = 32,
        threshold: Number | None = None,
        sampling: SamplingParameters | None = None,
        logits_processor: LogitsProcessor | None = None,
    ) -> None:
        self.nodes = as_nodes(nodes)
        least = Fraction(2, max(self.nodes, 2)) if threshold is None else threshold
        self.threshold = as_parameter(least, "threshold", exact=True, above=0, most=1)
        super().__init__(model, sampling, logits_processor)

    def draft(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft a tree for every sequence, level by level; each draft uses one uniform."""
        budgets = [self.nodes] * len(contexts)
        # Path probability of each node, by the identity of the node.
        path_probabilities: dict[int, Number] = {}

        def expand(b: int, nodes: list[DraftNode], probs: ProbsAfter) -> list[DraftNode]:
            growing = []
            for node in nodes:
                draft_probs = probs(b, node.path)
                path_probability = path_probabilities.get(
                    id(node), 1 + 0 * draft_probs.probabilities.item(0)
                )
                node.draft_probs, node.draft_kind = draft_probs, "WithoutReplacement"
                remaining_probs = draft_probs.probabilities.copy()
                while (
                    budgets[b]
                    and path_probability * (remaining_mass := remaining_probs.sum())
                    >= self.threshold
                ):
                    token = locate(draft_probs.tokens, remaining_probs, uniforms[b](1)[0])
                    i = int(np.searchsorted(draft_probs.tokens, token))
                    child = DraftNode((*node.path, token))
                    node.children.append(child)
                    budgets[b] -= 1
                    path_probabilities[id(child)] = path_probability * remaining_probs.item(i)
                    remaining_probs[i] = 0 * remaining_mass
                    if path_probabilities[id(child)] >= self.threshold:
                        growing.append(child)
            return growing

        return grow_by_levels(self._reader, contexts, depths, parents, expand)
