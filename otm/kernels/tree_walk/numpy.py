"""Walk and keep over trees of certain children and at most one drawn child a node.

From the root, the walk goes to the child that wins at each node.  The drawn child x wins with
probability v(x)/p'(x), and otherwise a certain child wins with a probability proportional to the
target.  From the end of the walk upwards, each node is kept with a probability that depends only on
the distributions along the walk (docs/theory/certain-and-drawn.md).  The NumPy code is the
reference, and exact on object arrays of `fractions.Fraction`.

Let A be the certain children of a node and c a number.  Outside A the winner has the distribution
v = min(p', c q), and A has the rest, in proportion to q.  Any c gives a lossless rule; the best is
the root of Σ v = 1, which lies between 1 and 1/q(A).  The sum is concave in c, so that a step of
Newton's method never passes the root, and c is the largest result of one step from several points.
All steps are computed from one read of both rows.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm.kernels.block.numpy import next_weight
from otm.kernels.common.arrays import array_module, nonzero_or_one, to_float64, to_int64
from otm.kernels.common.distributions.numpy import UNIT, extend, locate, mass
from otm.kernels.results import VerifiedTree
from otm.kernels.tree.checks import Trees
from otm.kernels.tree.numpy import one_by_one

POINTS = 8
"""Number of points from which a step of Newton's method is made; a power of two for Triton."""

LARGEST = 8
"""Bound of these points.  A larger c can result from a step, if A has little probability."""


class Winner(NamedTuple):
    """Distribution of the winner at a node; arrays [..., V] and [..., 1]."""

    wins: Any  # masses of the tokens outside A, [..., V], as parts of `drawn`
    drawn: Any  # total mass of the drawn child; 0 if no child was drawn
    certain: Any  # probability that a child in A wins


class Node(NamedTuple):
    """A node of the walk: numerator and divisor of its keep probability, and the next token."""

    chance: Any
    divisor: Any
    masses: Any  # masses of the next token, [V]
    draft: int


class Outside(NamedTuple):
    """Masses of tokens outside A, [..., V], and the total masses of A, [..., 1]."""

    target: Any
    draft: Any  # 0 if no child was drawn
    of_certain: Any  # of the target
    hidden: Any  # of the draft


def winner(masses: Outside, points: int = POINTS) -> Winner:
    """Return the distribution of the winner."""
    xp = array_module(masses.target)
    drawn = masses.draft.sum(axis=-1, keepdims=True)
    target, draft = to_float64(masses.target), to_float64(masses.draft)
    c = largest_step(masses, points)
    # The float product may exceed all integers.
    wins = xp.minimum(masses.draft, to_int64(xp.minimum(c * target, draft)))
    # If the target excludes all certain children, the drawn child always wins.
    wins = xp.where(masses.of_certain > 0, wins, masses.draft)
    left = drawn - wins.sum(axis=-1, keepdims=True)
    certain = xp.where(
        drawn > 0, to_float64(left) / to_float64(nonzero_or_one(drawn)), 1 + 0 * left
    )
    return Winner(wins, drawn, certain)


def winner_of_row(masses: Outside, points: int = POINTS) -> Winner:
    """Return the distribution of the winner of one row [V], computed from the drafted tokens."""
    drafted = np.flatnonzero(masses.draft)
    few = Outside(masses.target[drafted], masses.draft[drafted], *masses[2:])
    won, wins = winner(few, points), 0 * masses.draft
    wins[drafted] = won.wins
    return won._replace(wins=wins)


def starting_points(of_certain: Any, hidden: Any, count: int) -> list[Any]:
    """Return the points from which Newton's method makes a step, each [..., 1].

    The points lie between 1 and 1/q(A), and are closer together near 1.  The drawn child's
    distribution has the mass 1 − p(A) instead of 1, so the points have this factor too.
    """
    xp, whole = array_module(of_certain), 1 if of_certain.dtype == object else int(UNIT)
    scale = to_float64(xp.maximum(whole - hidden, 0 * hidden)) / whole
    inverse = whole / to_float64(nonzero_or_one(of_certain))
    furthest = xp.minimum(inverse, LARGEST + 0 * scale)
    return [scale * (1 + (furthest - 1) * i**2 / count**2) for i in range(count)]


def largest_step(masses: Outside, points: int) -> Any:
    """Return c: the largest result of a step of Newton's method, [..., 1]."""
    xp, target, draft = array_module(masses.target), *map(to_float64, masses[:2])
    largest = to_float64(0 * masses.hidden)
    for point in starting_points(masses.of_certain, masses.hidden, points):
        capped = draft > point * target
        over = xp.where(capped, masses.draft, 0 * masses.draft).sum(axis=-1, keepdims=True)
        under = xp.where(capped, masses.target, 0 * masses.target).sum(axis=-1, keepdims=True)
        under = nonzero_or_one(masses.of_certain + under)
        largest = xp.maximum(largest, to_float64(over) / to_float64(under))
    return largest


