"""Drafts as trees, and the models that draft them.

A node is a token after the tokens above it, and knows the distribution of its children.
K chains are a tree that branches at its root alone (SpecTr, section 7); a prefix tree branches at
every level (SpecTr, Algorithm 4); one chain is what Leviathan's Algorithm 1 drafts.  Children are
kept as they were drawn: a token that was drawn twice has two nodes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias, TypeGuard

import numpy.typing as npt

import otm.drafts
from otm._core.checks import as_draft_count
from otm._core.numbers import check_name
from otm._core.shown import Brief
from otm._core.sparse import SparseProbs
from otm.decoding.reading import Context, LogitsProcessor, Path, ProbsAfter, Reader
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidDraftsError, InvalidParameterError, ProblemTooLargeError
from otm.models.base import LanguageModel
from otm.rules import TREE_DRAFTS

Randomness = Callable[[int], npt.NDArray[Any]]
"""m independent uniforms in [0, 1) for a number m: `numpy.random.Generator.random` is one."""

Draw: TypeAlias = "Callable[[int, int, DraftNode, SparseProbs, int], None]"
"""Gives children to a node: of sequence b, at a place of its level, from probs, so many."""

Expand: TypeAlias = "Callable[[int, list[DraftNode], ProbsAfter], list[DraftNode]]"
"""Gives children to nodes of sequence b, from the probs after them; returns what grows on."""

Branching: TypeAlias = int | tuple[int, ...]
"""Either a number K of chains, or for each level the number of children of a node there."""

MAX_PATHS = 2**16
"""Most paths of a tree, far beyond what a target model can read at once."""


@dataclass(eq=False)
class DraftNode(Brief):
    """A draft token, below the tokens that come before it.

    Attributes
    ----------
    path : tuple of int
        The draft tokens from the root's child down to this one; empty at the root, which stands
        for the last token that is known.
    draft_probs : SparseProbs or None
        The distribution that the children were drawn from; None if there are none, or if they are
        certain ("Top").
    children : list of DraftNode
        One for each draw, in the order of the draws.
    law : str
        How the children were drawn together: a class of `otm.drafts`, "IID" for independently.
        Each verifier is lossless for one law alone, but `verify_target_only`, which takes any tree.

    Examples
    --------
    >>> import numpy as np
    >>> root = DraftNode()
    >>> root.draw_children(SparseProbs([3, 7], [0.5, 0.5]), 2, lambda m: np.array([0.2, 0.7]))
    >>> [child.path for child in root.children], root.children[0].token
    ([(3,), (7,)], 3)
    """

    path: Path = ()
    draft_probs: SparseProbs | None = None
    children: list[DraftNode] = field(default_factory=list)
    law: str = "IID"

    @property
    def token(self) -> int:
        """The draft token itself; the root has none."""
        return self.path[-1]

    def checked_draft_probs(self, law: str = "IID") -> SparseProbs:
        """Return the distribution of the children, after checking that it can give them.

        Parameters
        ----------
        law : str, optional
            How the children must have been drawn, if there are several.

        Raises
        ------
        InvalidDraftsError
            If the children were drawn in another way, or the node has no distribution, or a child
            that it cannot give or whose path does not continue the node's.
        """
        if self.law != law and (len(self.children) > 1 or self.law == "Top"):
            raise InvalidDraftsError(
                f"the drafts after {self.path} are {self.law} drafts, and this rule is lossless "
                f"for {law} drafts alone; choose a rule for {self.law} drafts, or draft otherwise "
                f"(`ModelDrafter(…, law={law!r})`)"
            )
        if not isinstance(self.draft_probs, SparseProbs):
            raise InvalidDraftsError(
                f"the drafts after {self.path} come with a {type(self.draft_probs).__name__} as "
                "the distribution that they were drawn from; without it no verifier is lossless, "
                "so give a SparseProbs as `draft_probs` beside `children`"
            )
        for child in self.children:
            if child.path[:-1] != self.path or not self.draft_probs.of(child.token) > 0:
                raise InvalidDraftsError(
                    f"draft {child.path} after {self.path}; a draft must lengthen the path by a "
                    "token that the distribution it was drawn from can give"
                )
        return self.draft_probs

    def merged_children(self) -> list[DraftNode]:
        """List the children, of which the first with a token takes what grew below all of these.

        What is below a node is drawn independently of its being drawn again beside it, so that it
        may as well have been drawn below the first.
        """
        first: dict[int, DraftNode] = {}
        children = []
        for child in self.children:
            node = DraftNode(child.path)
            kept = first.setdefault(child.token, node)
            if child.children:
                kept.draft_probs, kept.law = child.draft_probs, child.law
                kept.children += child.children
            children.append(node)
        return children

    def nodes(self) -> Iterator[DraftNode]:
        """Go through the tree, from this node down, parents before their children."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))

    def leaf_paths(self) -> list[Path]:
        """List the different paths that no other one continues."""
        paths = dict.fromkeys(node.path for node in self.nodes())
        continued = {path[:-1] for path in paths if path}
        return [path for path in paths if path not in continued]

    def drawn_paths(self) -> list[Path]:
        """List the paths to the last drafts, as often as each was drawn."""
        return [node.path for node in self.nodes() if node.path and not node.children]

    def draw_children(
        self, draft_probs: SparseProbs, count: int, uniforms: Randomness, law: str = "IID"
    ) -> None:
        """Draw children from a distribution, with a uniform each if they are independent.

        Parameters
        ----------
        draft_probs : SparseProbs
            The distribution of a child.
        count : int
            How many to draw.
        uniforms : Randomness
            Source of independent uniforms in [0, 1).
        law : str, optional
            How they are drawn together: "IID", "WithoutReplacement", "Greedy" or "Top"; but for
            "IID" there are at most as many as the distribution has tokens.
        """
        self.draft_probs, self.law = draft_probs if law != "Top" else None, law
        if law == "IID":
            tokens = draft_probs.draw(uniforms(count))
        else:
            kind: Any = getattr(otm.drafts, law)
            drafts = kind(draft_probs.probabilities, count, tokens=draft_probs.tokens)
            tokens = drafts.draw(uniforms(drafts.uniforms_per_draw))
        self.children = [DraftNode((*self.path, token)) for token in tokens.tolist()]


def extend(end: DraftNode, probs: SparseProbs, token: int) -> DraftNode:
    """Put a draft behind the last one of a chain."""
    end.draft_probs = probs
    end.children = [DraftNode((*end.path, token))]
    return end.children[0]


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
