"""k-Seq on a grid for a batch, with the same decisions as `otm.kernels.k_seq.numpy`."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from otm.kernels.common.distributions.numpy import UNIT, mass
from otm.kernels.k_seq.numpy import INTERVALS, SHARES, Split, mix_factors
from otm.kernels.multi_draft.torch import first_chosen, verify_chains
from otm.kernels.optimal.torch import deterministic_count


def select(
    target: Tensor, draft: Tensor, tokens: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor]:
    """Accept the first draft that passes its test: [B, V], [B, V], [B, K], [B, K]."""
    everything = mass(target)
    target, draft = target.double(), draft.double()
    chains, size = tokens.shape[1], target.shape[1]
    running = tokens >= 0
    count = running.sum(1, keepdim=True)
    split = find_split(target, draft, count, chains)

    column = tokens.clamp(0, size - 1)
    of_draft, of_target = draft.gather(1, column), target.gather(1, column)  # [B, K]
    tested = running & (tokens < size)
    passes = tested & (uniforms * of_draft < split.one_draft(of_target, of_draft))
    index = torch.where(passes.any(1), first_chosen(passes), -1)
    residual = (everything - mass(split.factor * split.one_draft(target, draft))).clamp(min=0)
    use = residual.any(1, keepdim=True) & (count > 0)
    return index, torch.where(use, residual, everything)


verify = partial(verify_chains, select)
"""Verify K chains by k-Seq on the grid at each position."""


def find_split(target: Tensor, draft: Tensor, count: Tensor, chains: int) -> Split:
    """Return the largest valid mixtures for `count` [B, 1] drafts, on the grid for K = `chains`."""
    place = torch.arange(INTERVALS + 1, dtype=torch.float64, device=target.device)
    # torch computes number / tensor as number · reciprocal, which is rounded twice.
    top = torch.full_like(place, INTERVALS**2)
    scales = top / (top + (chains - 1) * place * place)
    sums = [mass(torch.minimum(draft, scale * target)).sum(1) for scale in scales]
    betas = (torch.stack(sums, 1).double() / UNIT).clamp(max=1)
    shares = torch.arange(1, SHARES, dtype=torch.float64, device=target.device) / SHARES
    return mix_factors(scales, betas, shares, deterministic_count(count, chains))
