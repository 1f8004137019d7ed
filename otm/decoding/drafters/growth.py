"""How trees of drafts grow: all sequences of a batch, level by level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from otm.decoding.draft_tree import DraftNode
from otm.decoding.reading import Context, Path, ProbsAfter, Reader

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
