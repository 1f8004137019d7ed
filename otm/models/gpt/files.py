"""Files of weights: safetensors, with the sizes of the model as JSON in the header."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from otm._core.files.paths import file_label
from otm._core.optional import require
from otm.errors import InvalidInputError
from otm.models.gpt.config import GPTConfig

if TYPE_CHECKING:
    from torch import Tensor

HEADER = "otm.gpt"


def read_weights(path: Path) -> tuple[GPTConfig, dict[str, Tensor]]:
    """Read sizes and weights, in float32 on the CPU."""
    torch, safetensors = require("torch"), require("safetensors")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            sizes = (file.metadata() or {}).get(HEADER)
            if sizes is None:
                raise ValueError(f"its header has no {HEADER!r}")
            config = GPTConfig(**json.loads(sizes))
            names = list(file.keys())
            if len(names) != config.tensors:
                raise ValueError(f"{len(names)} tensors instead of {config.tensors}")
            return config, {name: file.get_tensor(name).to(torch.float32) for name in names}
    except (OSError, safetensors.SafetensorError, ValueError, TypeError) as error:
        raise InvalidInputError(
            f"{path.name} is no file of a GPT ({error!s:.160}); give "
            "one that GPT.save or otm.models.gpt.train has written"
        ) from error


def write_weights(path: Path, config: GPTConfig, weights: dict[str, Tensor]) -> None:
    """Write sizes and weights as safetensors."""
    safetensors = require("safetensors")
    from safetensors.torch import save_file

    contiguous = {name: weight.detach().contiguous() for name, weight in weights.items()}
    try:
        save_file(contiguous, path, metadata={HEADER: json.dumps(dataclasses.asdict(config))})
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise InvalidInputError(f"{file_label(path)} cannot be written: {error!s:.160}") from None
