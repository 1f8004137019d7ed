"""Steps of walk and keep by bins inside Triton kernels, as in `otm.kernels.walk_and_keep.torch`."""

# ruff: noqa: PLR0917 - pointers and sizes, in order

from __future__ import annotations

from typing import NamedTuple

from otm.kernels.block.triton_steps import capped_ratio
from otm.kernels.common.distributions.numpy import UNIT
from otm.kernels.common.distributions.triton import mass
from otm.kernels.common.runtime import constant, jit, tl
from otm.kernels.multi_draft.triton_steps import (
    Chains,
    Options,
    Paths,
    agree_at,
    at_drafts,
    change_of_listed,
    drafts_at,
    next_token_masses,
)
from otm.kernels.optimal.triton_steps import (
    BELOW,
    EXCESS,
    LACK,
    RISE,
    SLOPES,
    WIN,
    choose_slots,
    find_place,
    float_at,
    sum_before,
    swap_partners,
    winner_probs,
)
from otm.kernels.walk_and_keep.numpy import WEIGHT_UNIT

_UNIT, _PART = constant(UNIT), constant(1 / UNIT)
_WEIGHT_UNIT = constant(WEIGHT_UNIT)


class Walk(NamedTuple):
    """Uniforms and memory of a sequence's walk, by position; the number of blocks of a row."""

    uniforms: tl.tensor
    agree: tl.tensor
    shares: tl.tensor
    left: tl.tensor
    blocks: tl.tensor


@jit
def walk_of(
    of: Chains,
    uniforms: tl.tensor,
    agree: tl.tensor,
    shares: tl.tensor,
    left: tl.tensor,
    blocks: tl.tensor,
) -> Walk:
    """Return the walk of this program's sequence."""
    sequence = tl.program_id(0).to(tl.int64)
    chains, rows = of.paths.chains, of.paths.gamma + 1
    uniforms += sequence * (of.paths.gamma * (chains + 1) + 2)
    agree += sequence * rows * chains
    return Walk(
        uniforms, agree, shares + sequence * rows, left + sequence * rows * 2 * blocks, blocks
    )


@jit
def find_winner(
    of: Chains,
    walk: Walk,
    drafts: tl.tuple,
    share: tl.tensor,
    position: tl.tensor,
    options: Options,
) -> tl.tensor:
    """Return the chains with the winning token at a position; no chain if no token can win.

    `drafts` is the result of `drafts_at` at this position.
    Also return the winner's slot and three probabilities of the winner: share · target, draft, and
    winning.
    """
    chain = tl.arange(0, options.padded_chains)
    token, own, count, read = drafts
    target_prob, draft_prob = at_drafts(of, read, position, token, count, options)
    known = own & (token < of.rows.size) & (draft_prob > 0)
    weighted = share * target_prob
    node = of.sums + position * of.node_size
    uniforms = walk.uniforms + position * (of.paths.chains + 1)
    uniform = tl.load(uniforms + chain, mask=known, other=0.0)  # [padded K]
    slot = choose_slots(node, weighted, draft_prob, uniform, options.edges)
    win = winner_probs(node, weighted, draft_prob, options.edges)
    highest = tl.max(tl.where(known, slot, -1), 0)
    first = tl.min(tl.where(known & (slot == highest), chain, options.padded_chains), 0)
    here = chain == first
    winner = tl.max(tl.where(here, token, -1), 0)
    of_target = tl.sum(tl.where(here, weighted, 0.0), 0)
    of_draft = tl.sum(tl.where(here, draft_prob, 0.0), 0)
    of_winner = tl.sum(tl.where(here, win, 0.0), 0)
    agree = (token >= 0) & (token == winner)
    return agree, tl.maximum(highest, 0), of_target, of_draft, of_winner


@jit
def walk_on(of: Chains, walk: Walk, position: tl.tensor, options: Options) -> tl.tensor:
    """Return the mask of chains that agree at a position, and the share S/W of the walk's node.

    If the walk has ended, no chain agrees.
    """
    chain = tl.arange(0, options.padded_chains)
    share = tl.full((), 1.0, tl.float64)
    agreed = chain < tl.where(position == 0, of.paths.chains, 0)
    if position > 0:
        before = position - 1
        parents = agree_at(walk.agree, before, of.paths.chains, options.padded_chains)
        token, own, count, read = drafts_at(of.paths, parents, before, options)
        if count > 0:  # otherwise the node has no table
            share = tl.load(walk.shares + before)  # scalar
            agreed, _slot, of_target, _of_draft, of_winner = find_winner(
                of, walk, (token, own, count, read), share, before, options
            )
            share = capped_ratio(of_target, of_winner)
            # If the share is 0, neither this node nor a deeper one can be kept.
            agreed = agreed & (chain < tl.where(share > 0, of.paths.chains, 0))
    return agreed, share


