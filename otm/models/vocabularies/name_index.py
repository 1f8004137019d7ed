"""The token of each name in a vocabulary, and the tokens that two vocabularies share by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

MOST_WORDS = 2**16
"""Number of words whose tokens are kept before the memory is cleared."""


class NameIndex:
    """The token of each name.

    Several tokens can have one name: SentencePiece has "," and the byte token `<0x2C>`.  The name
    belongs to the token that the tokenizer writes for the text, since models write that one.  If
    the tokenizer writes none of them as a single token, the name belongs to the first.
    """

    def __init__(
        self, texts: Sequence[str], names: Sequence[str], encode: Callable[[str], Sequence[int]]
    ) -> None:
        self._size = len(names)
        self._tokens: dict[str, int] = {}
        # all tokens of each name that several have; the one that the tokenizer writes is first
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
        """Return the token of each name among the first tokens, for models that lack the others."""
        if size >= self._size:
            return self._tokens
        found = {name: token for name, token in self._tokens.items() if token < size}
        for name, tokens in self._ranked.items():
            if name not in found and min(tokens) < size:
                found[name] = next(token for token in tokens if token < size)
        return found

    def shared_with(self, draft: NameIndex, sizes: tuple[int, int]) -> SharedTokens:
        """Return the tokens that a target of this vocabulary shares with a draft model; cached."""
        known = self._shared.setdefault(draft, {})
        if sizes not in known:
            known[sizes] = SharedTokens(self.below(sizes[0]), draft.below(sizes[1]))
        return known[sizes]


class SharedTokens:
    """Tokens of a target and a draft model with the same name, and a cache of translated words."""

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
        """Tokens [2, shared]: of the target, and of the draft model."""
        return np.array(list(self.by_target.items()), dtype=np.int64).reshape(-1, 2).T

    def word(
        self, tokens: tuple[int, ...], translate: Callable[[tuple[int, ...]], list[int]]
    ) -> list[int]:
        """Return the draft model's tokens of a word; cached."""
        found = self._words.get(tokens)
        if found is None:
            if len(self._words) >= MOST_WORDS:
                self._words.clear()
            found = self._words[tokens] = translate(tokens)
        return found
