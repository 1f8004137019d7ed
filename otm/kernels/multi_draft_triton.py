"""SpecTr's recursion as Triton kernels: the decisions of `otm.kernels.multi_draft_reference`.

One launch for each position: its programs finish the position before, from sums that the last
launch left, and add up what the chains that still agree need at theirs.  So the drafts are tested
on the device, and the number of launches does not depend on what is accepted: γ + 2 for k-Seq,
twice γ and three for levels, whose tables one program makes and whose histograms start from 0; from
logits two more, which find the sum of each row.  The last two draw one token, as in chain
verification.  A sequence whose output has ended costs no more reading.

Nothing waits for the device, nothing depends on the order in which programs run or on the rest of
the batch, and all can be captured in a CUDA graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otm.kernels import triton_
from otm.kernels.k_seq_triton import FACTORS
from otm.kernels.laws_triton import summarise_logits
from otm.kernels.levels_triton import room as level_room
from otm.kernels.levels_triton import sizes as level_sizes
from otm.kernels.multi_draft_checks import check_drafts, coins_of
from otm.kernels.multi_draft_definition import DraftsResult
from otm.kernels.multi_draft_kernels_triton import add_up, draw, make_tables
from otm.kernels.reference import import_torch
from otm.kernels.triton_ import check_device, launch, padded
from otm.kernels.workspace import Workspace

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["verify_drafts", "verify_drafts_from_logits"]


def verify_drafts(
    target_probs: Tensor,
    draft_probs: Tensor,
    draft_tokens: Tensor,
    uniforms: Tensor,
    *,
    rule: str = "k-seq",
    validate: bool = True,
    workspace: Workspace | None = None,
) -> DraftsResult[Tensor]:
    """Accept drafts position by position, each time among the chains that agree so far.

    Equivalent to, but faster than, `otm.kernels.multi_draft_reference.verify_drafts`: the decisions
    are the same ones, bit for bit.  At each position two rows are read, and two again at the last.

    Parameters
    ----------
    target_probs, draft_probs, draft_tokens, uniforms, rule, validate
        As for `otm.kernels.multi_draft_reference.verify_drafts`, on a CUDA device.  Laws may be
        broadcast; rows whose entries do not lie side by side are copied first.
    workspace : Workspace, optional
        Work memory that calls share; without it each takes its own from torch.

    Returns
    -------
    DraftsResult
        int64 tokens [B, γ + 1], padded with −1, the number of accepted drafts [B], and a chain that
        begins with them [B].

    Raises
    ------
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError
        As for `otm.kernels.multi_draft_definition.verify_drafts`.
    InvalidInputError
        If the tensors are not on a CUDA device.
    MissingDependencyError
        If torch or Triton is not installed.
    """
    torch = import_torch()
    if validate:
        check_drafts(torch, target_probs, draft_probs, draft_tokens, uniforms, rule=rule)
    given = (target_probs, draft_probs, draft_tokens, uniforms)
    return _run(*given, "probabilities", rule=rule, workspace=workspace)


def verify_drafts_from_logits(
    target_logits: Tensor,
    draft_logits: Tensor,
    draft_tokens: Tensor,
    uniforms: Tensor,
    temperature: float | Tensor = 1.0,
    *,
    rule: str = "k-seq",
    validate: bool = True,
    workspace: Workspace | None = None,
) -> DraftsResult[Tensor]:
    """`verify_drafts` for logits: the laws are softmax(logits / temperature), in float32.

    The decisions are those of `verify_drafts` on the laws of `otm.kernels.softmax`, bit for bit,
    and those of `otm.kernels.multi_draft_reference.verify_drafts_from_logits`, which works in
    float64, but for uniforms within about 10^−6 of an edge.  Two launches more find the sums of all
    rows; the rows are never written out.

    Parameters
    ----------
    target_logits, draft_logits, draft_tokens, uniforms, temperature, rule, validate
        As for `otm.kernels.multi_draft_reference.verify_drafts_from_logits`, on a CUDA device and
        for at most 2^20 tokens.  Temperatures in a tensor save the launch that fills one.
    workspace
        As for `verify_drafts`.

    Returns
    -------
    DraftsResult
        int64 tokens [B, γ + 1], padded with −1, the number of accepted drafts [B], and a chain that
        begins with them [B].

    Raises
    ------
    InvalidDistributionError, InvalidParameterError, InvalidDraftsError, InvalidUniformsError
        As for `otm.kernels.multi_draft_definition.verify_drafts_from_logits`.
    InvalidInputError
        If the tensors are not on a CUDA device.
    MissingDependencyError
        If torch or Triton is not installed.
    """
    torch = import_torch()
    if validate:
        check_drafts(
            torch,
            target_logits,
            draft_logits,
            draft_tokens,
            uniforms,
            rule=rule,
            logits=True,
            temperature=temperature,
        )
    given = (target_logits, draft_logits, draft_tokens, uniforms)
    return _run(*given, "logits", rule=rule, temperature=temperature, workspace=workspace)


def _run(
    target: Tensor,
    draft: Tensor,
    tokens: Tensor,
    uniforms: Tensor,
    kind: str,
    *,
    rule: str,
    temperature: float | Tensor = 1.0,
    workspace: Workspace | None,
) -> DraftsResult[Tensor]:
    """Launch the kernels, for rows of "probabilities" or "logits"."""
    torch = import_torch()
    check_device(target)
    work = Workspace() if workspace is None else workspace
    batch, most, gamma = tokens.shape
    size, device = target.shape[3], target.device
    target, draft, tokens, uniforms = work.lay_out(target, draft, tokens, uniforms)
    block = triton_.BLOCK // 2  # two rows in float64: half a block keeps them in registers
    blocks = -(-size // block)

    agree = work.take("agree", (batch, gamma + 1, most), torch.int64, device)
    last_sums = work.take("last sums", (batch, 2, blocks), torch.int64, device)
    levels, width, room = 0, 0, FACTORS * blocks
    if rule == "levels":
        levels, width, room = *level_sizes(most), level_room(most)
    sums = work.take("sums", (batch, max(gamma, 1), room), torch.int64, device)
    if levels:
        sums.zero_()  # histograms
    laws = sums
    if kind == "logits":
        laws = summarise_logits(target, draft, tokens, temperature, work)
    result = DraftsResult(
        torch.empty(batch, gamma + 1, dtype=torch.int64, device=device),
        torch.empty(batch, dtype=torch.int64, device=device),
        torch.empty(batch, dtype=torch.int64, device=device),
    )
    given = (target, draft, tokens, uniforms, laws, agree, sums, last_sums)
    strides = (*target.stride()[:3], *draft.stride()[:3])
    shape = (most, gamma, size, draft.shape[3], room, coins_of(rule, most))
    of_table = {"levels": levels, "width": width, "padded_most": padded(most)}
    constants = {**of_table, "kind": kind, "padded_blocks": padded(blocks), "block_size": block}
    for i in range(gamma + 1):
        last = i == gamma
        launch(add_up, (batch, blocks), *given, *strides, *shape, i, last=last, **constants)
        if levels and not last:
            launch(make_tables, (batch,), tokens, agree, sums, most, gamma, room, i, **of_table)
    rest = (*result, *strides, *shape, blocks)
    launch(draw, (batch,), *given, *rest, **constants, padded_rows=padded(gamma + 1))
    return result
