"""Lookup of tokens by name, and the tokens with the same name in two vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

MOST_WORDS = 2**16
"""Largest number of cached words; the cache is cleared when it is full."""


class NameIndex:
    """A map from names to tokens.

    Several tokens can have the same name: SentencePiece has "," and the byte token `<0x2C>`.  A
    name of several tokens refers to the token that the tokenizer uses for the text, since models
    output this token.  If the tokenizer uses no single token for the text, the name refers to the
    first token.
    """

    def __init__(
        self, texts: Sequence[str], names: Sequence[str], encode: Callable[[str], Sequence[int]]
    ) -> None:
        self._size = len(names)
        self._tokens: dict[str, int] = {}
        # For each ambiguous name: its tokens, first the token that the tokenizer uses.
        self._ranked: dict[str, list[int]] = {}
        for token, name in enumerate(names):
            if name and (first := self._tokens.setdefault(name, token)) != token:
                self._ranked.setdefault(name, [first]).append(token)
        for name, tokens in self._ranked.items():
            written = {text: list(encode(text)) for text in {texts[token] for token in tokens}}
            tokens.sort(key=lambda token: written[texts[token]] != [token])
            self._tokens[name] = tokens[0]
        self._shared: WeakKeyDictionary[NameIndex, dict[tuple[int, int], SharedTokens]]
        self._shared = WeakKeyDictionary()

    def below(self, size: int) -> dict[str, int]:
        """Return the token of each name among the first `size` tokens of the vocabulary."""
        if size >= self._size:
            return self._tokens
        kept = {name: token for name, token in self._tokens.items() if token < size}
        for name, tokens in self._ranked.items():
            if name not in kept and min(tokens) < size:
                kept[name] = next(token for token in tokens if token < size)
        return kept

    def shared_with(self, draft: NameIndex, sizes: tuple[int, int]) -> SharedTokens:
        """Return the tokens that this target vocabulary shares with a draft model; cached."""
        cache = self._shared.setdefault(draft, {})
        if sizes not in cache:
            cache[sizes] = SharedTokens(self.below(sizes[0]), draft.below(sizes[1]))
        return cache[sizes]


class SharedTokens:
    """Tokens with the same name in target and draft model, and a cache of translated words."""

    def __init__(self, target: dict[str, int], draft: dict[str, int]) -> None:
        both = ((token, draft[name]) for name, token in target.items() if name in draft)
        self.by_target = dict(sorted(both))
        # The draft model's tokens of each word, by the target's tokens.
        self._words: dict[tuple[int, ...], list[int]] = {}

    @cached_property
    def by_draft(self) -> dict[int, int]:
        """The target's token for each shared token of the draft model."""
        return {own: token for token, own in self.by_target.items()}

    @cached_property
    def pairs(self) -> npt.NDArray[np.int64]:
        """Array [2, n] of the n shared tokens: ids of the target, then ids of the draft model."""
        return np.array(list(self.by_target.items()), dtype=np.int64).reshape(-1, 2).T

    def word(
        self, tokens: tuple[int, ...], translate: Callable[[tuple[int, ...]], list[int]]
    ) -> list[int]:
        """Return the draft model's tokens of a word; cached."""
        translated = self._words.get(tokens)
        if translated is None:
            if len(self._words) >= MOST_WORDS:
                self._words.clear()
            translated = self._words[tokens] = translate(tokens)
        return translated
