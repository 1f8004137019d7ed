"""Block verification as Triton kernels: the decisions of `otm.kernels.torch.block`.

One program for each block of each row adds up what block verification would have to draw from
there; then one program for each chain tests all parts of the drafts, picks a block and reads only
that block again.  From probabilities these are two launches, and each row is read once; from logits
four, with two that find the sum of each row.
"""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

import torch
from torch import Tensor

from otm.kernels.numpy.distributions import UNIT
from otm.kernels.triton import runtime
from otm.kernels.triton.distributions import chain_length, summarise_logits
from otm.kernels.triton.draw import first_above, masses, of_drafts, pick_block, write_output
from otm.kernels.triton.runtime import check_device, constant, jit, launch, lay_out, padded, tl
from otm.kernels.verified import Verified
from otm.kernels.workspace import Workspace

_PART = constant(1 / UNIT)


def verify(
    target_probs: Tensor,
    draft_probs: Tensor | None,
    draft_tokens: Tensor,
    uniforms: Tensor,
    *,
    workspace: Workspace | None = None,
) -> Verified[Tensor]:
    """Accept the longest part of the drafts that passes, and draw the token that follows it."""
    arguments = (target_probs, draft_probs, draft_tokens, uniforms)
    return _run(*arguments, "probabilities", workspace=workspace)


def verify_from_logits(
    target_logits: Tensor,
    draft_logits: Tensor | None,
    draft_tokens: Tensor,
    uniforms: Tensor,
    temperature: float | Tensor = 1.0,
    *,
    workspace: Workspace | None = None,
) -> Verified[Tensor]:
    """`verify` of the softmaxes of `otm.kernels.torch.softmax`, which are never written out."""
    arguments = (target_logits, draft_logits, draft_tokens, uniforms)
    return _run(*arguments, "logits", temperature=temperature, workspace=workspace)


