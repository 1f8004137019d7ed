"""What `generate` of transformers prepares for a decoding loop, in OTM's terms, or refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np

from otm._core.display.text import shown
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidParameterError
from otm.integrations.huggingface.processors import kind_of

WARPERS = {
    "TemperatureLogitsWarper": "temperature",
    "TopKLogitsWarper": "top_k",
    "TopPLogitsWarper": "top_p",
    "MinPLogitsWarper": "min_p",
}
"""Processors of logits and the field of `SamplingParameters` that each stands for, in its order."""

UNUSED = {"use_cache", "logits_to_keep", "cache_position"}
"""What transformers prepares for its own loops."""


OWN_DRAFTS = {
    "prompt_lookup_num_tokens": "copies drafts from the prompt",
    "assistant_early_exit": "drafts with the first layers of the model",
    "use_mtp": "drafts with more heads of the model",
    "speculation_type": "drafts with a special kind of model",
}
"""Parameters that make transformers draft by itself."""


def check_own_drafts(setting: Callable[[str], Any]) -> None:
    """Raise if the generation parameters make a loop of transformers draft."""
    for name, how in OWN_DRAFTS.items():
        if (value := setting(name)) is not None and value is not False:
            raise InvalidParameterError(
                f"{name} = {shown(value)} {how} in a loop of transformers, which OTM does not "
                "replace; leave it out and give an assistant, or call generate without OTM"
            )


def check_config(config: Any) -> None:
    """Raise for decoding other than greedy search and sampling, and for some outputs."""
    check_own_drafts(lambda name: getattr(config, name, None))
    if getattr(config, "assistant_ensemble_weight", None) is not None:
        raise InvalidParameterError(
            "assistant_ensemble_weight mixes the assistant into the output, so it does not follow "
            "the target; leave it out, or see the lenient rules of otm.coupling"
        )
    mode = str(getattr(config.get_generation_mode(), "value", ""))
    if mode not in ("greedy_search", "sample"):
        raise InvalidParameterError(
            f"the generation mode is {mode}; drafts are verified for greedy_search and sample only"
        )
    for name in ("output_attentions", "output_hidden_states"):
        if getattr(config, name, None) and config.return_dict_in_generate:
            raise InvalidParameterError(
                f"{name}=True; no such output is kept while drafts are verified, so leave it out"
            )
    if getattr(config, "cache_implementation", None) == "quantized":
        raise InvalidParameterError(
            "cache_implementation='quantized' would change the distribution; leave it out"
        )


def as_mask(model: Any, input_ids: Any, given: dict[str, Any], config: Any) -> Any:
    """Return which tokens of the input [B, L] are no padding, on either side."""
    known = UNUSED | {"attention_mask", "past_key_values"}
    known |= {"encoder_outputs"} if model.config.is_encoder_decoder else {"position_ids"}
    unknown = sorted(name for name in given if name not in known and given[name] is not None)
    if unknown:
        raise InvalidParameterError(
            f"{', '.join(unknown)} cannot be given where drafts are verified; models read tokens"
        )
    mask, positions = given.get("attention_mask"), given.get("position_ids")
    length = getattr(config, "_mask_length", None)  # of a mask that showed all
    if mask is None or model.config.is_encoder_decoder:
        mask = input_ids.new_ones(input_ids.shape)
    else:
        length = mask.shape[1]
    if length not in (None, input_ids.shape[1]):
        raise InvalidParameterError(
            f"an attention_mask of {length} tokens for {input_ids.shape[1]}; give the tokens that "
            "past_key_values hold as well, since the assistant reads them too"
        )
    if positions is not None and ((positions != mask.cumsum(1) - 1) & (mask > 0)).any():
        raise InvalidParameterError(
            "position_ids that do not count tokens from 0 cannot be honoured; leave them out"
        )
    return (mask > 0).long()


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


def split_processors(
    config: Any, processors: Sequence[Any]
) -> tuple[list[Any], SamplingParameters]:
    """Split off the warpers at the end, as sampling parameters; the others come before these."""
    left, parameters, count = list(WARPERS), dict[str, Any](), len(processors)
    for processor in reversed(processors):
        kind = kind_of(processor)
        if kind != "LogitNormalization":  # changes logits, not the distribution
            least = getattr(processor, "min_tokens_to_keep", 1)
            if kind not in left or least > 1 or getattr(processor, "filter_value", -inf) > -inf:
                break
            left = left[: left.index(kind)]
            parameters[WARPERS[kind]] = getattr(processor, WARPERS[kind])
        count -= 1
    chosen = parameters if config.do_sample else {"temperature": 0}  # which no warper changes
    return [*processors[:count]], SamplingParameters(**chosen)


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
