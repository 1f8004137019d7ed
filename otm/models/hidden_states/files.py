"""Files of draft layers: integers of 8 bits with one scale per row, and the tokens of the head."""

from __future__ import annotations

import dataclasses
import json
from importlib.resources import as_file, files
from typing import Any, NamedTuple

from otm._core.display.text import shown
from otm._core.files.paths import AnyPath, as_path, check_writable, file_label
from otm._core.optional import require
from otm.errors import InvalidInputError
from otm.models.hidden_states.layer import LayerConfig, Weights

SHIPPED = ("SmolLM2-135M",)
"""Names of the layers in this package."""

HEADER = "otm.hidden_states"
STEPS = 127


class LayerFile(NamedTuple):
    """The contents of a file: sizes, float32 weights, and the tokens [v] of the output head."""

    config: LayerConfig
    weights: Weights
    tokens: Any


def save_layer(path: AnyPath, file: LayerFile, notice: str) -> None:
    """Write a layer; matrices are rounded to 8 bits, with a scale for each row."""
    torch_files = require("safetensors.torch")
    torch = require("torch")
    tensors = {"tokens": file.tokens.to(torch.int32)}
    for name, given in file.weights.items():
        weight = given.detach().float()
        if weight.ndim < 2 or name.endswith("norm"):
            tensors[name] = weight.half()
            continue
        scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / STEPS
        tensors[name] = (weight / scale).round().to(torch.int8)
        tensors[f"{name}.scale"] = scale.half()
    about = {HEADER: json.dumps(dataclasses.asdict(file.config)), "notice": notice}
    where = as_path(path)
    check_writable(where)
    torch_files.save_file(tensors, where, metadata=about)


def load_layer(name: AnyPath) -> LayerFile:
    """Read a layer by its name in this package, or from a file; raise if it is not a layer."""
    if str(name) in SHIPPED:
        with as_file(files("otm.models.hidden_states") / "weights" / f"{name}.safetensors") as path:
            return _read(path)
    return _read(as_path(name))


def _read(path: Any) -> LayerFile:
    open_file = require("safetensors").safe_open
    try:
        with open_file(str(path), "pt") as file:
            about = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        values = json.loads(about[HEADER])
        config = LayerConfig(**values | {"states": tuple(values["states"])})
        tokens = tensors.pop("tokens").long()
        weights = {}
        for key, shape in config.shapes(len(tokens)).items():
            scale = tensors[f"{key}.scale"].float() if f"{key}.scale" in tensors else 1.0
            weights[key] = tensors[key].float() * scale
            if tuple(weights[key].shape) != shape:
                raise ValueError(f"{key} has the shape {tuple(weights[key].shape)}")
    except Exception as error:
        raise InvalidInputError(
            f"{file_label(path)} is not a draft layer ({shown(str(error))}); give a file of "
            f"`python -m otm.models.hidden_states.train`, or one of {', '.join(SHIPPED)}"
        ) from None
    return LayerFile(config, weights, tokens)
