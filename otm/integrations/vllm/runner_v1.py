"""Replacements for vLLM's model runner V1 (CPUs, GPUs): `vllm.v1.sample.rejection_sampler`.

Drafts of all requests are packed into one tensor.  Target logits already include temperature, top-k
and top-p, with one row per draft.  vLLM itself draws the bonus token in advance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from otm._core.optional import require
from otm.errors import InvalidParameterError
from otm.kernels import verify_probs
from otm.kernels.common.distributions.numpy import memory

GREEDY = 0
"""Temperature that vLLM uses for greedy requests."""


def rejection_sample(  # noqa: PLR0917 - as in vLLM
    draft_token_ids: Tensor,
    num_draft_tokens: Sequence[int],
    max_spec_len: int,
    cu_num_draft_tokens: Tensor,
    draft_probs: Tensor | None,
    target_logits: Tensor,
    bonus_token_ids: Tensor,
    sampling_metadata: Any,
    synthetic_mode: bool = False,
    synthetic_conditional_rates: Tensor | None = None,
    use_fp64_gumbel: bool = False,
    *,
    rule: str = "chain",
) -> Tensor:
    """Verify N drafts of B requests; return int32 [B, max_spec_len + 1], padded with −1.

    `draft_probs` [N, V] is None if drafts are deterministic, as for n-grams.
    """
    # This verifier has no synthetic acceptance and no Gumbel races.
    del synthetic_conditional_rates, use_fp64_gumbel
    if synthetic_mode:
        raise InvalidParameterError(
            "rejection_sample_method='synthetic' accepts drafts without their probabilities, which "
            "no verifier of OTM does; unset it, or unset OTM_VLLM"
        )
    offsets = pad(cu_num_draft_tokens, (1, 0))
    output = None
    if not sampling_metadata.all_greedy:
        target = target_rows(target_logits, bonus_token_ids[:, 0], num_draft_tokens, offsets)
        uniforms = draw_uniforms(
            num_draft_tokens, max_spec_len, sampling_metadata.generators, target.device
        )
        tokens = draft_token_ids
        if draft_probs is not None:
            tokens = with_rejected(tokens, draft_probs, target_logits)
        arguments = (target, draft_probs, tokens, uniforms)
        output = verify_probs(*arguments, rule=rule, offsets=offsets, validate=False).tokens.int()
    if output is None or not sampling_metadata.all_random:
        largest = target_logits.argmax(dim=-1).int()
        greedy = verify_greedily(largest, draft_token_ids, bonus_token_ids, offsets, max_spec_len)
        if output is None:
            return greedy
        is_greedy = sampling_metadata.temperature == GREEDY
        output = torch.where(is_greedy[:, None], greedy, output)
    return output


def with_rejected(tokens: Tensor, draft_probs: Tensor, target_logits: Tensor) -> Tensor:
    """Replace drafts of −1 by tokens that the target cannot produce.

    vLLM writes −1 over sampled drafts that a grammar forbids.  Drafts of −1 must be rejected, and
    the recovered token comes from the residual distribution, as after every rejected draft.
    """
    gone = tokens < 0
    if not gone.any():
        return tokens
    impossible = draft_probs[gone].where(target_logits[gone] == -torch.inf, -1.0)
    return tokens.masked_scatter(gone, impossible.argmax(dim=-1).to(tokens.dtype))


def target_rows(logits: Tensor, bonus: Tensor, counts: Sequence[int], offsets: Tensor) -> Tensor:
    """Return probabilities [N + B, V] of logits [N, V], with a one-hot row after each request.

    The one-hot row makes the verifier return the bonus token that vLLM has drawn.
    """
    (drafts, size), device = logits.shape, logits.device
    sequence = torch.arange(len(counts), device=device)
    if is_host(device):
        # Reuse memory between calls, and write each softmax directly to its rows.
        kept = memory.take("target of vLLM", (drafts + len(counts)) * size, np.float32)
        rows = torch.from_numpy(kept).view(-1, size)
        parts = rows.split([count + 1 for count in counts])
        for request_logits, part in zip(logits.float().split(list(counts)), parts, strict=True):
            torch.softmax(request_logits, dim=-1, out=part[:-1])
    else:
        rows = logits.new_empty(drafts + len(counts), size, dtype=torch.float32)
        request_of_draft = sequence.repeat_interleave(offsets.diff(), output_size=drafts)
        place = torch.arange(drafts, device=device) + request_of_draft
        rows[place] = logits.softmax(dim=-1, dtype=torch.float32)
    bonus_rows = offsets[1:] + sequence
    rows[bonus_rows] = 0
    rows[bonus_rows, bonus.long()] = 1
    return rows


def is_host(device: torch.device) -> bool:
    """Return whether the device is a CPU, where many small operations cost less than a copy."""
    return str(device.type) == "cpu"


def draw_uniforms(
    counts: Sequence[int], most: int, generators: dict[int, torch.Generator], device: torch.device
) -> Tensor:
    """Draw float64 uniforms [B, most + 2]; seeded requests draw independently of the batch."""
    kind = {"dtype": torch.float64, "device": device}
    uniforms = torch.rand(len(counts), most + 2, **kind)
    for request, generator in generators.items():
        if drafts := counts[request]:
            own = torch.rand(drafts + 2, generator=generator, **kind)
            uniforms[request, :drafts], uniforms[request, most:] = own[:drafts], own[drafts:]
    return uniforms


def verify_greedily(
    largest: Tensor, tokens: Tensor, bonus: Tensor, offsets: Tensor, most: int
) -> Tensor:
    """Accept drafts equal to the target's most probable tokens [N]; return int32 [B, most + 1]."""
    place = torch.arange(most + 1, device=tokens.device)
    index = offsets[:-1, None] + place
    length = offsets.diff()[:, None]
    index = index.where(place < length, len(tokens))
    drafts, best = (pad(row, (0, 1), value=-1)[index] for row in (tokens, largest))
    accepted = ((drafts == best) & (place < length)).cumprod(1).sum(1, keepdim=True)
    best = torch.where(place == length, bonus.to(best.dtype), best)
    return best.where(place <= accepted, -1)


def apply_sampling_constraints(
    logits: Tensor, cu_num_draft_tokens: Tensor, sampling_metadata: Any
) -> Tensor:
    """Apply temperature, top-k and top-p of the requests to the rows [N, V] of their drafts.

    vLLM's own function uses uninitialized temperatures on a CPU (vllm-project/vllm #55005), and
    fails on top-k if no request has a draft.
    """
    if sampling_metadata.all_greedy or not len(logits):
        return logits
    counts = pad(cu_num_draft_tokens, (1, 0)).diff()

    def per_row(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.repeat_interleave(counts, output_size=len(logits))

    temperature = sampling_metadata.temperature
    temperature = temperature.where(temperature != GREEDY, 1)
    logits.div_(temperature.repeat_interleave(counts, output_size=len(logits))[:, None])
    apply = require("vllm.v1.sample.ops.topk_topp_sampler", "apply_top_k_top_p")
    rows: Tensor = apply(logits, per_row(sampling_metadata.top_k), per_row(sampling_metadata.top_p))
    return rows
