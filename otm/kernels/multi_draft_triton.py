"""SpecTr's recursion as Triton kernels: the decisions of `otm.kernels.multi_draft_reference`.

One launch for each position: its programs finish the position before, from sums that the last
launch left, and add up what the chains that still agree need at theirs.  So the drafts are tested
on the device, and the number of launches does not depend on what is accepted: γ + 2 for k-Seq,
twice γ and three for levels, whose tables one program makes and whose histograms start from 0.  The
last two draw one token, as in chain verification.  A sequence whose output has ended costs no
reading.

Nothing waits for the device, nothing depends on the order in which programs run or on the rest of
the batch, and all can be captured in a CUDA graph.
"""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from typing import TYPE_CHECKING

from otm.kernels import triton_
from otm.kernels.draw_triton import first_above, pick_block, write_output
from otm.kernels.k_seq_triton import FACTORS, add_up_factors, of_tokens
from otm.kernels.levels_triton import add_to_levels, make_table
from otm.kernels.levels_triton import room as level_room
from otm.kernels.levels_triton import sizes as level_sizes
from otm.kernels.multi_draft_checks import check_drafts, coins_of
from otm.kernels.multi_draft_definition import DraftsResult
from otm.kernels.multi_draft_steps_triton import advance, first_of, running, to_draw_from
from otm.kernels.reference import import_torch
from otm.kernels.triton_ import check_device, jit, launch, padded, rows, tl

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["verify_drafts"]


