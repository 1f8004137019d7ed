"""The kernels of SpecTr's recursion: a position at a time, its table, and the token at the end."""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from otm.kernels.triton.draw import first_above, pick_block, write_output
from otm.kernels.triton.grid_k_seq_steps import add_up_factors
from otm.kernels.triton.levels_steps import add_to_levels, make_table
from otm.kernels.triton.multi_draft_steps import (
    advance,
    at_node,
    drafts_at,
    first_of,
    to_draw_from,
)
from otm.kernels.triton.runtime import jit, tl


@jit
def add_up(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    softmaxes: tl.tensor,
    agree: tl.tensor,
    sums: tl.tensor,
    last_sums: tl.tensor,
    target_sequence: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    chains: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    node_size: tl.tensor,
    coins: tl.tensor,
    position: tl.tensor,
    last: tl.constexpr,
    kind: tl.constexpr,
    levels: tl.constexpr,
    width: tl.constexpr,
    padded_chains: tl.constexpr,
    padded_blocks: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Find which chains agree before a position, and add up a block of its softmaxes for them.

    The last position is the one after all drafts: there the block is added up of what the next
    token is drawn from, wherever the output ended.
    """
    sequence = tl.program_id(0).to(tl.int64)
    block, blocks = tl.program_id(1), tl.num_programs(1)
    target += sequence * target_sequence
    draft += sequence * draft_sequence
    tokens += sequence * chains * gamma
    softmaxes += sequence * chains * (2 * gamma + 1) * 4
    agree += sequence * (gamma + 1) * chains
    sums += sequence * gamma * node_size
    position = tl.full((), 0, tl.int64) + position
    agreed = advance(
        target,
        draft,
        tokens,
        uniforms + sequence * (gamma * coins + 2),
        softmaxes,
        agree,
        sums,
        target_chain,
        target_row,
        draft_chain,
        draft_row,
        chains,
        gamma,
        size,
        draft_size,
        node_size,
        coins,
        position,
        blocks,
        kind,
        levels,
        width,
        padded_chains,
        padded_blocks,
    )
    chain, token = tl.arange(0, padded_chains), block * block_size + tl.arange(0, block_size)
    if block == 0:
        tl.store(agree + position * chains + chain, tl.where(agreed, 1, 0), mask=chain < chains)
    if last:
        for back in range(gamma):  # at position 0 all chains agree
            if tl.max(tl.where(agreed, 1, 0), 0) == 0:
                position = tl.full((), 0, tl.int64) + gamma - 1 - back
                agreed = (
                    # [padded K]
                    tl.load(agree + position * chains + chain, mask=chain < chains, other=0) > 0
                )
        _, count, read = drafts_at(tokens, agreed, position, gamma, chains, padded_chains)
        of_row, left = to_draw_from(
            target,
            draft,
            softmaxes,
            sums,
            read,
            position,
            token,
            count,
            target_chain,
            target_row,
            draft_chain,
            draft_row,
            chains,
            gamma,
            size,
            draft_size,
            node_size,
            blocks,
            kind,
            levels,
            width,
            padded_blocks,
        )
        place = last_sums + sequence * 2 * blocks + block
        tl.store(place, tl.sum(left, 0))
        tl.store(place + blocks, tl.sum(of_row, 0))
    else:
        _, count, read = drafts_at(tokens, agreed, position, gamma, chains, padded_chains)
        if count > 0:
            target_prob, draft_prob = at_node(
                target,
                draft,
                softmaxes,
                read,
                position,
                token,
                target_chain,
                target_row,
                draft_chain,
                draft_row,
                gamma,
                size,
                draft_size,
                kind,
            )
            if levels > 0:
                add_to_levels(sums + position * node_size, target_prob, draft_prob, levels)
            else:
                add_up_factors(
                    sums + position * node_size + block,
                    target_prob,
                    draft_prob,
                    chains,
                    blocks,
                )


@jit
def make_tables(
    tokens: tl.tensor,
    agree: tl.tensor,
    sums: tl.tensor,
    chains: tl.tensor,
    gamma: tl.tensor,
    node_size: tl.tensor,
    position: tl.tensor,
    levels: tl.constexpr,
    width: tl.constexpr,
    padded_chains: tl.constexpr,
) -> None:
    """Make the table of a position from the histogram of its levels."""
    sequence = tl.program_id(0).to(tl.int64)
    position = tl.full((), 0, tl.int64) + position
    chain = tl.arange(0, padded_chains)
    place = agree + (sequence * (gamma + 1) + position) * chains + chain
    agreed = tl.load(place, mask=chain < chains, other=0) > 0  # [padded K]
    tokens += sequence * chains * gamma
    _, count, _ = drafts_at(tokens, agreed, position, gamma, chains, padded_chains)
    if count > 0:
        make_table(sums + (sequence * gamma + position) * node_size, count, levels, width)


@jit
def draw(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    softmaxes: tl.tensor,
    agree: tl.tensor,
    sums: tl.tensor,
    last_sums: tl.tensor,
    output: tl.tensor,
    accepted: tl.tensor,
    first_chain: tl.tensor,
    target_sequence: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    chains: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    node_size: tl.tensor,
    coins: tl.tensor,
    blocks: tl.tensor,
    kind: tl.constexpr,
    levels: tl.constexpr,
    width: tl.constexpr,
    padded_chains: tl.constexpr,
    padded_rows: tl.constexpr,
    padded_blocks: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Draw the token that follows the accepted drafts, and write a sequence's output."""
    sequence = tl.program_id(0).to(tl.int64)
    tokens += sequence * chains * gamma
    agree += sequence * (gamma + 1) * chains
    last_sums += sequence * 2 * blocks
    chain, inside = tl.arange(0, padded_chains), tl.arange(0, padded_chains) < chains
    position = tl.full((), 0, tl.int64)
    for i in range(1, gamma + 1):
        agreeing = tl.load(agree + i * chains + chain, mask=inside, other=0)  # [padded K]
        position += tl.max(agreeing, 0)
    agreed = tl.load(agree + position * chains + chain, mask=inside, other=0) > 0  # [padded K]
    _, count, read = drafts_at(tokens, agreed, position, gamma, chains, padded_chains)
    rejected = count > 0

    # an empty residual: all were rejected by rounding only
    part = tl.arange(0, padded_blocks)
    # [padded blocks]
    residual = tl.max(tl.load(last_sums + part, mask=part < blocks, other=0), 0) > 0
    subtract = rejected & residual
    uniforms += sequence * (gamma * coins + 2) + gamma * coins
    uniform = tl.load(uniforms + tl.where(rejected, 0, 1))  # scalar
    block, point = pick_block(
        last_sums + tl.where(subtract, 0, blocks), uniform, blocks, padded_blocks
    )
    token = block * block_size + tl.arange(0, block_size)
    of_row, left = to_draw_from(
        target + sequence * target_sequence,
        draft + sequence * draft_sequence,
        softmaxes + sequence * chains * (2 * gamma + 1) * 4,
        sums + sequence * gamma * node_size,
        read,
        position,
        token,
        count,
        target_chain,
        target_row,
        draft_chain,
        draft_row,
        chains,
        gamma,
        size,
        draft_size,
        node_size,
        blocks,
        kind,
        levels,
        width,
        padded_blocks,
    )
    drawn = first_above(tl.where(subtract, left, of_row), token, point, size)
    first = first_of(agreed, chains, padded_chains)
    tl.store(accepted + sequence, position)
    tl.store(first_chain + sequence, first)
    write_output(
        output + sequence * (gamma + 1), tokens + first * gamma, position, drawn, gamma, padded_rows
    )
