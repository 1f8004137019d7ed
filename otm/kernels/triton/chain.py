"""Chain verification as Triton kernels: the decisions of `otm.kernels.torch.chain`, in one pass.

The vocabulary is cut into blocks, and every program looks at one block of one chain.  It finds the
first rejected draft itself, from the probabilities of the drafts alone, and adds up what its block
has to offer; then one program for each chain picks a block and reads only that block again.  From
probabilities these are two launches, and two rows are read; from logits four, with two that find
the sum of each row.  Sigmoids (`otm.kernels.torch.sigmoid`) need no sum, and two launches.
"""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

import torch
from torch import Tensor

from otm.kernels.triton import runtime
from otm.kernels.triton.distributions import chain_length, summarise_logits
from otm.kernels.triton.draw import first_above, masses, of_drafts, pick_block, write_output
from otm.kernels.triton.runtime import check_device, jit, launch, lay_out, padded, tl
from otm.kernels.verified import Verified
from otm.kernels.workspace import Workspace


def verify(
    target_probs: Tensor,
    draft_probs: Tensor | None,
    draft_tokens: Tensor,
    uniforms: Tensor,
    *,
    workspace: Workspace | None = None,
) -> Verified[Tensor]:
    """Accept drafts up to the first rejected one, and draw the token that follows."""
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


def verify_sigmoids(
    target_logits: Tensor,
    draft_logits: Tensor,
    draft_tokens: Tensor,
    uniforms: Tensor,
    low: float,
    high: float,
) -> Verified[Tensor]:
    """`verify` of sigmoids of logits, which is not lossless; each pair of scales compiles once."""
    arguments = (target_logits, draft_logits, draft_tokens, uniforms)
    return _run(*arguments, "sigmoid", low=low, high=high)


def _run(
    target: Tensor,
    draft: Tensor | None,
    tokens: Tensor,
    uniforms: Tensor,
    kind: str,
    *,
    temperature: float | Tensor = 1.0,
    low: float = 0.0,
    high: float = 0.0,
    workspace: Workspace | None = None,
) -> Verified[Tensor]:
    """Launch the kernels, for rows of "probabilities", "logits" or logits that go by "sigmoid".

    A workspace of our own is not kept: one kept here would be shared by calls on different
    streams, and torch hands out the same memory again.
    """
    check_device(target)
    work = Workspace() if workspace is None else workspace
    batch, gamma = tokens.shape
    size, device = target.shape[2], target.device
    target, drafts, tokens, uniforms = lay_out(work, target, draft, tokens, uniforms)
    blocks = -(-size // runtime.BLOCK)
    output = torch.empty(batch, gamma + 1, dtype=torch.int64, device=device)
    accepted = torch.empty(batch, dtype=torch.int64, device=device)
    sums = work.take("sums", (batch, 2, blocks), torch.int64, device)
    softmaxes = sums
    if kind == "logits":
        one_hot = draft is None
        softmaxes = summarise_logits(target, drafts, tokens, temperature, work, one_hot=one_hot)
    strides = (*target.stride()[:2], *drafts.stride()[:2])
    shape = (gamma, size, drafts.shape[2])
    constants = {
        "low": low,
        "high": high,
        "kind": kind,
        "one_hot": draft is None,
        "padded_gamma": padded(gamma),
        "block_size": runtime.BLOCK,
    }
    arguments = (target, drafts, tokens, uniforms, softmaxes, sums, accepted)
    launch(add_up, (batch, blocks), *arguments, *strides, *shape, **constants)
    launch(
        draw,
        (batch,),
        *arguments,
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
def add_up(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    softmaxes: tl.tensor,
    sums: tl.tensor,
    accepted: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    low: tl.constexpr,
    high: tl.constexpr,
    kind: tl.constexpr,
    one_hot: tl.constexpr,
    padded_gamma: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Add up a block's masses: of the residual, or of the row if none was rejected; of the row."""
    chain = tl.program_id(0).to(tl.int64)
    block, blocks = tl.program_id(1), tl.num_programs(1)
    target += chain * target_chain
    draft += chain * draft_chain
    tokens += chain * gamma
    softmaxes += chain * (2 * gamma + 1) * 4
    length = chain_length(tokens, gamma, padded_gamma)
    target_prob, draft_prob, known = of_drafts(
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
        low,
        high,
        kind,
        one_hot,
        padded_gamma,
    )
    step = tl.arange(0, padded_gamma)
    # [padded γ]
    coin = tl.load(uniforms + chain * (gamma + 2) + step, mask=step < length, other=0.0)
    passes = known & (coin * draft_prob < target_prob)
    count = tl.min(tl.where(passes, padded_gamma, step), 0)
    if block == 0:
        tl.store(accepted + chain, count.to(tl.int64))
    rejected = count < length
    of_row, left = masses(
        target + count.to(tl.int64) * target_row,
        draft + count.to(tl.int64) * draft_row,
        softmaxes + count * 4,
        softmaxes + (count + gamma + 1) * 4,
        block * block_size + tl.arange(0, block_size),
        tl.load(tokens + count, mask=rejected, other=-1),  # scalar: the rejected draft
        None,
        size,
        tl.where(rejected, draft_size, 0),
        low,
        high,
        kind,
        one_hot,
    )
    place = sums + chain * 2 * blocks + block
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
    low: tl.constexpr,
    high: tl.constexpr,
    kind: tl.constexpr,
    one_hot: tl.constexpr,
    padded_gamma: tl.constexpr,
    padded_rows: tl.constexpr,
    padded_blocks: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Draw the token that follows the accepted drafts, and write a chain's output."""
    chain = tl.program_id(0).to(tl.int64)
    tokens += chain * gamma
    sums += chain * 2 * blocks
    softmaxes += chain * (2 * gamma + 1) * 4
    count = tl.load(accepted + chain)  # scalar
    rejected = count < chain_length(tokens, gamma, padded_gamma)
    # scalar
    uniform = tl.load(uniforms + chain * (gamma + 2) + tl.where(rejected, gamma, gamma + 1))

    # an empty residual: the draft was rejected by rounding only
    part = tl.arange(0, padded_blocks)
    residual = tl.max(tl.load(sums + part, mask=part < blocks, other=0), 0) > 0  # [padded blocks]
    subtract = rejected & residual
    block, point = pick_block(sums + tl.where(subtract, 0, blocks), uniform, blocks, padded_blocks)
    token = block * block_size + tl.arange(0, block_size)
    _, left = masses(
        target + chain * target_chain + count * target_row,
        draft + chain * draft_chain + count * draft_row,
        softmaxes + count * 4,
        softmaxes + (count + gamma + 1) * 4,
        token,
        tl.load(tokens + count, mask=subtract, other=-1),  # scalar
        None,
        size,
        tl.where(subtract, draft_size, 0),
        low,
        high,
        kind,
        one_hot,
    )
    drawn = first_above(left, token, point, size)
    write_output(output + chain * (gamma + 1), tokens, count, drawn, gamma, padded_rows)
