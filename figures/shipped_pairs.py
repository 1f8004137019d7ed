"""The language models of this package as pairs of draft and target: prompts, texts and logits.

The target is `otm.models.load("target")`; the drafts are its three smaller siblings, and
a unigram and a bigram model with Witten-Bell smoothing.  All of them read bytes.  Prompts come
from the held-out end of the shipped text, which none of the models saw.
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
"""Names of the draft models, from the smallest on."""

NGRAMS = {"unigram": 1, "bigram": 2}
"""Orders of the models that are fitted to the training text."""

DRAFTERS = (*NGRAMS, *DRAFTS)
"""Names of all models that draft, from the simplest on."""

SIZES = {"small": "17k", "medium": "49k", "large": "164k", "target": "820k"}
"""Number of parameters of each model."""

BYTES = 256
"""Size of the vocabulary."""

TokenArray = npt.NDArray[np.int64]


class ContextProbs(NamedTuple):
    """Distributions of the next token by several models, at the same N contexts."""

    probs: dict[str, npt.NDArray[np.float64]]
    prompts: npt.NDArray[np.int64]


def training_text() -> bytes:
    """Return the part of the shipped text that the models were trained on."""
    return _parts()[0]


def prompts_of_text(count: int, length: int = 64) -> list[list[int]]:
    r"""Cut prompts, evenly spread, from the held-out end of the shipped text.

    Parameters
    ----------
    count, length : int
        How many, and of how many bytes.

    Raises
    ------
    InvalidParameterError
        If they would overlap, where intervals take prompts to be independent.

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
    """Let the target continue prompts of equal length, each by so many tokens.

    Returns
    -------
    int64 array [prompts, length + tokens]
        The prompts and what follows them; kept for the other figures of this process.
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
    """Logits of a model for every token from position `first` on.

    An array [R, L − first, V], for texts [R, L] and a position from 1 to L − 1: entry [r, i] is
    about the token ``texts[r, first + i]``, after all before it.
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
    """Distributions of a model for every token from position `first` on; of n-gram models too.

    As `logits_at`, of its models, "unigram" and "bigram"; at temperature 0 all is on the most
    likely token.
    """
    if name in NGRAMS:
        # the token before each position is all that either model looks at
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
    """Distributions of some models along texts that the target has generated.

    The first of every so many contexts is taken.  The temperature is that of the generation and of
    the distributions, the seed draws the texts.

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
    """Fit a model to the training text."""
    return NGramModel.witten_bell(list(training_text()), NGRAMS[name], BYTES)


def _parts() -> tuple[bytes, bytes]:
    """Cut the text where the training of the models did."""
    text = (files("otm.models") / "data" / "king_james_bible_excerpt.txt").read_bytes()
    boundary = round(len(text) * (1 - HELD_OUT))
    return text[:boundary], text[boundary:]
