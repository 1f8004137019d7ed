"""Block verification in plain torch, batched: the decisions of `block_definition`, bit for bit.

It looks at every row of target and draft, as block verification has to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otm.kernels.checks import check_chain
from otm.kernels.definition import UNIT, ChainResult
from otm.kernels.reference import at, import_torch, laws_from_logits, locate, mass, output

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["verify_block", "verify_block_from_logits"]


def verify_block(
    target_probs: Tensor,
    draft_probs: Tensor | None,
    draft_tokens: Tensor,
    uniforms: Tensor,
    *,
    validate: bool = True,
) -> ChainResult[Tensor]:
    """Accept the longest part of the drafts that passes, and draw the token that follows it.

    Equivalent to `otm.kernels.block_definition.verify_block`, where everything is said, but
    batched.  Takes, returns and raises what `otm.kernels.reference.verify_chain` does.

    Examples
    --------
    >>> import torch
    >>> target = torch.tensor([[[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]]])
    >>> draft = torch.tensor([[[0.5, 0.5], [0.25, 0.75]]])
    >>> uniforms = torch.tensor([[0.6, 0.9, 0.5, 0.1]], dtype=torch.float64)
    >>> verify_block(target, draft, torch.tensor([[0, 0]]), uniforms)
    ChainResult(tokens=tensor([[0, 0, 0]]), accepted=tensor([2]))
    """
    torch = import_torch()
    if validate:
        check_chain(torch, target_probs, draft_probs, draft_tokens, uniforms)
    gamma, size = draft_tokens.shape[1], target_probs.shape[2]
    drafts = draft_tokens.long()
    length = (drafts >= 0).cumprod(1).sum(1)
    wanted = at(target_probs[:, :gamma], drafts)
    offered = torch.ones_like(wanted) if draft_probs is None else at(draft_probs, drafts)

    accepted, masses = torch.zeros_like(length), mass(target_probs[:, 0])
    weight = torch.ones_like(uniforms[:, 0])
    for i in range(gamma + 1):
        row = mass(target_probs[:, i])
        left = torch.zeros_like(row)
        if i < gamma:
            left = mass(weight[:, None] * target_probs[:, i].double())
            left = (left - _taken(draft_probs, drafts, i, size)).clamp(min=0)
            left = left.where((i < length)[:, None], 0)
        if i > 0:
            coin, excess = uniforms[:, i - 1], left.sum(1).double() / UNIT
            passed = coin * (excess + (1 - weight)) < excess
            passed = torch.where(i == length, coin < weight, passed & (i < length)) & (weight > 0)
        else:
            passed = torch.ones_like(length, dtype=torch.bool)
        accepted = torch.where(passed, i, accepted)
        # an empty residual can only be a matter of rounding
        rest = torch.where(left.any(1, keepdim=True), left, row)
        masses = torch.where(passed[:, None], rest, masses)
        if i < gamma:
            weighted = weight * wanted[:, i]
            divided = weighted / offered[:, i]
            weight = torch.where(weighted < offered[:, i], divided, (weighted > 0).double())
    rejected = accepted < length
    token = locate(masses, torch.where(rejected, uniforms[:, gamma], uniforms[:, gamma + 1]))
    return ChainResult(output(drafts, accepted, token), accepted)


def verify_block_from_logits(
    target_logits: Tensor,
    draft_logits: Tensor | None,
    draft_tokens: Tensor,
    uniforms: Tensor,
    temperature: float | Tensor = 1.0,
    *,
    validate: bool = True,
) -> ChainResult[Tensor]:
    """`verify_block` for logits: the laws are softmax(logits / temperature), in float64.

    Takes, returns and raises what `otm.kernels.reference.verify_chain_from_logits` does.
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
    laws = laws_from_logits(target_logits, draft_logits, draft_tokens, temperature)
    return verify_block(*laws, draft_tokens, uniforms, validate=False)


def _taken(draft_probs: Tensor | None, drafts: Tensor, i: int, size: int) -> Tensor:
    """Masses of the law that draft i was sampled from, on the target's vocabulary: [B, V]."""
    torch = import_torch()
    if draft_probs is None:
        return (torch.arange(size, device=drafts.device) == drafts[:, i, None]) * int(UNIT)
    taken = mass(draft_probs[:, i])
    return torch.nn.functional.pad(taken, (0, size - taken.shape[1]))
