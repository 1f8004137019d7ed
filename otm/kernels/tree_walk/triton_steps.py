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
_SQUARE = constant(float(POINTS**2))


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


@jit
def node_of(
    models: tl.tuple, strides: tl.tuple, sizes: tl.tuple, sequence: tl.tensor, reached: tl.tuple
) -> Node:
    """Return the node of a sequence: from first entries, strides, sizes, and row with count."""
    target, draft, softmaxes = models
    target_sequence, target_row, draft_sequence, draft_row = strides
    size, draft_size = sizes
    row, count = reached
    target += sequence * target_sequence + row * target_row
    draft += sequence * draft_sequence + row * draft_row
    return Node(target, draft, softmaxes, size, tl.where(count > 0, draft_size, 0))


@jit
def tree_of(drafts: tl.tuple, sequence: tl.tensor, nodes: tl.tensor) -> Tree:
    """Return the tree of a sequence."""
    tokens, parents, sampled = drafts
    first = sequence * nodes
    return Tree(tokens + first, parents + first, sampled + first, nodes)


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
def furthest_point(children: Children) -> tl.tensor:
    """Return the factor of all starting points of Newton's method, and the bound of the points."""
    scale = tl.maximum(-children.hidden + _WHOLE, 0).to(tl.float64) / _UNIT
    inverse = tl.full((), _UNIT, tl.float64) / tl.maximum(children.certain, 1).to(tl.float64)
    return scale, tl.minimum(inverse, _LARGEST)


@jit
def add_steps_to(
    sums: tl.tensor, children: Children, of_target: tl.tensor, of_draft: tl.tensor
) -> None:
    """Add the masses of tokens to the draft's total, and to two sums for each Newton step.

    Without mass on the certain children, no step is needed.
    """
    tl.atomic_add(sums, tl.sum(of_draft, 0), sem="relaxed")
    if children.certain > 0:
        scale, furthest = furthest_point(children)
        target, draft = of_target.to(tl.float64), of_draft.to(tl.float64)
        for i in tl.static_range(_POINTS):
            capped = draft > scale * (1.0 + (furthest - 1.0) * (i * i) / _SQUARE) * target
            over, under = tl.where(capped, of_draft, 0), tl.where(capped, of_target, 0)
            tl.atomic_add(sums + (1 + i), tl.sum(over, 0), sem="relaxed")
            tl.atomic_add(sums + (1 + _POINTS + i), tl.sum(under, 0), sem="relaxed")


@jit
def largest_step(sums: tl.tensor, children: Children) -> tl.tensor:
    """Return the largest result of a Newton step, and the drawn child's mass, from the sums.

    The sums include the certain children, whose masses are subtracted here.
    """
    drawn = tl.load(sums) - children.hidden  # scalar
    largest = tl.full((), 0.0, tl.float64)
    if children.certain > 0:
        scale, furthest = furthest_point(children)
        i = tl.arange(0, _POINTS)
        over, under = tl.load(sums + 1 + i), tl.load(sums + 1 + _POINTS + i)  # [points]
        point = scale * (1.0 + (furthest - 1.0) * (i * i).to(tl.float64) / _SQUARE)
        target, draft = children.of_target[None, :], children.of_draft[None, :]
        capped = draft.to(tl.float64) > point[:, None] * target.to(tl.float64)  # [points, nodes]
        over -= tl.sum(tl.where(capped, draft, 0), 1)
        under -= tl.sum(tl.where(capped, target, 0), 1)
        under = tl.maximum(children.certain + under, 1)
        largest = tl.max(over.to(tl.float64) / under.to(tl.float64), 0)
    return largest, drawn


@jit
def drawn_wins(winner: Winner, of_target: tl.tensor, of_draft: tl.tensor) -> tl.tensor:
    """Return the masses with which tokens outside the certain children win."""
    # The float product may exceed all integers.
    capped = tl.minimum(winner.c * of_target.to(tl.float64), of_draft.to(tl.float64))
    return tl.where(winner.some, tl.minimum(of_draft, capped.to(tl.int64)), of_draft)


@jit
def outside_of(
    winner: Winner,
    share: tl.tensor,
    target: tl.tensor,
    of_target: tl.tensor,
    of_draft: tl.tensor,
    has_draft: tl.constexpr,
) -> tl.tensor:
    """Return `drawn_wins` and the residual masses of tokens outside the certain children."""
    residual, wins = mass(share * target, _UNIT), of_draft
    if has_draft:
        wins = drawn_wins(winner, of_target, of_draft)
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
def winning_child(
    node: Node,
    children: Children,
    winner: Winner,
    certain_wins: tl.tensor,
    coins: tl.tensor,
    last: tl.tensor,
    kind: tl.constexpr,
    has_draft: tl.constexpr,
    padded_nodes: tl.constexpr,
) -> tl.tensor:
    """Return the child that wins, its probability by the target, and the one that it wins."""
    place = tl.arange(0, padded_nodes)
    has_certain, has_drawn = is_any(children.is_certain), is_any(children.is_drawn)
    initial = tl.min(tl.where(children.is_certain, place, padded_nodes), 0)
    located = locate(children.of_target, tl.load(coins + 1), padded_nodes)
    # Only unchecked numbers, such as NaN, give a place after the last draft.
    child = tl.minimum(tl.where(winner.some, located, initial), last)
    part = at(children.of_target, child, padded_nodes).to(tl.float64)
    part = part / tl.maximum(children.certain, 1).to(tl.float64)
    win = certain_wins * tl.where(winner.some, part, 1.0)
    prob = at(children.target, child, padded_nodes)
    if has_draft:  # noqa: SIM102 - a compile-time test, which can remove the code below
        if has_drawn:
            drawn = tl.min(tl.where(children.is_drawn, place, padded_nodes), 0)
            x = at(children.token, drawn, padded_nodes)
            target, of_target, of_draft = masses_of(node, x, x >= 0, kind, has_draft)
            wins = drawn_wins(winner, of_target, of_draft).to(tl.float64)
            coin = tl.load(coins) * of_draft.to(tl.float64)
            if (coin < wins) | (has_certain == 0):
                child, prob = drawn, target
                win = wins / tl.maximum(winner.drawn, 1).to(tl.float64)
    return child, prob, win


@jit
def drawn_below(
    tree: Tree, child: tl.tensor, is_read: tl.tensor, padded_nodes: tl.constexpr
) -> tl.tensor:
    """Count the drawn children of a child, or return 0 if they are not read."""
    place = tl.arange(0, padded_nodes)
    inside = place < tree.nodes
    token = tl.load(tree.tokens + place, mask=inside, other=-1)  # [padded nodes]
    parent = tl.load(tree.parents + place, mask=inside, other=-2)  # [padded nodes]
    mark = tl.load(tree.sampled + place, mask=inside, other=0)  # [padded nodes]
    below = (token >= 0) & (parent == child) & (mark > 0)
    return tl.where(is_read, tl.sum(below.to(tl.int64), 0), 0)


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