def verify_drafts(
    target_probs: Tensor,
    draft_probs: Tensor,
    draft_tokens: Tensor,
    uniforms: Tensor,
    *,
    rule: str = "k-seq",
    validate: bool = True,
) -> DraftsResult[Tensor]:
    """Accept drafts position by position, each time among the chains that agree so far.

    Equivalent to, but faster than, `otm.kernels.multi_draft_reference.verify_drafts`: the decisions
    are the same ones, bit for bit.  At each position two rows are read, and two again at the last.

    Parameters
    ----------
    target_probs, draft_probs, draft_tokens, uniforms, rule, validate
        As for `otm.kernels.multi_draft_reference.verify_drafts`, on a CUDA device.  Laws may be
        broadcast; rows whose entries do not lie side by side are copied first.

    Returns
    -------
    DraftsResult
        int64 tokens [B, γ + 1], padded with −1, the number of accepted drafts [B], and a chain that
        begins with them [B].

    Raises
    ------
    InvalidLawError, InvalidDraftsError, InvalidUniformsError
        As for `otm.kernels.multi_draft_definition.verify_drafts`.
    InvalidInputError
        If the tensors are not on a CUDA device.
    MissingDependencyError
        If torch or Triton is not installed.
    """
    torch = import_torch()
    if validate:
        check_drafts(torch, target_probs, draft_probs, draft_tokens, uniforms, rule=rule)
    check_device(target_probs)
    batch, most, gamma = draft_tokens.shape
    size, device = target_probs.shape[3], target_probs.device
    target, draft = rows(target_probs), rows(draft_probs)
    tokens, uniforms = draft_tokens.contiguous(), uniforms.contiguous()
    block = triton_.BLOCK // 2  # two rows in float64: half a block keeps them in registers
    blocks = -(-size // block)

    def work(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.int64, device=device)

    agree, last_sums = work(batch, gamma + 1, most), work(batch, 2, blocks)
    levels, width, room = 0, 0, FACTORS * blocks
    if rule == "levels":
        levels, width, room = *level_sizes(most), level_room(most)
    sums = work(batch, max(gamma, 1), room)
    if levels:
        sums.zero_()  # histograms
    result = DraftsResult(work(batch, gamma + 1), work(batch), work(batch))
    given = (target, draft, tokens, uniforms, agree, sums)
    strides = (*target.stride()[:3], *draft.stride()[:3])
    shape = (most, gamma, size, draft.shape[3], room, coins_of(rule, most))
    padding = {"padded_most": padded(most), "padded_blocks": padded(blocks)}
    constants = {**padding, "block_size": block, "levels": levels, "width": width}
    of_table = {name: constants[name] for name in ("levels", "width", "padded_most")}
    for i in range(gamma):
        launch(look_at, (batch, blocks), *given, *strides, *shape, i, **constants)
        if levels:
            launch(make_tables, (batch,), tokens, agree, sums, most, gamma, room, i, **of_table)
    launch(add_up, (batch, blocks), *given, last_sums, *strides, *shape, **constants)
    rest = (last_sums, *result, *strides, *shape, blocks)
    launch(draw, (batch,), *given, *rest, **constants, padded_rows=padded(gamma + 1))
    return result


@jit
def look_at(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    agree: tl.tensor,
    sums: tl.tensor,
    target_sequence: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    most: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    room: tl.tensor,
    coins: tl.tensor,
    position: tl.tensor,
    levels: tl.constexpr,
    width: tl.constexpr,
    padded_most: tl.constexpr,
    padded_blocks: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Find which chains agree before a position, and add up a block of its laws for them."""
    sequence = tl.program_id(0).to(tl.int64)
    block, blocks = tl.program_id(1), tl.num_programs(1)
    target += sequence * target_sequence
    draft += sequence * draft_sequence
    tokens += sequence * most * gamma
    agree += sequence * (gamma + 1) * most
    sums += sequence * gamma * room
    position = tl.full((), 0, tl.int64) + position
    left = advance(
        target,
        draft,
        tokens,
        uniforms + sequence * (gamma * coins + 2),
        agree,
        sums,
        target_chain,
        target_row,
        draft_chain,
        draft_row,
        most,
        gamma,
        size,
        draft_size,
        position,
        room,
        coins,
        blocks,
        levels,
        width,
        padded_most,
        padded_blocks,
    )
    chain = tl.arange(0, padded_most)
    if block == 0:
        tl.store(agree + position * most + chain, tl.where(left, 1, 0), mask=chain < most)
    _, count = running(tokens, left, position, gamma, padded_most)
    if count == 0:
        return
    first = first_of(left, most, padded_most)
    token = block * block_size + tl.arange(0, block_size)
    wanted = of_tokens(target + first * target_chain + position * target_row, token, size)
    offered = of_tokens(draft + first * draft_chain + position * draft_row, token, draft_size)
    if levels > 0:
        add_to_levels(sums + position * room, wanted, offered, levels)
    else:
        add_up_factors(sums + position * room + block, wanted, offered, most, blocks)


@jit
def make_tables(
    tokens: tl.tensor,
    agree: tl.tensor,
    sums: tl.tensor,
    most: tl.tensor,
    gamma: tl.tensor,
    room: tl.tensor,
    position: tl.tensor,
    levels: tl.constexpr,
    width: tl.constexpr,
    padded_most: tl.constexpr,
) -> None:
    """Make the table of a position from the histogram of its levels."""
    sequence = tl.program_id(0).to(tl.int64)
    position = tl.full((), 0, tl.int64) + position
    chain = tl.arange(0, padded_most)
    place = agree + (sequence * (gamma + 1) + position) * most + chain
    agreed = tl.load(place, mask=chain < most, other=0) > 0
    _, count = running(tokens + sequence * most * gamma, agreed, position, gamma, padded_most)
    if count > 0:
        make_table(sums + (sequence * gamma + position) * room, count, levels, width)


@jit
def add_up(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    agree: tl.tensor,
    sums: tl.tensor,
    last_sums: tl.tensor,
    target_sequence: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    most: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    room: tl.tensor,
    coins: tl.tensor,
    levels: tl.constexpr,
    width: tl.constexpr,
    padded_most: tl.constexpr,
    padded_blocks: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Finish the last position, and add up a block of what the next token is drawn from."""
    sequence = tl.program_id(0).to(tl.int64)
    block, blocks = tl.program_id(1), tl.num_programs(1)
    target += sequence * target_sequence
    draft += sequence * draft_sequence
    tokens += sequence * most * gamma
    agree += sequence * (gamma + 1) * most
    sums += sequence * gamma * room
    end = tl.full((), 0, tl.int64) + gamma
    agreed = advance(
        target,
        draft,
        tokens,
        uniforms + sequence * (gamma * coins + 2),
        agree,
        sums,
        target_chain,
        target_row,
        draft_chain,
        draft_row,
        most,
        gamma,
        size,
        draft_size,
        end,
        room,
        coins,
        blocks,
        levels,
        width,
        padded_most,
        padded_blocks,
    )
    chain = tl.arange(0, padded_most)
    if block == 0:
        tl.store(agree + gamma * most + chain, tl.where(agreed, 1, 0), mask=chain < most)
    position = end
    for back in range(gamma):  # at position 0 all chains agree
        if tl.max(tl.where(agreed, 1, 0), 0) == 0:
            position = end - 1 - back
            agreed = tl.load(agree + position * most + chain, mask=chain < most, other=0) > 0
    token = block * block_size + tl.arange(0, block_size)
    first = first_of(agreed, most, padded_most)
    _, count = running(tokens, agreed, position, gamma, padded_most)
    of_row, left = to_draw_from(
        target,
        draft,
        first,
        count,
        sums,
        target_chain,
        target_row,
        draft_chain,
        draft_row,
        most,
        size,
        draft_size,
        position,
        token,
        room,
        blocks,
        levels,
        width,
        padded_blocks,
    )
    place = last_sums + sequence * 2 * blocks + block
    tl.store(place, tl.sum(left, 0))
    tl.store(place + blocks, tl.sum(of_row, 0))


@jit
def draw(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    agree: tl.tensor,
    sums: tl.tensor,
    last_sums: tl.tensor,
    output: tl.tensor,
    accepted: tl.tensor,
    chains: tl.tensor,
    target_sequence: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    most: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    room: tl.tensor,
    coins: tl.tensor,
    blocks: tl.tensor,
    levels: tl.constexpr,
    width: tl.constexpr,
    padded_most: tl.constexpr,
    padded_rows: tl.constexpr,
    padded_blocks: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Draw the token that follows the accepted drafts, and write a sequence's output."""
    sequence = tl.program_id(0).to(tl.int64)
    tokens += sequence * most * gamma
    agree += sequence * (gamma + 1) * most
    sums += sequence * gamma * room
    last_sums += sequence * 2 * blocks
    chain, inside = tl.arange(0, padded_most), tl.arange(0, padded_most) < most
    position = tl.full((), 0, tl.int64)
    for i in range(1, gamma + 1):
        found = tl.load(agree + i * most + chain, mask=inside, other=0)
        position += tl.max(found, 0)
    agreed = tl.load(agree + position * most + chain, mask=inside, other=0) > 0
    first = first_of(agreed, most, padded_most)
    _, count = running(tokens, agreed, position, gamma, padded_most)
    rejected = count > 0

    # an empty residual: all were rejected by rounding only
    part = tl.arange(0, padded_blocks)
    residual = tl.max(tl.load(last_sums + part, mask=part < blocks, other=0), 0) > 0
    subtract = rejected & residual
    uniforms += sequence * (gamma * coins + 2) + gamma * coins
    uniform = tl.load(uniforms + tl.where(rejected, 0, 1))
    block, point = pick_block(
        last_sums + tl.where(subtract, 0, blocks), uniform, blocks, padded_blocks
    )
    token = block * block_size + tl.arange(0, block_size)
    of_row, left = to_draw_from(
        target + sequence * target_sequence,
        draft + sequence * draft_sequence,
        first,
        count,
        sums,
        target_chain,
        target_row,
        draft_chain,
        draft_row,
        most,
        size,
        draft_size,
        position,
        token,
        room,
        blocks,
        levels,
        width,
        padded_blocks,
    )
    drawn = first_above(tl.where(subtract, left, of_row), token, point, size)
    tl.store(accepted + sequence, position)
    tl.store(chains + sequence, first)
    write_output(
        output + sequence * (gamma + 1), tokens + first * gamma, position, drawn, gamma, padded_rows
    )
