"""k-Seq on a grid as Triton kernels: the decisions of `otm.kernels.torch.grid_k_seq`."""

from __future__ import annotations

from torch import Tensor

from otm.kernels.triton.multi_draft import verify_chains
from otm.kernels.verified import Verified
from otm.kernels.workspace import Workspace


def verify(
    target_probs: Tensor,
    draft_probs: Tensor,
    draft_tokens: Tensor,
    uniforms: Tensor,
    *,
    workspace: Workspace | None = None,
) -> Verified[Tensor]:
    """Verify K chains, selecting among the drafts of a position by k-Seq on a grid."""
    arguments = (target_probs, draft_probs, draft_tokens, uniforms)
    return verify_chains(*arguments, "probabilities", by_levels=False, workspace=workspace)


def verify_from_logits(
    target_logits: Tensor,
    draft_logits: Tensor,
    draft_tokens: Tensor,
    uniforms: Tensor,
    temperature: float | Tensor = 1.0,
    *,
    workspace: Workspace | None = None,
) -> Verified[Tensor]:
    """`verify` of the softmaxes of `otm.kernels.torch.softmax`, which are never written out."""
    arguments = (target_logits, draft_logits, draft_tokens, uniforms, "logits")
    return verify_chains(*arguments, by_levels=False, temperature=temperature, workspace=workspace)
