"""Two word-level language models of a real text: a bigram draft and a trigram target.

The draft is a bigram model with Witten-Bell smoothing, the target a trigram model with interpolated
Kneser-Ney smoothing.  Both are trained on the first 95 % of the shipped excerpt of the King James
Bible.  Figures use distributions at positions of the last 5 %, which neither model has seen.

``python -m figures.language_models`` prints the sizes, the perplexities, and the mean acceptance of
one draft.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otm.errors import InvalidParameterError
from otm.models.ngram import Ids, NGramModel

EXCERPT = "king_james_bible_excerpt.txt"
Floats = npt.NDArray[np.float64]

UNKNOWN = "<unk>"
HISTORY = 2
"""Number of earlier tokens that the trigram model reads."""


def tokenise(text: str) -> list[str]:
    """Split a text into lower-case words and single punctuation marks.

    Examples
    --------
    >>> tokenise("Noah's ark: and it rained.")
    ["noah's", 'ark', ':', 'and', 'it', 'rained', '.']
    """
    return re.findall(r"[a-z]+(?:['-][a-z]+)*|[^\sa-z]", text.lower())


def load_corpus() -> list[str]:
    """Return the tokens of the shipped excerpt, in order and without verse boundaries."""
    excerpt = files("otm.models") / "data" / EXCERPT
    return tokenise(excerpt.read_text(encoding="utf-8"))


@dataclass(frozen=True, eq=False)
class Corpus:
    """A text as token ids, split into a training part and a held-out block at its end.

    Attributes
    ----------
    vocabulary : tuple of str
        The unknown token, then the words of the training part, the most frequent first.
    train, held_out : int64 array
        Token ids; a held-out word that is not in the training part has the id 0 of the unknown.
    """

    vocabulary: tuple[str, ...]
    train: Ids
    held_out: Ids

    @classmethod
    def split(cls, tokens: list[str], held_out: float = 0.05) -> Corpus:
        """Split off the last tokens, a share `held_out` of the text."""
        if not 0 < held_out < 1:
            raise InvalidParameterError(
                f"the held-out share is {held_out}; give a share of the text between 0 and 1"
            )
        boundary = round(len(tokens) * (1 - held_out))
        frequency = Counter(tokens[:boundary])
        # Words of equal frequency are in alphabetical order.
        vocabulary = (UNKNOWN, *sorted(frequency, key=lambda word: (-frequency[word], word)))
        id_of = {word: index for index, word in enumerate(vocabulary)}
        ids = np.array([id_of.get(token, 0) for token in tokens], dtype=np.int64)
        ids.flags.writeable = False
        return cls(vocabulary, ids[:boundary], ids[boundary:])


class NextTokenProbs(NamedTuple):
    """The two distributions [V] of a token at a position of the held-out text."""

    draft: Floats
    target: Floats
    position: int


def next_token_probs(contexts: int, seed: int) -> Iterator[NextTokenProbs]:
    """Yield draft and target distributions at evenly spaced positions of the held-out text.

    Parameters
    ----------
    contexts : int
        Number of positions.
    seed : int
        Seed of the offset of the grid of positions (systematic sampling).

    Returns
    -------
    iterator of NextTokenProbs
        Distributions by position; each is a float64 array [V] that sums to one.

    Raises
    ------
    InvalidParameterError
        If `contexts` is below 1 or above the number of held-out positions.
    """
    corpus = Corpus.split(load_corpus())
    available = corpus.held_out.size - HISTORY
    if not 1 <= contexts <= available:
        raise InvalidParameterError(
            f"contexts = {contexts}; give a number from 1 to {available}, the held-out positions"
        )
    offset = int(np.random.default_rng(seed).integers(available))
    # Starts of the histories; in integer arithmetic, none can pass the end.
    starts = [(i * available + offset) // contexts for i in range(contexts)]
    draft, target = fit(corpus)
    histories = ((corpus.held_out[start : start + HISTORY], start + HISTORY) for start in starts)
    return (
        NextTokenProbs(draft.batch_probs(ids), target.batch_probs(ids), at) for ids, at in histories
    )


def perplexity(model: NGramModel, tokens: Ids) -> float:
    """Return exp(−mean log P(token | history)) over the tokens with a full history."""
    windows = np.lib.stride_tricks.sliding_window_view(tokens, HISTORY + 1)
    # A few hundred distributions at a time; all together would need hundreds of megabytes.
    chances = [
        np.take_along_axis(model.batch_probs(chunk[:, :-1]), chunk[:, -1:], axis=-1)
        for chunk in np.array_split(windows, -(-len(windows) // 256))
    ]
    return float(np.exp(-np.mean(np.log(np.concatenate(chances)))))


def fit(corpus: Corpus) -> tuple[NGramModel, NGramModel]:
    """Train draft and target."""
    size = len(corpus.vocabulary)
    draft = NGramModel.witten_bell(corpus.train, 2, size)
    return draft, NGramModel.kneser_ney(corpus.train, 3, size)


def main() -> None:
    """Print the numbers that the figure's caption and the documentation quote."""
    corpus = Corpus.split(load_corpus())
    draft, target = fit(corpus)
    probs = next_token_probs(corpus.held_out.size - HISTORY, seed=0)
    acceptance = np.mean([np.minimum(at.draft, at.target).sum() for at in probs])
    print(f"vocabulary                            {len(corpus.vocabulary):9,}")
    print(f"tokens to train on                    {corpus.train.size:9,}")
    print(f"tokens held out                       {corpus.held_out.size:9,}")
    print(f"  of them unknown                     {np.mean(corpus.held_out == 0):9.2%}")
    print(f"perplexity of the bigram draft        {perplexity(draft, corpus.held_out):9.1f}")
    print(f"perplexity of the trigram target      {perplexity(target, corpus.held_out):9.1f}")
    print(f"mean acceptance of one draft (1 − TV) {acceptance:9.4f}")


if __name__ == "__main__":
    main()
