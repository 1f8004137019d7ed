"""SpecTr's recursion as Triton kernels: the decisions of `otm.kernels.torch.multi_draft`.

One launch for each position: its programs finish the position before, from sums that the last
launch left, and add up what the chains that still agree need at theirs.  So the drafts are tested
on the device, and the number of launches does not depend on what is accepted: γ + 2 for k-Seq,
twice γ and three for levels, whose tables one program makes and whose histograms start from 0; from
logits two more, which find the sum of each row.  At each position two rows are read.  The last two
launches draw one token, as in chain verification.  A sequence whose output has ended costs no more
reading.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otm.kernels.triton import runtime
from otm.kernels.triton.distributions import summarise_logits
from otm.kernels.triton.grid_k_seq_steps import FACTORS
from otm.kernels.triton.levels_steps import node_size as level_node_size
from otm.kernels.triton.levels_steps import sizes as level_sizes
from otm.kernels.triton.multi_draft_kernels import add_up, draw, make_tables
from otm.kernels.triton.runtime import check_device, launch, lay_out, padded
from otm.kernels.verified import Verified
from otm.kernels.workspace import Workspace


def verify_chains(
    target: Tensor,
    draft: Tensor,
    tokens: Tensor,
    uniforms: Tensor,
    kind: str,
    *,
    by_levels: bool,
    temperature: float | Tensor = 1.0,
    workspace: Workspace | None,
) -> Verified[Tensor]:
    """Launch the kernels, for rows of "probabilities" or "logits", by levels or by k-Seq."""
    check_device(target)
    work = Workspace() if workspace is None else workspace
    batch, chains, gamma = tokens.shape
    size, device = target.shape[3], target.device
    target, draft, tokens, uniforms = lay_out(work, target, draft, tokens, uniforms)
    block = runtime.BLOCK // 2  # two rows in float64: half a block keeps them in registers
    blocks = -(-size // block)

    agree = work.take("agree", (batch, gamma + 1, chains), torch.int64, device)
    last_sums = work.take("last sums", (batch, 2, blocks), torch.int64, device)
    levels, width, node_size = 0, 0, FACTORS * blocks
    if by_levels:
        levels, width, node_size = *level_sizes(chains), level_node_size(chains)
    sums = work.take("sums", (batch, max(gamma, 1), node_size), torch.int64, device)
    if levels:
        sums.zero_()  # histograms
    softmaxes = sums
    if kind == "logits":
        softmaxes = summarise_logits(target, draft, tokens, temperature, work)
    result = Verified(
        torch.empty(batch, gamma + 1, dtype=torch.int64, device=device),
        torch.empty(batch, dtype=torch.int64, device=device),
        torch.empty(batch, dtype=torch.int64, device=device),
    )
    arguments = (target, draft, tokens, uniforms, softmaxes, agree, sums, last_sums)
    strides = (*target.stride()[:3], *draft.stride()[:3])
    per_position = (uniforms.shape[1] - 2) // max(gamma, 1)
    shape = (chains, gamma, size, draft.shape[3], node_size, per_position)
    of_table = {"levels": levels, "width": width, "padded_chains": padded(chains)}
    constants = {**of_table, "kind": kind, "padded_blocks": padded(blocks), "block_size": block}
    for i in range(gamma + 1):
        last = i == gamma
        launch(add_up, (batch, blocks), *arguments, *strides, *shape, i, last=last, **constants)
        if levels and not last:
            of_node = (chains, gamma, node_size, i)
            launch(make_tables, (batch,), tokens, agree, sums, *of_node, **of_table)
    rest = (*result, *strides, *shape, blocks)
    launch(draw, (batch,), *arguments, *rest, **constants, padded_rows=padded(gamma + 1))
    return result
