"""Draft trees that grow on the device of a model, level by level, with sizes known in advance.

A tree has a fixed number N of nodes, and unused nodes have the token −1, so that no step waits for
the device.  At each level the model reads the whole tree, and one function here adds children.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.optional import require
from otm._core.tensors import on_device
from otm.decoding.drafters.base import children_at
from otm.decoding.drafters.drawn_trees import LEAST_REST, STEPS
from otm.decoding.drafters.model import ModelDrafter
from otm.decoding.drafters.trees import StaticTreeDrafter

Counts = npt.NDArray[np.int64]
"""Number of children of each node of a level."""


class Tree(NamedTuple):
    """B trees of N nodes, parents before children; a node's depth is 1 below the root."""

    tokens: Any  # int64 [B, N]; −1 for unused nodes
    parents: Any  # int64 [B, N]; −1 below the root
    depths: Any  # int64 [B, N]; 0 for unused nodes
    beliefs: Any  # float64 [B, N]: how often the output is expected to pass the node
    sampled: Any  # bool [B, N]: which nodes were drawn


class Level(NamedTuple):
    """Nodes that may get children; at level 0, the root."""

    places: Any  # int64 [n]: the nodes in the tree; −1 for the root
    probs: Any  # [B, n, V]
    beliefs: Any  # float64 [B, n]; 0 for nodes that get no child
    number: int  # 0 for the children of the root
    later: Any  # int64 [B]: number of levels below this one
    coins: Any  # float64 [B, n, k]


def empty(batch: int, nodes: int, device: Any) -> Tree:
    """Return trees without drafts."""
    torch = require("torch")
    unused = torch.full((batch, nodes), -1, device=device)
    nothing = torch.zeros_like(unused)
    return Tree(unused, unused, nothing, nothing.double(), nothing > 0)


def best_paths(tree: Tree, level: Level, width: int | None) -> Tree:
    """Add the children of a level, and keep the N most probable nodes, as `BestFirst` does."""
    torch = require("torch")
    nodes = tree.tokens.shape[1]
    probs, tokens = level.probs.topk(min(nodes, level.probs.shape[-1]))
    if width is not None:
        grows = level.beliefs > 0
        level = level._replace(beliefs=level.beliefs * (grows & (grows.cumsum(1) <= width)))
    beliefs = torch.cat([tree.beliefs, (level.beliefs[..., None] * probs.double()).flatten(1)], 1)
    # The sort is stable: parents and shorter paths stay first among equally probable ones.
    best = beliefs.sort(dim=1, descending=True, stable=True).indices[:, :nodes]
    place = torch.arange(nodes, device=best.device).expand(best.shape)
    moved = torch.full_like(beliefs, -1, dtype=torch.int64).scatter(1, best, place)
    below = level.places[:, None].expand(tokens.shape[1:]).flatten().expand(len(tokens), -1)
    above = torch.cat([tree.parents, below], 1).gather(1, best)
    depths = torch.nn.functional.pad(tree.depths, (0, below.shape[1]), value=level.number + 1)
    beliefs = beliefs.gather(1, best)
    used = beliefs > 0
    above = torch.where(above < 0, above, moved.gather(1, above.clamp(min=0)))
    chosen = torch.cat([tree.tokens, tokens.flatten(1)], 1).gather(1, best)
    return Tree(
        chosen.where(used, -1), above.where(used, -1), depths.gather(1, best).where(used, 0),
        beliefs, tree.sampled,
    )  # fmt: skip


def certain_and_drawn(tree: Tree, level: Level, weight: float) -> Tree:
    """Add certain and drawn children above a threshold, as `DrawnTreeDrafter` does."""
    torch = require("torch")
    nodes, used = tree.tokens.shape[1], (tree.depths > 0).sum(1)
    left = nodes - used
    probs, tokens = level.probs.topk(min(nodes, level.probs.shape[-1]))
    probs = probs.double()
    rest = 1 - torch.nn.functional.pad(probs, (1, 0)).cumsum(-1)
    above = level.beliefs[..., None]
    certain = above * weight * probs
    drawn = above * rest.where(rest >= LEAST_REST, 0.0)
    sums = torch.nn.functional.pad(certain, (1, 0)).cumsum(-1)

    def children(threshold: Any) -> tuple[Any, Any, Any]:
        count = (certain >= threshold[:, None, None]).sum(-1)
        value = drawn.gather(-1, count[..., None])[..., 0]
        return count, value >= threshold[:, None], value

    best = torch.maximum(certain.amax((1, 2)), drawn[..., 0].amax(1))
    low, high = best / (left * (1 + level.later)).clamp(min=1), best
    for _ in range(STEPS):
        middle = (low * high).sqrt()
        count, draws, value = children(middle)
        of_level = sums.gather(-1, count[..., None])[..., 0] + draws * value
        size = count + draws + (level.later / (2 * middle))[:, None] * of_level
        is_large = size.sum(1) > left
        low, high = middle.where(is_large, low), middle.where(~is_large, high)
    count, draws, value = children(high)
    # Nodes take the rest of the budget in the order of their beliefs.
    order = level.beliefs.sort(dim=1, descending=True, stable=True).indices
    grows = (level.beliefs > 0).gather(1, order)
    count, draws = (x.gather(1, order) for x in (count, draws))
    wanted = (count + draws) * grows
    room = (left[:, None] - (wanted.cumsum(1) - wanted)).clamp(min=0)
    draws = draws & grows & (count < room)
    count = torch.minimum(count * grows, room)
    sizes = count + draws
    ends = sizes.cumsum(1)
    # Node `used` + o of the tree is child o of this level.
    place = (torch.arange(nodes, device=used.device) - used[:, None]).expand(tree.tokens.shape)
    is_new = (place >= 0) & (place < ends[:, -1:])
    owner = torch.searchsorted(ends, place.clamp(min=0).contiguous(), right=True)
    owner = owner.clamp(max=ends.shape[1] - 1)
    rank = (place - (ends - sizes).gather(1, owner)).clamp(0, tokens.shape[2] - 1)
    is_drawn = is_new & (rank >= count.gather(1, owner))
    parent = order.gather(1, owner)  # among the nodes of the level
    counts = torch.zeros_like(count).scatter(1, order, count)
    drawn_token = draw_outside(level.probs, tokens, counts, level.coins[..., 0])
    flat = parent * tokens.shape[2] + rank
    token = tokens.flatten(1).gather(1, flat)
    token = drawn_token.gather(1, parent).where(is_drawn, token)
    belief = certain.flatten(1).gather(1, flat)
    belief = drawn.gather(2, counts[..., None])[..., 0].gather(1, parent).where(is_drawn, belief)
    parent = level.places[parent]
    return Tree(
        token.where(is_new, tree.tokens), parent.where(is_new, tree.parents),
        tree.depths.where(~is_new, level.number + 1), belief.where(is_new, tree.beliefs),
        tree.sampled | is_drawn,
    )  # fmt: skip


