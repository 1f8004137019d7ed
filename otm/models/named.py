"""Load a language model by its name: those of this package, and those that it downloads."""

from __future__ import annotations

from typing import Any, Literal, overload

from otm._core.display.progress import Progress
from otm._core.display.text import shown
from otm._core.optional import require
from otm.errors import InvalidParameterError
from otm.models.downloads.catalogue import is_downloadable, named
from otm.models.downloads.folder import download
from otm.models.gpt.model import GPT, SHIPPED, load_shipped
from otm.models.huggingface.loading import load_one
from otm.models.huggingface.model import HuggingFaceModel


@overload
def load(
    name: Literal["target", "large", "medium", "small"] = "target",
    *,
    dtype: Any = None,
    progress: Progress | None = None,
) -> GPT: ...


@overload
def load(
    name: Literal["SmolLM2-135M", "gemma-3-270m"],
    *,
    dtype: Any = None,
    progress: Progress | None = None,
) -> HuggingFaceModel: ...


@overload
def load(
    name: str, *, dtype: Any = None, progress: Progress | None = None
) -> GPT | HuggingFaceModel: ...


def load(
    name: str = "target", *, dtype: Any = None, progress: Progress | None = None
) -> GPT | HuggingFaceModel:
    """Load a model by its name; a model that does not come with this package is downloaded once.

    The models "target", "large", "medium" and "small" come with this package.  Their tokens are
    bytes, and all were trained on the same text, the excerpt of the King James Bible in
    `otm/models/data`.  A file next to the weights describes the training and the losses.

    "SmolLM2-135M" (Apache License 2.0) and "gemma-3-270m" (Gemma Terms of Use) are language models
    of 135 and 270 million weights with tokenizers of their own.  `download` describes the download.

    Parameters
    ----------
    name : str, optional
        One of these names.
    dtype : torch.dtype or str, optional
        Floating-point type of the weights, such as "bfloat16"; by default float32.
    progress : callable, optional
        Function that receives the progress of a download, as for `download`.

    Returns
    -------
    GPT or HuggingFaceModel
        The model on the CPU.  A `HuggingFaceModel` has the model of transformers in `model` and its
        tokenizer in `tokenizer`.

    Raises
    ------
    UnknownMethodError
        If there is no model with this name.
    InvalidParameterError
        If `dtype` is not a floating-point type.
    MissingDependencyError
        If torch, safetensors, or for a download transformers, gguf or accelerate is not installed.
    DownloadError
        If the download fails.
    InvalidInputError
        If the installed transformers cannot read a downloaded model.

    Examples
    --------
    >>> load("small").config.size
    16660

    ::

        target = load("SmolLM2-135M", dtype="bfloat16")
        prompt = target.tokenizer("The capital of France is").input_ids
        generation = autoregressive(target, [prompt], max_tokens=20, seed=1)
        target.tokenizer.decode(generation.sequences[0])
    """
    if not is_downloadable(name) and name not in SHIPPED:
        # this raises, and lists all names
        named(name, SHIPPED)
    chosen = None if dtype is None else _floating_point(dtype)
    if not is_downloadable(name):
        model = load_shipped(name)
        return model if chosen is None else model.to(dtype=chosen)
    tokenizer, causal = load_one(download(name, progress=progress), f"the model {name}", chosen)
    return HuggingFaceModel(causal, tokenizer=tokenizer)


def _floating_point(dtype: Any) -> Any:
    """Return a floating-point type of torch, given as such or by name."""
    torch = require("torch")
    chosen = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(chosen, torch.dtype) or not chosen.is_floating_point:
        raise InvalidParameterError(
            f"dtype = {shown(dtype)}; give a floating-point type, such as "
            'torch.bfloat16 or "bfloat16"'
        )
    return chosen
