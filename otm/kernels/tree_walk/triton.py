"""Walk and keep over trees as Triton kernels, with the decisions of `otm.kernels.tree_walk.torch`.

The kernels proceed level by level, with at most three launches at each level.  In `add_steps`,
every program adds one block to the sums for all steps of Newton's method.  In `add_left`, every
program finds c from these sums, and sums the residual of one block.  In `step`, one program for
each sequence tests whether the node is kept, and goes to the child that wins.  Finally, `draw`
draws a token after the deepest kept node.  For logits, two additional launches at each level
compute the sums of the rows.

Of the N + 1 rows of a tree, the kernels read only rows along the walk: the target's row once, or
both rows twice if a child was drawn.  The sums include the certain children, as if they were other
tokens; a program that uses sums subtracts these children, which are few.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from otm.kernels.common import runtime
from otm.kernels.common.runtime import check_device, launch, padded
from otm.kernels.results import VerifiedTree
from otm.kernels.tree.checks import Trees
from otm.kernels.tree.triton_rows import Softmaxes, lay_out_rows
from otm.kernels.tree_walk.triton_kernels import (
    LEFT,
    NUMBERS,
    SUMS,
    add_left,
    add_steps,
    draw,
    step,
)
from otm.kernels.workspace import Workspace


def verify(
    target: Tensor,
    draft: Tensor | None,
    trees: Trees[Tensor],
    temperature: float | Tensor | None = None,
    workspace: Workspace | None = None,
) -> VerifiedTree[Tensor]:
    """Launch the kernels; a temperature means that the rows are logits, else probabilities."""
    check_device(target)
    tokens, parents, sampled, uniforms = trees
    work = Workspace() if workspace is None else workspace
    batch, levels, _ = uniforms.shape
    size, nodes, device = target.shape[-1], tokens.shape[1], target.device
    models = target, below = lay_out_rows(work, target, draft)
    drafts = (tokens.contiguous(), parents.contiguous(), sampled.contiguous().view(torch.uint8))
    # Half a block keeps the masses of both rows in registers.
    block = max(runtime.BLOCK // 2, 1)
    blocks, has_draft = -(-size // block), draft is not None
    output = torch.empty((batch, levels), dtype=torch.int64, device=device)
    accepted = torch.empty(batch, dtype=torch.int64, device=device)
    reached = torch.empty(batch, dtype=torch.int64, device=device)
    # At each level: the row, and the number of drawn children after it.
    states = work.take("states", (levels + 1, batch, 2), torch.int64, device)
    states[0, :, 0] = 0
    of_context = sampled & (parents < 0) & (tokens >= 0) if has_draft else sampled[:, :0]
    states[0, :, 1] = of_context.sum(1) if levels > 1 else 0
    numbers = work.take("numbers", (levels, batch, NUMBERS), torch.float64, device)
    numbers[0, :, 0] = 1
    drawn = work.take("drawn", (levels, batch), torch.int64, device)
    left = work.take("left", (levels, batch, LEFT, blocks), torch.int64, device)
    sums = left
    if has_draft:
        sums = work.take("sums", (levels, batch, SUMS), torch.int64, device).zero_()
    # Without logits, no kernel reads softmaxes; each level of `states` is aligned as theirs are.
    softmaxes, kind, sum_rows = states, "probabilities", None
    if temperature is not None:
        kind = "logits"
        softmaxes = work.take("softmaxes", (levels, batch, 2, 4), torch.float32, device)
        sum_rows = Softmaxes(models, states, temperature, work, has_draft=has_draft)
    strides = (*target.stride()[:2], *below.stride()[:2])
    sizes = (*strides, size, below.shape[-1], blocks, nodes, levels)
    constants: dict[str, Any] = {"kind": kind, "has_draft": has_draft, "block_size": block}
    constants |= {"padded_nodes": padded(nodes)}
    further = {"padded_blocks": padded(blocks), **constants}
    for level in range(levels):
        if sum_rows is not None:
            sum_rows(softmaxes[level], level)
        of_node = (*models, states, softmaxes[level], *drafts)
        if has_draft and level + 1 < levels:
            launch(add_steps, (batch, blocks), *of_node, sums, *sizes, level, **constants)
        state = (numbers, drawn, left)
        launch(add_left, (batch, blocks), *of_node, sums, *state, *sizes, level, **constants)
        results = (uniforms.contiguous(), accepted, reached)
        launch(step, (batch,), *of_node, *state, *results, *sizes, level, **further)
    of_node = (*models, states, softmaxes, *drafts)
    results = (uniforms.contiguous(), accepted, output)
    further |= {"padded_levels": padded(levels)}
    launch(draw, (batch,), *of_node, numbers, drawn, left, *results, *sizes, **further)
    return VerifiedTree(output, accepted, reached)
