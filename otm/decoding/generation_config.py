"""Reading the sampling parameters of a Hugging Face model from its `generation_config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otm._core.display.text import shown
from otm._core.files.paths import AnyPath, as_path, file_label, read_json
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidInputError

FILE = "generation_config.json"

DEFAULTS: Mapping[str, Any] = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "min_p": None}
"""Values that `generate` uses if neither the call nor the file sets them."""

NEUTRAL: Mapping[str, Any] = {
    # Search methods that replace sampling.
    "num_beams": 1, "num_beam_groups": 1, "diversity_penalty": 0.0, "penalty_alpha": 0.0,
    "dola_layers": None, "constraints": None, "force_words_ids": None,
    # Processors of scores.
    "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "top_h": None,
    "repetition_penalty": 1.0, "encoder_repetition_penalty": 1.0, "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0, "bad_words_ids": None, "sequence_bias": None,
    "suppress_tokens": None, "begin_suppress_tokens": None, "forced_bos_token_id": None,
    "forced_eos_token_id": None, "forced_decoder_ids": None, "guidance_scale": 1.0,
    "min_length": 0, "min_new_tokens": 0, "exponential_decay_length_penalty": None,
    "watermarking_config": None, "token_healing": False,
    # This setting mixes the assistant into the output distribution.
    "assistant_ensemble_weight": None,
}  # fmt: skip
"""Other settings that change the distribution, each with the value that does not change it."""

WITHOUT_EFFECT = {
    # Settings that decide where a text ends.
    *("max_length", "max_new_tokens", "max_time", "stop_strings"),
    # Settings of search methods, which `NEUTRAL` excludes.
    *("early_stopping", "length_penalty", "low_memory"),
    *("renormalize_logits", "remove_invalid_values", "num_return_sequences", "use_cache"),
    *("cache_config", "max_cache_len", "prefill_chunk_size", "compile_config", "disable_compile"),
    *("continuous_batching_config", "output_attentions", "output_hidden_states", "output_scores"),
    *("output_logits", "return_dict_in_generate", "return_legacy_cache"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
    # Settings of draft generation.
    *("is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "use_mtp"),
    *("assistant_confidence_threshold", "prompt_lookup_num_tokens", "max_matching_ngram_size"),
    *("assistant_early_exit", "assistant_lookbehind", "target_lookbehind", "speculation_type"),
    *("_from_model_config", "transformers_version", "_commit_hash", "generation_kwargs"),
    # Settings of chat models that come with custom code.
    *("chat_format", "max_window_size", "user_token_id", "assistant_token_id"),
}
"""Settings that do not change the distribution of the next token."""

KNOWN = {*DEFAULTS, *NEUTRAL, *WITHOUT_EFFECT, "do_sample", "cache_implementation"}

OTHER_FILES: Mapping[str, tuple[str, ...]] = {
    "the configuration of a model (config.json)": ("architectures", "model_type", "vocab_size"),
    "a part of a tokenizer": (
        *("tokenizer_class", "added_tokens_decoder", "chat_template", "model_max_length"),
        *("bos_token", "eos_token", "added_tokens"),
    ),
}
"""Settings that identify other files of a model's folder."""


def read_generation_config(path: AnyPath) -> SamplingParameters:
    """Read the default sampling parameters of `generate` in transformers for a model.

    Parameters
    ----------
    path : str or Path
        The file `generation_config.json`, or the folder of a model with this file.

    Returns
    -------
    SamplingParameters
        Temperature, top-k, top-p and min-p of a call with `do_sample=True`.  The temperature is 0
        if the file says `"do_sample": false`.  Missing settings have the defaults of transformers,
        such as top-k = 50.

    Raises
    ------
    InvalidInputError
        If the file does not exist, is another file of the folder, or has a setting that is unknown
        or that sampling parameters cannot express, such as beams, minimum lengths, penalties and
        watermarks.
    InvalidParameterError
        If a parameter is outside its range.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text = '{"do_sample": true, "temperature": 0.7, "top_p": 0.8}'
    ...     _ = (Path(folder) / "generation_config.json").write_text(text)
    ...     print(read_generation_config(folder))
    T 0.7, top-k 50, top-p 0.8
    """
    place = as_path(path, "of a folder, or of a file generation_config.json")
    file = place / FILE if place.is_dir() else place
    settings = read_json(file)
    if not isinstance(settings, dict):
        raise InvalidInputError(
            f"{file_label(file)} contains {shown(settings)}; it must be a JSON object"
        )
    _check_names(settings, file_label(file))
    others = [
        f"{name} = {shown(settings[name])}"
        for name, neutral in NEUTRAL.items()
        if settings.get(name) not in (None, neutral, *(() if neutral is not None else ([], {})))
    ]
    # A quantized cache computes scores from rounded keys and values.
    if settings.get("cache_implementation") == "quantized":
        others.append("cache_implementation = 'quantized'")
    if others:
        raise InvalidInputError(
            f"{file_label(file)} sets {', '.join(others)}, which temperature, top-k, top-p and "
            "min-p cannot express; if you serve the model without this setting, give the sampling "
            "parameters themselves; if it is a logits processor, record its output and use that"
        )
    if not isinstance(settings.get("do_sample"), bool | None):
        raise InvalidInputError(
            f"{file_label(file)} sets do_sample = {shown(settings['do_sample'])}; it must be true "
            "or false"
        )
    if settings.get("do_sample") is False:
        return SamplingParameters(temperature=0)
    values = {
        name: default if settings.get(name) is None else settings[name]
        for name, default in DEFAULTS.items()
    }
    return SamplingParameters(
        temperature=values["temperature"],
        top_k=_unless(0, values["top_k"]),
        top_p=_unless(1, values["top_p"]),
        min_p=_unless(0, values["min_p"]),
    )


def _unless(neutral: int, value: Any) -> Any:
    """Return None for the value that keeps all tokens, and any other value unchanged."""
    return None if not isinstance(value, bool) and value == neutral else value


def _check_names(settings: Mapping[str, Any], label: str) -> None:
    """Raise if the settings come from another file of a model's folder, or are unknown."""
    unknown = sorted(set(settings) - KNOWN)
    for what, names in OTHER_FILES.items():
        there = [name for name in names if name in settings]
        if there:
            raise InvalidInputError(
                f"{label} has {', '.join(map(repr, there))}: it is {what}, which has no sampling "
                f"settings; give {FILE}, the folder that contains it, or the sampling parameters "
                "themselves"
            )
    if unknown:
        raise InvalidInputError(
            f"{label} sets {', '.join(f'{name} = {shown(settings[name])}' for name in unknown)}, "
            "which generate in transformers does not know; correct the name, remove it if it "
            "changes no probabilities, or give the sampling parameters themselves"
        )
