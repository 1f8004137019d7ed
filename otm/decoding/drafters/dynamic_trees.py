"""Sampled trees that grow where the drafts so far leave most to be accepted."""

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
    """Draw siblings without replacement, as many as their own tokens make worth while (DySpec).

    A node of probability D(v) under the draft model gets another child as long as D(v), times the
    probability of all tokens that are not among its children yet, is at least a threshold: where
    the draft model is sure one child is enough.  "Recursive rejection without replacement" is
    lossless for it, as a child is drawn whatever it will be, and those before it are rejected
    before it is looked at (Theorem 18.5 of docs/theory/trees.md).  No other rule is.

    Parameters
    ----------
    model : LanguageModel
        The draft model.
    nodes : int, optional
        Most drafts of a tree.
    threshold : number, optional
        Least probability of what another draft is for, above 0 and at most 1; 2/nodes if left out,
        for which about as many are drafted, and deeper than with less.
    sampling : SamplingParameters, optional
        How to sample from the model; need not be that of the target.
    logits_processor : LogitsProcessor, optional
        Adjusts the model's scores before they are sampled from.

    Raises
    ------
    InvalidParameterError
        If a number is outside its range.
    ProblemTooLargeError
        If there would be more than 4,096 nodes.

    Notes
    -----
    [xiong2024]_ expand the largest estimate first, or, as here, all above a threshold, a level at a
    time.

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
        """Draft for every sequence of a batch, level by level, with a uniform for each draft."""
        left = [self.nodes] * len(contexts)
        reached: dict[int, Number] = {}  # the probability of a node, by identity

        def expand(b: int, nodes: list[DraftNode], probs: ProbsAfter) -> list[DraftNode]:
            growing = []
            for node in nodes:
                draft_probs = probs(b, node.path)
                above = reached.get(id(node), 1 + 0 * draft_probs.probabilities.item(0))
                node.draft_probs, node.draft_kind = draft_probs, "WithoutReplacement"
                rest = draft_probs.probabilities.copy()
                while left[b] and above * (unseen := rest.sum()) >= self.threshold:
                    token = locate(draft_probs.tokens, rest, uniforms[b](1)[0])
                    i = int(np.searchsorted(draft_probs.tokens, token))
                    child = DraftNode((*node.path, token))
                    node.children.append(child)
                    left[b] -= 1
                    reached[id(child)] = above * rest.item(i)
                    rest[i] = 0 * unseen
                    if reached[id(child)] >= self.threshold:
                        growing.append(child)
            return growing

        return grow_by_levels(self._reader, contexts, depths, parents, expand)
