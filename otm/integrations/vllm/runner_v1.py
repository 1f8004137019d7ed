"""For vLLM's model runner V1, on CPUs and GPUs: `vllm.v1.sample.rejection_sampler`.

Drafts are packed.  Target logits come after temperature, top-k and top-p, one row for each draft;
the token that follows a block of accepted drafts, the bonus token, is drawn before by vLLM itself.
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

GREEDY = 0  # temperature


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
    """Verify N drafts of B requests: int32 [B, max_spec_len + 1], padded with −1.

    `draft_probs` [N, V] are None where drafts are not sampled, as those of n-grams.
    """
    del synthetic_conditional_rates, use_fp64_gumbel  # nothing is drawn by a race here
    if synthetic_mode:
        raise InvalidParameterError(
            "rejection_sample_method='synthetic' accepts drafts whatever their probabilities, "
            "which no verifier of OTM does; unset it, or OTM_VLLM"
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
    """Put drafts that the target cannot give in the place of −1.

    vLLM writes −1 over drafts that were sampled and then forbidden by a grammar: they are rejected,
    and what follows comes from the residual, as behind any other rejected draft.
    """
    gone = tokens < 0
    if not gone.any():
        return tokens
    impossible = draft_probs[gone].where(target_logits[gone] == -torch.inf, -1.0)
    return tokens.masked_scatter(gone, impossible.argmax(dim=-1).to(tokens.dtype))


def target_rows(logits: Tensor, bonus: Tensor, counts: Sequence[int], offsets: Tensor) -> Tensor:
    """Probabilities [N + B, V] of logits [N, V], with a one-hot row behind those of each request.

    So what follows a whole block of accepted drafts is the bonus token that vLLM has drawn.
    """
    (drafts, size), device = logits.shape, logits.device
    sequence = torch.arange(len(counts), device=device)
    if is_host(device):  # memory that is kept, and rows where they stay
        kept = memory.take("target of vLLM", (drafts + len(counts)) * size, np.float32)
        rows = torch.from_numpy(kept).view(-1, size)
        parts = rows.split([count + 1 for count in counts])
        for given, part in zip(logits.float().split(list(counts)), parts, strict=True):
            torch.softmax(given, dim=-1, out=part[:-1])
    else:
        rows = logits.new_empty(drafts + len(counts), size, dtype=torch.float32)
        of_draft = sequence.repeat_interleave(offsets.diff(), output_size=drafts)
        place = torch.arange(drafts, device=device) + of_draft
        rows[place] = logits.softmax(dim=-1, dtype=torch.float32)
    behind = offsets[1:] + sequence
    rows[behind] = 0
    rows[behind, bonus.long()] = 1
    return rows


def is_host(device: torch.device) -> bool:
    """Whether many small operations cost less than one that copies."""
    return str(device.type) == "cpu"


def draw_uniforms(
    counts: Sequence[int], most: int, generators: dict[int, torch.Generator], device: torch.device
) -> Tensor:
    """Draw float64 [B, most + 2]; a request with a seed draws as many as it would draw alone."""
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
    """Accept drafts that are the target's likeliest tokens [N]: int32 [B, most + 1]."""
    place = torch.arange(most + 1, device=tokens.device)
    index = offsets[:-1, None] + place  # [B, most + 1]
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

    vLLM's own leaves temperatures as memory was on a CPU (vllm-project/vllm #55005), and fails on
    top-k where no request has a draft.
    """
    if sampling_metadata.all_greedy or not len(logits):
        return logits
    counts = pad(cu_num_draft_tokens, (1, 0)).diff()

    def of_rows(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.repeat_interleave(counts, output_size=len(logits))

    warmth = sampling_metadata.temperature
    warmth = warmth.where(warmth != GREEDY, 1)
    logits.div_(warmth.repeat_interleave(counts, output_size=len(logits))[:, None])
    apply = require("vllm.v1.sample.ops.topk_topp_sampler", "apply_top_k_top_p")
    rows: Tensor = apply(logits, of_rows(sampling_metadata.top_k), of_rows(sampling_metadata.top_p))
    return rows