@jit
def add_left(
    several: Chains, walk: Walk, position: tl.tensor, token: tl.tensor, options: Options
) -> None:
    """Sum a block's residual masses and target masses at a node of the walk."""
    agreed = agree_at(walk.agree, position, several.paths.chains, options.padded_chains)
    block = tl.program_id(1)
    if (block < walk.blocks) & (tl.max(tl.where(agreed, 1, 0), 0) > 0):
        share = tl.load(walk.shares + position)  # scalar
        _, _, count, read = drafts_at(several.paths, agreed, position, options)
        of_row, rest = next_token_masses(
            several, read, position, token, count, share, None, options
        )
        total = tl.sum(rest, 0)
        if options.width > 0:
            total += change_of_listed(token, several, read, position, count, share, options)
        place = walk.left + position * 2 * walk.blocks + block
        tl.store(place, total)
        tl.store(place + walk.blocks, tl.sum(of_row, 0))


@jit
def is_conditioning(paths: Paths, position: tl.tensor, options: Options) -> tl.tensor:
    """Whether the rule treats the number of draws at a position as known.

    The number is treated as known at the first position, at a position where chains have just
    ended, and at the position of a shared draw or the next one.
    """
    place, live = (
        tl.arange(0, options.padded_chains) * paths.gamma,
        tl.arange(0, options.padded_chains),
    )
    live = live < paths.chains
    tokens = paths.tokens + place
    for step in range(position):
        live = live & (tl.load(tokens + step, mask=live, other=-1) >= 0)  # [padded K]
    token = tl.load(tokens + position, mask=live, other=0)  # [padded K]
    revealed = (position == 0) | (tl.min(token, 0) < 0)
    if options.tree:
        own, earlier = paths.counted + place + position, live & (position > place * 0)
        mine = tl.load(own, mask=live & (token >= 0), other=1)  # [padded K]
        before = tl.load(own - 1, mask=earlier, other=1)  # [padded K]
        revealed = revealed | (tl.min(mine.to(tl.int32), 0) == 0)
        revealed = revealed | (tl.min(before.to(tl.int32), 0) == 0)
    return revealed


@jit
def slot_mass_split(
    memory: tl.tensor, own: tl.tensor, share: tl.tensor, slot: tl.tensor, width: tl.constexpr
) -> tl.tensor:
    """Return masses of a draft's token in the slots below `slot` and in `slot`."""
    place = tl.arange(0, width)
    poor, start, amount = swap_partners(memory, own, width)
    others = memory + tl.where(poor, EXCESS * width, LACK * width)
    # [width]
    stops = tl.minimum(tl.load(others + place), start + amount)
    overlap = tl.maximum(stops - tl.maximum(sum_before(others, place), start), 0)
    slopes = memory + SLOPES * width
    slope = float_at(slopes, own)
    win = float_at(memory + WIN * width, own)
    change = tl.abs(win + share * float_at(memory + RISE * width, own) - slope)
    gain = tl.abs(float_at(slopes, place) - slope)
    always = gain <= change
    moves = tl.where(always, 1.0, change / tl.where(always, 1.0, gain))
    part = overlap.to(tl.float64) / tl.maximum(amount, 1).to(tl.float64)
    moved = mass(part * moves, _UNIT)
    stay = mass(tl.full((), 1.0, tl.float64), _UNIT) - tl.sum(moved, 0)
    before = tl.sum(tl.where(place < slot, moved, 0), 0) + tl.where(own < slot, stay, 0)
    within = tl.sum(tl.where(place == slot, moved, 0), 0) + tl.where(own == slot, stay, 0)
    return before, within


@jit
def binomial_weights(
    numbers: tl.tensor,
    own: tl.tensor,
    others: tl.tensor,
    chains: tl.tensor,
    padded_numbers: tl.constexpr,
) -> tl.tensor:
    """Return the sum over m of Pr(m) C(m, c) c Z^(c − 1) R^(m − c) for each c: [padded K + 1]."""
    c = tl.arange(0, padded_numbers).to(tl.float64)
    total, term = c * 0.0, c * 0.0
    power = tl.full((), 1.0, tl.float64)
    for m in range(1, chains + 1):
        count = c * 0.0 + m
        ratio = count / tl.where(c < count, count - c, 1.0)
        ends = tl.where(c == count, count * power, 0.0)
        term = tl.where(c < count, term * others * ratio, ends)
        total = total + tl.load(numbers + m) * term  # scalar
        power = power * own
    return total


