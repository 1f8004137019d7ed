"""Steps of walk and keep over trees inside Triton kernels, as in `otm.kernels.tree_walk.numpy`."""

# ruff: noqa: PLR0917 - pointers and sizes, in order

from __future__ import annotations

from typing import NamedTuple

from otm.kernels.common.distributions.numpy import UNIT
from otm.kernels.common.distributions.triton import mass, probability
from otm.kernels.common.runtime import constant, jit, tl
from otm.kernels.tree_walk.numpy import LARGEST, POINTS

_UNIT, _WHOLE = constant(UNIT), constant(int(UNIT))
_NOWHERE = constant(-(2**40))
"""Parent of no draft."""
_LARGEST, _POINTS = constant(float(LARGEST)), constant(POINTS)


class Tree(NamedTuple):
    """Pointers to the drafts of a sequence, and their number."""

    tokens: tl.tensor
    parents: tl.tensor
    sampled: tl.tensor
    nodes: tl.tensor


class Node(NamedTuple):
    """Pointers to the rows that a walk has reached, and their sizes."""

    target: tl.tensor
    draft: tl.tensor
    softmaxes: tl.tensor
    size: tl.tensor
    draft_size: tl.tensor  # 0 if no child was drawn


class Children(NamedTuple):
    """Children of a node; numbers are 0 for drafts that are not its certain children."""

    token: tl.tensor  # [padded nodes]
    is_certain: tl.tensor
    is_drawn: tl.tensor
    target: tl.tensor  # probabilities of the target
    of_target: tl.tensor  # masses of the target
    of_draft: tl.tensor  # masses of the draft
    certain: tl.tensor  # total of `of_target`
    hidden: tl.tensor  # total of `of_draft`


class Winner(NamedTuple):
    """Numbers that determine the distribution of the winner outside the certain children."""

    c: tl.tensor
    drawn: tl.tensor  # total mass of the drawn child; 0 if no child was drawn
    some: tl.tensor  # whether the target has mass on the certain children


@jit
def masses_of(
    node: Node, token: tl.tensor, known: tl.tensor, kind: tl.constexpr, has_draft: tl.constexpr
) -> tl.tensor:
    """Return the target's probabilities of tokens, and the masses of target and draft."""
    softmaxes = node.softmaxes
    inside = known & (token < node.size)
    prob = probability(node.target, token, inside, softmaxes, True, 0.0, 1.0, kind)
    prob = prob.to(tl.float64)
    of_target = mass(prob, _UNIT)
    of_draft = of_target * 0
    if has_draft:
        used = node.draft_size > 0
        inside = known & (token < node.draft_size)
        of_draft = mass(
            probability(node.draft, token, inside, softmaxes + 4, used, 0.0, 1.0, kind), _UNIT
        )
    return prob, of_target, of_draft


@jit
def children_of(
    tree: Tree,
    node: Node,
    row: tl.tensor,
    is_open: tl.tensor,
    kind: tl.constexpr,
    has_draft: tl.constexpr,
    padded_nodes: tl.constexpr,
) -> Children:
    """Find the children of the node at a row; there are none unless `is_open`."""
    place = tl.arange(0, padded_nodes)
    inside = place < tree.nodes
    token = tl.load(tree.tokens + place, mask=inside, other=-1).to(tl.int64)  # [padded nodes]
    parent = tl.load(tree.parents + place, mask=inside, other=-2)  # [padded nodes]
    is_child = (token >= 0) & (parent == tl.where(is_open, row - 1, _NOWHERE))
    mark = tl.zeros((padded_nodes,), tl.int32)
    if has_draft:
        mark = tl.load(tree.sampled + place, mask=inside, other=0).to(tl.int32)  # [padded nodes]
    is_certain, is_drawn = is_child & (mark == 0), is_child & (mark > 0)
    target, of_target, of_draft = masses_of(node, token, is_certain, kind, has_draft)
    masses = target, of_target, of_draft
    certain, hidden = tl.sum(of_target, 0), tl.sum(of_draft, 0)
    return Children(token, is_certain, is_drawn, *masses, certain, hidden)


@jit
def is_any(mask: tl.tensor) -> tl.tensor:
    """Whether any entry is true."""
    return tl.max(mask.to(tl.int32), 0) > 0


