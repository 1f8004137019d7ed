"""The protocol of drafters, tree shapes, and the growth of draft trees level by level."""

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
"""Function that adds children to a node; `Drafter.draft_with` lists its arguments."""

Branching: TypeAlias = int | tuple[int, ...]
"""A number K of chains, or the number of children of a node at each level."""

MAX_PATHS = 2**16
"""Maximum number of paths of a tree, far more than a target model can score at once."""


class Drafter(ABC):
    """An object that proposes drafts, and knows the distributions that it draws from.

    Attributes
    ----------
    vocabulary : int or None
        Number of tokens; None if the drafter works with any vocabulary.
    context_length : int or None
        Maximum number of tokens of a context and its drafts; None if there is no limit.
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
        """Draft a tree for every sequence of a batch.

        Parameters
        ----------
        contexts : sequence of B tuples of int
            All tokens of each sequence so far, at least one.
        depths : sequence of B int
            Maximum number of drafts in a path, at least 0.
        parents : sequence of B int, or None
            For each sequence, the index of the sequence in the previous call that it continues;
            None to begin anew.
        uniforms : sequence of B Randomness
            Source of uniforms of each sequence; drafters use no other randomness.

        Returns
        -------
        list of DraftNode
            One tree per sequence.  Distribution and number of the children of a node must depend
            only on the context, the depth and the path of the node.  Draws at siblings or
            descendants must not influence the distribution or number of a node's children.  Rules
            that allow more say so: `verify_walk_and_keep` allows a node of kind "Top" or "Greedy"
            any number of children that was decided before the node's own draw.
        """

    @property
    def suits_device(self) -> bool:
        """Whether the drafts are on a device, or cost nothing to move there."""
        return False

    def draft_with(
        self,
        draw: Draw,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft, adding children with the function `draw`; this default method ignores `draw`.

        Parameters
        ----------
        draw : callable
            Function that adds children to a node.  The first two arguments are the index of the
            sequence, and the index of the chain that continues below the node (None at a root and
            in a prefix tree).  The last three arguments are the node, the distribution of its
            children, and their number.
        contexts, depths, parents, uniforms
            As for `draft`.

        Returns
        -------
        list of DraftNode
            One tree per sequence.
        """
        return self.draft(contexts, depths, parents, uniforms)


def as_branching(branching: Any) -> Branching:
    """Return a branching with its numbers as int; raise if it is invalid or has too many paths."""
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
            f"a tree of {Decimal(paths):.3g} paths of drafts; the limit is {MAX_PATHS:,}, and few "
            "models gain from more than a hundred"
        )
    return counts if isinstance(branching, tuple) else counts[0]


def max_children(branching: Branching) -> int:
    """Return the largest number of children of a node."""
    return max(branching) if isinstance(branching, tuple) else branching


def children_at(branching: Branching, level: int) -> int:
    """Return the number of children of a node at a level; 0 below the last level of a tree."""
    if isinstance(branching, int):
        return 1 if level else branching
    return branching[level] if level < len(branching) else 0


Expand: TypeAlias = "Callable[[int, list[DraftNode], ProbsAfter], list[DraftNode]]"
"""Function that adds children to nodes of sequence b, and returns the children that grow next.

The arguments are b, the nodes, and a function that returns the distributions after them.
"""


def grow_by_levels(
    reader: Reader,
    contexts: Sequence[Context],
    depths: Sequence[int],
    parents: Sequence[int] | None,
    expand: Expand,
) -> list[DraftNode]:
    """Grow trees from their roots; the model reads one level of the whole batch per call."""
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
    """Grow trees from their roots, level by level, to the depth of each sequence.

    `read` returns the distributions after the distinct paths of a level.  `expand` adds children to
    the nodes of a level of sequence b, and returns the nodes of the next level that grow.
    """
    roots = [DraftNode() for _ in depths]
    levels = [[root] for root in roots]
    # The first level runs even at depth 0, so that the reader follows the batch.
    for depth in range(max(1, *depths)):
        growing = [nodes if depth < d else [] for nodes, d in zip(levels, depths, strict=True)]
        if depth and not any(growing):
            break
        probs = read([list(dict.fromkeys(node.path for node in nodes)) for nodes in growing])
        levels = [expand(b, nodes, probs) for b, nodes in enumerate(growing)]
    return roots
