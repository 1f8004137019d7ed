"""Kernels of walk and keep: `add_up` walks and sums; `draw` keeps a node and draws a token."""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from otm.kernels.common.draw import first_above, pick_block, write_output
from otm.kernels.common.runtime import jit, tl
from otm.kernels.multi_draft.triton_steps import (
    Options,
    agree_at,
    at_listed,
    at_node,
    chains_of,
    drafts_at,
    first_of,
    next_token_masses,
)
from otm.kernels.optimal.triton_steps import add_to_bins
from otm.kernels.walk_and_keep.triton_steps import (
    add_left,
    count_agreeing,
    deepest_kept,
    walk_of,
    walk_on,
)


@jit
def add_up(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    listed_tokens: tl.tensor,
    counted: tl.tensor,
    softmaxes: tl.tensor,
    agree: tl.tensor,
    shares: tl.tensor,
    sums: tl.tensor,
    left: tl.tensor,
    numbers: tl.tensor,
    points: tl.tensor,
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
    blocks: tl.tensor,
    position: tl.tensor,
    last: tl.constexpr,
    kind: tl.constexpr,
    width: tl.constexpr,
    tree: tl.constexpr,
    edges: tl.constexpr,
    padded_chains: tl.constexpr,
    padded_numbers: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Walk to a position, add a block to its bins, and sum a block of the previous residual.

    At the last position, which follows all drafts, the kernel sums the target's row, not bins.
    At every earlier position the last program has no block; it finds the distribution of the number
    of drafts.
    """
    options: tl.constexpr = Options(kind, width, tree, edges, padded_chains)
    several = chains_of(
        (target, draft, tokens, listed_tokens, counted, softmaxes, sums),
        (target_sequence, target_chain, target_row, draft_sequence, draft_chain, draft_row),
        (chains, gamma, size, draft_size, node_size),
    )
    sequence, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    walk = walk_of(several, uniforms, agree, shares, left, blocks)
    position = tl.full((), 0, tl.int64) + position
    agreed, share = walk_on(several, walk, position, options)
    chain, token = tl.arange(0, padded_chains), block * block_size + tl.arange(0, block_size)
    if block == 0:
        here = walk.agree + position * chains
        tl.store(here + chain, tl.where(agreed, 1, 0), mask=chain < chains)
        tl.store(walk.shares + position, share)
    if position > 0:
        add_left(several, walk, position - 1, token, options)
    if tl.max(tl.where(agreed, 1, 0), 0) > 0:
        _, _, count, read = drafts_at(several.paths, agreed, position, options)
        if last:
            of_row, _ = next_token_masses(
                several, read, position, token, count, share, None, options
            )
            place = walk.left + position * 2 * blocks + block
            tl.store(place, tl.full((), 0, tl.int64))
            tl.store(place + blocks, tl.sum(of_row, 0))
        elif count > 0:
            if block == tl.num_programs(1) - 1:
                count_agreeing(
                    several,
                    walk,
                    numbers + sequence * gamma * (chains + 1),
                    points,
                    count,
                    position,
                    options,
                    padded_numbers,
                )
            if width > 0:
                _token, target_prob, draft_prob = at_listed(
                    several, read, position, block, count > 0, options
                )
            else:
                target_prob, draft_prob = at_node(
                    several, read, position, token, count > 0, options
                )
            node = several.sums + position * node_size
            add_to_bins(node, share * target_prob, draft_prob, edges)


@jit
def draw(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    listed_tokens: tl.tensor,
    counted: tl.tensor,
    softmaxes: tl.tensor,
    agree: tl.tensor,
    shares: tl.tensor,
    sums: tl.tensor,
    left: tl.tensor,
    drawn_from: tl.tensor,
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
    blocks: tl.tensor,
    kind: tl.constexpr,
    width: tl.constexpr,
    tree: tl.constexpr,
    edges: tl.constexpr,
    padded_chains: tl.constexpr,
    padded_rows: tl.constexpr,
    padded_blocks: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Keep a node of the walk, draw the next token, and write a sequence's output."""
    options: tl.constexpr = Options(kind, width, tree, edges, padded_chains)
    several = chains_of(
        (target, draft, tokens, listed_tokens, counted, softmaxes, sums),
        (target_sequence, target_chain, target_row, draft_sequence, draft_chain, draft_row),
        (chains, gamma, size, draft_size, node_size),
    )
    sequence = tl.program_id(0).to(tl.int64)
    walk = walk_of(several, uniforms, agree, shares, left, blocks)
    depth = tl.full((), 0, tl.int64)
    for i in range(1, gamma + 1):
        depth += tl.max(tl.where(agree_at(walk.agree, i, chains, padded_chains), 1, 0), 0)
    agreed = agree_at(walk.agree, depth, chains, padded_chains)
    _, _, count, _ = drafts_at(several.paths, agreed, depth, options)
    kept = deepest_kept(several, walk, depth, count > 0, padded_blocks)
    agreed = agree_at(walk.agree, kept, chains, padded_chains)
    _, _, count, read = drafts_at(several.paths, agreed, kept, options)
    drafted = count > 0
    uniform = tl.load(walk.uniforms + gamma * (chains + 1) + tl.where(drafted, 0, 1))  # scalar
    here = walk.left + kept * 2 * blocks
    block, point, subtract = pick_block(here, drafted, uniform, blocks, padded_blocks)
    token = block * block_size + tl.arange(0, block_size)
    drawn_from += sequence * block_size
    share = tl.load(walk.shares + kept)  # scalar
    of_row, rest = next_token_masses(several, read, kept, token, count, share, drawn_from, options)
    drawn = first_above(tl.where(subtract, rest, of_row), token, point, size)
    first = first_of(agreed, chains, padded_chains)
    tl.store(accepted + sequence, kept)
    tl.store(first_chain + sequence, first)
    output += sequence * (gamma + 1)
    write_output(output, several.paths.tokens + first * gamma, kept, drawn, gamma, padded_rows)
