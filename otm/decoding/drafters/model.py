"""Drafters that sample chains or a prefix tree from a language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from otm._core.numbers import check_name
from otm._core.probs.sparse import SparseProbs
from otm._core.rule import DRAFT_KINDS
from otm.decoding.checks import check_processor
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.base import (
    Branching,
    Drafter,
    Draw,
    as_branching,
    children_at,
    grow_by_levels,
)
from otm.decoding.reading import Context, LogitsProcessor, ProbsAfter, Reader
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidInputError
from otm.models.base import LanguageModel


class ReadingDrafter(Drafter):
    """A drafter that reads one model; vocabulary and context length are those of the model."""

    def __init__(
        self,
        model: LanguageModel,
        sampling: SamplingParameters | None,
        logits_processor: LogitsProcessor | None,
    ) -> None:
        kind, processor = type(model), logits_processor
        if not issubclass(kind, LanguageModel):
            raise InvalidInputError(
                f"the draft model is a {kind.__name__}; give a LanguageModel, such as "
                "HuggingFaceModel(model)"
            )
        check_processor(processor)
        self.vocabulary = model.vocabulary
        self.context_length = model.context_length
        self.model = model
        self.sampling, self.processor = sampling, processor
        self._reader = Reader(model, sampling, processor)

    @property
    def seconds(self) -> float:
        """Seconds spent in the model so far."""
        return self._reader.seconds


class ModelDrafter(ReadingDrafter):
    """Drafts that a language model samples token by token.

    The model reads equal paths only once.

    Parameters
    ----------
    model : LanguageModel
        The draft model.
    branching : int or tuple of int, optional
        K for K independent chains, or the numbers of children (k_1, …, k_L) at the levels of a
        prefix tree, which then has at most L levels ([sun2023]_, Algorithm 4).
    sampling : SamplingParameters, optional
        How to sample from the model; may differ from the target's parameters.
    logits_processor : LogitsProcessor, optional
        Adjusts the model's scores before sampling; may differ from the target's processor.
    draft_kind : {"IID", "WithoutReplacement", "Greedy", "Top"}, optional
        Joint distribution of the children of a node: the name of a class of `otm.drafts`.  The rule
        that verifies the drafts needs a certain kind (`otm.rules.Rule.drafts`).

    Raises
    ------
    InvalidInputError
        If `model` is not a LanguageModel.
    InvalidDraftCountError
        If a number of chains or children is not an integer of at least 1.
    UnknownMethodError
        If there is no such kind of drafts.
    InvalidParameterError
        If a prefix tree has no level, or the processor is not a function.
    ProblemTooLargeError
        If the tree has more than 2^16 paths.

    Notes
    -----
    Algorithm 4 of the paper samples from the large model, by a misprint.  The text around Algorithm
    4 and the method itself require the small model.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr", NeurIPS 2023, section 7 and appendix D.

    Examples
    --------
    >>> import numpy as np
    >>> from otm.models import TableModel
    >>> drafter = ModelDrafter(TableModel({(): [0.5, 0.5]}), branching=(2, 1))
    >>> [root] = drafter.draft([(0,)], [2], None, [np.random.default_rng(0).random])
    >>> root.repeated_leaf_paths()
    [(1, 0), (0, 0)]
    """

    def __init__(
        self,
        model: LanguageModel,
        branching: Branching = 1,
        sampling: SamplingParameters | None = None,
        logits_processor: LogitsProcessor | None = None,
        draft_kind: str = "IID",
    ) -> None:
        self.draft_kind = check_name("kind of drafts", draft_kind, DRAFT_KINDS)
        self.branching = as_branching(branching)
        super().__init__(model, sampling, logits_processor)

    def draft(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft a tree for every sequence of a batch, level by level."""

        def draw(
            b: int, chain: int | None, node: DraftNode, probs: SparseProbs, count: int
        ) -> None:
            node.draw_children(probs, count, uniforms[b], self.draft_kind)

        return self.draft_with(draw, contexts, depths, parents, uniforms)

    def draft_with(
        self,
        draw: Draw,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft a tree for every sequence; the function `draw` draws the children."""

        def expand(b: int, nodes: list[DraftNode], probs: ProbsAfter) -> list[DraftNode]:
            for place, node in enumerate(nodes):
                count = children_at(self.branching, len(node.path))
                chain = place if node.path and isinstance(self.branching, int) else None
                draw(b, chain, node, probs(b, node.path), count)
            return [child for node in nodes for child in node.children]

        levels = len(self.branching) if isinstance(self.branching, tuple) else max(depths)
        limits = [min(depth, levels) for depth in depths]
        return grow_by_levels(self._reader, contexts, limits, parents, expand)

    @property
    def suits_device(self) -> bool:
        """Whether the drafts are on the device of the model."""
        return self.model.device is not None and draws_chains(self)


def samples_one_chain(drafter: Drafter | None) -> TypeGuard[ModelDrafter]:
    """Return whether a drafter samples one chain from the distributions of a model."""
    if not isinstance(drafter, ModelDrafter):
        return False
    return drafter.branching == 1 and drafter.draft_kind != "Top"


def draws_chains(drafter: Drafter | None) -> TypeGuard[ModelDrafter]:
    """Return whether a drafter is a `ModelDrafter`, not a subclass, of independent chains."""
    if type(drafter) is not ModelDrafter:
        return False
    return isinstance(drafter.branching, int) and drafter.draft_kind == "IID"


def draws_prefix_trees(drafter: Drafter | None) -> TypeGuard[ModelDrafter]:
    """Return whether a drafter is a `ModelDrafter`, not a subclass, of independent prefix trees."""
    if type(drafter) is not ModelDrafter:
        return False
    return isinstance(drafter.branching, tuple) and drafter.draft_kind == "IID"
