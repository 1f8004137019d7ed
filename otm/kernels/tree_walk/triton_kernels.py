"""Kernels of walk and keep over trees; `otm.kernels.tree_walk.triton` launches them."""

# ruff: noqa: PLR0915, PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from otm.kernels.block.triton_steps import capped_ratio
from otm.kernels.common.distributions.numpy import UNIT
from otm.kernels.common.draw import first_above, pick_block
from otm.kernels.common.runtime import constant, jit, tl
from otm.kernels.tree.triton_rows import OVER, row_of
from otm.kernels.tree_walk.numpy import POINTS
from otm.kernels.tree_walk.triton_steps import (
    Winner,
    add_steps_to,
    certain_residual,
    children_of,
    drawn_below,
    is_any,
    largest_step,
    masses_of,
    node_of,
    outside_of,
    tree_of,
    winning_child,
)

_PART = constant(1 / UNIT)

SUMS = 1 + 2 * POINTS
"""Number of sums of a node: the draft's mass, and two sums for each step of Newton's method."""

LEFT = 3
"""Number of sums of a block: residual, target, and masses of winning drawn children."""

NUMBERS = 3
"""Numbers of a sequence at a level: its share, c, and the probability that a certain child wins."""

_SUMS, _LEFT, _NUMBERS = map(constant, (SUMS, LEFT, NUMBERS))


@jit
def add_steps(
    target: tl.tensor,
    draft: tl.tensor,
    states: tl.tensor,
    softmaxes: tl.tensor,
    tokens: tl.tensor,
    parents: tl.tensor,
    sampled: tl.tensor,
    sums: tl.tensor,
    target_sequence: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_row: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    blocks: tl.tensor,
    nodes: tl.tensor,
    levels: tl.tensor,
    level: tl.tensor,
    kind: tl.constexpr,
    has_draft: tl.constexpr,
    block_size: tl.constexpr,
    padded_nodes: tl.constexpr,
) -> None:
    """Add the masses of a block of both rows to the sums for all steps of Newton's method."""
    sequence, batch = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    row, count = row_of(states, sequence, batch, level, 0)
    if (row < 0) | (count == 0):
        return
    strides = (target_sequence, target_row, draft_sequence, draft_row)
    models, sizes = (target, draft, softmaxes + sequence * 8), (size, draft_size)
    node = node_of(models, strides, sizes, sequence, (row, count))
    tree = tree_of((tokens, parents, sampled), sequence, nodes)
    children = children_of(tree, node, row, count > 0, kind, has_draft, padded_nodes)
    token = tl.program_id(1) * block_size + tl.arange(0, block_size)
    _, of_target, of_draft = masses_of(node, token, token >= 0, kind, has_draft)
    here = level.to(tl.int64) * batch + sequence
    add_steps_to(sums + here * _SUMS, children, of_target, of_draft)


@jit
def add_left(
    target: tl.tensor,
    draft: tl.tensor,
    states: tl.tensor,
    softmaxes: tl.tensor,
    tokens: tl.tensor,
    parents: tl.tensor,
    sampled: tl.tensor,
    sums: tl.tensor,
    numbers: tl.tensor,
    drawn: tl.tensor,
    left: tl.tensor,
    target_sequence: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_row: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    blocks: tl.tensor,
    nodes: tl.tensor,
    levels: tl.tensor,
    level: tl.tensor,
    kind: tl.constexpr,
    has_draft: tl.constexpr,
    block_size: tl.constexpr,
    padded_nodes: tl.constexpr,
) -> None:
    """Find c, and sum the residual and the target's masses of a block.

    After a node without children there is no residual.
    """
    sequence, batch = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    row, count = row_of(states, sequence, batch, level, 0)
    if row < 0:
        return
    here = level.to(tl.int64) * batch + sequence
    share = tl.load(numbers + here * _NUMBERS)  # scalar
    strides = (target_sequence, target_row, draft_sequence, draft_row)
    models, sizes = (target, draft, softmaxes + sequence * 8), (size, draft_size)
    node = node_of(models, strides, sizes, sequence, (row, count))
    tree = tree_of((tokens, parents, sampled), sequence, nodes)
    is_open = (share > 0) & (level + 1 < levels)
    children = children_of(tree, node, row, is_open, kind, has_draft, padded_nodes)
    c, of_drawn = tl.full((), 0.0, tl.float64), tl.full((), 0, tl.int64)
    block = tl.program_id(1)
    if has_draft:
        if count > 0:
            c, of_drawn = largest_step(sums + here * _SUMS, children)
        if block == 0:
            tl.store(numbers + here * _NUMBERS + 1, c)
            tl.store(drawn + here, of_drawn)
    winner = Winner(c, of_drawn, children.certain > 0)
    token = block * block_size + tl.arange(0, block_size)
    prob, of_target, of_draft = masses_of(node, token, token >= 0, kind, has_draft)
    wins, residual = outside_of(winner, share, prob, of_target, of_draft, has_draft)
    goes_on = is_any(children.is_certain | children.is_drawn)
    place = left + here * _LEFT * blocks + block
    tl.store(place, tl.where(goes_on, tl.sum(residual, 0), 0))
    tl.store(place + blocks, tl.sum(of_target, 0))
    tl.store(place + 2 * blocks, tl.sum(wins, 0))


