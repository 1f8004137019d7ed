"""Triton kernels for one chain: chain verification and block verification.

The vocabulary is divided into blocks.

- In chain verification, each program of `add_up` reads one block for one chain.  The program finds
  the first rejected draft from the drafts' probabilities, and sums the masses of its block in the
  row of this draft.
- In block verification, each program of `add_up` reads one block of one row and sums the masses
  that the next token would be drawn from.  `draw` tests every prefix of the drafts.

For each chain one program of `draw` picks a block and reads only this block again.

For rows of probabilities there are two launches.  Chain verification reads two rows, and block
verification reads each row once.  For logits, two additional launches compute the sum of each row.
Sigmoids (`otm.kernels.chain.sigmoid`) need no sums, so two launches suffice.
"""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

import torch
from torch import Tensor

from otm.kernels.block.triton_steps import longest_prefix, weight_before
from otm.kernels.common import runtime
from otm.kernels.common.distributions.numpy import UNIT
from otm.kernels.common.distributions.triton import (
    Drafts,
    Rows,
    draft_at,
    drafts_of,
    mass,
    strides_of,
    summarise_logits,
    target_at,
)
from otm.kernels.common.draw import first_above, pick_block, write_output
from otm.kernels.common.rows.triton import lay_out_lists, listed, listed_at, spread
from otm.kernels.common.runtime import check_device, constant, jit, launch, lay_out, padded, tl
from otm.kernels.results import Verified
from otm.kernels.sparse_drafts import SparseDrafts
from otm.kernels.workspace import Workspace

_UNIT = constant(UNIT)


