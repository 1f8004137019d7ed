"""Load a draft model and a target model of Hugging Face with their common tokenizer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from otm._core.display.text import shown
from otm._core.files.paths import AnyPath
from otm._core.optional import require
from otm.errors import InvalidInputError
from otm.models.downloads.folder import folder_or_name


class LoadedPair(NamedTuple):
    """Two causal models in evaluation mode, their tokenizer and the size of its vocabulary."""

    draft: Any
    target: Any
    tokenizer: Any
    vocabulary: int


def load_pair(
    draft: AnyPath, target: AnyPath, device: str | None = None, dtype: Any = None
) -> LoadedPair:
    """Load two models by folder or by name on the hub, as for `from_pretrained`.

    A model that `otm models` lists is downloaded once.  `dtype` is that of `load_one`.

    Raise if the tokenizers differ, or if a model has fewer logits than the tokenizer has tokens.  A
    model can have more logits, as padding; the caller must drop all logits after the first
    `vocabulary`.
    """
    loaded = []
    for part, name in (("draft", draft), ("target", target)):
        tokenizer, model = load_one(name, f"the {part} model", dtype)
        if device is not None:
            with _one_line(f"a model cannot be moved to the device {shown(device)}"):
                model = model.to(device)
        loaded.append((tokenizer, model))
    (of_draft, draft_model), (tokenizer, target_model) = loaded
    if of_draft.get_vocab() != tokenizer.get_vocab():
        raise InvalidInputError(
            "the tokenizers of draft and target have different tokens; give two models with the "
            "same vocabulary (a model folder must contain its tokenizer files)"
        )
    sizes = [model.config.get_text_config(decoder=True).vocab_size for _, model in loaded]
    if len(tokenizer) > min(sizes):
        raise InvalidInputError(
            f"a model has logits for {min(sizes)} tokens, but the tokenizer has {len(tokenizer)} "
            "tokens; give a model with its own tokenizer"
        )
    return LoadedPair(draft_model, target_model, tokenizer, len(tokenizer))


def load_one(name: AnyPath, what: str, dtype: Any = None) -> tuple[Any, Any]:
    """Load the tokenizer and a causal model in evaluation mode, by default in the stored type.

    `name` is a folder, a name that `otm models` lists, or a name on the hub; `what` names the
    model in error messages.
    """
    transformers = require("transformers")
    # transformers would show its progress bar in pipes too.
    if sys.stderr is None or not sys.stderr.isatty():
        transformers.utils.logging.disable_progress_bar()
    if str(name).startswith((".", "/", "~")) and not Path(name).is_dir():
        raise InvalidInputError(f"the folder {shown(str(name))} of {what} does not exist")
    place = folder_or_name(name)
    with _one_line(f"{what} {shown(str(name))} cannot be read"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(place)
        chosen = {} if dtype is None else {"dtype": dtype}
        model = transformers.AutoModelForCausalLM.from_pretrained(place, **chosen).eval()
    return tokenizer, model


@contextmanager
def _one_line(what: str) -> Iterator[None]:
    """Convert errors of transformers and torch to an `InvalidInputError` of one line."""
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, AssertionError) as error:
        # torch raises AssertionError if it was built without GPU support.
        raise InvalidInputError(f"{what}: {' '.join(str(error).split()):.160}") from None