@jit
def step(
    target: tl.tensor,
    draft: tl.tensor,
    states: tl.tensor,
    softmaxes: tl.tensor,
    tokens: tl.tensor,
    parents: tl.tensor,
    sampled: tl.tensor,
    numbers: tl.tensor,
    drawn: tl.tensor,
    left: tl.tensor,
    uniforms: tl.tensor,
    accepted: tl.tensor,
    reached: tl.tensor,
    target_sequence: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_row: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    blocks: tl.tensor,
    nodes: tl.tensor,
    levels: tl.tensor,
    level: tl.tensor,
    kind: tl.constexpr,
    has_draft: tl.constexpr,
    block_size: tl.constexpr,
    padded_nodes: tl.constexpr,
    padded_blocks: tl.constexpr,
) -> None:
    """Test whether a node is kept, correct its residual, and go to the child that wins.

    The correction of the residual is for the certain children.
    """
    sequence, batch = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    row, count = row_of(states, sequence, batch, level, 0)
    here = level.to(tl.int64) * batch + sequence
    next_row, count_there = tl.full((), OVER, tl.int64), tl.full((), 0, tl.int64)
    if row >= 0:
        share = tl.load(numbers + here * _NUMBERS)  # scalar
        strides = (target_sequence, target_row, draft_sequence, draft_row)
        models, sizes = (target, draft, softmaxes + sequence * 8), (size, draft_size)
        node = node_of(models, strides, sizes, sequence, (row, count))
        tree = tree_of((tokens, parents, sampled), sequence, nodes)
        is_open = (share > 0) & (level + 1 < levels)
        children = children_of(tree, node, row, is_open, kind, has_draft, padded_nodes)
        coins = uniforms + (sequence * levels + level) * 4
        chance, divisor = share, tl.full((), 1.0, tl.float64)
        if is_any(children.is_certain | children.is_drawn):
            c, of_drawn = tl.full((), 0.0, tl.float64), tl.full((), 0, tl.int64)
            if has_draft:
                c = tl.load(numbers + here * _NUMBERS + 1)  # scalar
                of_drawn = tl.load(drawn + here)  # scalar
            winner = Winner(c, of_drawn, children.certain > 0)
            of_blocks = left + here * _LEFT * blocks
            block = tl.arange(0, padded_blocks)
            inside = block < blocks
            residual = tl.load(of_blocks + block, mask=inside, other=0)  # [padded blocks]
            won = tl.load(of_blocks + 2 * blocks + block, mask=inside, other=0)  # [padded blocks]
            masses = children.target, children.of_target, children.of_draft
            wins, outside = outside_of(winner, share, *masses, has_draft)
            rest = (of_drawn - tl.sum(won, 0) + tl.sum(wins, 0)).to(tl.float64)
            certain_wins = rest / tl.maximum(of_drawn, 1).to(tl.float64)
            certain_wins = tl.where(of_drawn > 0, certain_wins, 1.0)
            tl.store(numbers + here * _NUMBERS + 2, certain_wins)
            change = certain_residual(children, share, certain_wins, children.target) - outside
            change = tl.where(children.is_certain, change, 0)
            tl.debug_barrier()
            place = of_blocks + children.token // block_size
            tl.atomic_add(place, change, mask=change != 0, sem="relaxed")
            chance = (tl.sum(residual, 0) + tl.sum(change, 0)).to(tl.float64) * _PART
            divisor = chance + (1.0 - share)
            last = nodes - 1
            child, prob, win = winning_child(
                node, children, winner, certain_wins, coins, last, kind, has_draft, padded_nodes
            )
            share = capped_ratio(share * prob, win)
            tl.store(numbers + (here + batch) * _NUMBERS, share)
            next_row = (child + 1).to(tl.int64)
            if has_draft:
                is_read = (share > 0) & (level + 2 < levels)
                count_there = drawn_below(tree, child, is_read, padded_nodes)
        if (tl.load(coins + 2) * divisor < chance) | (level == 0):
            tl.store(accepted + sequence, level.to(tl.int64))
            tl.store(reached + sequence, row - 1)
    after = states + (here + batch) * 2
    tl.store(after, next_row)
    tl.store(after + 1, count_there)


