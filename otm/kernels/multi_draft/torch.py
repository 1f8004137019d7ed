"""SpecTr's recursion over K chains of drafts, for a batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from otm.kernels.common.distributions.numpy import mass
from otm.kernels.common.distributions.torch import extend, join_output, locate
from otm.kernels.results import Verified

Select = Callable[..., tuple[Tensor, Tensor]]
"""Rule for one node of each sequence.

Its arguments are, at one position, the probabilities of target and draft model [B, V], the draft
tokens [B, K] and the uniforms [B, …].  The rule returns the indices of the accepted drafts, int64
[B], or −1, and masses [B, V].  If no draft is accepted, the next token is drawn in proportion to
the returned masses.
"""


def verify_chains(
    select: Select,
    target_probs: Tensor,
    draft_probs: Tensor,
    draft_tokens: Tensor,
    uniforms: Tensor,
    *,
    counted: Tensor | None = None,
) -> Verified[Tensor]:
    """Accept drafts position by position, among the chains that begin with the accepted tokens."""
    batch, _, gamma = draft_tokens.shape
    per_position = (uniforms.shape[1] - 2) // max(gamma, 1)
    drafts = draft_tokens.long()
    sequences = torch.arange(batch, device=drafts.device)
    agree = torch.ones_like(drafts[:, :, 0] if gamma else drafts.sum(2), dtype=torch.bool)
    alive = torch.ones_like(sequences, dtype=torch.bool)
    rejected, accepted = ~alive, torch.zeros_like(sequences)
    masses = mass(target_probs[:, 0, 0])
    for i in range(gamma):
        running = drafts[:, :, i].where(agree, -1)
        drafted = running >= 0
        any_draft = drafted.any(1)
        # A chain that has ended has no draft row here.
        chain = first_chosen(torch.where(any_draft[:, None], drafted, agree))
        target = target_probs[sequences, chain, i]  # [B, V]
        draft = extend(draft_probs[sequences, chain, i], target_probs.shape[3])
        here = uniforms[:, i * per_position : (i + 1) * per_position]
        counted_drafts = running if counted is None else running.where(counted[:, :, i], -1)
        index, residual = select(target, draft, counted_drafts, here)
        masses = torch.where(alive[:, None], residual, masses)
        rejected = torch.where(alive, any_draft, rejected)
        alive = alive & (index >= 0)
        accepted = accepted + alive
        token = running.gather(1, index.clamp(min=0)[:, None])
        agree = torch.where(alive[:, None], running == token, agree)
    chain = first_chosen(agree)
    rows = mass(target_probs[sequences, chain, gamma])
    masses = torch.where(alive[:, None], rows, masses)
    uniform = torch.where(rejected & ~alive, uniforms[:, -2], uniforms[:, -1])
    token = locate(masses, uniform)
    return Verified(join_output(drafts[sequences, chain], accepted, token), accepted, chain)


def first_chosen(chosen: Tensor) -> Tensor:
    """Return the index of the first chosen entry, else the last index: [B, n] → [B]."""
    places = torch.arange(chosen.shape[1], device=chosen.device)
    return torch.where(chosen, places, chosen.shape[1] - 1).amin(1)
