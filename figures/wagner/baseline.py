"""The usual step-by-step verification in torch: the reference of Wagner et al. (2024) for times.

Every step makes a float32 tensor for all positions: softmax, ratio, residual, sum, cumulative sum,
and one token for each position.  Only one of these tokens is kept.  The decisions are those of
`otm.kernels.chain.torch`, up to float32; this code is measured, not used.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otm.kernels.results import Verified


def verify(
    target_probs: Tensor, draft_probs: Tensor | None, draft_tokens: Tensor, uniforms: Tensor
) -> Verified[Tensor]:
    """Verify chains step by step.

    Tokens are located in a float32 cumulative sum.  So the distribution of a token is about 10^−3
    away from the target (TV) at V = 131,072, and only rows that sum to one are supported.
    """
    gamma, size = draft_tokens.shape[1], target_probs.shape[2]
    target, uniforms = target_probs.float(), uniforms.float()
    drafts = draft_tokens.long()
    drafted = drafts >= 0
    column = drafts.clamp(min=0)[..., None]
    if draft_probs is None:
        draft = torch.zeros_like(target[:, :gamma]).scatter(2, column, 1.0)
    else:
        draft = torch.nn.functional.pad(draft_probs.float(), (0, size - draft_probs.shape[2]))

    ratio = (target[:, :gamma].gather(2, column) / draft.gather(2, column))[..., 0]
    passes = drafted & (uniforms[:, :gamma] < ratio)
    accepted = passes.cumprod(1).sum(1, keepdim=True)
    rejected = accepted < drafted.cumprod(1).sum(1, keepdim=True)

    residual = (target[:, :gamma] - draft).clamp(min=0)
    total = residual.sum(2, keepdim=True)
    residual = torch.where(total > 0, residual / total, target[:, :gamma])
    uniform = uniforms[:, gamma:].unbind(1)
    recovered = _locate(residual, uniform[0])
    bonus = _locate(target, uniform[1])
    # There is no recovered token after the last draft.
    recovered = torch.nn.functional.pad(recovered, (0, 1))

    place = torch.arange(gamma + 1, device=target.device)
    tokens = torch.where(place < accepted, torch.nn.functional.pad(drafts, (0, 1)), -1)
    last = torch.where(rejected, recovered, bonus)
    return Verified(torch.where(place == accepted, last, tokens), accepted[:, 0])


def verify_from_logits(
    target_logits: Tensor,
    draft_logits: Tensor | None,
    draft_tokens: Tensor,
    uniforms: Tensor,
    temperature: float | Tensor = 1.0,
) -> Verified[Tensor]:
    """Apply `verify` to float32 softmaxes.

    Temperatures are at least 10^−5, which means greedy; then any of several equal logits may win.
    """
    if isinstance(temperature, Tensor):
        temperature = temperature.float().clamp(min=1e-5).expand(len(draft_tokens))[:, None, None]
    else:
        temperature = max(temperature, 1e-5)
    target = (target_logits.float() / temperature).softmax(-1)
    draft = None if draft_logits is None else (draft_logits.float() / temperature).softmax(-1)
    return verify(target, draft, draft_tokens, uniforms)


def _locate(probs: Tensor, uniform: Tensor) -> Tensor:
    """Draw one token for each row, `[B, R, V], [B] → [B, R]`."""
    cumulative = probs.cumsum(2)
    total = cumulative[..., -1:]
    below = torch.nextafter(
        total, torch.zeros_like(total)
    )  # so that a token of weight 0 is never drawn
    point = torch.minimum(uniform[:, None, None] * total, below)
    return torch.searchsorted(cumulative, point, right=True)[..., 0].clamp(max=probs.shape[2] - 1)
