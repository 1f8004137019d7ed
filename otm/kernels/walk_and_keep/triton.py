"""Walk and keep as Triton kernels, with the same decisions as `otm.kernels.walk_and_keep.torch`.

Each position has two launches, as for bins in `multi_draft`, whose steps these kernels share.  The
first launch reads the table of the previous position and sums that position's residual masses.  The
first launch also fills the bins of its own position and finds the distribution of the number of
drafts.  The second launch builds the table.

The number of launches does not depend on acceptance: it is 2γ + 3, or 2γ + 5 for logits.  One
launch sets all sums to 0, and one keeps a node and draws a token.  At each position the kernels
read two rows, each of them twice.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from otm._core.quadrature import quadrature
from otm.kernels.common import runtime
from otm.kernels.common.runtime import launch, padded
from otm.kernels.multi_draft.triton import launch_tables, lay_out_chains
from otm.kernels.optimal.numpy import edge_count
from otm.kernels.optimal.triton_steps import SECTIONS_OF_WALK, SUMS
from otm.kernels.results import Verified
from otm.kernels.sparse_drafts import SparseDrafts
from otm.kernels.walk_and_keep.triton_kernels import add_up, draw
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
    """Launch the kernels for rows of "probabilities" or "logits"."""
    # A quarter of a block keeps four float64 rows, two for each of two positions, in registers.
    block = max(runtime.BLOCK // 4, 1)
    edges, device = edge_count(tokens.shape[1]), target.device
    sections = (SECTIONS_OF_WALK * edges, SUMS * edges)
    call = lay_out_chains(
        target, draft, tokens, uniforms, kind, temperature, workspace, counted, block, sections
    )
    batch, chains, gamma = tokens.shape
    shares = call.work.take("shares", (batch, gamma + 1), torch.float64, device)
    of_numbers = (batch, max(gamma, 1), chains + 1)
    numbers = call.work.take("numbers", of_numbers, torch.float64, device)
    left = call.work.take("left", (batch, gamma + 1, 2, call.blocks), torch.int64, device)
    arguments = (*call.tensors, call.agree, shares, call.sums, left)
    sizes, points = (*call.sizes, call.blocks), points_on(device, chains)
    constants = {**call.constants, "edges": edges, "block_size": block}
    for i in range(gamma + 1):
        # Before the last position, one more program finds the distribution of the number of drafts.
        last, programs = i == gamma, max(call.blocks, call.node_blocks) + 1
        grid = (batch, call.blocks if last else programs)
        further = {"padded_numbers": padded(chains + 1), "last": last, **constants}
        launch(add_up, grid, *arguments, numbers, points, *sizes, i, **further)
        if not last:
            launch_tables(call, numbers, i, edges, walk=True)
    rest = (call.memory, *call.result, *sizes)
    launch(draw, (batch,), *arguments, *rest, **call.to_draw, **constants)
    return call.result


@cache
def points_on(device: torch.device, chains: int) -> Tensor:
    """Return the points and then the weights of the quadrature; copy them to a device only once."""
    return torch.from_numpy(np.concatenate(quadrature(chains, exact=False))).to(device)
