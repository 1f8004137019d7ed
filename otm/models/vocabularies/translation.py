"""Translation of a target's tokens for a draft model with another tokenizer.

The target's text is translated word by word: the draft model's tokenizer splits the text of each
word.  So new target tokens change only the end of the draft model's input, and its cache remains
valid.  The tokenizer might split the whole text differently; then drafts can be worse, but decoding
stays lossless.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable

from otm.models.vocabularies.spelling import Spelling
from otm.models.vocabularies.tokenizer_spelling import UNREADABLE

LONGEST_WORD = 64
"""Largest number of tokens of a word; it matters for texts without spaces."""


class Translation:
    """Translation of a target's tokens into a draft model's tokens.

    Attributes
    ----------
    tokens : SharedTokens
        The tokens that both vocabularies share by name.  Tokens without a readable text are
        translated with this map.
    start : list of int
        Draft tokens before every translation, such as the begin token of the draft model.
    """

    def __init__(self, target: Spelling, draft: Spelling, sizes: tuple[int, int]) -> None:
        self._target, self._draft = target, draft
        # The draft model can have fewer tokens than its tokenizer.
        self._size = sizes[1]
        self.start = [token for token in draft.start if token < self._size]
        self.tokens = target.index.shared_with(draft.index, sizes)

    def word(self, tokens: tuple[int, ...]) -> list[int]:
        """Translate the tokens of a word."""
        return self.tokens.word(tokens, self._word)

    def begins_word(self, token: int, before: int) -> bool:
        """Return whether a token begins a word.

        A token begins a word if its text begins with a space, or if this token or the preceding one
        has no text.
        """
        text = self._text(token)
        return not text or text[0].isspace() or not self._text(before)

    def row(self, tokens: Iterable[int]) -> list[int]:
        """Translate target tokens to draft tokens."""
        return TranslatedRow(self).extended(tokens).read()

    def start_before(self, token: int) -> list[int]:
        """Return the draft tokens before a first token; none if the token itself means them."""
        shared = self.tokens.by_target.get(token)
        return [] if self.start and shared == self.start[0] else self.start

    def _word(self, tokens: tuple[int, ...]) -> list[int]:
        """Translate the tokens of a word without the cache."""
        text = self._target.decode(tokens) if self._text(tokens[0]) else ""
        if text and UNREADABLE not in text:
            return [i for i in self._draft.encode(text) if i < self._size]
        # Parts of characters and tokens without a text are translated by name.
        translated: list[int] = []
        runs = itertools.groupby(tokens, key=lambda token: UNREADABLE in self._text(token))
        for by_name, run in runs:
            if by_name or not text:
                shared = self.tokens.by_target
                translated += [shared[token] for token in run if token in shared]
            else:
                own = "".join(map(self._text, run))
                translated += [i for i in self._draft.encode(own) if i < self._size]
        return translated

    def _text(self, token: int) -> str:
        return self._target.texts[token] if token < len(self._target.texts) else ""


class TranslatedRow:
    """A growing row of the target's tokens, and its translation for the draft model."""

    def __init__(self, translation: Translation) -> None:
        self._translation = translation
        self.tokens: list[int] = []
        # Translation of all words before the last word.
        self._closed = list(translation.start)
        # For each word: its position, and the length of the translation before it.
        self._words = [(0, len(self._closed))]

    def extended(self, tokens: Iterable[int]) -> TranslatedRow:
        """Append tokens, and return the row."""
        for token in tokens:
            if not self.tokens:
                self._closed = list(self._translation.start_before(token))
                self._words = [(0, len(self._closed))]
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
        """Return the translation of the row."""
        word = tuple(self.tokens[self._words[-1][0] :])
        return self._closed + (self._translation.word(word) if word else [])

    def cut(self, length: int) -> TranslatedRow:
        """Return an independent row with the first `length` tokens."""
        row = TranslatedRow(self._translation)
        if not length:
            return row
        count = max(bisect.bisect_left(self._words, (length, 0)), 1)
        row._words = self._words[:count]
        row._closed = self._closed[: row._words[-1][1]]
        row.tokens = self.tokens[:length]
        return row


def end_of_row(tokens: list[int], most: int | None) -> list[int]:
    """Return at most the last `most` tokens of a row, the input of a model with this limit.

    Tokens are cut off at the beginning in large steps, so that the cache remains valid for long.
    """
    if most is None or len(tokens) <= most:
        return tokens
    step = max(most // 2, 1)
    return tokens[-(-(len(tokens) - most) // step) * step :]
