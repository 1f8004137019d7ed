"""Chain verification of a batch, with the same decisions as `otm.kernels.chain.numpy`, bit for bit.

For each sequence the code reads the drafts' probabilities and one whole row of target and draft.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otm.kernels.common.distributions.numpy import mass
from otm.kernels.common.distributions.torch import at, draft_mass, join_output, locate
from otm.kernels.results import Verified


def verify(
    target_probs: Tensor, draft_probs: Tensor | None, draft_tokens: Tensor, uniforms: Tensor
) -> Verified[Tensor]:
    """Accept drafts up to the first rejection, and draw the next token."""
    batch, size = len(target_probs), target_probs.shape[2]
    gamma = draft_tokens.shape[1]
    drafts = draft_tokens.long()
    drafted = drafts >= 0

    target = at(target_probs[:, :gamma], drafts)  # probabilities of the drafts, [B, γ]
    draft = torch.ones_like(target) if draft_probs is None else at(draft_probs, drafts)
    passes = drafted & (drafts < size) & (uniforms[:, :gamma] * draft < target)
    accepted = passes.cumprod(1).sum(1)
    rejected = accepted < drafted.cumprod(1).sum(1)

    # If a draft was rejected, subtract the draft's row from the target's row at its position.
    sequences = torch.arange(batch, device=target_probs.device)
    masses = mass(target_probs[sequences, accepted])  # [B, V]
    if gamma:
        last = accepted.clamp(max=gamma - 1)
        row = None if draft_probs is None else draft_probs[sequences, last]
        residual = (masses - draft_mass(row, drafts[sequences, last], size)).clamp(min=0)
        masses = torch.where(rejected[:, None] & residual.any(1, keepdim=True), residual, masses)
    token = locate(masses, torch.where(rejected, uniforms[:, gamma], uniforms[:, gamma + 1]))
    return Verified(join_output(drafts, accepted, token), accepted)
