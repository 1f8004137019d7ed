"""What proposes drafts: the protocol of drafters, and language models that draft."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias, TypeGuard

from otm._core.checks import as_draft_count
from otm._core.numbers import check_name
from otm._core.sparse import SparseProbs
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.reading import Context, LogitsProcessor, Path, ProbsAfter, Reader
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidParameterError, ProblemTooLargeError
from otm.models.base import LanguageModel
from otm.rules import TREE_DRAFTS

Draw: TypeAlias = "Callable[[int, int, DraftNode, SparseProbs, int], None]"
"""Gives children to a node: of sequence b, at a place of its level, from probs, so many."""

Expand: TypeAlias = "Callable[[int, list[DraftNode], ProbsAfter], list[DraftNode]]"
"""Gives children to nodes of sequence b, from the probs after them; returns what grows on."""

Branching: TypeAlias = int | tuple[int, ...]
"""Either a number K of chains, or for each level the number of children of a node there."""

MAX_PATHS = 2**16
"""Most paths of a tree, far beyond what a target model can read at once."""


class Drafter(ABC):
    """Whatever proposes drafts for sequences, and knows the distributions that it draws from.

    Attributes
    ----------
    vocabulary : int or None
        Number of tokens; None if any will do.
    context_length : int or None
        Most tokens that a context and its drafts may have; None if there is no limit.
    """

    vocabulary: int | None = None
    context_length: int | None = None

    @property
    @abstractmethod
    def seconds(self) -> float:
        """Seconds spent in models so far."""

    @abstractmethod
    def draft(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft for every sequence of a batch.

        Parameters
        ----------
        contexts : sequence of B tuples of int
            All tokens so far, at least one.
        depths : sequence of B int
            Most tokens that a draft may have, at least 0.
        parents : sequence of B int, or None
            The sequence of the call before that each continues; None to begin anew.
        uniforms : sequence of B Randomness
            Where each sequence takes its uniforms from; nothing else decides.

        Returns
        -------
        list of DraftNode
            A tree for each sequence.  The distribution and the number of the children of a node
            must follow from the context, the depth and the node's path, and from nothing that is
            drawn beside or below it.
        """


class ReadingDrafter(Drafter):
    """A drafter that reads one model, whose vocabulary and limit are its own."""

    def __init__(
        self,
        model: LanguageModel,
        sampling: SamplingParameters | None,
        logits_processor: LogitsProcessor | None,
    ) -> None:
        self.vocabulary = model.vocabulary
        self.context_length = model.context_length
        self.model = model
        self._reader = Reader(model, sampling, logits_processor)

    @property
    def seconds(self) -> float:
        """Seconds spent in the model so far."""
        return self._reader.seconds


