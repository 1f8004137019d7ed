"""Walk and keep over K chains of drafts, where bins of the ratio choose the winner of a node.

From the root, the walk goes from each node to the draft that wins there, without testing
acceptance.  From the end of the walk upwards, a node is kept with a probability that depends only
on distributions along the walk (Theorem 14.1 of docs/theory/walk-and-keep.md).  The token after the
kept node is drawn from the residual at this node.  For one chain the method is block verification,
and for chains of one draft it is the rule "grid optimal".

Let W(y) be the probability that the walk passes a path y, and t the target distribution.  Let S = 1
at the root and S(yz) = min(S(y) t(z), W(yz)).  The walk stores S/W, its *share*, and the
distribution of the number of chains that agree.  At each node, the table of
`otm.kernels.optimal.numpy` for share · t and for the distribution of the number of chains chooses
among the drafts.  Every table is lossless (Theorem 14.6).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.quadrature import quadrature
from otm.kernels.block.numpy import next_weight
from otm.kernels.common.arrays import (
    array_module,
    nonzero_or_one,
    prepend_zero,
    take,
    to_float64,
    to_int64,
)
from otm.kernels.common.distributions.numpy import UNIT, collect_ends, extend, locate, mass
from otm.kernels.optimal import numpy as grid_optimal
from otm.kernels.optimal.numpy import (
    STEPS,
    Numbers,
    Places,
    Table,
    bin_tokens,
    choose_slots,
    deterministic_count,
    swap_partners,
    winner_probs,
)
from otm.kernels.results import Verified

WEIGHT_UNIT = 2.0**52
"""Number of parts that the largest weight is divided into, to add weights as integers."""

uniforms_per_position = grid_optimal.uniforms_per_position


class Node(NamedTuple):
    """A node of the walk: numerator and divisor of its keep probability, and the next token."""

    chance: Any
    divisor: Any
    masses: Numbers  # masses of the next token, [V]
    drafted: bool
    chain: int


def verify(
    target_probs: npt.NDArray[Any],
    draft_probs: npt.NDArray[Any],
    draft_tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
    *,
    counted: npt.NDArray[np.bool_] | None = None,
    steps: int = STEPS,
) -> Verified[npt.NDArray[np.int64]]:
    """Walk along the winning drafts and keep a part of the walk, for each sequence.

    At each position there is one uniform for the slot of each draft, and one for keeping the
    winner.
    """
    drawn = draft_tokens >= 0 if counted is None else (draft_tokens >= 0) & counted
    arguments = zip(target_probs, draft_probs, draft_tokens, uniforms, drawn, strict=True)
    outputs = [_verify_one(*each, own=own, steps=steps) for *each, own in arguments]
    return Verified(*collect_ends(outputs, draft_tokens.shape[2]))


def conditioning_positions(tokens: Any, own: Any) -> Any:
    """Find where the rule treats the number of draws as known: [..., K, γ] × 2 → [..., γ].

    The number of draws is known at the first position.  At a later position the number depends on
    which chains agree if some chains have just ended, or share a draw at this or the previous
    position; the rule treats such a number as known.
    """
    xp = array_module(tokens)
    live = (tokens >= 0).cumprod(axis=-1) > 0
    before = xp.concatenate((xp.ones_like(live[..., :1]), live[..., :-1]), axis=-1)
    ended, shared = (x.any(axis=-2) for x in (before & ~live, live & ~own))
    after_shared = xp.concatenate((xp.ones_like(shared[..., :1]), shared[..., :-1]), axis=-1)
    return ended | shared | after_shared


def _verify_one(
    target_probs: npt.NDArray[Any],
    draft_probs: npt.NDArray[Any],
    draft_tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
    *,
    own: npt.NDArray[np.bool_],
    steps: int,
) -> tuple[list[int], int]:
    """Return the output and chain of one sequence; `own` [K, γ] marks separate draws."""
    chains, gamma = draft_tokens.shape
    coins, (for_residual, for_bonus) = uniforms[:-2].reshape(gamma, chains + 1), uniforms[-2:]
    conditions, agree = conditioning_positions(draft_tokens, own), np.ones(chains, dtype=bool)
    numbers = deterministic_count(0, chains)
    share: Any = 1
    walked: list[Node] = []
    path: list[int] = []
    for i in range(gamma + 1):
        running = np.where(agree, draft_tokens[:, i], -1) if i < gamma else np.full(chains, -1)
        first = int(agree.argmax())
        # A chain that has ended has no draft row here.
        read = int((running >= 0).argmax()) if (running >= 0).any() else first
        target = target_probs[read, i]  # [V]
        everything = mass(target)
        count = int(own[running >= 0, i].sum()) if i < gamma else 0
        if count == 0:
            walked.append(Node(share, 1, everything, False, first))
            break
        if conditions[i]:
            numbers = deterministic_count(count, chains)
        draft = extend(draft_probs[read, i], target)
        target, draft = to_float64(target), to_float64(draft)
        places, table = bin_tokens(share * target, draft, numbers, chains, steps)
        win_probs = winner_probs(draft, places, table)
        left = np.maximum(mass(share * target) - mass(win_probs), 0)
        excess = left.sum() if left.dtype == object else left.sum() / UNIT
        # Only rounding can make the residual empty.
        masses = left if left.any() else everything
        walked.append(Node(excess, excess + (1 - share), masses, True, first))
        known = np.flatnonzero((running >= 0) & own[:, i] & (running < target.size))
        known = known[draft[running[known]] > 0]
        if known.size == 0:
            break
        drafted = running[known]
        slots = choose_slots(table, Places(*(x[drafted] for x in places)), coins[i, known])
        best = slots.argmax()
        x, slot = int(drafted[best]), slots[best : best + 1]
        place = Places(*(values[x : x + 1] for values in places))
        numbers = count_given_winner(numbers, table, place, slot, draft[x : x + 1])
        share = next_weight(share, target[x], win_probs[x])
        agree = running == x  # all chains with this token continue
        path.append(x)
        if not share > 0:  # neither this node nor a deeper one can be kept
            break
    depth = len(walked) - 1
    while depth > 0 and not coins[depth - 1, -1] * walked[depth].divisor < walked[depth].chance:
        depth -= 1
    node = walked[depth]
    token = locate(node.masses, for_residual if node.drafted else for_bonus)
    return [*path[:depth], token], node.chain


def count_given_winner(numbers: Any, table: Table, place: Places, slot: Any, draft: Any) -> Any:
    """Return the distribution of the number of drafts equal to a token that wins in a slot.

    Conditioning on the slot is allowed, because the share S/W does not depend on it.  Let Z and R
    be the masses of the token and of all other tokens up to a point along the slots.  Consider the
    event that the highest draft is the token at this point, and that c of m drafts are the token.
    This event has the density C(m, c) c Z^(c − 1) R^(m − c) dZ, which is integrated over the slot:
    [..., 1] → [..., K + 1].
    """
    xp, below = array_module(table.below), prepend_zero(table.below)
    exact, total = below.dtype == object, to_float64(nonzero_or_one(below[..., -1:]))
    before, within = slot_mass_split(table, place, slot)
    start, step = draft * before / total, draft * within / total
    others = take(below, slot) / total - start
    wide = (take(below, slot + 1) - take(below, slot)) / total - step
    others, wide = xp.maximum(others, 0 * start), xp.maximum(wide, 0 * start)
    weights = 0 * start
    points = (x.tolist() for x in quadrature(numbers.shape[-1] - 1, exact=exact))
    for point, weight in zip(*points, strict=True):
        chances = binomial_weights(numbers, start + step * point, others + wide * point)
        weights = weights + weight * chances
    most = xp.amax(weights, axis=-1, keepdims=True)
    parts = to_int64(weights / nonzero_or_one(most) * (1 if exact else WEIGHT_UNIT))
    total_parts = to_float64(nonzero_or_one(parts.sum(axis=-1, keepdims=True)))
    return xp.where(most > 0, parts / total_parts, numbers)


def slot_mass_split(table: Table, place: Places, slot: Any) -> tuple[Any, Any]:
    """Return the fractions of a token's draft mass in the slots below `slot` and in `slot`.

    Both results have shape [..., 1].
    """
    xp, exact = array_module(table.lack), table.lack.dtype == object
    poor, start, amount = swap_partners(table.lack, table.excess, place.bin)
    others = xp.where(poor, table.excess, table.lack)
    starts = prepend_zero(others)[..., :-1]
    overlap = xp.minimum(others, start + amount) - xp.maximum(starts, start)
    overlap = xp.maximum(overlap, 0 * overlap)
    slope = take(table.slopes, place.bin)
    change = take(table.win, place.bin) + place.share * take(table.rise, place.bin) - slope
    gain, change = abs(table.slopes - slope), abs(change)
    ones = xp.ones_like(gain)
    moves = xp.where(gain <= change, ones, change / xp.where(gain <= change, ones, gain))
    moved = mass(overlap / to_float64(nonzero_or_one(amount)) * moves)
    stay = (1 if exact else int(UNIT)) - moved.sum(axis=-1, keepdims=True)
    before = take(prepend_zero(moved.cumsum(axis=-1)), slot)
    return before + stay * (place.bin < slot), take(moved, slot) + stay * (place.bin == slot)


def binomial_weights(numbers: Any, own: Any, others: Any) -> Any:
    """Return the sum over m of Pr(m) C(m, c) c Z^(c − 1) R^(m − c) for each c: [..., K + 1].

    Z is `own` and R is `others`, [..., 1].  The computation needs no power function.
    """
    xp = array_module(own)
    ones = 0 * numbers + 0 * own + 1
    c = ones.cumsum(axis=-1) - 1
    total = term = 0 * c
    power = 0 * own + 1
    for m in range(1, numbers.shape[-1]):
        # C(m, c) = C(m − 1, c) m / (m − c)
        ratio = m * ones / xp.where(c < m, m - c, ones)
        term = xp.where(c < m, term * others * ratio, xp.where(c == m, m * power, 0 * c))
        total = total + numbers[..., m : m + 1] * term
        power = power * own
    return total
