"""The usual step-by-step verification in torch: the yardstick of Wagner et al. (2024).

Every step is a tensor of its own, in float32 and for all positions: softmax, ratio, residual, sum,
cumulative sum, one token for each position, of which one is kept.  It has the signature of
`otm.kernels.reference` and, up to float32, its decisions; it is measured, not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otm.kernels.checks import check_chain
from otm.kernels.definition import ChainResult
from otm.kernels.reference import import_torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["verify_chain", "verify_chain_from_logits"]


def verify_chain(
    target_probs: Tensor,
    draft_probs: Tensor | None,
    draft_tokens: Tensor,
    uniforms: Tensor,
    *,
    validate: bool = True,
) -> ChainResult[Tensor]:
    """Verify chains step by step; parameters, result and errors as in `otm.kernels.reference`.

    Tokens are located in a cumulative sum of float32, so that the law of a token is about 10^−3
    away from the target (TV) at V = 131,072; and only laws that sum to one are supported.
    """
    torch = import_torch()
    if validate:
        check_chain(torch, target_probs, draft_probs, draft_tokens, uniforms)
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
    passed = drafted & (uniforms[:, :gamma] < ratio)
    accepted = passed.cumprod(1).sum(1, keepdim=True)
    rejected = accepted < drafted.cumprod(1).sum(1, keepdim=True)

    residual = (target[:, :gamma] - draft).clamp(min=0)
    total = residual.sum(2, keepdim=True)
    residual = torch.where(total > 0, residual / total, target[:, :gamma])
    uniform = uniforms[:, gamma:].unbind(1)
    recovered = _locate(residual, uniform[0])
    bonus = _locate(target, uniform[1])
    recovered = torch.nn.functional.pad(recovered, (0, 1))  # none after the last draft

    place = torch.arange(gamma + 1, device=target.device)
    tokens = torch.where(place < accepted, torch.nn.functional.pad(drafts, (0, 1)), -1)
    last = torch.where(rejected, recovered, bonus)
    return ChainResult(torch.where(place == accepted, last, tokens), accepted[:, 0])


def verify_chain_from_logits(
    target_logits: Tensor,
    draft_logits: Tensor | None,
    draft_tokens: Tensor,
    uniforms: Tensor,
    temperature: float | Tensor = 1.0,
    *,
    validate: bool = True,
) -> ChainResult[Tensor]:
    """`verify_chain` for logits, with softmax in float32; arguments as in `otm.kernels.reference`.

    Temperatures are at least 10^−5, which stands for greedy: of equal logits any may be chosen.
    """
    torch = import_torch()
    if validate:
        check_chain(
            torch,
            target_logits,
            draft_logits,
            draft_tokens,
            uniforms,
            logits=True,
            temperature=temperature,
        )
    if isinstance(temperature, torch.Tensor):
        heat = temperature.float().clamp(min=1e-5).expand(len(draft_tokens))[:, None, None]
    else:
        heat = max(temperature, 1e-5)
    target = (target_logits.float() / heat).softmax(-1)
    draft = None if draft_logits is None else (draft_logits.float() / heat).softmax(-1)
    return verify_chain(target, draft, draft_tokens, uniforms, validate=False)


def _locate(laws: Tensor, uniform: Tensor) -> Tensor:
    """One token for each row: [B, R, V], [B] → [B, R]."""
    torch = import_torch()
    cumulative = laws.cumsum(2)
    total = cumulative[..., -1:]
    below = torch.nextafter(
        total, torch.zeros_like(total)
    )  # so that a token of weight 0 is not hit
    point = torch.minimum(uniform[:, None, None] * total, below)
    return torch.searchsorted(cumulative, point, right=True)[..., 0].clamp(max=laws.shape[2] - 1)
