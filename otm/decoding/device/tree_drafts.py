"""Draft trees as tensors: grown on the device of a model, or copied from a host drafter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from otm._core.optional import require
from otm._core.tensors import on_device
from otm.decoding.checks import as_paths
from otm.decoding.device.grown_trees import (
    Level,
    Tree,
    best_paths,
    certain_and_drawn,
    empty,
    planned,
    shape_of,
)
from otm.decoding.device.session import DeviceSession
from otm.decoding.draft_tree import DraftNode
from otm.decoding.drafters.base import Drafter
from otm.decoding.drafters.drawn_trees import DrawnTreeDrafter
from otm.decoding.drafters.model import ModelDrafter
from otm.decoding.drafters.trees import BestFirstDrafter, StaticTreeDrafter
from otm.decoding.rounds import Batch
from otm.errors import InvalidDraftsError, InvalidParameterError
from otm.kernels.tree.verify import WALK, WITHOUT_REPLACEMENT

KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "target-only": (WITHOUT_REPLACEMENT, ("Top",)),
        "greedy": (WITHOUT_REPLACEMENT, ("Greedy",)),
        WITHOUT_REPLACEMENT: (WITHOUT_REPLACEMENT, ("WithoutReplacement",)),
        WALK: (WALK, ("Top", "Greedy")),
    }
)
"""For each rule of trees with a kernel, the kernel's rule and the kinds of drafts it verifies."""

Grown: TypeAlias = "BestFirstDrafter | DrawnTreeDrafter | ModelDrafter | StaticTreeDrafter"
"""A drafter whose trees can grow on the device of its model."""


@dataclass(frozen=True)
class DraftedTrees:
    """Trees of at most N drafts for each of B sequences."""

    # int64 [B, N] each; −1 for unused nodes, and for parents below the root.
    tokens: Any
    parents: Any
    # Which drafts were drawn, bool [B, N].
    sampled: Any
    # Weights [B, N + 1, V] that the drawn drafts are drawn by, after the context and each draft: a
    # distribution without the certain drafts of the node.  None if no draft is drawn.
    probs: Any = None
    # Whether the distributions of each sequence are valid, bool [B]; None if the host checked them.
    good: Any = None
    # Largest number of drawn drafts of a node.
    drawn: int = 0


class TreeDrafts(ABC):
    """Source of trees for a batch, as tensors."""

    @abstractmethod
    def draft(self, batch: Batch) -> DraftedTrees:
        """Return a tree after each context."""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """Seconds spent in models so far."""


class GrownTrees(TreeDrafts):
    """Trees that grow on the device of the draft model; the host sees them after verification."""

    def __init__(self, drafter: Grown) -> None:
        self._drafter = drafter
        self._rows = DeviceSession(drafter.model, drafter.sampling)

    @property
    def seconds(self) -> float:
        """Seconds spent in the model so far."""
        return self._rows.seconds

    def draft(self, batch: Batch) -> DraftedTrees:
        """Grow the trees of the batch, level by level."""
        torch, drafter = require("torch"), self._drafter
        self._rows.follow(batch.contexts, batch.parents)
        size, levels = len(batch.contexts), max(batch.depths)
        shape = []
        if isinstance(drafter, ModelDrafter | StaticTreeDrafter):
            shape = shape_of(drafter, levels)
            levels, nodes = len(shape), int(sum(counts.sum() for counts in shape))
            grow: Any = partial(planned, shape=shape, kind=drafter.draft_kind)
        elif isinstance(drafter, BestFirstDrafter):
            nodes, grow = drafter.nodes, partial(best_paths, width=drafter.width)
        else:
            nodes, grow = drafter.nodes, partial(certain_and_drawn, weight=drafter.weight)
        if levels == 0:
            return no_trees(size)
        scores = self._rows.read_contexts(batch.contexts)[:, None]  # [B, 1, V]
        device = scores.device
        tree = empty(size, nodes, device)
        # One uniform a draw: of each child if they are drawn without replacement.
        most = max((int(counts.max()) for counts in shape), default=1)
        coins = np.stack([u((nodes + 1) * most).reshape(-1, most) for u in batch.uniforms])
        points = on_device(coins.astype(np.float64), device)
        limits = on_device(np.array(batch.depths), device)
        draws = drafter_kind(drafter) != "Top"
        rows: Any = None
        good = torch.ones(size, dtype=torch.bool, device=device)
        picks = not shape and sizes_are_known(device)
        for i in range(levels):
            grows, places = (limits > i)[:, None], torch.full((1,), -1, device=device)
            coin = points[:, :1]
            beliefs = tree.beliefs.new_ones(size, 1) * grows
            if i:
                grows = grows & (tree.depths == i)
                if picks and not grows.any():
                    break
                scores = self._rows.read_tree(tree.tokens, tree.parents)
                places = torch.arange(nodes, device=device)
                places = places[grows.any(0)] if picks else places
                scores, grows = scores[:, places], grows[:, places]
                beliefs, coin = tree.beliefs[:, places] * grows, points[:, places + 1]
            probs, valid = self._rows.tree_probs(scores, keep=draws)
            good = good & (valid | ~grows).all(1)
            if draws and i == 0:
                rows = probs.repeat(1, 1 + nodes, 1)
            elif draws:
                # The same tokens, read again, can be rounded otherwise: earlier rows stay.
                rows[:, places + 1] = probs.where(grows[..., None], rows[:, places + 1])
            later = (limits - i - 1).clamp(min=0)
            tree = grow(tree, Level(places, probs, beliefs, i, later, coin))
        drafts = tree.tokens, tree.parents, tree.sampled
        if not draws:
            return DraftedTrees(*drafts, good=good)
        return DraftedTrees(*drafts, without_certain(rows, tree), good, most)


