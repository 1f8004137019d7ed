"""Walk and keep over K chains of drafts, with the winner of a node chosen by bins of the ratio.

From the root the walk goes from each node to the draft that wins there, and no coin is thrown.
From its end upwards a node is kept with a probability that depends on distributions along the walk
alone (Theorem 14.1 of docs/theory/walk-and-keep.md), and the token that follows it is drawn from
what is left there.  For one chain this is block verification, for one draft the rule
"grid optimal".

Let W(y) be the probability that the walk passes a path y, S(yz) = min(S(y) t(z), W(yz)) and S = 1
at the root, where t is the target's distribution.  The walk carries S/W, its *share*, and the law
of the number of chains that agree.  What decides among the drafts of a node is the table of
`otm.kernels.optimal.numpy` for that law and share · t: any table is lossless (Theorem 14.6).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.quadrature import quadrature
from otm.kernels.block.numpy import next_weight
from otm.kernels.common.distributions.numpy import UNIT, collect, extend, locate, mass
from otm.kernels.optimal import numpy as grid_optimal
from otm.kernels.optimal.numpy import (
    STEPS,
    Numbers,
    Places,
    Table,
    certain,
    choose_slots,
    matched,
    of_numbers,
    positive,
    rounded,
    winner,
)
from otm.kernels.verified import Verified

WEIGHT_UNIT = 2.0**52
"""Parts of the largest of some weights, as which the weights are added."""

uniforms_per_position = grid_optimal.uniforms_per_position


class Node(NamedTuple):
    """A node of the walk: the chance of keeping it, what this is divided by, and what follows."""

    chance: Any
    divisor: Any
    masses: Numbers  # [V], of the token that follows
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
    """Walk along the drafts that win, and keep a part of the walk, for each sequence.

    Uniforms at each position: one for the slot of each draft, one to keep the draft that wins.
    """
    outputs = []
    given = zip(target_probs, draft_probs, draft_tokens, uniforms, strict=True)
    for b, (target, draft, tokens, coins) in enumerate(given):
        own = tokens >= 0 if counted is None else (tokens >= 0) & counted[b]
        rows = (target, draft, tokens, coins)
        outputs.append(_verify_one(*rows, own=own, steps=steps))
    chain = np.array([first for _, first in outputs], dtype=np.int64)
    return collect([output for output, _ in outputs], draft_tokens.shape[2])._replace(chain=chain)


def reveals(tokens: npt.NDArray[Any], own: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Positions at which the rule looks at the number of draws: [K, γ], [K, γ] → [γ].

    The first, and those where it depends on which chains agree: some have just ended, or share a
    draw there or at the position before.
    """
    live = np.logical_and.accumulate(tokens >= 0, axis=1)
    before = np.append(np.ones_like(live[:, :1]), live[:, :-1], axis=1)[:, : live.shape[1]]
    shared = np.asarray((live & ~own).any(axis=0))
    revealed = np.asarray((before & ~live).any(axis=0)) | shared
    revealed[1:] |= shared[:-1]
    revealed[:1] = True
    return revealed


def _verify_one(
    target_probs: npt.NDArray[Any],
    draft_probs: npt.NDArray[Any],
    draft_tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
    *,
    own: npt.NDArray[np.bool_],
    steps: int,
) -> tuple[list[int], int]:
    """Output and chain of one sequence; own [K, γ] says which drafts are draws."""
    chains, gamma = draft_tokens.shape
    coins, (for_residual, for_bonus) = uniforms[:-2].reshape(gamma, chains + 1), uniforms[-2:]
    revealed, agree = reveals(draft_tokens, own), np.ones(chains, dtype=bool)
    numbers = certain(0, chains)
    share: Any = 1
    walked: list[Node] = []
    path: list[int] = []
    for i in range(gamma + 1):
        running = np.where(agree, draft_tokens[:, i], -1) if i < gamma else np.full(chains, -1)
        first = int(agree.argmax())
        # a chain that has ended has no draft row here
        read = int((running >= 0).argmax()) if (running >= 0).any() else first
        target = target_probs[read, i]  # [V]
        everything = mass(target)
        count = int(own[running >= 0, i].sum()) if i < gamma else 0
        if count == 0:
            walked.append(Node(share, 1, everything, False, first))
            break
        if revealed[i]:
            numbers = certain(count, chains)
        draft = extend(draft_probs[read, i], target)
        if target.dtype != object:
            target, draft = target.astype(np.float64), draft.astype(np.float64)
        places, table = of_numbers(share * target, draft, numbers, chains, steps)
        won = winner(draft, places, table)
        left = np.maximum(mass(share * target) - mass(won), 0)
        excess = left.sum() if left.dtype == object else left.sum() / UNIT
        # an empty residual can only be a matter of rounding
        masses = left if left.any() else everything
        walked.append(Node(excess, excess + (1 - share), masses, True, first))
        known = np.flatnonzero((running >= 0) & own[:, i] & (running < target.size))
        known = known[draft[running[known]] > 0]
        if known.size == 0:
            break
        drafted = running[known]
        slots = choose_slots(table, Places(*(x[drafted] for x in places)), coins[i, known])
        x, slot = int(drafted[slots.argmax()]), int(slots.max())
        numbers = agreeing(
            numbers, table, Places(*(values[x] for values in places)), slot, draft[x]
        )
        share = next_weight(share, target[x], won[x])
        agree = running == x  # all chains that have the token go on
        path.append(x)
        if not share > 0:  # nothing there or below can be kept
            break
    depth = len(walked) - 1
    while depth > 0 and not coins[depth - 1, -1] * walked[depth].divisor < walked[depth].chance:
        depth -= 1
    node = walked[depth]
    token = locate(node.masses, for_residual if node.drafted else for_bonus)
    return [*path[:depth], token], node.chain


