"""Chain verification as Triton kernels: the decisions of `otm.kernels.reference`, in one pass.

The vocabulary is cut into blocks, and every program looks at one block of one chain.  It finds the
first rejected draft itself, from the probabilities of the drafts alone, and adds up what its block
has to offer; then one program for each chain picks a block and reads only that block again.  From
probabilities these are two launches, and two rows are read; from logits four, with two that find
the sum of each row.

Nothing waits for the device, nothing depends on the order in which programs run or on the rest of
the batch, and all can be captured in a CUDA graph.
"""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from typing import TYPE_CHECKING

from otm.kernels import triton_
from otm.kernels.checks import check_chain
from otm.kernels.definition import ChainResult
from otm.kernels.draw_triton import first_above, masses, of_drafts, pick_block, write_output
from otm.kernels.laws_triton import chain_length, summarise_logits
from otm.kernels.reference import import_torch
from otm.kernels.triton_ import check_device, jit, launch, padded, tl
from otm.kernels.workspace import Workspace

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["run", "verify_chain", "verify_chain_from_logits"]


def verify_chain(
    target_probs: Tensor,
    draft_probs: Tensor | None,
    draft_tokens: Tensor,
    uniforms: Tensor,
    *,
    validate: bool = True,
    workspace: Workspace | None = None,
) -> ChainResult[Tensor]:
    """Accept drafts one after another, and draw the token that follows the accepted ones.

    Equivalent to, but faster than, `otm.kernels.reference.verify_chain`: the decisions are the same
    ones, bit for bit.  Rows whose entries do not lie side by side are copied first; other strides
    do not matter.

    Parameters
    ----------
    target_probs, draft_probs, draft_tokens, uniforms, validate
        As for `otm.kernels.reference.verify_chain`, on a CUDA device.
    workspace : Workspace, optional
        Work memory that calls share; without it each takes its own from torch.

    Returns
    -------
    ChainResult
        int64 tokens [B, γ + 1], padded with −1, and the number of accepted drafts [B].

    Raises
    ------
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError
        As for `otm.kernels.definition.verify_chain`.
    InvalidInputError
        If the tensors are not on a CUDA device.
    MissingDependencyError
        If torch or Triton is not installed.
    """
    torch = import_torch()
    if validate:
        check_chain(torch, target_probs, draft_probs, draft_tokens, uniforms)
    given = (target_probs, draft_probs, draft_tokens, uniforms)
    return run(*given, "probabilities", workspace=workspace)


def verify_chain_from_logits(
    target_logits: Tensor,
    draft_logits: Tensor | None,
    draft_tokens: Tensor,
    uniforms: Tensor,
    temperature: float | Tensor = 1.0,
    *,
    validate: bool = True,
    workspace: Workspace | None = None,
) -> ChainResult[Tensor]:
    """`verify_chain` for logits: the laws are softmax(logits / temperature), in float32.

    The decisions are those of `verify_chain` on the laws of `otm.kernels.softmax`, bit for bit, and
    those of `otm.kernels.reference.verify_chain_from_logits`, which works in float64, but for
    uniforms within about 10^−6 of an edge.

    Parameters
    ----------
    target_logits, draft_logits, draft_tokens, uniforms, temperature, validate
        As for `otm.kernels.reference.verify_chain_from_logits`, on a CUDA device and for at most
        2^20 tokens.  Temperatures in a tensor save the launch that fills one.
    workspace
        As for `verify_chain`.

    Returns
    -------
    ChainResult
        int64 tokens [B, γ + 1], padded with −1, and the number of accepted drafts [B].

    Raises
    ------
    InvalidDistributionError, InvalidParameterError, InvalidDraftsError, InvalidUniformsError
        As for `otm.kernels.definition.verify_chain_from_logits`.
    InvalidInputError
        If the tensors are not on a CUDA device.
    MissingDependencyError
        If torch or Triton is not installed.
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
    return run(*given, "logits", temperature=temperature, workspace=workspace)


def run(
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
) -> ChainResult[Tensor]:
    """Launch the kernels, for rows of "probabilities", "logits" or logits that go by "sigmoid".

    A workspace that is not given is not kept either: one kept here would be shared by calls on
    different streams, and torch hands out the same memory again.
    """
    torch = import_torch()
    check_device(target)
    work = Workspace() if workspace is None else workspace
    batch, gamma = tokens.shape
    size, device = target.shape[2], target.device
    target, drafts, tokens, uniforms = work.lay_out(target, draft, tokens, uniforms)
    blocks = -(-size // triton_.BLOCK)
    output = torch.empty(batch, gamma + 1, dtype=torch.int64, device=device)
    accepted = torch.empty(batch, dtype=torch.int64, device=device)
    sums = work.take("sums", (batch, 2, blocks), torch.int64, device)
    laws = sums
    if kind == "logits":
        one_hot = draft is None
        laws = summarise_logits(target, drafts, tokens, temperature, work, one_hot=one_hot)
    strides = (*target.stride()[:2], *drafts.stride()[:2])
    shape = (gamma, size, drafts.shape[2])
    constants = {
        "low": low,
        "high": high,
        "kind": kind,
        "one_hot": draft is None,
        "padded_gamma": padded(gamma),
        "block_size": triton_.BLOCK,
    }
    given = (target, drafts, tokens, uniforms, laws, sums, accepted)
    launch(add_up, (batch, blocks), *given, *strides, *shape, **constants)
    launch(
        draw,
        (batch,),
        *given,
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
def add_up(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    laws: tl.tensor,
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
    laws += chain * (2 * gamma + 1) * 4
    length = chain_length(tokens, gamma, padded_gamma)
    wanted, offered, known = of_drafts(
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
        low,
        high,
        kind,
        one_hot,
        padded_gamma,
    )
    step = tl.arange(0, padded_gamma)
    coin = tl.load(uniforms + chain * (gamma + 2) + step, mask=step < length, other=0.0)
    passed = known & (coin * offered < wanted)
    count = tl.min(tl.where(passed, padded_gamma, step), 0)
    if block == 0:
        tl.store(accepted + chain, count.to(tl.int64))
    rejected = count < length
    of_row, left = masses(
        target + count.to(tl.int64) * target_row,
        draft + count.to(tl.int64) * draft_row,
        laws + count * 4,
        laws + (count + gamma + 1) * 4,
        block * block_size + tl.arange(0, block_size),
        tl.load(tokens + count, mask=rejected, other=-1),
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
    laws += chain * (2 * gamma + 1) * 4
    count = tl.load(accepted + chain)
    rejected = count < chain_length(tokens, gamma, padded_gamma)
    uniform = tl.load(uniforms + chain * (gamma + 2) + tl.where(rejected, gamma, gamma + 1))

    # an empty residual: the draft was rejected by rounding only
    part = tl.arange(0, padded_blocks)
    residual = tl.max(tl.load(sums + part, mask=part < blocks, other=0), 0) > 0
    subtract = rejected & residual
    block, point = pick_block(sums + tl.where(subtract, 0, blocks), uniform, blocks, padded_blocks)
    token = block * block_size + tl.arange(0, block_size)
    _, left = masses(
        target + chain * target_chain + count * target_row,
        draft + chain * draft_chain + count * draft_row,
        laws + count * 4,
        laws + (count + gamma + 1) * 4,
        token,
        tl.load(tokens + count, mask=subtract, other=-1),
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
