"""How `generate` samples from a model, read from its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otm.decoding import SamplingParameters, read_generation_config
from otm.decoding.generation_config import DEFAULTS, KNOWN, NEUTRAL, WITHOUT_EFFECT
from otm.errors import InvalidInputError, InvalidParameterError


def written(folder: Path, settings: Any) -> Path:
    file = folder / "generation_config.json"
    file.write_text(json.dumps(settings))
    return file


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, SamplingParameters(top_k=50)),
        ({"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95},
         SamplingParameters(0.6, 20, 0.95)),
        ({"top_k": 0, "top_p": 1, "min_p": 0.0}, SamplingParameters()),
        ({"do_sample": False, "temperature": 0.6}, SamplingParameters(0)),
        ({"temperature": None, "min_p": 0.1, "repetition_penalty": 1.0, "bad_words_ids": []},
         SamplingParameters(top_k=50, min_p=0.1)),
        ({**NEUTRAL, "suppress_tokens": [], "sequence_bias": {}, "cache_implementation": "static"},
         SamplingParameters(top_k=50)),
        (dict.fromkeys([*NEUTRAL, *WITHOUT_EFFECT, "do_sample"]), SamplingParameters(top_k=50)),
        ({"max_length": 256, "eos_token_id": [1, 2], "length_penalty": 2.0, "max_new_tokens": 9},
         SamplingParameters(top_k=50)),
    ],
    ids=["nothing said", "as chat models", "neutral", "greedy", "others that do nothing",
         "all others at values that do nothing", "all others left out", "where texts end"],
)  # fmt: skip
def test_what_a_file_says(
    tmp_path: Path, settings: dict[str, Any], expected: SamplingParameters
) -> None:
    file = written(tmp_path, settings)
    assert read_generation_config(file) == read_generation_config(tmp_path) == expected


def test_the_defaults_are_those_of_transformers() -> None:
    """Catches a default of `generate` that has changed."""
    generation = pytest.importorskip("transformers").GenerationConfig
    if hasattr(generation, "_get_default_generation_params"):
        theirs = generation._get_default_generation_params()
    else:  # before transformers 5 each configuration held them
        theirs = generation().to_dict()
    assert {name: theirs.get(name) for name in DEFAULTS} == dict(DEFAULTS)


def test_every_setting_of_transformers_is_known() -> None:
    """Catches a setting of a later `generate` that nobody has decided about."""
    generation = pytest.importorskip("transformers").GenerationConfig
    assert set(vars(generation())) <= KNOWN
    assert not set(NEUTRAL) & set(WITHOUT_EFFECT)


def test_what_the_files_of_transformers_set_is_read(tmp_path: Path) -> None:
    """Catches an error for a file that transformers itself writes."""
    generation = pytest.importorskip("transformers").GenerationConfig
    generation(do_sample=True, temperature=0.6, top_k=20, max_new_tokens=5).save_pretrained(
        tmp_path
    )
    assert read_generation_config(tmp_path) == SamplingParameters(0.6, 20)


CHANGES = {
    "num_beams": 5, "num_beam_groups": 2, "diversity_penalty": 0.5, "penalty_alpha": 0.6,
    "dola_layers": "high", "constraints": [1], "force_words_ids": [[3]], "typical_p": 0.9,
    "epsilon_cutoff": 3e-4, "eta_cutoff": 3e-4, "top_h": 0.4, "repetition_penalty": 1.1,
    "encoder_repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "encoder_no_repeat_ngram_size": 3,
    "bad_words_ids": [[7]], "sequence_bias": [[[4], -1.0]], "suppress_tokens": [5],
    "begin_suppress_tokens": [220], "forced_bos_token_id": 0, "forced_eos_token_id": 2,
    "forced_decoder_ids": [[1, 50259]], "guidance_scale": 1.5, "min_length": 10,
    "min_new_tokens": 1, "exponential_decay_length_penalty": [5, 1.1],
    "watermarking_config": {"bias": 2.0}, "token_healing": True, "assistant_ensemble_weight": 0.9,
    "cache_implementation": "quantized",
}  # fmt: skip
"""Each setting that changes the distribution, at a value that does."""


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("others", [{}, {"do_sample": False}, {"do_sample": True, "top_k": 20}])
def test_what_changes_the_distribution_is_refused(
    tmp_path: Path, name: str, others: dict[str, Any]
) -> None:
    """Catches beams, least lengths and watermarks that are read as plain sampling."""
    message = rf"sets {name} = .*cannot express; .* give the sampling parameters themselves"
    with pytest.raises(InvalidInputError, match=message):
        read_generation_config(written(tmp_path, {**others, name: CHANGES[name]}))


def test_every_change_has_its_test() -> None:
    """Catches a setting that never raises, because its neutral value is wrong."""
    assert set(CHANGES) == {*NEUTRAL, "cache_implementation"}


def test_all_that_is_refused_is_named(tmp_path: Path) -> None:
    """Catches one fault an attempt."""
    with pytest.raises(InvalidInputError, match="sets num_beams = 4, min_new_tokens = 10, which"):
        read_generation_config(written(tmp_path, {"min_new_tokens": 10, "num_beams": 4}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"architectures": ["Qwen2ForCausalLM"], "vocab_size": 151936, "top_k": 20},
         "'architectures', 'vocab_size': it is the configuration of a model .* give "),
        ({"model_type": "llama"}, "'model_type': it is the configuration of a model"),
        ({"tokenizer_class": "Qwen2Tokenizer", "eos_token": "x"}, "it is a part of a tokenizer"),
        ({"bos_token": {"content": "<s>"}}, "'bos_token': it is a part of a tokenizer"),
        ({"temprature": 0.7}, "sets temprature = 0.7, which generate .*; correct the name"),
        ({"top_k": 20, "frequency_penalty": 1}, "sets frequency_penalty = 1, which generate"),
        ({"do_sample": "false"}, "sets do_sample = 'false'; it must be true or false"),
    ],
    ids=["config.json", "a short one", "tokenizer_config.json", "special_tokens_map.json",
         "a typing error", "a setting of servers", "a text for a boolean"],
)  # fmt: skip
def test_files_that_say_nothing_about_sampling_are_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    """Catches another file of the folder, or a misspelt name, that is read as the defaults."""
    (file := tmp_path / "any.json").write_text(json.dumps(settings))
    with pytest.raises(InvalidInputError, match=message):
        read_generation_config(file)


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="must be a JSON object"):
        read_generation_config(written(tmp_path, [1]))
    with pytest.raises(InvalidParameterError, match="temperature = 'hot'"):
        read_generation_config(written(tmp_path, {"temperature": "hot"}))
    with pytest.raises(InvalidInputError, match="cannot be found"):
        read_generation_config(tmp_path / "nowhere.json")


@pytest.mark.parametrize("name", ["top_k", "top_p", "min_p"])
@pytest.mark.parametrize("value", [[], "", {}, False, True])
def test_what_is_no_number_is_no_parameter(tmp_path: Path, name: str, value: Any) -> None:
    """Bug: an empty list was taken for 0, and true for 1, which keep all tokens."""
    with pytest.raises(InvalidParameterError, match=f"^{name} = "):
        read_generation_config(written(tmp_path, {name: value}))


@pytest.mark.parametrize("name", ["num_beams", "repetition_penalty", "min_length"])
def test_an_empty_list_is_no_number(tmp_path: Path, name: str) -> None:
    """Bug: it was taken for a setting that is left out."""
    with pytest.raises(InvalidInputError, match=rf"sets {name} = \[\]"):
        read_generation_config(written(tmp_path, {name: []}))