def agreeing(numbers: Numbers, table: Table, place: Places, slot: int, draft: Any) -> Numbers:
    """Law of the number of drafts that are a token, given that it wins in a slot: [K + 1].

    That is known of the walk as well, as if it were a part of the token: S/W does not depend on it.
    Let Z and R be the masses of the token and of all others up to a point along the slots.  That
    the highest draft is the token, at this point, and c of m drafts are, has the density
    C(m, c) c Z^(c − 1) R^(m − c) dZ, which is integrated over the slot.
    """
    below = np.append(0 * table.below[:1], table.below)
    before, within = part_of_slot(table, place, slot)
    start, step = draft * before / positive(below[-1]), draft * within / positive(below[-1])
    others = np.maximum(below[slot] / positive(below[-1]) - start, 0 * start)
    wide = np.maximum((below[slot + 1] - below[slot]) / positive(below[-1]) - step, 0 * start)
    weights = 0 * start
    exact = below.dtype == object
    for point, weight in zip(*quadrature(numbers.size - 1, exact=exact), strict=True):
        chances = ways(numbers, start + step * point, others + wide * point)
        weights = weights + weight * chances
    most = weights.max()
    if not most > 0:
        return numbers
    parts = rounded(weights / most * (1 if exact else WEIGHT_UNIT))
    return np.asarray(parts / parts.sum())


def part_of_slot(table: Table, place: Places, slot: int) -> tuple[Any, Any]:
    """Masses of a draft's token, of one in all, in the slots below a slot and in the slot."""
    exact = table.lack.dtype == object
    poor, start, amount = matched(table.lack, table.excess, np.asarray([place.bin]))
    others = table.excess if poor[0] else table.lack
    starts = np.append(0 * others[:1], others[:-1])
    overlap = np.maximum(np.minimum(others, start + amount) - np.maximum(starts, start), 0 * others)
    gain = abs(table.slopes - table.slopes[place.bin])
    change = table.win[place.bin] + place.share * table.rise[place.bin] - table.slopes[place.bin]
    certain_move = gain <= abs(change)
    moves = np.where(certain_move, 1, abs(change) / np.where(certain_move, 1, gain))
    moved = mass(overlap / positive(amount) * moves)
    stay = (1 if exact else int(UNIT)) - moved.sum()
    before = moved[:slot].sum() + stay * int(place.bin < slot)
    return before, moved[slot] + stay * int(place.bin == slot)


def ways(numbers: Numbers, own: Any, others: Any) -> Numbers:
    """Sum of Pr(m) C(m, c) c Z^(c − 1) R^(m − c) over m for each c, without a power: [K + 1]."""
    c = np.cumsum(numbers * 0 + own * 0 + 1) - 1
    total = term = 0 * c
    power = own * 0 + 1
    for m in range(1, numbers.size):
        # C(m, c) = C(m − 1, c) m / (m − c)
        ratio = m * (0 * c + 1) / np.where(c < m, m - c, 1)
        term = np.where(c < m, term * others * ratio, np.where(c == m, m * power, 0 * c))
        total = total + numbers[m] * term
        power = power * own
    return total
