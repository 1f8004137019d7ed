"""Two models of Hugging Face by their names, with the tokenizer that they share."""

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


class LoadedPair(NamedTuple):
    """Causal models in evaluation mode, their tokenizer, and how many tokens both know."""

    draft: Any
    target: Any
    tokenizer: Any
    vocabulary: int


def load_pair(draft: AnyPath, target: AnyPath, device: str | None = None) -> LoadedPair:
    """Load what `from_pretrained` takes: folders, or names on the hub.

    Refuses models with different tokens, or a tokenizer that has more than a model gives logits
    for; logits beyond the tokenizer's tokens, with which some models pad, are to be cut off.
    """
    transformers = require("transformers")
    if sys.stderr is None or not sys.stderr.isatty():
        transformers.utils.logging.disable_progress_bar()  # which it shows in pipes too
    loaded = []
    for part, name in (("draft", draft), ("target", target)):
        if str(name).startswith((".", "/", "~")) and not Path(name).is_dir():
            raise InvalidInputError(f"the {part} model {shown(str(name))}: there is no such folder")
        with _one_line(f"the {part} model {shown(str(name))} cannot be read"):
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(name))
            model = transformers.AutoModelForCausalLM.from_pretrained(str(name)).eval()
        if device is not None:
            with _one_line(f"a model cannot be moved to the device {shown(device)}"):
                model = model.to(device)
        loaded.append((tokenizer, model))
    (of_draft, draft_model), (tokenizer, target_model) = loaded
    if of_draft.get_vocab() != tokenizer.get_vocab():
        raise InvalidInputError(
            "the tokenizers of draft and target have different tokens; the distributions of both "
            "must be over the same ones (a folder without tokenizer files has none of its own)"
        )
    sizes = [model.config.get_text_config(decoder=True).vocab_size for _, model in loaded]
    if len(tokenizer) > min(sizes):
        raise InvalidInputError(
            f"a model has logits for {min(sizes)} tokens, the tokenizer {len(tokenizer)}; they do "
            "not belong together"
        )
    return LoadedPair(draft_model, target_model, tokenizer, len(tokenizer))


@contextmanager
def _one_line(what: str) -> Iterator[None]:
    """Turn the errors of transformers and torch into one line."""
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, AssertionError) as error:
        # torch asserts that it was built for GPUs
        raise InvalidInputError(f"{what}: {' '.join(str(error).split()):.160}") from None
