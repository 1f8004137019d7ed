"""How `generate` samples from a model, read from its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otm.decoding import SamplingParameters, read_generation_config
from otm.decoding.generation_config import DEFAULTS
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
    ],
    ids=["nothing said", "as chat models", "neutral", "greedy", "others that do nothing"],
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


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"sets repetition_penalty = 1\.1"):
        read_generation_config(written(tmp_path, {"repetition_penalty": 1.1}))
    with pytest.raises(InvalidInputError, match="must be an object"):
        read_generation_config(written(tmp_path, [1]))
    with pytest.raises(InvalidParameterError, match="temperature = 'hot'"):
        read_generation_config(written(tmp_path, {"temperature": "hot"}))
    with pytest.raises(InvalidInputError, match="cannot be found"):
        read_generation_config(tmp_path / "nowhere.json")
