"""Verification of trees of drafts, one sequence after another.

The NumPy code is the reference: the faster versions make the same decisions.  The code is exact on
object arrays of `fractions.Fraction`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.kernels.common.distributions.numpy import collect_ends, extend, locate, mass
from otm.kernels.results import VerifiedTree
from otm.kernels.tree.checks import Trees


def verify(
    target_probs: Any, draft_probs: Any, trees: Trees[npt.NDArray[Any]]
) -> VerifiedTree[npt.NDArray[np.int64]]:
    """Walk through the tree of each sequence."""
    return one_by_one(_verify_one, target_probs, draft_probs, trees)


def one_by_one(
    verify_one: Callable[..., tuple[list[int], int]],
    target_probs: Any,
    draft_probs: Any,
    trees: Trees[npt.NDArray[Any]],
) -> VerifiedTree[npt.NDArray[np.int64]]:
    """Apply a function of the rows and the tree of one sequence to each sequence of a batch."""
    drafts = repeat(None) if draft_probs is None else draft_probs
    each = zip(target_probs, drafts, *trees)  # noqa: B905 - `repeat` has no end
    outputs = [verify_one(target, draft, Trees(*tree)) for target, draft, *tree in each]
    return VerifiedTree(*collect_ends(outputs, trees.uniforms.shape[1] - 1))


def _verify_one(target: Any, draft: Any, tree: Trees[npt.NDArray[Any]]) -> tuple[list[int], int]:
    """Return output and last draft of one tree.

    Shapes: rows [N + 1, V], drafts [N], uniforms [L + 1, W + 1].  The sampled children of a node
    are tested in their order.  If no sampled child is accepted, a token is drawn from the residual,
    and the walk continues from the child with this token, if there is one.
    """
    tokens, parents, sampled, uniforms = tree
    node, output = -1, list[int]()
    for *coins, for_token in uniforms:
        children = np.flatnonzero((parents == node) & (tokens >= 0))
        if len(output) == len(uniforms) - 1:  # after L drafts only the bonus token follows
            children = children[:0]
        tested = children[sampled[children]] if draft is not None else children[:0]
        row = target[node + 1]  # [V]; only this row and the same row of the draft are read here
        left = mass(row)
        accepted = -1
        if tested.size:
            below = mass(extend(draft[node + 1], row))
            accepted, left = _test_children(left, below, tokens, tested, coins)
        token = tokens[accepted] if accepted >= 0 else locate(left, for_token)
        output.append(int(token))
        next_nodes = [accepted] if accepted >= 0 else children[tokens[children] == token].tolist()
        if not next_nodes:
            break
        node = next_nodes[0]
    return output, node


def _test_children(
    left: npt.NDArray[Any],
    below: npt.NDArray[Any],
    tokens: npt.NDArray[Any],
    tested: npt.NDArray[np.int64],
    coins: list[Any],
) -> tuple[int, npt.NDArray[Any]]:
    """Test children by recursive rejection; return the accepted child or −1, and the residual.

    `left` [V] are masses of the target, and `below` [V] are masses of the distribution that the
    children were drawn from, without replacement.
    """
    exact = left.dtype == object
    number: Any = Fraction if exact else float
    total, rest = left.sum(), below.sum()
    for child, coin in zip(tested.tolist(), coins, strict=False):
        x = tokens[child]
        draft_mass, target_mass = number(below[x]), number(left[x])
        if coin * (draft_mass * number(total)) < target_mass * number(rest):
            return child, left
        share = number(total) / number(rest) if rest else number(0)
        less = below * share if exact else (below.astype(np.float64) * share).astype(np.int64)
        left = np.maximum(left - less, 0)
        total = left.sum()
        # All residual mass was on this draft, so only rounding can have rejected it.
        if not total:
            return child, left
        rest = rest - below[x]
        below[x] -= below[x]
    return -1, left
