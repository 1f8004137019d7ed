"""The language models of this package as pairs of draft and target: prompts, texts and logits.

The target is `otm.models.load("target")`.  The drafts are its three smaller siblings, and a unigram
and a bigram model with Witten-Bell smoothing.  All models read bytes.  Prompts come from the
held-out end of the shipped text, which no model has seen.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otm.decoding import SamplingParameters, autoregressive
from otm.errors import InvalidParameterError
from otm.models import load
from otm.models.gpt.train import HELD_OUT
from otm.models.ngram import NGramModel

DRAFTS = ("small", "medium", "large")
"""Names of the draft models, smallest first."""

NGRAMS = {"unigram": 1, "bigram": 2}
"""Orders of the n-gram models, which are fitted to the training text."""

DRAFTERS = (*NGRAMS, *DRAFTS)
"""Names of all models that draft, simplest first."""

SIZES = {"small": "17k", "medium": "49k", "large": "164k", "target": "820k"}
"""Numbers of parameters of the models."""

BYTES = 256
"""Size of the vocabulary."""

TokenArray = npt.NDArray[np.int64]


class ContextProbs(NamedTuple):
    """Distributions of the next token by several models, at the same N contexts."""

    probs: dict[str, npt.NDArray[np.float64]]
    prompts: npt.NDArray[np.int64]


def training_text() -> bytes:
    """Return the training part of the shipped text."""
    return _parts()[0]


def prompts_of_text(count: int, length: int = 64) -> list[list[int]]:
    r"""Cut evenly spaced prompts from the held-out end of the shipped text.

    Parameters
    ----------
    count, length : int
        Number of prompts, and bytes per prompt.

    Raises
    ------
    InvalidParameterError
        If the prompts would overlap; intervals assume independent prompts.

    Examples
    --------
    >>> bytes(prompts_of_text(2, 12)[1])
    b'idding him.\n'
    """
    text = _parts()[1]
    if count * length > len(text):
        raise InvalidParameterError(
            f"{count} prompts of {length} bytes overlap in a text of {len(text):,}; give at most "
            f"{len(text) // length} prompts"
        )
    starts = np.linspace(0, len(text) - length, count).astype(int)
    return [list(text[start : start + length]) for start in starts]


def texts_of_target(
    prompts: list[list[int]], tokens: int, *, temperature: float = 1.0, seed: int = 0
) -> TokenArray:
    """Let the target continue prompts of equal length, each by `tokens` tokens.

    Returns
    -------
    int64 array [prompts, length + tokens]
        The prompts with their continuations, cached for other figures of this process.
    """
    return _texts_of_target(tuple(map(tuple, prompts)), tokens, temperature, seed).copy()


@cache
def _texts_of_target(
    prompts: tuple[tuple[int, ...], ...], tokens: int, temperature: float, seed: int
) -> TokenArray:
    made = autoregressive(
        load("target"),
        list(map(list, prompts)),
        max_tokens=tokens,
        seed=seed,
        sampling=SamplingParameters(temperature=temperature),
    )
    return np.concatenate([np.array(made.prompts), np.array(made.sequences)], axis=1)


def logits_at(name: str, texts: TokenArray, first: int) -> npt.NDArray[np.float64]:
    """Return a model's logits for every token from position `first` on, `[R, L − first, V]`.

    The texts are [R, L], and `first` is from 1 to L − 1.  Entry [r, i] is for the token
    ``texts[r, first + i]`` after all earlier tokens.
    """
    if not 1 <= first < texts.shape[1]:
        raise InvalidParameterError(
            f"first = {first} in texts of {texts.shape[1]} tokens; give a position from 1 on that "
            "is inside of the texts"
        )
    session = load(name).start(len(texts))
    scores = np.asarray(session.append(texts[:, :-1]), dtype=np.float64)
    return scores[:, first - 1 :]


def probs_at(
    name: str, texts: TokenArray, first: int, *, temperature: float = 1.0
) -> npt.NDArray[np.float64]:
    """Return a model's distributions for every token from position `first` on.

    The shapes are those of `logits_at`.  The models also include "unigram" and "bigram".  At
    temperature 0 all mass is on the most probable token.
    """
    if name in NGRAMS:
        # Both n-gram models read at most the previous token.
        probs = _ngram_model(name).batch_probs(texts[:, first - 1 : -1, None])
        logits: npt.NDArray[np.float64] = np.log(probs)
    else:
        logits = logits_at(name, texts, first)
    return np.asarray(SamplingParameters(temperature=temperature)(logits))


def shipped_probs(
    names: tuple[str, ...],
    *,
    prompts: int,
    tokens: int,
    every: int = 1,
    temperature: float = 1.0,
    seed: int = 0,
) -> ContextProbs:
    """Return distributions of some models along texts that the target has generated.

    Of every `every` contexts, the first is used.  The temperature applies to the generation and to
    the distributions.  The seed determines the texts.

    Examples
    --------
    >>> models = shipped_probs(("unigram", "target"), prompts=3, tokens=4, every=2)
    >>> models.probs["target"].shape, models.prompts.tolist()
    ((6, 256), [0, 0, 1, 1, 2, 2])
    """
    started = prompts_of_text(prompts)
    texts = texts_of_target(started, tokens, temperature=temperature, seed=seed)
    first = len(started[0])
    probs = {
        name: probs_at(name, texts, first, temperature=temperature)[:, ::every].reshape(-1, BYTES)
        for name in names
    }
    return ContextProbs(probs, np.repeat(np.arange(prompts), len(range(0, tokens, every))))


@cache
def _ngram_model(name: str) -> NGramModel:
    """Fit an n-gram model to the training text."""
    return NGramModel.witten_bell(list(training_text()), NGRAMS[name], BYTES)


def _parts() -> tuple[bytes, bytes]:
    """Split the text at the same point as in the models' training."""
    text = (files("otm.models") / "data" / "king_james_bible_excerpt.txt").read_bytes()
    boundary = round(len(text) * (1 - HELD_OUT))
    return text[:boundary], text[boundary:]
