"""Replacements in vLLM's model runner V2: `vllm.v1.worker.gpu.spec_decode.rejection_sampler`.

The code follows the source of vLLM and is tested on tensors in vLLM's format, but not in a running
engine.  Target logits [N + B, V] include temperature, top-k and top-p, with an extra row after the
drafts of each request.  Draft logits do not include the temperature; they are indexed by the
persistent slot of a request.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otm.errors import InvalidParameterError
from otm.kernels import verify_logits


def rejection_sample(  # noqa: PLR0917 - as in vLLM
    target_logits: Tensor,
    draft_logits: Tensor | None,
    draft_sampled: Tensor,
    cu_num_logits: Tensor,
    pos: Tensor,
    idx_mapping: Tensor,
    expanded_idx_mapping: Tensor,
    expanded_local_pos: Tensor,
    temperature: Tensor,
    seed: Tensor,
    num_speculative_steps: int,
    synthetic_conditional_rates: Tensor | None = None,
    use_fp64: bool = False,
    use_block_verification: bool = False,
    contexts: Tensor | None = None,
    watermarking: Tensor | None = None,
    watermarking_skip_mask: Tensor | None = None,
    watermark_key: int | None = None,
    *,
    rule: str = "chain",
) -> tuple[Tensor, Tensor]:
    """Verify the drafts of B requests.

    Returns tokens, int64 [B, steps + 1], padded with −1, and the number of tokens of each request
    [B].  `draft_sampled` [N + B] has the last token of each request before its drafts.
    """
    del use_fp64, use_block_verification, watermarking, watermarking_skip_mask, watermark_key
    for argument, what in (
        (synthetic_conditional_rates, "rejection_sample_method='synthetic'"),
        (contexts, "watermarking"),
    ):
        if argument is not None:
            raise InvalidParameterError(
                f"{what} changes which tokens are accepted, which no verifier of OTM supports; "
                "unset it, or unset OTM_VLLM"
            )
    batch, device = len(idx_mapping), target_logits.device
    if draft_logits is not None:
        # If one model pads its vocabulary, cut the padding off, as vLLM does.
        size = min(target_logits.shape[-1], draft_logits.shape[-1])
        target_logits, draft_logits = target_logits[:, :size], draft_logits[..., :size]
    offsets = cu_num_logits - torch.arange(batch + 1, device=device)
    drafts = torch.arange(len(target_logits) - batch, device=device)
    # The tensors may have more rows than the requests use.
    request_of_draft = torch.searchsorted(offsets[1:].contiguous(), drafts, right=True)
    request_of_draft = request_of_draft.clamp(max=batch - 1)
    place = drafts + request_of_draft + 1
    temperatures = temperature[idx_mapping].float()
    sampled = temperatures > 0
    draft = None
    if draft_logits is not None:
        step = (expanded_local_pos[place] - 1).clamp(0, draft_logits.shape[1] - 1)
        draft = draft_logits[expanded_idx_mapping[place], step]
        draft = draft.float() / temperatures.where(sampled, 1.0)[request_of_draft, None]
    outcome = verify_logits(
        *(target_logits, draft, draft_sampled[place]),
        counted_uniforms(seed[idx_mapping], pos[cu_num_logits[:-1]], num_speculative_steps + 2),
        temperature=sampled.to(torch.float32),
        rule=rule,
        offsets=offsets,
        validate=False,
    )
    return outcome.tokens, (outcome.accepted + 1).int()


def counted_uniforms(seed: Tensor, position: Tensor, count: int) -> Tensor:
    """Return float64 uniforms [B, count] that depend only on seed and position of each request.

    Each step of a request begins at another position, so no uniform is used twice.
    """
    state = mix(mix(seed.long()) ^ position.long())[:, None]
    column = torch.arange(1, count + 1, device=seed.device)
    return (mix(state + column * GOLDEN) >> 11 & (1 << 53) - 1).double() * 2.0**-53


GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
"""Increment of SplitMix64 (Steele, Lea and Flood 2014), as a signed number."""


def mix(x: Tensor) -> Tensor:
    """Scramble 64 bits as in SplitMix64; int64 products wrap around."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> shift & (1 << 64 - shift) - 1)) * (factor - (1 << 64))
    return x ^ (x >> 31 & (1 << 33) - 1)