def residual(target: Any, is_certain: Any, of_certain: Any, share: Any, won: Winner) -> Any:
    """Return masses of share · q − min(share · q, v): [..., V].

    `target` has probabilities; `is_certain` marks the tokens of A.
    """
    xp, whole = array_module(target), 1 if target.dtype == object else UNIT
    # On A, v is q · certain / q(A).
    of_target = to_float64(of_certain) / whole
    less = xp.where(of_certain > 0, won.certain / nonzero_or_one(of_target), 0 * won.certain)
    rest = xp.maximum(share - less, 0 * less)
    part = to_float64(won.wins) / to_float64(nonzero_or_one(won.drawn)) * whole
    outside = mass(share * target) - to_int64(part)
    return xp.where(is_certain, mass(rest * target), xp.maximum(outside, 0 * outside))


def verify(
    target_probs: Any, draft_probs: Any, trees: Trees[npt.NDArray[Any]], points: int = POINTS
) -> VerifiedTree[npt.NDArray[np.int64]]:
    """Walk through the tree of each sequence, and keep a part of the walk.

    Each level has four uniforms: for the drawn child, for a certain child, for keeping a node at
    this depth, and for the token after it.
    """
    return one_by_one(partial(_verify_one, points=points), target_probs, draft_probs, trees)


def _verify_one(
    target: Any, draft: Any, tree: Trees[npt.NDArray[Any]], *, points: int
) -> tuple[list[int], int]:
    """Return output and last draft of one tree: [N + 1, V], [N + 1, V'], [N], [L + 1, 4]."""
    tokens, parents, sampled, uniforms = tree
    share: Any = 1
    walked, path, node = list[Node](), list[int](), -1
    for level, (coin, choice, *_) in enumerate(uniforms):
        row = to_float64(target[node + 1])  # [V]; only rows along the walk are read
        everything = mass(row)
        children = np.flatnonzero((parents == node) & (tokens >= 0))
        if level == len(uniforms) - 1 or not children.size or not share > 0:
            walked.append(Node(share, 1, everything, node))
            break
        is_drawn = sampled[children] if draft is not None else np.zeros(children.size, np.bool_)
        certain, drawn = children[~is_drawn], children[is_drawn]
        is_certain = np.zeros(row.size, dtype=np.bool_)
        is_certain[tokens[certain]] = True
        nothing = 0 * everything
        below = mass(extend(draft[node + 1], row)) if drawn.size else nothing
        of_children = everything[tokens[certain]]
        of_certain = of_children.sum(keepdims=True)
        hidden = below[tokens[certain]].sum(keepdims=True)
        outside = np.where(is_certain, nothing, everything), np.where(is_certain, nothing, below)
        masses = Outside(*outside, of_certain, hidden)
        # Without a certain or a drawn child, nothing depends on c.
        won = winner_of_row(masses, points if certain.size and drawn.size else 0)
        left = residual(row, is_certain, of_certain, share, won)
        excess = left.sum() if left.dtype == object else left.sum() / UNIT
        # Only rounding can make the residual empty.
        of_next = left if left.any() else everything
        walked.append(Node(excess, excess + (1 - share), of_next, node))
        node, win = _child(tokens, certain, drawn, (masses.draft, of_children, won), (coin, choice))
        x = tokens[node]
        path.append(int(x))
        share = next_weight(share, row[x], win)
    depth = len(walked) - 1
    while depth > 0 and not uniforms[depth, 2] * walked[depth].divisor < walked[depth].chance:
        depth -= 1
    token = locate(walked[depth].masses, uniforms[depth, 3])
    return [*path[:depth], token], walked[depth].draft


def _child(
    tokens: Any, certain: Any, drawn: Any, masses: tuple[Any, Any, Winner], coins: tuple[Any, Any]
) -> tuple[int, Any]:
    """Return the child that wins, and the probability that its token wins."""
    below, of_children, won = masses
    certain_wins = won.certain.item()
    if drawn.size:
        x = tokens[drawn[0]]
        mass_of, wins = to_float64(below)[x], to_float64(won.wins)[x]
        if coins[0] * mass_of < wins or not certain.size:
            return int(drawn[0]), wins / to_float64(won.drawn).item()
    if not of_children.any():
        return int(certain[0]), certain_wins
    place = locate(of_children, coins[1])
    part = to_float64(of_children)[place] / to_float64(of_children.sum(keepdims=True)).item()
    return int(certain[place]), certain_wins * part