def _run(
    target: Tensor,
    draft: Tensor | None,
    tokens: Tensor,
    uniforms: Tensor,
    kind: str,
    *,
    temperature: float | Tensor = 1.0,
    workspace: Workspace | None,
) -> Verified[Tensor]:
    """Launch the kernels, for rows of "probabilities" or "logits"."""
    check_device(target)
    work = Workspace() if workspace is None else workspace
    batch, gamma = tokens.shape
    size, device = target.shape[2], target.device
    target, drafts, tokens, uniforms = lay_out(work, target, draft, tokens, uniforms)
    blocks = -(-size // runtime.BLOCK)
    output = torch.empty(batch, gamma + 1, dtype=torch.int64, device=device)
    accepted = torch.empty(batch, dtype=torch.int64, device=device)
    sums = work.take("sums", (batch, gamma + 1, 2, blocks), torch.int64, device)
    softmaxes = sums
    if kind == "logits":
        one_hot = draft is None
        softmaxes = summarise_logits(target, drafts, tokens, temperature, work, one_hot=one_hot)
    strides = (*target.stride()[:2], *drafts.stride()[:2])
    shape = (gamma, size, drafts.shape[2])
    constants = {
        "kind": kind,
        "one_hot": draft is None,
        "padded_gamma": padded(gamma),
        "block_size": runtime.BLOCK,
    }
    arguments = (target, drafts, tokens, uniforms, softmaxes, sums)
    launch(add_up, (batch, gamma + 1, blocks), *arguments, *strides, *shape, **constants)
    launch(
        draw,
        (batch,),
        *arguments,
        accepted,
        output,
        *strides,
        *shape,
        blocks,
        **constants,
        padded_rows=padded(gamma + 1),
        padded_blocks=padded(blocks),
    )
    return Verified(output, accepted)


@jit
def next_weight(weight: tl.tensor, target_prob: tl.tensor, draft_prob: tl.tensor) -> tl.tensor:
    """Return min(weight · target / draft, 1), without a division by zero."""
    weighted = weight * target_prob
    below = weighted < draft_prob
    divided = weighted / tl.where(below, draft_prob, 1.0)
    return tl.where(below, divided, tl.where(weighted > 0, 1.0, 0.0))


@jit
def at_step(values: tl.tensor, index: tl.tensor, padded_gamma: tl.constexpr) -> tl.tensor:
    """Return one value of a small array."""
    return tl.sum(tl.where(tl.arange(0, padded_gamma) == index, values, 0.0), 0)


@jit
def add_up(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    softmaxes: tl.tensor,
    sums: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    kind: tl.constexpr,
    one_hot: tl.constexpr,
    padded_gamma: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Add up the masses of a block of a row: of max(w · target − draft, 0), and of the target."""
    chain = tl.program_id(0).to(tl.int64)
    row, block = tl.program_id(1), tl.program_id(2)
    blocks = tl.num_programs(2)
    tokens += chain * gamma
    length = chain_length(tokens, gamma, padded_gamma)
    if row > length:
        return
    target += chain * target_chain
    draft += chain * draft_chain
    softmaxes += chain * (2 * gamma + 1) * 4
    target_prob, draft_prob, _ = of_drafts(
        target,
        draft,
        tokens,
        softmaxes,
        target_row,
        draft_row,
        gamma,
        length,
        size,
        draft_size,
        0.0,
        0.0,
        kind,
        one_hot,
        padded_gamma,
    )
    weight = tl.full((), 1.0, tl.float64)
    for i in range(row):
        weight = next_weight(
            weight, at_step(target_prob, i, padded_gamma), at_step(draft_prob, i, padded_gamma)
        )
    inside = row < length
    of_row, left = masses(
        target + row.to(tl.int64) * target_row,
        draft + row.to(tl.int64) * draft_row,
        softmaxes + row * 4,
        softmaxes + (row + gamma + 1) * 4,
        block * block_size + tl.arange(0, block_size),
        tl.load(tokens + row, mask=inside, other=-1),  # scalar: the draft of the row
        weight,
        size,
        tl.where(inside, draft_size, 0),
        0.0,
        0.0,
        kind,
        one_hot,
    )
    place = sums + (chain * (gamma + 1) + row) * 2 * blocks + block
    tl.store(place, tl.sum(left, 0))
    tl.store(place + blocks, tl.sum(of_row, 0))


@jit
def draw(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    softmaxes: tl.tensor,
    sums: tl.tensor,
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
    kind: tl.constexpr,
    one_hot: tl.constexpr,
    padded_gamma: tl.constexpr,
    padded_rows: tl.constexpr,
    padded_blocks: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Find the longest part that passes, draw the token that follows, and write the output."""
    chain = tl.program_id(0).to(tl.int64)
    tokens += chain * gamma
    uniforms += chain * (gamma + 2)
    sums += chain * (gamma + 1) * 2 * blocks
    softmaxes += chain * (2 * gamma + 1) * 4
    target += chain * target_chain
    draft += chain * draft_chain
    length = chain_length(tokens, gamma, padded_gamma)
    target_prob, draft_prob, _ = of_drafts(
        target,
        draft,
        tokens,
        softmaxes,
        target_row,
        draft_row,
        gamma,
        length,
        size,
        draft_size,
        0.0,
        0.0,
        kind,
        one_hot,
        padded_gamma,
    )
    part = tl.arange(0, padded_blocks)
    weight = tl.full((), 1.0, tl.float64)
    count, weight_there = length * 0, weight
    for i in range(1, length + 1):
        weight = next_weight(
            weight,
            at_step(target_prob, i - 1, padded_gamma),
            at_step(draft_prob, i - 1, padded_gamma),
        )
        # [padded blocks]
        values = tl.load(sums + i * 2 * blocks + part, mask=part < blocks, other=0)
        excess = tl.sum(values, 0).to(tl.float64) * _PART
        coin = tl.load(uniforms + i - 1)  # scalar: of test i
        chance = tl.where(i == length, weight, excess)
        divisor = tl.where(i == length, 1.0, excess + (1.0 - weight))
        passes = (coin * divisor < chance) & (weight > 0)
        count = tl.where(passes, i, count)
        weight_there = tl.where(passes, weight, weight_there)

    rejected = count < length
    uniform = tl.load(uniforms + tl.where(rejected, gamma, gamma + 1))  # scalar
    sums += count * 2 * blocks
    residual = tl.max(tl.load(sums + part, mask=part < blocks, other=0), 0) > 0  # [padded blocks]
    subtract = rejected & residual  # an empty residual can only be a matter of rounding
    block, point = pick_block(sums + tl.where(subtract, 0, blocks), uniform, blocks, padded_blocks)
    token = block * block_size + tl.arange(0, block_size)
    _, left = masses(
        target + count.to(tl.int64) * target_row,
        draft + count.to(tl.int64) * draft_row,
        softmaxes + count * 4,
        softmaxes + (count + gamma + 1) * 4,
        token,
        tl.load(tokens + count, mask=subtract, other=-1),  # scalar
        tl.where(subtract, weight_there, 1.0),
        size,
        tl.where(subtract, draft_size, 0),
        0.0,
        0.0,
        kind,
        one_hot,
    )
    drawn = first_above(left, token, point, size)
    tl.store(accepted + chain, count.to(tl.int64))
    write_output(output + chain * (gamma + 1), tokens, count, drawn, gamma, padded_rows)
