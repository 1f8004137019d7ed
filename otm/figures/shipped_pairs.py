"""The language models of this package as pairs of draft and target: prompts, texts and logits.

The target is `otm.decoding.models.load("target")`; the drafts are its three smaller siblings.  All
of them read bytes.  Prompts come from the held-out end of the shipped text, which none of the
models saw.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import numpy.typing as npt

from otm.decoding import Standardization, autoregressive
from otm.decoding.models import load
from otm.decoding.models.train_gpt import HELD_OUT
from otm.errors import InvalidParameterError

__all__ = ["DRAFTS", "SIZES", "logits_at", "prompts_of_text", "texts_of_target", "training_text"]

DRAFTS = ("small", "medium", "large")
"""Names of the draft models, from the smallest on."""

SIZES = {"small": "17k", "medium": "49k", "large": "164k", "target": "820k"}
"""Number of parameters of each model."""

Rows = npt.NDArray[np.int64]


def training_text() -> bytes:
    """Return the part of the shipped text that the models were trained on."""
    return _parts()[0]


def prompts_of_text(count: int, length: int = 64) -> list[list[int]]:
    r"""Cut prompts, evenly spread, from the held-out end of the shipped text.

    Parameters
    ----------
    count, length : int
        How many, and of how many bytes.

    Examples
    --------
    >>> bytes(prompts_of_text(2, 12)[1])
    b'idding him.\n'
    """
    text = _parts()[1]
    starts = np.linspace(0, len(text) - length, count).astype(int)
    return [list(text[start : start + length]) for start in starts]


def texts_of_target(
    prompts: list[list[int]], tokens: int, *, temperature: float = 1.0, seed: int = 0
) -> Rows:
    """Let the target continue prompts of equal length, each by so many tokens.

    Returns
    -------
    int64 array [prompts, length + tokens]
        The prompts and what follows them.
    """
    made = autoregressive(
        load("target"),
        prompts,
        max_tokens=tokens,
        seed=seed,
        sampling=Standardization(temperature=temperature),
    )
    return np.array(
        [[*prompt, *text] for prompt, text in zip(made.prompts, made.sequences, strict=True)]
    )


def logits_at(name: str, texts: Rows, first: int) -> npt.NDArray[np.float64]:
    """Logits of a model for every token from position `first` on.

    Parameters
    ----------
    name : str
        A model of this package.
    texts : int64 array [R, L]
        From `texts_of_target`.
    first : int
        Position from 1 to L − 1, such as the length of the prompts.

    Returns
    -------
    float64 array [R, L − first, V]
        Entry [r, i] is about the token ``texts[r, first + i]``, given all before it.
    """
    if not 1 <= first < texts.shape[1]:
        raise InvalidParameterError(
            f"first = {first} in texts of {texts.shape[1]} tokens; give a position from 1 on that "
            "is inside of the texts"
        )
    session = load(name).start(len(texts))
    scores = np.asarray(session.append(texts[:, :-1]), dtype=np.float64)
    return scores[:, first - 1 :]


def _parts() -> tuple[bytes, bytes]:
    """Cut the text where the training of the models did."""
    text = (files("otm.data") / "king_james_bible_excerpt.txt").read_bytes()
    boundary = round(len(text) * (1 - HELD_OUT))
    return text[:boundary], text[boundary:]