def verify_chain(
    target: Tensor,
    draft: Tensor | SparseDrafts[Tensor] | None,
    tokens: Tensor,
    uniforms: Tensor,
    kind: str = "probabilities",
    *,
    by_block: bool,
    temperature: float | Tensor = 1.0,
    scales: tuple[float, float] = (0.0, 0.0),
    workspace: Workspace | None = None,
    offsets: Tensor | None = None,
) -> Verified[Tensor]:
    """Launch the kernels; `kind` names the kind of rows as in `probability`.

    A workspace that is created here is not kept, because calls on different streams would share
    it.  Torch reuses the memory of a freed workspace.
    """
    check_device(target)
    work = Workspace() if workspace is None else workspace
    batch, gamma = len(uniforms), tokens.shape[-1] if offsets is None else uniforms.shape[1] - 2
    size, device = target.shape[-1], target.device
    lists, rows = (draft, None) if isinstance(draft, SparseDrafts) else (None, draft)
    target, draft_rows, tokens, uniforms = lay_out(work, target, rows, tokens, uniforms)
    blocks, of_sums = -(-size // runtime.BLOCK), gamma + 1 if by_block else 1
    output = torch.empty(batch, gamma + 1, dtype=torch.int64, device=device)
    accepted = torch.empty(batch, dtype=torch.int64, device=device)
    sums = work.take("sums", (batch, of_sums, 2, blocks), torch.int64, device)
    softmaxes = drawn_from = sums
    if kind == "logits":
        softmaxes = summarise_logits(
            *(target, draft_rows, tokens, temperature, work),
            of_target=rows is None,
            offsets=offsets,
            most=gamma,
        )
    listed_tokens, width = tokens, 0
    if lists is not None:
        listed_tokens, draft_rows, width = lay_out_lists(work, lists)
        drawn_from = work.take("drawn from", (batch, runtime.BLOCK), draft_rows.dtype, device)
    starts = tokens if offsets is None else offsets.contiguous()
    places = (listed_tokens, starts, softmaxes, sums, drawn_from, accepted, output)
    arguments = (target, draft_rows, tokens, uniforms, *places)
    strides = (*strides_of(target, 1)[::2], *strides_of(draft_rows, 0)[::2])
    shape = (gamma, size, draft_rows.shape[-1], blocks, scales[0], scales[1] - scales[0])
    constants = {
        "kind": kind,
        "one_hot": draft is None,
        "width": width,
        "packed": offsets is not None,
        "by_block": by_block,
        "padded_gamma": padded(gamma),
        "block_size": runtime.BLOCK,
    }
    launch(add_up, (batch, of_sums, blocks), *arguments[:-1], *strides, *shape, **constants)
    constants |= {"padded_rows": padded(gamma + 1), "padded_blocks": padded(blocks)}
    launch(draw, (batch,), *arguments, *strides, *shape, **constants)
    return Verified(output, accepted)


@jit
def of_drafts(
    rows: Rows,
    tokens: tl.tensor,
    length: tl.tensor,
    kind: tl.constexpr,
    one_hot: tl.constexpr,
    width: tl.constexpr,
    padded_gamma: tl.constexpr,
) -> tl.tensor:
    """Return float64 target and draft probabilities of a chain's drafts, and the valid drafts."""
    step = tl.arange(0, padded_gamma)
    drafted = step < length
    token = tl.load(tokens + step, mask=drafted, other=0)  # [padded γ]
    known = drafted & (token < rows.size)
    target_prob = target_at(rows, step, token, known, drafted, kind).to(tl.float64)
    draft_prob = tl.full((padded_gamma,), 1.0, tl.float64)
    if width > 0:
        draft_prob = listed_at(rows, step[:, None], token, drafted[:, None], kind)
    elif not one_hot:
        inside = drafted & (token < rows.draft_size)
        draft_prob = draft_at(rows, step, token, inside, drafted, kind).to(tl.float64)
    return target_prob, draft_prob, known


@jit
def subtract_draft(
    target_prob: tl.tensor, draft_prob: tl.tensor, subtract: tl.tensor, weight: tl.tensor
) -> tl.tensor:
    """Return masses of max(weight · target − draft, 0); a `weight` of None counts as 1.

    If `subtract` is false, the weight is 1.
    """
    if weight is None:
        left = mass(target_prob, _UNIT)
    else:
        # The unit is a power of two, so that multiplying the weight by it is exact.
        left = (target_prob.to(tl.float64) * (tl.where(subtract, weight, 1.0) * _UNIT)).to(tl.int64)
    return tl.maximum(left - mass(draft_prob, _UNIT), 0)


@jit
def masses(
    rows: Rows,
    position: tl.tensor,
    token: tl.tensor,
    subtract: tl.tensor,
    weight: tl.tensor,
    memory: tl.tensor,
    kind: tl.constexpr,
    one_hot: tl.constexpr,
    width: tl.constexpr,
) -> tl.tensor:
    """Return masses of the target's row at a position, and of the residual.

    If `subtract` is false, the draft's row is not read.  For a sparse draft, `memory` must have the
    size of a block; if `memory` is None, the draft's probabilities count as 0.
    """
    prob = target_at(rows, position, token, token < rows.size, True, kind)
    if width > 0:
        draft_prob = tl.zeros_like(prob)
        if memory is not None:
            draft_prob = spread(memory, rows, position, token, subtract, kind, width)
    elif one_hot:
        drafted = tl.load(rows.of.tokens + position, mask=subtract, other=-1)  # scalar
        draft_prob = tl.where(token == drafted, 1.0, 0.0)
    else:
        known = token < tl.where(subtract, rows.draft_size, 0)
        draft_prob = draft_at(rows, position, token, known, subtract, kind)
    return mass(prob, _UNIT), subtract_draft(prob, draft_prob, subtract, weight)


@jit
def change_of_listed(
    rows: Rows,
    position: tl.tensor,
    start: tl.tensor,
    subtract: tl.tensor,
    weight: tl.tensor,
    kind: tl.constexpr,
    width: tl.constexpr,
    block_size: tl.constexpr,
) -> tl.tensor:
    """Return the change of a block's residual mass at the tokens that a sparse draft lists."""
    change = tl.full((), 0, tl.int64)
    for chunk in range((tl.where(subtract, rows.draft_size, 0) + width - 1) // width):
        place = chunk * width + tl.arange(0, width)
        token, draft_prob = listed(rows, position, place, subtract, kind)
        inside = (token >= start) & (token < tl.minimum(start + block_size, rows.size))
        prob = target_at(rows, position, token, inside, True, kind)
        left = subtract_draft(prob, draft_prob, subtract, weight)
        before = subtract_draft(prob, tl.zeros_like(prob), subtract, weight)
        change += tl.sum(tl.where(inside, left - before, 0), 0)
    return change


@jit
def add_up(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    listed_tokens: tl.tensor,
    offsets: tl.tensor,
    softmaxes: tl.tensor,
    sums: tl.tensor,
    drawn_from: tl.tensor,
    accepted: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    blocks: tl.tensor,
    low: tl.tensor,
    span: tl.tensor,
    kind: tl.constexpr,
    one_hot: tl.constexpr,
    width: tl.constexpr,
    packed: tl.constexpr,
    by_block: tl.constexpr,
    padded_gamma: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Sum the residual masses and the target masses of one block of a row.

    In chain verification the row is that of the first rejected draft; if all drafts are accepted,
    it is the row after them.  In block verification every row has separate programs.
    """
    chain = tl.program_id(0).to(tl.int64)
    row, block = tl.program_id(1), tl.program_id(2)
    tokens, start, length = drafts_of(tokens, offsets, chain, gamma, padded_gamma, packed)
    if by_block and row > length:
        return
    target += chain * target_chain + start * target_row
    draft += chain * draft_chain + start * draft_row
    listed_tokens += chain * draft_chain + start * draft_row
    softmaxes += chain * (2 * gamma + 1) * 4
    of = Drafts(tokens, listed_tokens)
    rows = Rows(
        target, draft, softmaxes, target_row, draft_row, gamma, size, draft_size, low, span, of
    )
    target_prob, draft_prob, known = of_drafts(
        rows, tokens, length, kind, one_hot, width, padded_gamma
    )
    place = sums + ((chain * tl.num_programs(1) + row) * 2 * blocks + block)
    weight = None
    if by_block:
        weight = weight_before(target_prob, draft_prob, row, padded_gamma)
    else:
        step = tl.arange(0, padded_gamma)
        # [padded γ]
        coin = tl.load(uniforms + chain * (gamma + 2) + step, mask=step < length, other=0.0)
        passes = known & (coin * draft_prob < target_prob)
        row = tl.min(tl.where(passes, padded_gamma, step), 0)
        if block == 0:
            tl.store(accepted + chain, row.to(tl.int64))
    start, subtract = block * block_size, row < length
    token = start + tl.arange(0, block_size)
    of_row, left = masses(rows, row, token, subtract, weight, None, kind, one_hot, width)
    total = tl.sum(left, 0)
    if width > 0:
        total += change_of_listed(rows, row, start, subtract, weight, kind, width, block_size)
    tl.store(place, total)
    tl.store(place + blocks, tl.sum(of_row, 0))


@jit
def draw(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    listed_tokens: tl.tensor,
    offsets: tl.tensor,
    softmaxes: tl.tensor,
    sums: tl.tensor,
    drawn_from: tl.tensor,
    accepted: tl.tensor,
    output: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    blocks: tl.tensor,
    low: tl.tensor,
    span: tl.tensor,
    kind: tl.constexpr,
    one_hot: tl.constexpr,
    width: tl.constexpr,
    packed: tl.constexpr,
    by_block: tl.constexpr,
    padded_gamma: tl.constexpr,
    padded_rows: tl.constexpr,
    padded_blocks: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Draw the next token after the accepted drafts, and write a chain's output."""
    chain = tl.program_id(0).to(tl.int64)
    tokens, start, length = drafts_of(tokens, offsets, chain, gamma, padded_gamma, packed)
    target += chain * target_chain + start * target_row
    draft += chain * draft_chain + start * draft_row
    listed_tokens += chain * draft_chain + start * draft_row
    uniforms += chain * (gamma + 2)
    softmaxes += chain * (2 * gamma + 1) * 4
    of = Drafts(tokens, listed_tokens)
    rows = Rows(
        target, draft, softmaxes, target_row, draft_row, gamma, size, draft_size, low, span, of
    )
    weight = None
    if by_block:
        sums += chain * (gamma + 1) * 2 * blocks
        target_prob, draft_prob, _ = of_drafts(
            rows, tokens, length, kind, one_hot, width, padded_gamma
        )
        count, weight = longest_prefix(
            target_prob, draft_prob, uniforms, sums, length, blocks, padded_gamma, padded_blocks
        )
        tl.store(accepted + chain, count.to(tl.int64))
        sums += count * 2 * blocks
    else:
        sums += chain * 2 * blocks
        count = tl.load(accepted + chain)  # scalar
    rejected = count < length
    uniform = tl.load(uniforms + tl.where(rejected, gamma, gamma + 1))  # scalar
    block, point, subtract = pick_block(sums, rejected, uniform, blocks, padded_blocks)
    start = block * block_size
    token = start + tl.arange(0, block_size)
    drawn_from += chain * block_size
    _, left = masses(rows, count, token, subtract, weight, drawn_from, kind, one_hot, width)
    drawn = first_above(left, token, point, size)
    write_output(output + chain * (gamma + 1), tokens, count, drawn, gamma, padded_rows)
