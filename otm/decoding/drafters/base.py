"""The protocol of drafters, and how trees of drafts grow: their shapes, level by level."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from otm._core.checks import as_draft_count
from otm._core.probs.sparse import SparseProbs
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.reading import Context, Path, ProbsAfter, Reader
from otm.errors import InvalidParameterError, ProblemTooLargeError

Draw: TypeAlias = "Callable[[int, int | None, DraftNode, SparseProbs, int], None]"
"""Gives children to a node; `Drafter.draft_with` lists the arguments."""

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

    @property
    def suits_device(self) -> bool:
        """Whether its drafts are on a device, or cost nothing to bring there."""
        return False

    def draft_with(
        self,
        draw: Draw,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft with a function that draws from the distributions of a model; others ignore it.

        Parameters
        ----------
        draw : callable
            Gives children to a node, from the number of the sequence, the number of the chain that
            goes on below the node (None at a root and in a prefix tree), the node, the distribution
            and the number of its children.
        contexts, depths, parents, uniforms
            As for `draft`.

        Returns
        -------
        list of DraftNode
            A tree for each sequence.
        """
        return self.draft(contexts, depths, parents, uniforms)


def as_branching(branching: Any) -> Branching:
    """Check a branching, and return its numbers as int."""
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


Expand: TypeAlias = "Callable[[int, list[DraftNode], ProbsAfter], list[DraftNode]]"
"""Gives children to nodes of sequence b, from the probs after them; returns the nodes to grow."""


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