class ModelDrafter(ReadingDrafter):
    """Drafts of a language model, each drawn after the one before it.

    Equal paths are read once.

    Parameters
    ----------
    model : LanguageModel
        The draft model.
    branching : int or tuple of int, optional
        K for K independent chains, or the numbers of children (k_1, …, k_L) of a prefix tree, which
        then has at most L levels ([sun2023]_, Algorithm 4).
    sampling : SamplingParameters, optional
        How to sample from the model; need not be that of the target.
    logits_processor : LogitsProcessor, optional
        Adjusts the model's scores before they are sampled from; need not be that of the target.
    law : {"IID", "WithoutReplacement", "Greedy", "Top"}, optional
        How the children of a node are drawn together, as by the class of `otm.drafts`: what the
        rule that verifies needs (`otm.rules.Rule.drafts`).

    Raises
    ------
    InvalidDraftCountError
        If a number of chains or children is not an integer of at least 1.
    UnknownMethodError
        If there is no such law.
    InvalidParameterError
        If a prefix tree has no level.
    ProblemTooLargeError
        If the branching has more than 2^16 paths.

    Notes
    -----
    Algorithm 4 as printed samples from the large model; the text around it and the method mean the
    small one.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr", NeurIPS 2023, section 7 and appendix D.

    Examples
    --------
    >>> import numpy as np
    >>> from otm.models import TableModel
    >>> drafter = ModelDrafter(TableModel({(): [0.5, 0.5]}), branching=(2, 1))
    >>> [root] = drafter.draft([(0,)], [2], None, [np.random.default_rng(0).random])
    >>> root.drawn_paths()
    [(1, 0), (0, 0)]
    """

    def __init__(
        self,
        model: LanguageModel,
        branching: Branching = 1,
        sampling: SamplingParameters | None = None,
        logits_processor: LogitsProcessor | None = None,
        law: str = "IID",
    ) -> None:
        self.law = check_name("law of drafts", law, TREE_DRAFTS)
        self.branching = as_branching(branching)
        super().__init__(model, sampling, logits_processor)
        self.sampling, self.processor = sampling, logits_processor

    def draft(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft for every sequence of a batch, level by level."""

        def draw(b: int, place: int, node: DraftNode, probs: SparseProbs, count: int) -> None:
            node.draw_children(probs, count, uniforms[b], self.law)

        return self.grow(contexts, depths, parents, draw)

    def grow(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        draw: Draw,
    ) -> list[DraftNode]:
        """Grow a tree for every sequence, whose children a function draws.

        Parameters
        ----------
        contexts, depths, parents
            As for `draft`.
        draw : callable
            Gives children to a node, from the number of the sequence, the place of the node in its
            level, the node, the distribution and the number of its children.

        Returns
        -------
        list of DraftNode
            A tree for each sequence.
        """

        def expand(b: int, nodes: list[DraftNode], probs: ProbsAfter) -> list[DraftNode]:
            for place, node in enumerate(nodes):
                count = children_at(self.branching, len(node.path))
                draw(b, place, node, probs(b, node.path), count)
            return [child for node in nodes for child in node.children]

        levels = len(self.branching) if isinstance(self.branching, tuple) else max(depths)
        limits = [min(depth, levels) for depth in depths]
        return grow_by_levels(self._reader, contexts, limits, parents, expand)


def samples_one_chain(drafter: Drafter | None) -> TypeGuard[ModelDrafter]:
    """Whether a drafter draws one chain from the distributions of a model."""
    return isinstance(drafter, ModelDrafter) and drafter.branching == 1 and drafter.law != "Top"


def grow_by_levels(
    reader: Reader,
    contexts: Sequence[Context],
    depths: Sequence[int],
    parents: Sequence[int] | None,
    expand: Expand,
) -> list[DraftNode]:
    """Grow trees from their roots; a model reads one level of the whole batch at a time."""
    before = parents

    def read(paths: list[list[Path]]) -> ProbsAfter:
        nonlocal before
        probs = reader.read(contexts, paths, before, whole=False)
        before = range(len(contexts))
        return probs

    return grow_levels(depths, read, expand)


def grow_levels(
    depths: Sequence[int], read: Callable[[list[list[Path]]], ProbsAfter], expand: Expand
) -> list[DraftNode]:
    """Grow trees from their roots, level by level, as deep as each sequence's depth says.

    `read` gives the distributions after the different paths of a level; `expand` gives children to
    the nodes of a level of sequence b, and returns the nodes of the next that are to grow.
    """
    roots = [DraftNode() for _ in depths]
    levels = [[root] for root in roots]
    for depth in range(max(1, *depths)):  # once at least, to follow the batch
        growing = [nodes if depth < d else [] for nodes, d in zip(levels, depths, strict=True)]
        if depth and not any(growing):
            break
        probs = read([list(dict.fromkeys(node.path for node in nodes)) for nodes in growing])
        levels = [expand(b, nodes, probs) for b, nodes in enumerate(growing)]
    return roots


def as_branching(branching: Any) -> Branching:
    """Check a branching, and return its numbers as int; refuse more than `MAX_PATHS` paths."""
    numbers = branching if isinstance(branching, tuple) else (branching,)
    if not numbers:
        raise InvalidParameterError(
            "the branching () has no level; give the number of children at each level, such as "
            "(4, 2, 1), or the number of chains"
        )
    counts = tuple(as_draft_count(number) for number in numbers)
    paths = math.prod(counts)
    if paths > MAX_PATHS:
        raise ProblemTooLargeError(
            f"a tree of {Decimal(paths):.3g} paths of drafts; at most {MAX_PATHS:,} are "
            "allowed, and few models gain from more than a hundred"
        )
    return counts if isinstance(branching, tuple) else counts[0]


def drafts_of_token(branching: Branching) -> int:
    """Return the largest number of drafts of a token."""
    return max(branching) if isinstance(branching, tuple) else branching


def children_at(branching: Branching, level: int) -> int:
    """Return the number of children of a node at a level; 0 below the last one of a prefix tree."""
    if isinstance(branching, int):
        return 1 if level else branching
    return branching[level] if level < len(branching) else 0