def sizes_are_known(device: Any) -> bool:
    """Whether the number of a level's nodes can be read without waiting for a device."""
    return bool(device.type == "cpu")


def without_certain(rows: Any, tree: Tree) -> Any:
    """Remove certain children from the rows [B, N + 1, V] that their siblings were drawn from."""
    torch = require("torch")
    flat = rows.flatten(1)
    places = (tree.parents + 1) * rows.shape[2] + tree.tokens.clamp(min=0)
    is_certain = (tree.tokens >= 0) & ~tree.sampled
    left = torch.where(is_certain, 0.0, flat.gather(1, places)).to(flat.dtype)
    return flat.scatter_reduce(1, places, left, "amin").view(rows.shape)


def drafter_kind(drafter: Drafter | None) -> str:
    """Return the kind of draft sampling of a drafter of trees; "" if it is unknown."""
    if isinstance(drafter, BestFirstDrafter):
        return "Top"
    if isinstance(drafter, DrawnTreeDrafter):
        return "Greedy"
    if isinstance(drafter, ModelDrafter | StaticTreeDrafter):
        return drafter.draft_kind
    return ""


class HostTrees(TreeDrafts):
    """Trees from any drafter that runs on the host, copied to tensors."""

    def __init__(self, drafter: Drafter, vocabulary: int, rule: str) -> None:
        self._drafter, self._vocabulary, self._rule = drafter, vocabulary, rule

    @property
    def seconds(self) -> float:
        """Seconds spent in the drafter's models so far."""
        return self._drafter.seconds

    def draft(self, batch: Batch) -> DraftedTrees:
        """Run the drafter, and convert its trees and their distributions to tensors."""
        torch = require("torch")
        trees = self._drafter.draft(*batch)
        as_paths(trees, batch.depths, self._vocabulary)
        nodes = [list(tree.nodes())[1:] for tree in trees]
        if not any(nodes):
            return no_trees(len(trees))
        shape = len(trees), max(map(len, nodes))
        tokens, parents = np.full(shape, -1), np.full(shape, -1)
        sampled, placed, most = np.zeros(shape, np.bool_), [], 0
        for b, (tree, below) in enumerate(zip(trees, nodes, strict=True)):
            place = {id(node): i for i, node in enumerate(below)}
            for node in (tree, *below):
                here = [place[id(child)] for child in node.children]
                tokens[b, here] = [child.token for child in node.children]
                parents[b, here] = place.get(id(node), -1)
                drawn = self._drawn(node)
                most = max(most, drawn)
                if drawn:
                    sampled[b, here[-drawn:]] = True
                    certain = tokens[b, here[:-drawn]]
                    probs = node.checked_draft_probs(node.draft_kind)
                    placed.append((b, place.get(id(node), -1) + 1, probs, certain))
        rows = None
        if placed:
            weights = np.zeros((shape[0], shape[1] + 1, self._vocabulary))
            for b, row, each, certain in placed:
                weights[b, row, each.tokens] = each.probabilities
                weights[b, row, certain] = 0
            rows = torch.from_numpy(weights)
        as_tensor = torch.from_numpy
        drafts = as_tensor(tokens), as_tensor(parents), as_tensor(sampled)
        return DraftedTrees(*drafts, rows, drawn=most)

    def _drawn(self, node: DraftNode) -> int:
        """Return how many children of a node were drawn, after a check of their kind."""
        count = len(node.children)
        if len({child.token for child in node.children}) < count:
            raise InvalidDraftsError(
                f"two drafts after {node.path} are the same token; on a device the children of a "
                "node are different tokens"
            )
        kinds = KINDS[self._rule][1]
        is_certain = node.draft_kind == "Top" and "Top" in kinds
        if not count or is_certain or self._rule == "target-only":
            return 0
        # This raises for drafts of another kind.
        node.checked_draft_probs(kinds[-1])
        return count if node.draft_kind == "WithoutReplacement" else 1


def no_trees(batch: int) -> DraftedTrees:
    """Return trees without drafts for a batch of sequences."""
    torch = require("torch")
    nothing = torch.zeros((batch, 0), dtype=torch.int64)
    return DraftedTrees(nothing, nothing, nothing > 0)


def as_tree_drafts(
    drafter: Drafter | None, vocabulary: int, rule: str, *, grows: bool
) -> TreeDrafts | None:
    """Return a source of trees as tensors: grown on the device of a model, or copied to a device.

    If `grows` is false, all trees are copied.
    """
    if drafter is None:
        return None
    if grows and grows_on_device(drafter):
        if rule == WALK and drafter_kind(drafter) == "WithoutReplacement":
            raise InvalidParameterError(
                f"the rule {rule!r} verifies nodes with at most one drawn child, but the drafter "
                f"draws several without replacement; use the rule {WITHOUT_REPLACEMENT!r}, or "
                'draft_kind="Greedy"'
            )
        return GrownTrees(drafter)
    return HostTrees(drafter, vocabulary, rule)


def grows_on_device(drafter: Drafter) -> TypeGuard[Grown]:
    """Return whether the trees of a drafter can grow on the device of its model."""
    # A subclass can draft in another way.
    if type(drafter) not in {BestFirstDrafter, DrawnTreeDrafter, ModelDrafter, StaticTreeDrafter}:
        return False
    known: Any = drafter
    return drafter_kind(known) != "IID" and known.processor is None and known.model.reads_trees
