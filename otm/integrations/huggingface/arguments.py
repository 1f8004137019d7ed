"""Conversion of the arguments of `generate` for a decoding loop; unsupported arguments raise."""

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
"""Logits processors in the order of transformers, each with its field of `SamplingParameters`."""

UNUSED = {"use_cache", "logits_to_keep", "cache_position"}
"""Arguments that transformers prepares only for its own loops."""


OWN_DRAFTS = {
    "assistant_early_exit": "drafts with the first layers of the model",
    "use_mtp": "drafts with more heads of the model",
    "speculation_type": "drafts with a special kind of model",
}
"""Parameters that make transformers draft by itself; the values say how it drafts."""


def check_own_drafts(setting: Callable[[str], Any]) -> None:
    """Raise if a generation parameter makes transformers draft in a loop of its own."""
    for name, how in OWN_DRAFTS.items():
        if (value := setting(name)) is not None and value is not False:
            raise InvalidParameterError(
                f"{name} = {shown(value)} {how} in a loop of transformers, which OTM does not "
                "replace; remove it and pass an assistant, or call generate without OTM"
            )


def check_config(config: Any) -> None:
    """Raise for unsupported outputs, and for modes other than greedy search and sampling."""
    check_own_drafts(lambda name: getattr(config, name, None))
    if (count := getattr(config, "prompt_lookup_num_tokens", None)) is not None:
        raise InvalidParameterError(
            f"prompt_lookup_num_tokens = {shown(count)} beside AssistedDecoding, which has drafts; "
            f"remove it, and for prompt lookup pass AssistedDecoding(PromptLookup(), gamma={count})"
        )
    if getattr(config, "assistant_ensemble_weight", None) is not None:
        raise InvalidParameterError(
            "assistant_ensemble_weight mixes the assistant into the output, which then does not "
            "follow the target; remove it, or use a lenient rule of otm.coupling"
        )
    mode = str(getattr(config.get_generation_mode(), "value", ""))
    if mode not in ("greedy_search", "sample"):
        raise InvalidParameterError(
            f"the generation mode is {mode}; drafts are possible only in greedy_search and sample"
        )
    for name in ("output_attentions", "output_hidden_states"):
        if getattr(config, name, None) and config.return_dict_in_generate:
            raise InvalidParameterError(
                f"{name}=True is not possible with drafts, because such outputs are not stored; "
                "remove it"
            )
    if getattr(config, "cache_implementation", None) == "quantized":
        raise InvalidParameterError(
            "cache_implementation='quantized' would change the distribution; remove it"
        )


def as_mask(model: Any, input_ids: Any, model_kwargs: dict[str, Any], config: Any) -> Any:
    """Return a mask of the input tokens [B, L], with zeros for padding on either side."""
    known = UNUSED | {"attention_mask", "past_key_values"}
    known |= {"encoder_outputs"} if model.config.is_encoder_decoder else {"position_ids"}
    unknown = sorted(
        name for name in model_kwargs if name not in known and model_kwargs[name] is not None
    )
    if unknown:
        raise InvalidParameterError(
            f"the arguments {', '.join(unknown)} are not possible with drafts, because OTM passes "
            "only tokens to models; remove them"
        )
    mask, positions = model_kwargs.get("attention_mask"), model_kwargs.get("position_ids")
    # Number of tokens of a mask without zeros, which transformers removes.
    length = getattr(config, "_mask_length", None)
    if mask is None or model.config.is_encoder_decoder:
        mask = input_ids.new_ones(input_ids.shape)
    else:
        length = mask.shape[1]
    if length not in (None, input_ids.shape[1]):
        raise InvalidParameterError(
            f"attention_mask has {length} tokens, but the input has {input_ids.shape[1]}; pass "
            "also the tokens in past_key_values, because the assistant reads them too"
        )
    if positions is not None and ((positions != mask.cumsum(1) - 1) & (mask > 0)).any():
        raise InvalidParameterError(
            "position_ids must count the tokens from 0; remove position_ids"
        )
    return (mask > 0).long()


def as_sources(
    model: Any, assistant: Any, input_ids: Any, inputs_tensor: Any, model_kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    """Return the encoder inputs of target and assistant; None for drafts without an encoder."""
    has_encoder = getattr(getattr(assistant, "config", None), "is_encoder_decoder", False)
    if not model.config.is_encoder_decoder:
        if has_encoder:
            raise InvalidParameterError(
                "the assistant is an encoder–decoder model and the target is not; choose an "
                "assistant without an encoder"
            )
        return None, None
    mask = model_kwargs.get("attention_mask")
    mask_input = {} if mask is None else {"attention_mask": mask}
    for_target = {"encoder_outputs": model_kwargs["encoder_outputs"]} | mask_input
    if not has_encoder:
        return for_target, None
    # With num_return_sequences, `generate` repeats the rows of the decoder only.
    copies = len(input_ids) // len(inputs_tensor)
    repeated = inputs_tensor.repeat_interleave(copies, dim=0)
    return for_target, {assistant.main_input_name: repeated} | mask_input


def split_processors(
    config: Any, processors: Sequence[Any]
) -> tuple[list[Any], SamplingParameters]:
    """Return the processors before the trailing warpers, and the warpers as sampling parameters."""
    remaining, parameters, count = list(WARPERS), dict[str, Any](), len(processors)
    for processor in reversed(processors):
        kind = kind_of(processor)
        # LogitNormalization changes logits, but not the distribution.
        if kind != "LogitNormalization":
            least = getattr(processor, "min_tokens_to_keep", 1)
            filtered = getattr(processor, "filter_value", -inf)
            if kind not in remaining or least > 1 or filtered > -inf:
                break
            remaining = remaining[: remaining.index(kind)]
            parameters[WARPERS[kind]] = getattr(processor, WARPERS[kind])
        count -= 1
    # Without sampling the temperature is 0, and no warper changes the most probable token.
    chosen = parameters if config.do_sample else {"temperature": 0}
    return [*processors[:count]], SamplingParameters(**chosen)


def as_endings(criteria: Sequence[Any]) -> tuple[int, list[int] | None, list[Any]]:
    """Return the maximum length, the end tokens, and all other stopping criteria."""
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
        raise InvalidParameterError("no maximum length; set max_new_tokens or max_length")
    return limit, end, others