def draw_outside(probs: Any, tokens: Any, counts: Any, coins: Any) -> Any:
    """Draw one token per row that is not among the row's first `counts` tokens.

    The shapes are `probs` [B, n, V], `tokens` [B, n, m], `counts` and `coins` [B, n].
    """
    torch = require("torch")
    from otm.kernels.common.distributions.numpy import mass
    from otm.kernels.common.distributions.torch import locate_all

    hidden = torch.arange(tokens.shape[2], device=tokens.device) < counts[..., None]
    masses = mass(probs)
    masses = masses.scatter(2, tokens, masses.gather(2, tokens).masked_fill(hidden, 0))
    return locate_all(masses, coins[..., None])[..., 0]


def planned(tree: Tree, level: Level, shape: Sequence[Counts], kind: str) -> Tree:
    """Add the number of children that the shape gives to each node of the last level."""
    torch = require("torch")
    counts = shape[level.number]
    most, certain = int(counts.max()), 0 * counts
    begin = sum(map(len, shape[1 : level.number]))
    here = slice(begin, begin + len(counts)) if level.number else slice(0, 1)
    probs, beliefs, coins = (x[:, here] for x in (level.probs, level.beliefs, level.coins))
    device = probs.device
    if kind == "WithoutReplacement":
        seen = torch.zeros_like(beliefs, dtype=torch.int64)[..., None][..., :0]
        for i in range(most):
            number = torch.full_like(beliefs, i, dtype=torch.int64)
            token = draw_outside(probs, seen, number, coins[..., i])
            seen = torch.cat([seen, token[..., None]], -1)
    else:
        certain = counts if kind == "Top" else counts - 1
        seen = probs.topk(min(most, probs.shape[-1])).indices
        seen = torch.nn.functional.pad(seen, (0, most - seen.shape[-1]))
        number = on_device(certain, device)
        token = draw_outside(probs, seen, number.expand(len(seen), -1), coins[..., 0])
        is_certain = torch.arange(most, device=device) < number[:, None]
        seen = torch.where(is_certain, seen, token[..., None])
    # A row with few tokens has no further child: its token is impossible, or is there twice.
    place = torch.arange(most, device=device)
    twice = (seen[..., :, None] == seen[..., None, :]) & (place[:, None] > place)
    good = (probs.gather(2, seen) > 0) & ~twice.any(-1) & (beliefs > 0)[..., None]
    owner = np.repeat(np.arange(len(counts)), counts)
    rank = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
    own, flat = (on_device(x, device) for x in (owner, owner * most + rank))
    good, seen = good.flatten(1)[:, flat], seen.flatten(1)[:, flat]
    above = (own + begin).expand(seen.shape) if level.number else torch.full_like(seen, -1)
    start = sum(map(len, shape[1 : level.number + 1]))
    values = (
        *(seen.where(good, -1), above.where(good, -1), good * (level.number + 1), good.double()),
        on_device(rank >= certain[owner], device) & good,
    )
    parts = [part.clone() for part in tree]
    for part, value in zip(parts, values, strict=True):
        part[:, start : start + len(owner)] = value
    return Tree(*parts)


def shape_of(drafter: ModelDrafter | StaticTreeDrafter, levels: int) -> list[Counts]:
    """Return the number of children of each node, level by level; the first level is the root."""
    shape: list[Counts] = []
    nodes: list[Any] = [drafter.shape if isinstance(drafter, StaticTreeDrafter) else ()]
    while nodes and len(shape) < levels:
        if isinstance(drafter, StaticTreeDrafter):
            numbers = list(map(len, nodes))
            nodes = [child for node in nodes for child in node]
        else:
            numbers = [children_at(drafter.branching, len(shape))] * len(nodes)
            nodes = [()] * sum(numbers)
        if not sum(numbers):
            break
        shape.append(np.array(numbers))
    return shape
