"""For vLLM's model runner V2 (GPUs): `vllm.v1.worker.gpu.spec_decode.rejection_sampler`.

Written against its source, and tested on tensors as it passes them; it has not run in an engine.
Target logits [N + B, V] come after temperature, top-k and top-p, with a row behind all drafts of a
request; draft logits come before temperature, in places of requests that stay.
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
    """Verify the drafts of B requests: int64 [B, steps + 1], padded with −1, and how many, [B].

    `draft_sampled` [N + B] has the last token of each request before its drafts.
    """
    del use_fp64, use_block_verification, watermarking, watermarking_skip_mask, watermark_key
    for given, what in (
        (synthetic_conditional_rates, "rejection_sample_method='synthetic'"),
        (contexts, "watermarking"),
    ):
        if given is not None:
            raise InvalidParameterError(
                f"{what} changes which tokens are accepted, which no verifier of OTM does; unset "
                "it, or OTM_VLLM"
            )
    batch, device = len(idx_mapping), target_logits.device
    if draft_logits is not None:  # where one model has padding, it is cut off as vLLM does
        size = min(target_logits.shape[-1], draft_logits.shape[-1])
        target_logits, draft_logits = target_logits[:, :size], draft_logits[..., :size]
    offsets = cu_num_logits - torch.arange(batch + 1, device=device)
    drafts = torch.arange(len(target_logits) - batch, device=device)
    # there may be more rows than requests have
    of_draft = torch.searchsorted(offsets[1:].contiguous(), drafts, right=True)
    of_draft = of_draft.clamp(max=batch - 1)
    place = drafts + of_draft + 1
    warmth = temperature[idx_mapping].float()  # [B]
    sampled = warmth > 0
    draft = None
    if draft_logits is not None:
        step = (expanded_local_pos[place] - 1).clamp(0, draft_logits.shape[1] - 1)
        draft = draft_logits[expanded_idx_mapping[place], step]
        draft = draft.float() / warmth.where(sampled, 1.0)[of_draft, None]
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
    """Uniforms [B, count] of requests by seed and position alone: float64, whatever the batch.

    A step begins where no other step of the request does, so no uniform is used twice.
    """
    state = mix(mix(seed.long()) ^ position.long())[:, None]
    column = torch.arange(1, count + 1, device=seed.device)
    return (mix(state + column * GOLDEN) >> 11 & (1 << 53) - 1).double() * 2.0**-53


GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
"""Steps of SplitMix64 (Steele, Lea and Flood 2014), as a signed number."""


def mix(x: Tensor) -> Tensor:
    """Scramble 64 bits as SplitMix64 does; products of int64 wrap around."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> shift & (1 << 64 - shift) - 1)) * (factor - (1 << 64))
    return x ^ (x >> 31 & (1 << 33) - 1)