@jit
def draw(
    target: tl.tensor,
    draft: tl.tensor,
    states: tl.tensor,
    softmaxes: tl.tensor,
    tokens: tl.tensor,
    parents: tl.tensor,
    sampled: tl.tensor,
    numbers: tl.tensor,
    drawn: tl.tensor,
    left: tl.tensor,
    uniforms: tl.tensor,
    accepted: tl.tensor,
    output: tl.tensor,
    target_sequence: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_row: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    blocks: tl.tensor,
    nodes: tl.tensor,
    levels: tl.tensor,
    kind: tl.constexpr,
    has_draft: tl.constexpr,
    block_size: tl.constexpr,
    padded_nodes: tl.constexpr,
    padded_blocks: tl.constexpr,
    padded_levels: tl.constexpr,
) -> None:
    """Draw the token after the deepest kept node, and write a sequence's output."""
    sequence, batch = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    kept = tl.load(accepted + sequence)  # scalar
    row, count = row_of(states, sequence, batch, kept, 0)
    here = kept * batch + sequence
    share = tl.load(numbers + here * _NUMBERS)  # scalar
    strides = (target_sequence, target_row, draft_sequence, draft_row)
    models, sizes = (target, draft, softmaxes + here * 8), (size, draft_size)
    node = node_of(models, strides, sizes, sequence, (row, count))
    tree = tree_of((tokens, parents, sampled), sequence, nodes)
    place = tl.arange(0, padded_levels)
    walked = place < kept
    rows = tl.load(states + ((place + 1) * batch + sequence) * 2, mask=walked, other=1)  # [levels]
    drafted = tl.load(tree.tokens + rows - 1, mask=walked, other=-1).to(tl.int64)  # [levels]
    output += sequence * levels + place
    tl.store(output, drafted, mask=(place < levels) & (place != kept))

    is_open = (share > 0) & (kept + 1 < levels)
    children = children_of(tree, node, row, is_open, kind, has_draft, padded_nodes)
    goes_on = is_any(children.is_certain | children.is_drawn)
    uniform = tl.load(uniforms + (sequence * levels + kept) * 4 + 3)  # scalar
    of_blocks = left + here * _LEFT * blocks
    block, point, subtract = pick_block(of_blocks, goes_on, uniform, blocks, padded_blocks)
    token = block * block_size + tl.arange(0, block_size)
    # As masks, these marks would not fit into registers.
    is_certain = tl.zeros((block_size,), tl.int32)
    for i in range(tl.where(goes_on, nodes, 0)):
        x, parent = tl.load(tree.tokens + i), tl.load(tree.parents + i)  # scalars
        is_it = parent == row - 1
        if has_draft:
            is_it = is_it & (tl.load(tree.sampled + i) == 0)
        is_certain = tl.where(token == tl.where(is_it, x, -1), 1, is_certain)
    c, of_drawn = tl.full((), 0.0, tl.float64), tl.full((), 0, tl.int64)
    if has_draft:
        c, of_drawn = tl.load(numbers + here * _NUMBERS + 1), tl.load(drawn + here)  # scalars
    winner = Winner(c, of_drawn, children.certain > 0)
    prob, of_target, of_draft = masses_of(node, token, token >= 0, kind, has_draft)
    _, residual = outside_of(winner, share, prob, of_target, of_draft, has_draft)
    certain_wins = tl.load(numbers + here * _NUMBERS + 2, mask=goes_on, other=1.0)  # scalar
    of_certain = certain_residual(children, share, certain_wins, prob)
    residual = tl.where(is_certain > 0, of_certain, residual)
    token = first_above(tl.where(subtract, residual, of_target), token, point, size)
    tl.store(output, token.to(tl.int64) + place * 0, mask=place == kept)