@jit
def count_given_winner(
    memory: tl.tensor,
    numbers: tl.tensor,
    points: tl.tensor,
    slot: tl.tensor,
    of_target: tl.tensor,
    of_draft: tl.tensor,
    chains: tl.tensor,
    edges: tl.constexpr,
    padded_numbers: tl.constexpr,
) -> tl.tensor:
    """Return the distribution of the number of drafts equal to a token that wins in a slot.

    `points` holds the points and then the weights of the quadrature.
    """
    own, share = find_place(of_target, of_draft, edges)
    before, within = slot_mass_split(memory, own, share, slot, edges)
    below = memory + BELOW * edges
    total = tl.maximum(tl.load(below + edges - 1), 1).to(tl.float64)  # scalar
    start = of_draft * before.to(tl.float64) / total
    step = of_draft * within.to(tl.float64) / total
    lower = sum_before(below, slot)
    others = tl.maximum(lower.to(tl.float64) / total - start, 0.0)
    wide = (tl.load(below + slot) - lower).to(tl.float64) / total - step  # scalar
    wide = tl.maximum(wide, 0.0)
    weights = tl.zeros((padded_numbers,), tl.float64)
    count = (chains + 1) // 2
    for i in range(count):
        point, weight = tl.load(points + i), tl.load(points + count + i)  # scalars
        chances = binomial_weights(
            numbers, start + step * point, others + wide * point, chains, padded_numbers
        )
        weights = weights + weight * chances
    most = tl.max(weights, 0)
    parts = (weights / tl.where(most > 0, most, 1.0) * _WEIGHT_UNIT).to(tl.int64)
    place = tl.arange(0, padded_numbers)
    probs_there = parts.to(tl.float64) / tl.maximum(tl.sum(parts, 0), 1).to(tl.float64)
    same = tl.load(numbers + place, mask=place <= chains, other=0.0)  # [padded K + 1]
    return tl.where(most > 0, probs_there, same)


@jit
def count_agreeing(
    of: Chains,
    walk: Walk,
    numbers: tl.tensor,
    points: tl.tensor,
    count: tl.tensor,
    position: tl.tensor,
    options: Options,
    padded_numbers: tl.constexpr,
) -> None:
    """Store the distribution of the number of agreeing drafts at a position that has `count`."""
    place, chains = tl.arange(0, padded_numbers), of.paths.chains
    here = numbers + position * (chains + 1)
    if is_conditioning(of.paths, position, options):
        tl.store(here + place, tl.where(place == count, 1.0, 0.0), mask=place <= chains)
    else:
        before = position - 1
        agreed = agree_at(walk.agree, before, chains, options.padded_chains)
        drafts = drafts_at(of.paths, agreed, before, options)
        share = tl.load(walk.shares + before)  # scalar
        _agree, slot, of_target, of_draft, _won = find_winner(
            of, walk, drafts, share, before, options
        )
        node, earlier = of.sums + before * of.node_size, here - (chains + 1)
        probs = count_given_winner(
            node, earlier, points, slot, of_target, of_draft, chains, options.edges, padded_numbers
        )
        tl.store(here + place, probs, mask=place <= chains)


@jit
def deepest_kept(
    of: Chains, walk: Walk, depth: tl.tensor, drafted: tl.tensor, padded_blocks: tl.constexpr
) -> tl.tensor:
    """Return the depth of the deepest kept node.

    `drafted` is true if there are drafts after the last node of the walk.
    """
    part = tl.arange(0, padded_blocks)
    kept = depth * 0
    for i in range(1, depth + 1):
        # [padded blocks]
        sums = walk.left + i * 2 * walk.blocks
        values = tl.load(sums + part, mask=part < walk.blocks, other=0)
        excess = tl.sum(values, 0).to(tl.float64) * _PART
        share = tl.load(walk.shares + i)  # scalar
        coin = tl.load(walk.uniforms + i * (of.paths.chains + 1) - 1)  # scalar for the draft before
        inside = drafted | (i < depth)
        chance = tl.where(inside, excess, share)
        divisor = tl.where(inside, excess + (1.0 - share), 1.0)
        kept = tl.where(coin * divisor < chance, i, kept)
    return kept
