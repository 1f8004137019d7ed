"""What `generate` of transformers prepares for a decoding loop, in OTM's terms, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidParameterError

WARPERS = {
    "TemperatureLogitsWarper": "temperature",
    "TopKLogitsWarper": "top_k",
    "TopPLogitsWarper": "top_p",
    "MinPLogitsWarper": "min_p",
}
"""Processors of logits and the field of `SamplingParameters` that each stands for, in its order."""

UNUSED = {"use_cache", "logits_to_keep", "cache_position"}
"""What transformers prepares for its own loops."""


def check_config(config: Any) -> None:
    """Refuse ways of decoding other than greedy search and sampling, and further output."""
    mode = str(getattr(config.get_generation_mode(), "value", ""))
    if mode not in ("greedy_search", "sample"):
        raise InvalidParameterError(
            f"the generation mode is {mode}; drafts are verified for greedy_search and sample only"
        )
    for name in ("output_scores", "output_logits", "output_attentions", "output_hidden_states"):
        if getattr(config, name, None) and config.return_dict_in_generate:
            raise InvalidParameterError(
                f"{name}=True; no such output is kept while drafts are verified, so leave it out"
            )
    if getattr(config, "cache_implementation", None) == "quantized":
        raise InvalidParameterError(
            "cache_implementation='quantized' would change the distribution; leave it out"
        )


def as_prompts(model: Any, input_ids: Any, given: dict[str, Any]) -> list[list[int]]:
    """Return prompts without padding."""
    known = UNUSED | {"attention_mask", "past_key_values"}
    known |= {"encoder_outputs"} if model.config.is_encoder_decoder else {"position_ids"}
    unknown = sorted(name for name in given if name not in known and given[name] is not None)
    if unknown:
        raise InvalidParameterError(
            f"{', '.join(unknown)} cannot be given where drafts are verified; models read tokens"
        )
    cache = given.get("past_key_values")
    if cache is not None and cache.get_seq_length() > 0:
        raise InvalidParameterError(
            "past_key_values hold tokens already; each call starts with an empty cache"
        )
    mask, positions = given.get("attention_mask"), given.get("position_ids")
    if mask is None or model.config.is_encoder_decoder:
        mask = input_ids.new_ones(input_ids.shape)
    if positions is not None and ((positions != mask.cumsum(1) - 1) & (mask > 0)).any():
        raise InvalidParameterError(
            "position_ids that do not count tokens from 0 cannot be honoured; leave them out"
        )
    return [row[kept > 0].tolist() for row, kept in zip(input_ids, mask, strict=True)]


def as_sources(
    model: Any, assistant: Any, input_ids: Any, inputs_tensor: Any, given: dict[str, Any]
) -> tuple[Any, Any]:
    """Return what target and assistant translate, None for those that have no encoder."""
    if not model.config.is_encoder_decoder:
        if assistant.config.is_encoder_decoder:
            raise InvalidParameterError(
                "the assistant is an encoder–decoder model and the target is not; take one of its "
                "kind"
            )
        return None, None
    mask = given.get("attention_mask")
    of_mask = {} if mask is None else {"attention_mask": mask}
    for_target = {"encoder_outputs": given["encoder_outputs"]} | of_mask
    if not assistant.config.is_encoder_decoder:
        return for_target, None
    copies = len(input_ids) // len(inputs_tensor)  # num_return_sequences
    repeated = inputs_tensor.repeat_interleave(copies, dim=0)
    return for_target, {assistant.main_input_name: repeated} | of_mask


def as_sampling(config: Any, processors: Sequence[Any]) -> SamplingParameters:
    """Return what the processors do to logits, if they do nothing else."""
    left, parameters = list(WARPERS), dict[str, Any]()
    for processor in processors:
        kind = type(processor).__name__
        if kind == "LogitNormalization":  # changes logits, not the distribution
            continue
        if kind not in left:
            raise InvalidParameterError(
                f"{kind} cannot be honoured where drafts are verified; of the processors of logits "
                f"there may be one each of {', '.join(WARPERS)}, in this order"
            )
        if getattr(processor, "min_tokens_to_keep", 1) > 1:
            raise InvalidParameterError(
                f"{kind} with min_tokens_to_keep > 1 cannot be honoured; leave that out"
            )
        left = left[left.index(kind) + 1 :]
        parameters[WARPERS[kind]] = getattr(processor, WARPERS[kind])
    return SamplingParameters(**parameters if config.do_sample else {"temperature": 0})


def as_endings(criteria: Sequence[Any]) -> tuple[int, list[int] | None, list[Any]]:
    """Return the limit of the length, the end tokens, and all other criteria."""
    limit, end, others = None, None, []
    for criterion in criteria:
        kind = type(criterion).__name__
        if kind == "MaxLengthCriteria":
            limit = criterion.max_length
        elif kind == "EosTokenCriteria":
            end = np.atleast_1d(criterion.eos_token_id.cpu().numpy()).tolist()
        else:
            others.append(criterion)
    if limit is None:
        raise InvalidParameterError("no limit of the length; give max_new_tokens or max_length")
    return limit, end, others


def as_output(model: Any, input_ids: Any, new: Sequence[Sequence[int]], config: Any) -> Any:
    """Return what `generate` returns."""
    import torch
    from transformers.generation import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput

    pad = getattr(config, "_pad_token_tensor", None)
    rows = torch.nn.utils.rnn.pad_sequence(
        [input_ids.new_tensor(row) for row in new], True, 0 if pad is None else int(pad)
    )
    sequences = torch.cat([input_ids, rows], dim=1)
    if not config.return_dict_in_generate:
        return sequences
    if model.config.is_encoder_decoder:
        return GenerateEncoderDecoderOutput(sequences=sequences)
    return GenerateDecoderOnlyOutput(sequences=sequences)
