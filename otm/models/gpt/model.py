"""Byte-level language models, small enough for a CPU, and the four that come with this package."""

from __future__ import annotations

import dataclasses
import json
import operator
from importlib.resources import as_file, files
from typing import Any, Self

from otm._core.display.text import shown
from otm._core.files.paths import AnyPath, as_path, check_place, file_label
from otm._core.numbers import check_name
from otm._core.optional import require
from otm.errors import InvalidInputError
from otm.models.base import LanguageModel, Session
from otm.models.gpt.session import GPTSession
from otm.models.gpt.transformer import BLOCK, GPTConfig, Transformer

HEADER = "otm.gpt"

SHIPPED = ("target", "large", "medium", "small")
"""Names of the models in this package, from the largest on."""


def encode(text: str) -> list[int]:
    """Token ids of a text: the bytes of its UTF-8 form.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    list of int
        From 0 to 255, one a byte.

    Raises
    ------
    InvalidInputError
        If it is no text, or holds half a surrogate pair, which has no such form.

    Examples
    --------
    >>> encode("né")
    [110, 195, 169]
    """
    try:
        return list(text.encode("utf-8"))
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidInputError(
            f"{shown(text)} has no UTF-8 form; give a string without surrogates"
        ) from error


def decode(tokens: Any) -> str:
    """Text of token ids; bytes that are no UTF-8 become U+FFFD.

    Parameters
    ----------
    tokens : sequence of int, or int array-like [N]
        Bytes, from 0 to 255.

    Returns
    -------
    str
        The text.

    Raises
    ------
    InvalidInputError
        If they are no bytes.

    Examples
    --------
    >>> decode([110, 195, 169])
    'né'
    """
    try:
        data = bytes(map(operator.index, tokens))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"{shown(tokens)} are no bytes; give a sequence of integers from 0 to 255"
        ) from error
    return data.decode("utf-8", errors="replace")


class GPT(Transformer, LanguageModel):
    """A decoder-only transformer as a language model.

    Like that of [radford2019]_, with rotary positions ([su2024]_).

    Parameters
    ----------
    config : GPTConfig
        Its sizes.
    weights : mapping from str to tensor
        A tensor of floats for each of `config.shapes`, all of one type and on one device.

    Raises
    ------
    InvalidInputError
        If the weights are not these.
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

    def start(self, rows: int) -> Session:
        """Open a session of so many rows, all of them empty."""
        return GPTSession(self, rows)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read a model from a file of `save`.

        Parameters
        ----------
        path : str or Path
            A file of safetensors with the sizes in its header; nothing in it is ever executed.

        Returns
        -------
        GPT
            In float32, on the CPU; see `to`.

        Raises
        ------
        InvalidInputError
            If the file cannot be read, is no such file, or is cut short.
        MissingDependencyError
            If torch or safetensors is not installed.
        """
        file = as_path(
            path, "of a file of `save`, and for a model of this package its name to `load`"
        )
        torch, safetensors = require("torch"), require("safetensors")
        try:
            with safetensors.safe_open(file, framework="pt") as tensors:
                sizes = (tensors.metadata() or {}).get(HEADER)
                if sizes is None:
                    raise ValueError(f"its header has no {HEADER!r}")
                config = GPTConfig(**json.loads(sizes))
                names, count = list(tensors.keys()), 2 + len(BLOCK) * config.layers
                if len(names) != count:  # before anything is made for a size that is claimed
                    raise ValueError(f"{len(names)} tensors instead of {count}")
                weights = {name: tensors.get_tensor(name).to(torch.float32) for name in names}
        except (OSError, safetensors.SafetensorError, ValueError, TypeError) as error:
            raise InvalidInputError(
                f"{file.name} is no file of a GPT ({error!s:.160}); give "
                "one that GPT.save or otm.models.gpt.train has written"
            ) from error
        return cls(config, weights)

    def save(self, path: AnyPath, *, dtype: Any = None) -> None:
        """Write the model to a file of safetensors.

        Parameters
        ----------
        path : str or Path
            Where to; its folder must exist.
        dtype : torch.dtype, optional
            Type to round the weights to, such as `torch.float16`.

        Raises
        ------
        InvalidInputError
            If the folder does not exist or cannot be written to, or the weights are to be rounded
            to a type that is no float.
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
        check_place(file)
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


def load(name: str = "target") -> GPT:
    """Load a model that comes with this package.

    All were trained on the same text, the excerpt of the King James Bible in `otm/models/data`;
    how, and how well they know it, is said beside the weights.

    Parameters
    ----------
    name : str, optional
        "target", or one of the draft models "large", "medium" and "small".

    Returns
    -------
    GPT
        In float32, on the CPU.

    Raises
    ------
    UnknownMethodError
        If there is no model of this name.
    MissingDependencyError
        If torch or safetensors is not installed.

    Examples
    --------
    >>> load("small").config.size
    16660
    """
    check_name("model", name, SHIPPED)
    weights = files("otm.models.gpt") / "weights" / f"{name}.safetensors"
    with as_file(weights) as path:
        return GPT.load(path)
