"""Block verification of a batch, with the same decisions as `otm.kernels.block.numpy`, bit for bit.

Block verification needs every row of target and draft, so the code reads all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otm.kernels.common.distributions.numpy import UNIT, mass
from otm.kernels.common.distributions.torch import at, draft_mass, join_output, locate
from otm.kernels.results import Verified


def verify(
    target_probs: Tensor, draft_probs: Tensor | None, draft_tokens: Tensor, uniforms: Tensor
) -> Verified[Tensor]:
    """Accept the longest prefix of the drafts that passes its test, and draw the next token."""
    gamma, size = draft_tokens.shape[1], target_probs.shape[2]
    drafts = draft_tokens.long()
    length = (drafts >= 0).cumprod(1).sum(1)
    target = at(target_probs[:, :gamma], drafts)  # probabilities of the drafts, [B, γ]
    draft = torch.ones_like(target) if draft_probs is None else at(draft_probs, drafts)

    accepted, masses = torch.zeros_like(length), mass(target_probs[:, 0])
    weight = torch.ones_like(uniforms[:, 0])
    for i in range(gamma + 1):
        row = mass(target_probs[:, i])  # [B, V]
        residual = torch.zeros_like(row)
        if i < gamma:
            residual = mass(weight[:, None] * target_probs[:, i].double())
            draft_row = None if draft_probs is None else draft_probs[:, i]
            residual = (residual - draft_mass(draft_row, drafts[:, i], size)).clamp(min=0)
            residual = residual.where((i < length)[:, None], 0)
        if i > 0:
            coin, excess = uniforms[:, i - 1], residual.sum(1).double() / UNIT
            passes = coin * (excess + (1 - weight)) < excess
            passes = torch.where(i == length, coin < weight, passes & (i < length)) & (weight > 0)
        else:
            passes = torch.ones_like(length, dtype=torch.bool)
        accepted = torch.where(passes, i, accepted)
        # Only rounding can make the residual empty; then the target's row replaces it.
        rest = torch.where(residual.any(1, keepdim=True), residual, row)
        masses = torch.where(passes[:, None], rest, masses)
        if i < gamma:
            weight = capped_ratio(weight * target[:, i], draft[:, i])
    rejected = accepted < length
    token = locate(masses, torch.where(rejected, uniforms[:, gamma], uniforms[:, gamma + 1]))
    return Verified(join_output(drafts, accepted, token), accepted)


def capped_ratio(weighted: Tensor, draft: Tensor) -> Tensor:
    """Return min(weighted / draft, 1) for one token, with 0/0 = 0."""
    return torch.where(weighted < draft, weighted / draft, (weighted > 0).double())