@jit
def capped_at(
    i: tl.constexpr,
    of_target: tl.tensor,
    of_draft: tl.tensor,
    certain: tl.tensor,
    hidden: tl.tensor,
) -> tl.tensor:
    """Whether tokens have more draft mass than target mass times the i-th point."""
    scale = tl.maximum(-hidden + _WHOLE, 0).to(tl.float64) / _UNIT
    furthest = tl.full((), _UNIT, tl.float64) / tl.maximum(certain, 1).to(tl.float64)
    furthest = tl.minimum(furthest, _LARGEST)
    point = scale * (1.0 + (furthest - 1.0) * (i * i / (_POINTS * _POINTS)))
    return of_draft.to(tl.float64) > point * of_target.to(tl.float64)


@jit
def largest_step(
    sums: tl.tensor, children: Children, blocks: tl.tensor, padded_blocks: tl.constexpr
) -> tl.tensor:
    """Return the largest result of a Newton step, and the drawn child's mass, from sums by block.

    The sums include the certain children, whose masses are subtracted here.
    """
    block = tl.arange(0, padded_blocks)
    inside = block < blocks
    drawn = tl.sum(tl.load(sums + block, mask=inside, other=0), 0) - children.hidden
    largest = tl.full((), 0.0, tl.float64)
    if children.certain > 0:
        for i in tl.static_range(_POINTS):
            place = sums + (1 + 2 * i) * blocks + block
            over = tl.sum(tl.load(place, mask=inside, other=0), 0)  # of [padded blocks]
            under = tl.sum(tl.load(place + blocks, mask=inside, other=0), 0)
            of_target, of_draft = children.of_target, children.of_draft
            capped = capped_at(i, of_target, of_draft, children.certain, children.hidden)
            over -= tl.sum(tl.where(capped, of_draft, 0), 0)
            under -= tl.sum(tl.where(capped, of_target, 0), 0)
            under = tl.maximum(children.certain + under, 1)
            largest = tl.maximum(largest, over.to(tl.float64) / under.to(tl.float64))
    return largest, drawn


@jit
def outside_of(
    winner: Winner,
    share: tl.tensor,
    target: tl.tensor,
    of_target: tl.tensor,
    of_draft: tl.tensor,
    has_draft: tl.constexpr,
) -> tl.tensor:
    """Return the masses with which tokens outside the certain children win, and the residual."""
    residual, wins = mass(share * target, _UNIT), of_draft
    if has_draft:
        below = of_draft.to(tl.float64)
        capped = tl.minimum(winner.c * of_target.to(tl.float64), below).to(tl.int64)
        wins = tl.where(winner.some, tl.minimum(of_draft, capped), of_draft)
        part = wins.to(tl.float64) / tl.maximum(winner.drawn, 1).to(tl.float64) * _UNIT
        residual = tl.maximum(residual - part.to(tl.int64), 0)
    return wins, residual


@jit
def certain_residual(
    children: Children, share: tl.tensor, certain_wins: tl.tensor, target: tl.tensor
) -> tl.tensor:
    """Return the residual masses of certain children with the probabilities `target`."""
    of_certain = tl.maximum(children.certain, 1).to(tl.float64) / _UNIT
    less = tl.where(children.certain > 0, certain_wins / of_certain, 0.0)
    return mass(tl.maximum(share - less, 0.0) * target, _UNIT)


@jit
def at(values: tl.tensor, index: tl.tensor, padded_nodes: tl.constexpr) -> tl.tensor:
    """Return one entry of an array of the drafts."""
    return tl.sum(tl.where(tl.arange(0, padded_nodes) == index, values, 0), 0)


@jit
def locate(masses: tl.tensor, uniform: tl.tensor, padded_nodes: tl.constexpr) -> tl.tensor:
    """Return the first place where the cumulative mass exceeds uniform · total."""
    total = tl.sum(masses, 0)
    # The product can round up to the total.
    point = tl.minimum((uniform * total.to(tl.float64)).to(tl.int64), total - 1)
    above = tl.cumsum(masses, 0) > point
    return tl.min(tl.where(above, tl.arange(0, padded_nodes), padded_nodes), 0)
