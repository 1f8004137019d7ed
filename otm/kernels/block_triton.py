"""Block verification as Triton kernels: the decisions of `otm.kernels.block_reference`.

One program for each block of each row adds up what block verification would have to draw from
there; then one program for each chain tests all parts of the drafts, picks a block and reads only
that block again.  From probabilities these are two launches, and each row is read once; from logits
four, with two that find the sum of each row.
"""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from typing import TYPE_CHECKING

from otm.kernels import triton_
from otm.kernels.checks import check_chain
from otm.kernels.definition import UNIT, ChainResult
from otm.kernels.draw_triton import first_above, masses, of_drafts, pick_block, write_output
from otm.kernels.laws_triton import chain_length, summarise_logits
from otm.kernels.reference import import_torch
from otm.kernels.triton_ import check_device, constant, jit, launch, padded, tl
from otm.kernels.workspace import Workspace

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["verify_block", "verify_block_from_logits"]

_PART = constant(1 / UNIT)


def verify_block(
    target_probs: Tensor,
    draft_probs: Tensor | None,
    draft_tokens: Tensor,
    uniforms: Tensor,
    *,
    validate: bool = True,
    workspace: Workspace | None = None,
) -> ChainResult[Tensor]:
    """Accept the longest part of the drafts that passes, and draw the token that follows it.

    Equivalent to, but faster than, `otm.kernels.block_reference.verify_block`: the decisions are
    the same ones, bit for bit.  Takes, returns and raises what
    `otm.kernels.chain_triton.verify_chain` does.
    """
    torch = import_torch()
    if validate:
        check_chain(torch, target_probs, draft_probs, draft_tokens, uniforms)
    given = (target_probs, draft_probs, draft_tokens, uniforms)
    return _run(*given, "probabilities", workspace=workspace)


def verify_block_from_logits(
    target_logits: Tensor,
    draft_logits: Tensor | None,
    draft_tokens: Tensor,
    uniforms: Tensor,
    temperature: float | Tensor = 1.0,
    *,
    validate: bool = True,
    workspace: Workspace | None = None,
) -> ChainResult[Tensor]:
    """`verify_block` for logits: the laws are those of `otm.kernels.softmax`, in float32.

    Takes, returns and raises what `otm.kernels.chain_triton.verify_chain_from_logits` does.
    """
    torch = import_torch()
    if validate:
        check_chain(
            torch,
            target_logits,
            draft_logits,
            draft_tokens,
            uniforms,
            logits=True,
            temperature=temperature,
        )
    given = (target_logits, draft_logits, draft_tokens, uniforms)
    return _run(*given, "logits", temperature=temperature, workspace=workspace)


def _run(
    target: Tensor,
    draft: Tensor | None,
    tokens: Tensor,
    uniforms: Tensor,
    kind: str,
    *,
    temperature: float | Tensor = 1.0,
    workspace: Workspace | None,
) -> ChainResult[Tensor]:
    """Launch the kernels, for rows of "probabilities" or "logits"."""
    torch = import_torch()
    check_device(target)
    work = Workspace() if workspace is None else workspace
    batch, gamma = tokens.shape
    size, device = target.shape[2], target.device
    target, drafts, tokens, uniforms = work.lay_out(target, draft, tokens, uniforms)
    blocks = -(-size // triton_.BLOCK)
    output = torch.empty(batch, gamma + 1, dtype=torch.int64, device=device)
    accepted = torch.empty(batch, dtype=torch.int64, device=device)
    sums = work.take("sums", (batch, gamma + 1, 2, blocks), torch.int64, device)
    laws = sums
    if kind == "logits":
        one_hot = draft is None
        laws = summarise_logits(target, drafts, tokens, temperature, work, one_hot=one_hot)
    strides = (*target.stride()[:2], *drafts.stride()[:2])
    shape = (gamma, size, drafts.shape[2])
    constants = {
        "kind": kind,
        "one_hot": draft is None,
        "padded_gamma": padded(gamma),
        "block_size": triton_.BLOCK,
    }
    given = (target, drafts, tokens, uniforms, laws, sums)
    launch(add_up, (batch, gamma + 1, blocks), *given, *strides, *shape, **constants)
    launch(
        draw,
        (batch,),
        *given,
        accepted,
        output,
        *strides,
        *shape,
        blocks,
        **constants,
        padded_rows=padded(gamma + 1),
        padded_blocks=padded(blocks),
    )
    return ChainResult(output, accepted)


@jit
def next_weight(weight: tl.tensor, wanted: tl.tensor, offered: tl.tensor) -> tl.tensor:
    """Return min(weight · wanted / offered, 1), without a division by zero."""
    weighted = weight * wanted
    below = weighted < offered
    divided = weighted / tl.where(below, offered, 1.0)
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
    laws: tl.tensor,
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
    laws += chain * (2 * gamma + 1) * 4
    wanted, offered, _ = of_drafts(
        target,
        draft,
        tokens,
        laws,
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
            weight, at_step(wanted, i, padded_gamma), at_step(offered, i, padded_gamma)
        )
    inside = row < length
    of_row, left = masses(
        target + row.to(tl.int64) * target_row,
        draft + row.to(tl.int64) * draft_row,
        laws + row * 4,
        laws + (row + gamma + 1) * 4,
        block * block_size + tl.arange(0, block_size),
        tl.load(tokens + row, mask=inside, other=-1),
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
    laws: tl.tensor,
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
    laws += chain * (2 * gamma + 1) * 4
    target += chain * target_chain
    draft += chain * draft_chain
    length = chain_length(tokens, gamma, padded_gamma)
    wanted, offered, _ = of_drafts(
        target,
        draft,
        tokens,
        laws,
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
            weight, at_step(wanted, i - 1, padded_gamma), at_step(offered, i - 1, padded_gamma)
        )
        found = tl.load(sums + i * 2 * blocks + part, mask=part < blocks, other=0)
        excess = tl.sum(found, 0).to(tl.float64) * _PART
        coin = tl.load(uniforms + i - 1)
        chance = tl.where(i == length, weight, excess)
        divisor = tl.where(i == length, 1.0, excess + (1.0 - weight))
        passed = (coin * divisor < chance) & (weight > 0)
        count = tl.where(passed, i, count)
        weight_there = tl.where(passed, weight, weight_there)

    rejected = count < length
    uniform = tl.load(uniforms + tl.where(rejected, gamma, gamma + 1))
    sums += count * 2 * blocks
    residual = tl.max(tl.load(sums + part, mask=part < blocks, other=0), 0) > 0
    subtract = rejected & residual  # an empty residual can only be a matter of rounding
    block, point = pick_block(sums + tl.where(subtract, 0, blocks), uniform, blocks, padded_blocks)
    token = block * block_size + tl.arange(0, block_size)
    _, left = masses(
        target + count.to(tl.int64) * target_row,
        draft + count.to(tl.int64) * draft_row,
        laws + count * 4,
        laws + (count + gamma + 1) * 4,
        token,
        tl.load(tokens + count, mask=subtract, other=-1),
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
