"""Walk and keep as Triton kernels: the decisions of `otm.kernels.walk_and_keep.torch`.

Two launches for each position, as for bins in `multi_draft`, whose steps these kernels share: one
adds up the bins of the position and what is left at the one before, and finds the law of the number
of drafts; one makes the table.  Each finishes the position before, from its table.  So the number
of launches does not depend on what is accepted: it is 2γ + 3, with one that sets all sums to 0 and
one that keeps a node and draws; from logits two more.  At each position two rows are read, twice.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from otm._core.quadrature import quadrature
from otm.kernels.common import runtime
from otm.kernels.common.distributions.triton import summarise_logits
from otm.kernels.common.rows.triton import lay_out_lists
from otm.kernels.common.runtime import check_device, launch, lay_out, padded
from otm.kernels.optimal.numpy import edge_count
from otm.kernels.optimal.triton_steps import SECTIONS_OF_WALK, SUMS
from otm.kernels.sparse_drafts import SparseDrafts
from otm.kernels.verified import Verified
from otm.kernels.walk_and_keep.triton_kernels import add_up, draw, make_tables
from otm.kernels.workspace import Workspace


def verify(
    target: Tensor,
    draft: Tensor | SparseDrafts[Tensor],
    tokens: Tensor,
    uniforms: Tensor,
    kind: str = "probabilities",
    *,
    temperature: float | Tensor = 1.0,
    workspace: Workspace | None = None,
    counted: Tensor | None = None,
) -> Verified[Tensor]:
    """Launch the kernels, for rows of "probabilities" or "logits"."""
    check_device(target)
    work = Workspace() if workspace is None else workspace
    batch, chains, gamma = tokens.shape
    size, device = target.shape[3], target.device
    lists, rows = (draft, None) if isinstance(draft, SparseDrafts) else (None, draft)
    target, laws, tokens, uniforms = lay_out(work, target, rows, tokens, uniforms)
    # four rows in float64, of two positions: a quarter of a block keeps them in registers
    block = max(runtime.BLOCK // 4, 1)
    blocks, edges = -(-size // block), edge_count(chains)

    agree = work.take("agree", (batch, gamma + 1, chains), torch.int64, device)
    shares = work.take("shares", (batch, gamma + 1), torch.float64, device)
    numbers = work.take("numbers", (batch, max(gamma, 1), chains + 1), torch.float64, device)
    left = work.take("left", (batch, gamma + 1, 2, blocks), torch.int64, device)
    sums = work.take("sums", (batch, max(gamma, 1), SECTIONS_OF_WALK * edges), torch.int64, device)
    sums[..., : SUMS * edges].zero_()
    listed_tokens, width, node_blocks, drawn_from = tokens, 0, blocks, left
    if lists is not None:
        listed_tokens, laws, width = lay_out_lists(work, lists)
        node_blocks = -(-laws.shape[-1] // width)
        drawn_from = work.take("drawn from", (batch, block), laws.dtype, device)
    softmaxes = sums
    if kind == "logits":
        logits = (target, target if rows is None else laws)
        softmaxes = summarise_logits(*logits, tokens, temperature, work, of_target=rows is None)
    own = tokens if counted is None else counted.contiguous().view(torch.uint8)
    shapes = ((batch, gamma + 1), (batch,), (batch,))
    result = Verified(*(torch.empty(x, dtype=torch.int64, device=device) for x in shapes))
    arguments = (target, laws, tokens, uniforms, listed_tokens, own, softmaxes)
    memory = (agree, shares, sums, left)
    strides = (*target.stride()[:3], *laws.stride()[:3])
    shape = (chains, gamma, size, laws.shape[3], SECTIONS_OF_WALK * edges, blocks)
    tree = counted is not None
    of_table = {"tree": tree, "edges": edges, "padded_chains": padded(chains)}
    constants = {"kind": kind, "width": width, **of_table}
    points = points_on(device, chains)
    for i in range(gamma + 1):
        # before the last position one program more, for the law of the number of drafts
        grid = (batch, max(blocks, node_blocks) + 1 if i < gamma else blocks)
        of_numbers = {"padded_numbers": padded(chains + 1), "last": i == gamma}
        further = {**of_numbers, "block_size": block, **constants}
        laws_of = (*memory, numbers, points)
        launch(add_up, grid, *arguments, *laws_of, *strides, *shape, i, **further)
        if i < gamma:
            of_node = (own, agree, sums, numbers, chains, gamma, shape[4], i)
            launch(make_tables, (batch,), tokens, *of_node, **of_table)
    rest = (*memory, drawn_from, *result, *strides, *shape)
    further = {"padded_rows": padded(gamma + 1), "padded_blocks": padded(blocks), **constants}
    launch(draw, (batch,), *arguments, *rest, **further, block_size=block)
    return result


@cache
def points_on(device: torch.device, chains: int) -> Tensor:
    """Points and weights of the quadrature, one behind the other: copied to a device once."""
    return torch.from_numpy(np.concatenate(quadrature(chains, exact=False))).to(device)
