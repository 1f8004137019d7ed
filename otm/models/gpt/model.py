"""Byte-level language models, small enough for a CPU; four models come with this package."""

from __future__ import annotations

import dataclasses
import json
import operator
from importlib.resources import as_file, files
from typing import Any, Self

from otm._core.display.text import shown
from otm._core.files.paths import AnyPath, as_path, check_writable, file_label
from otm._core.numbers import check_name
from otm._core.optional import require
from otm.errors import InvalidInputError
from otm.models.base import LanguageModel, Session
from otm.models.gpt.session import GPTSession
from otm.models.gpt.transformer import BLOCK, GPTConfig, Transformer

HEADER = "otm.gpt"

SHIPPED = ("target", "large", "medium", "small")
"""Names of the models in this package, the largest first."""


def encode(text: str) -> list[int]:
    """Convert a text to token ids, which are the bytes of its UTF-8 encoding.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    list of int
        Token ids from 0 to 255, one for each byte.

    Raises
    ------
    InvalidInputError
        If the text is not a string, or has a lone surrogate, which UTF-8 cannot encode.

    Examples
    --------
    >>> encode("né")
    [110, 195, 169]
    """
    try:
        return list(text.encode("utf-8"))
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidInputError(
            f"{shown(text)} cannot be encoded in UTF-8; give a string without surrogates"
        ) from error


def decode(tokens: Any) -> str:
    """Convert token ids to text; invalid UTF-8 bytes become U+FFFD.

    Parameters
    ----------
    tokens : sequence of int, or int array-like [N]
        Bytes from 0 to 255.

    Returns
    -------
    str
        The text.

    Raises
    ------
    InvalidInputError
        If a token is not an integer from 0 to 255.

    Examples
    --------
    >>> decode([110, 195, 169])
    'né'
    """
    try:
        data = bytes(map(operator.index, tokens))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"{shown(tokens)} is not a sequence of bytes; give integers from 0 to 255"
        ) from error
    return data.decode("utf-8", errors="replace")


class GPT(Transformer, LanguageModel):
    """A decoder-only transformer as a language model.

    The architecture follows [radford2019]_, with rotary positions [su2024]_.

    Parameters
    ----------
    config : GPTConfig
        Sizes of the model.
    weights : mapping from str to tensor
        A tensor of floats for each entry of `config.shapes`; all have one type and one device.

    Raises
    ------
    InvalidInputError
        If names, shapes, types or devices of the weights are wrong.
    MissingDependencyError
        If torch is not installed.

    References
    ----------
    .. [radford2019] Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
    .. [su2024] Su et al., "RoFormer: Enhanced transformer with rotary position embedding",
       Neurocomputing 568, 2024.

    Examples
    --------
    >>> import numpy as np
    >>> model = GPT.random(GPTConfig(layers=1, width=8, heads=2), seed=0)
    >>> session = model.start(rows=1)
    >>> session.append(np.array([encode("In the")])).shape
    torch.Size([1, 6, 256])
    """

    reads_trees = True

    def start(self, rows: int) -> Session:
        """Open a session with a number of empty rows."""
        return GPTSession(self, rows)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read a model from a file that `save` wrote.

        Parameters
        ----------
        path : str or Path
            A safetensors file with the sizes in its header.  Reading it executes no code from the
            file.

        Returns
        -------
        GPT
            The model in float32 on the CPU; `to` converts it.

        Raises
        ------
        InvalidInputError
            If the file cannot be read, is not a file of a GPT, or is truncated.
        MissingDependencyError
            If torch or safetensors is not installed.
        """
        file = as_path(
            path,
            "of a file that `save` wrote; for a model of this package, give its name to "
            "otm.models.load",
        )
        torch, safetensors = require("torch"), require("safetensors")
        try:
            with safetensors.safe_open(file, framework="pt") as tensors:
                sizes = (tensors.metadata() or {}).get(HEADER)
                if sizes is None:
                    raise ValueError(f"its header has no {HEADER!r}")
                config = GPTConfig(**json.loads(sizes))
                names, count = list(tensors.keys()), 2 + len(BLOCK) * config.layers
                # This check comes first, so that a false size allocates no memory.
                if len(names) != count:
                    raise ValueError(f"it has {len(names)} tensors instead of {count}")
                weights = {name: tensors.get_tensor(name).to(torch.float32) for name in names}
        except (OSError, safetensors.SafetensorError, ValueError, TypeError) as error:
            raise InvalidInputError(
                f"{file.name} is not a file of a GPT ({error!s:.160}); give "
                "a file that GPT.save or otm.models.gpt.train wrote"
            ) from error
        return cls(config, weights)

    def save(self, path: AnyPath, *, dtype: Any = None) -> None:
        """Write the model to a safetensors file.

        Parameters
        ----------
        path : str or Path
            File to write; its folder must exist.
        dtype : torch.dtype, optional
            Floating-point type to which the weights are rounded, such as `torch.float16`.

        Raises
        ------
        InvalidInputError
            If the folder does not exist or is not writable, or if `dtype` is not a floating-point
            type.
        MissingDependencyError
            If safetensors is not installed.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "small.safetensors"
        ...     GPT.random(GPTConfig(layers=1, width=8, heads=2), seed=0).save(path)
        ...     print(GPT.load(path).config.size == GPTConfig(layers=1, width=8, heads=2).size)
        True
        """
        file = as_path(path, "of a file to write")
        check_writable(file)
        safetensors = require("safetensors")
        from safetensors.torch import save_file

        weights = self.to(device="cpu", dtype=dtype).weights
        contiguous = {name: weight.detach().contiguous() for name, weight in weights.items()}
        sizes = json.dumps(dataclasses.asdict(self.config))
        try:
            save_file(contiguous, file, metadata={HEADER: sizes})
        except (OSError, ValueError, safetensors.SafetensorError) as error:
            raise InvalidInputError(
                f"{file_label(file)} cannot be written: {error!s:.160}"
            ) from None


def load(name: str) -> GPT:
    """Load a model that comes with this package, in float32 on the CPU."""
    check_name("model", name, SHIPPED)
    weights = files("otm.models.gpt") / "weights" / f"{name}.safetensors"
    with as_file(weights) as path:
        return GPT.load(path)
