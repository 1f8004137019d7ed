"""Grid k-Seq at one node, batched: the decisions of `otm.kernels.k_seq.numpy`."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from otm.kernels.common.distributions.numpy import UNIT
from otm.kernels.common.distributions.torch import mass
from otm.kernels.k_seq.numpy import INTERVALS, SHARES, Split
from otm.kernels.multi_draft.torch import verify_chains


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
    mean = split.one_draft(of_target, of_draft, torch.minimum)
    passes = tested & (uniforms * of_draft < mean)
    place = torch.arange(chains, device=tokens.device)
    first = torch.where(passes, place, chains).amin(1)
    mean = split.one_draft(target, draft, torch.minimum)
    residual = (everything - mass(split.factor * mean)).clamp(min=0)
    use = residual.any(1, keepdim=True) & (count > 0)
    return torch.where(first < chains, first, -1), torch.where(use, residual, everything)


verify = partial(verify_chains, select)
"""Verify K chains, selecting among the drafts of a position by k-Seq on the grid."""


def find_split(target: Tensor, draft: Tensor, count: Tensor, chains: int) -> Split:
    """Largest valid mixture for [B, 1] drafts, on the grid of so many chains: Tensors [B, 1]."""
    place = torch.arange(INTERVALS + 1, dtype=torch.float64, device=target.device)
    # torch takes number / tensor as number · reciprocal, which is rounded twice
    top = torch.full_like(place, INTERVALS**2)
    scales = top / (top + (chains - 1) * place * place)
    sums = [mass(torch.minimum(draft, scale * target)).sum(1) for scale in scales]
    betas = (torch.stack(sums, 1).double() / UNIT).clamp(max=1)
    scales = scales.expand(betas.shape)

    wrong = (~_valid(scales, betas, count, chains)).sum(1, keepdim=True)
    low = wrong.clamp(max=INTERVALS)
    high = (low - 1).clamp(min=0)
    scale, beta = scales.gather(1, low), betas.gather(1, low)
    scale_rise, beta_rise = scales.gather(1, high) - scale, betas.gather(1, high) - beta

    shares = torch.arange(1, SHARES, dtype=torch.float64, device=target.device) / SHARES
    right = _valid(scale + shares * scale_rise, beta + shares * beta_rise, count, chains)
    share = right.sum(1, keepdim=True).double() / SHARES
    beta = beta + share * beta_rise
    factor = torch.where(beta > 0, at_least_once(beta, count, chains) / beta, 0.0)
    return Split(scale, scales.gather(1, high), share, factor)


def _valid(scale: Tensor, beta: Tensor, count: Tensor, chains: int) -> Tensor:
    """Whether no token is accepted more often than the target has it."""
    return scale * at_least_once(beta, count, chains) <= beta


def at_least_once(beta: Tensor, count: Tensor, chains: int) -> Tensor:
    """Probability 1 − (1 − β)^k that one of k drafts is accepted, for k of each row."""
    hit = beta
    for i in range(1, chains):
        hit = torch.where(i < count, hit + (1 - hit) * beta, hit)
    return hit
