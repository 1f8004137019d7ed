"""The sampling parameters that a model of Hugging Face is served with, from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otm._core.files.paths import AnyPath, as_path, file_label, read_json
from otm._core.text import shown
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidInputError

FILE = "generation_config.json"

DEFAULTS: Mapping[str, Any] = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "min_p": None}
"""What `generate` takes where neither the call nor the file says anything."""

NEUTRAL: Mapping[str, Any] = {
    "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": None, "suppress_tokens": None, "begin_suppress_tokens": None,
    "forced_bos_token_id": None, "forced_eos_token_id": None, "sequence_bias": None,
    "guidance_scale": 1.0, "top_h": None,
}  # fmt: skip
"""Settings that change distributions in other ways, at the values that do not."""


def read_generation_config(path: AnyPath) -> SamplingParameters:
    """Read how `generate` of transformers samples from a model, if a call says nothing else.

    Parameters
    ----------
    path : str or Path
        The file `generation_config.json`, or the folder of a model, in which it is.

    Returns
    -------
    SamplingParameters
        Temperature, top-k, top-p and min-p of a call with `do_sample=True`; temperature 0 if the
        file says `"do_sample": false`.  What the file leaves out is as in transformers, whose
        top-k is 50.

    Raises
    ------
    InvalidInputError
        If there is no such file, or it sets something that these parameters cannot express, such as
        a repetition penalty.
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
        raise InvalidInputError(f"{file_label(file)} holds {shown(settings)}; it must be an object")
    others = [
        f"{name} = {shown(settings[name])}"
        for name, neutral in NEUTRAL.items()
        if settings.get(name) not in (None, [], neutral)
    ]
    if others:
        raise InvalidInputError(
            f"{file_label(file)} sets {', '.join(others)}, which temperature, top-k, top-p and "
            "min-p cannot express; record the scores after such processors and give these, or give "
            "the sampling parameters by themselves"
        )
    if settings.get("do_sample") is False:
        return SamplingParameters(temperature=0)
    values = {
        name: default if settings.get(name) is None else settings[name]
        for name, default in DEFAULTS.items()
    }
    return SamplingParameters(
        temperature=values["temperature"],
        top_k=values["top_k"] or None,
        top_p=None if values["top_p"] == 1 else values["top_p"],
        min_p=values["min_p"] or None,
    )
