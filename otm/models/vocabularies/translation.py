"""Tokens of a target's vocabulary as a draft model with another tokenizer reads them.

Two models with different tokenizers have in common the texts of their tokens.  A draft model reads
the target's tokens word by word: its own tokenizer cuts the text of each word.  So its input
changes at the end only, and its cache is kept.  If its tokenizer would cut the whole text
otherwise, drafts may be worse, but the output stays right.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable

from otm.models.vocabularies.spelling import Spelling
from otm.models.vocabularies.tokenizer_spelling import UNREADABLE

LONGEST_WORD = 64
"""Most tokens that are read as one word, for texts without spaces."""


class Translation:
    """Translation of a target's tokens into a draft model's tokens.

    Attributes
    ----------
    tokens : SharedTokens
        The tokens that both vocabularies have, by name; only these are translated without their
        text.
    """

    def __init__(self, target: Spelling, draft: Spelling, sizes: tuple[int, int]) -> None:
        self._target, self._draft = target, draft
        self._size = sizes[1]  # of the draft model, which may have fewer tokens than its tokenizer
        self.tokens = target.index.shared_with(draft.index, sizes)

    def word(self, tokens: tuple[int, ...]) -> list[int]:
        """Translate the tokens of a word."""
        return self.tokens.word(tokens, self._word)

    def begins_word(self, token: int, before: int) -> bool:
        """Whether a token begins a word: by a space, or since it or the one before has no text."""
        text = self._text(token)
        return not text or text[0].isspace() or not self._text(before)

    def row(self, tokens: Iterable[int]) -> list[int]:
        """Translate tokens of the target into those that the draft model reads."""
        return TranslatedRow(self).extended(tokens).read()

    def _word(self, tokens: tuple[int, ...]) -> list[int]:
        """Translate the tokens of a word, for the first time."""
        text = self._target.decode(tokens) if self._text(tokens[0]) else ""
        if text and UNREADABLE not in text:
            return [i for i in self._draft.encode(text) if i < self._size]
        # parts of characters and tokens without a text are translated by name
        found: list[int] = []
        runs = itertools.groupby(tokens, key=lambda token: UNREADABLE in self._text(token))
        for by_name, run in runs:
            if by_name or not text:
                shared = self.tokens.by_target
                found += [shared[token] for token in run if token in shared]
            else:
                own = "".join(map(self._text, run))
                found += [i for i in self._draft.encode(own) if i < self._size]
        return found

    def _text(self, token: int) -> str:
        return self._target.texts[token] if token < len(self._target.texts) else ""


class TranslatedRow:
    """A growing row of the target's tokens, and its translation for the draft model."""

    def __init__(self, translation: Translation) -> None:
        self._translation = translation
        self.tokens: list[int] = []
        self._closed: list[int] = []  # translation of the words before the last one
        # for each word: its place, and the length of the translation before it
        self._words: list[tuple[int, int]] = [(0, 0)]

    def extended(self, tokens: Iterable[int]) -> TranslatedRow:
        """Append tokens, and return the row."""
        for token in tokens:
            start = self._words[-1][0]
            length = len(self.tokens) - start
            if length and (
                length == LONGEST_WORD or self._translation.begins_word(token, self.tokens[-1])
            ):
                self._closed += self._translation.word(tuple(self.tokens[start:]))
                self._words.append((len(self.tokens), len(self._closed)))
            self.tokens.append(token)
        return self

    def read(self) -> list[int]:
        """Return the draft model's tokens."""
        word = tuple(self.tokens[self._words[-1][0] :])
        return self._closed + (self._translation.word(word) if word else [])

    def cut(self, length: int) -> TranslatedRow:
        """Return an independent row of the first tokens."""
        row = TranslatedRow(self._translation)
        count = max(bisect.bisect_left(self._words, (length, 0)), 1)
        row._words = self._words[:count]
        row._closed = self._closed[: row._words[-1][1]]
        row.tokens = self.tokens[:length]
        return row


def end_of_row(tokens: list[int], most: int | None) -> list[int]:
    """Return the tokens of a row that a model of `most` tokens reads: all, or the end if too long.

    The beginning is cut off in large steps, not token by token, so that the cache can be reused.
    """
    if most is None or len(tokens) <= most:
        return tokens
    step = max(most // 2, 1)
    return tokens[-(-(len(tokens) - most) // step) * step :]
