"""What the tokens of a vocabulary spell, and how tokens of one are read by another.

Two models with different tokenizers have in common what tokens spell.  A draft model reads the
target's tokens word by word, each as its own tokenizer cuts the text of the word; so what it reads
changes at the end alone, and its cache is kept.  Where a tokenizer would have cut a whole text
otherwise, drafts are worse, and nothing else.
"""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from otm._core.shown import Brief
from otm._core.text import shown
from otm.errors import InvalidInputError
from otm.models.base import LanguageModel

Encode = Callable[[str], Sequence[int]]
"""From a text to the tokens that spell it."""

ANCHOR = "\n"
"""A text before others, since tokenizers treat what they begin with in another way."""

LONGEST_WORD = 64
"""Most tokens that are read as one word, as of a text without spaces."""

OTHER_NAME = "\ud800"
"""What the names of tokens without a text begin with, and no text; alone, that of an end token."""

UNREADABLE = "\ufffd"
"""What a tokenizer writes for bytes that are a part of a character."""


class LongestMatch:
    """Encode by the longest token that fits, of equal ones the first."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._ids: dict[str, int] = {}
        for i, text in enumerate(texts):
            self._ids.setdefault(text, i)
        self._ids.pop("", None)
        self._lengths = sorted({len(text) for text in self._ids}, reverse=True)

    def __call__(self, text: str) -> list[int]:
        """Cut a text, without what no token begins with."""
        tokens, place = [], 0
        while place < len(text):
            fitting = (n for n in self._lengths if text[place : place + n] in self._ids)
            length = next(fitting, 0)
            if length:
                tokens.append(self._ids[text[place : place + length]])
            place += length or 1
        return tokens


@dataclass(frozen=True, eq=False)
class Spelling(Brief):
    """What each token of a vocabulary spells, and a tokenizer.

    Parameters
    ----------
    texts : sequence of V str
        The text of each token; empty for one that spells none, such as an end token.
    encoder : callable, optional
        From a text to its tokens; if left out, the longest token that fits comes next, again and
        again, and a character that no token begins with is left out.
    names : sequence of V str, optional
        What makes tokens of two vocabularies the same, if not the text: end tokens have a name.
        Tokens with an empty name have no like.
    decoder : callable, optional
        From tokens to their text, for those that spell a character together.

    Raises
    ------
    InvalidInputError
        If these are no texts and functions, or the names are not as many.

    Examples
    --------
    >>> spelling = Spelling(["a", "b", "ab", ""], names=["a", "b", "ab", "<end>"])
    >>> spelling.encode("aab"), spelling.decode([0, 2, 3])
    ([0, 2], 'aab')
    """

    texts: Sequence[str]
    encoder: Encode | None = None
    names: Sequence[str] = ()
    decoder: Callable[[list[int]], str] | None = None

    def __post_init__(self) -> None:
        texts = _as_strings(self.texts, "texts")
        names = _as_strings(self.names, "names") or texts
        if len(names) != len(texts) or not texts:
            raise InvalidInputError(
                f"{len(names)} names for {len(texts)} texts; give one of each for every token"
            )
        for name in ("encoder", "decoder"):
            if not (getattr(self, name) is None or callable(getattr(self, name))):
                raise InvalidInputError(f"{name} = {shown(getattr(self, name))}; give a function")
        object.__setattr__(self, "texts", texts)
        object.__setattr__(self, "names", names)
        if self.encoder is None:
            object.__setattr__(self, "encoder", LongestMatch(texts))

    @classmethod
    def of(cls, tokenizer: Any) -> Self:
        """Take the spelling of a tokenizer of Hugging Face transformers.

        Parameters
        ----------
        tokenizer : PreTrainedTokenizerBase
            Any; end tokens are the same by their role, others by their text, and those that spell a
            part of a character or none by what the tokenizer calls them.

        Returns
        -------
        Spelling
            Of all its tokens.

        Raises
        ------
        InvalidInputError
            If it is none.

        Examples
        --------
        ::

            Spelling.of(AutoTokenizer.from_pretrained("Qwen/Qwen3-8B"))
        """
        if not hasattr(tokenizer, "convert_ids_to_tokens"):
            raise InvalidInputError(
                f"the tokenizer is a {type(tokenizer).__name__}; give one of transformers, as "
                "AutoTokenizer.from_pretrained returns it"
            )
        called = {i: name for name, i in tokenizer.get_vocab().items()}  # ids may have gaps
        plain: dict[str, Any] = {"add_special_tokens": False}
        as_it_is: dict[str, Any] = {"clean_up_tokenization_spaces": False}
        head = list(tokenizer.encode(ANCHOR, **plain))

        def encode(text: str) -> list[int]:
            tokens = list(tokenizer.encode(ANCHOR + text, **plain))
            if tokens[: len(head)] == head:
                return tokens[len(head) :]
            return list(tokenizer.encode(text, **plain))  # the anchor is one token with what begins

        # what stands before a token when it is decoded: where lines are not kept, any word
        words = (i for i, name in sorted(called.items()) if name.isalpha())
        before = head or [next(words, min(called))]
        start = tokenizer.decode(before, **as_it_is)

        def decode(tokens: list[int]) -> str:
            text = tokenizer.decode([*before, *tokens], **as_it_is)
            return text[len(start) :] if text.startswith(start) else ""

        special = set(tokenizer.all_special_ids)
        texts, names = [], []
        for i in range(max(called) + 1):
            name = called.get(i, "")
            text = decode([i]) if name and i not in special else ""
            readable = text and UNREADABLE not in text
            texts.append(text)
            names.append(text if readable else name and OTHER_NAME + name)  # which no text is
        if tokenizer.eos_token_id in called:
            names[tokenizer.eos_token_id] = OTHER_NAME
        return cls(texts, encode, names, decode)

    def encode(self, text: str) -> list[int]:
        """Cut a text into tokens.

        Parameters
        ----------
        text : str
            Any text.

        Returns
        -------
        list of int
            The tokens that spell it, as far as there are some.

        Raises
        ------
        InvalidInputError
            If it is no text, or the encoder returns no tokens.
        """
        if not isinstance(text, str):
            raise InvalidInputError(f"{shown(text)} is no text; give a string")
        found = None if self.encoder is None else self.encoder(text)
        try:
            tokens = list(map(operator.index, found or []))
        except TypeError as error:
            raise InvalidInputError(
                f"the encoder made {shown(found)} of {shown(text)}; it must return whole numbers"
            ) from error
        return self._checked(tokens)

    def decode(self, tokens: Iterable[int]) -> str:
        """Join what tokens spell.

        Parameters
        ----------
        tokens : iterable of int
            From 0 to V − 1.

        Returns
        -------
        str
            Their texts.

        Raises
        ------
        InvalidInputError
            If these are no tokens.
        """
        try:
            given = self._checked(list(map(operator.index, tokens)))
        except TypeError as error:
            raise InvalidInputError(f"{shown(tokens)} are no tokens; give whole numbers") from error
        text = "".join(self.texts[token] for token in given)
        if UNREADABLE in text and self.decoder is not None:
            return self.decoder(given)
        return text

    def _checked(self, tokens: list[int]) -> list[int]:
        if tokens and not 0 <= min(tokens) <= max(tokens) < len(self.texts):
            raise InvalidInputError(
                f"tokens {shown(tokens)}; they must be from 0 to {len(self.texts) - 1}"
            )
        return tokens


class Translation:
    """Tokens of a target's vocabulary as the tokens of a draft model's.

    Attributes
    ----------
    shared : dict from int to int
        The draft model's token for each token of the target that both have.
    """

    def __init__(self, target: Spelling, draft: Spelling, sizes: tuple[int, int]) -> None:
        self._target, self._draft = target, draft
        self._size = sizes[1]  # of the draft model, which may have fewer tokens than its tokenizer
        first: dict[str, int] = {}
        for i, name in enumerate(draft.names[: sizes[1]]):
            first.setdefault(name, i)
        first.pop("", None)
        self.shared: dict[int, int] = {}
        for i, name in enumerate(target.names[: sizes[0]]):
            if name in first:  # the first of equal ones has it
                self.shared[i] = first.pop(name)
        self.word = cache(self._word)

    def begins_word(self, token: int, before: int) -> bool:
        """Whether a word begins with this token: with a space, or where one of both has no text."""
        text = self._text(token)
        return not text or text[0].isspace() or not self._text(before)

    def row(self, tokens: Iterable[int]) -> list[int]:
        """Read tokens of the target as the draft model does."""
        return TranslatedRow(self).extended(tokens).read()

    def _word(self, tokens: tuple[int, ...]) -> list[int]:
        """Read the tokens of a word."""
        text = self._target.decode(tokens) if self._text(tokens[0]) else ""
        if text and UNREADABLE not in text:
            return [i for i in self._draft.encode(text) if i < self._size]
        # parts of characters, and what spells nothing, are the same by their names alone
        found: list[int] = []
        runs = itertools.groupby(tokens, key=lambda token: UNREADABLE in self._text(token))
        for by_name, run in runs:
            if by_name or not text:
                found += [self.shared[token] for token in run if token in self.shared]
            else:
                own = "".join(map(self._text, run))
                found += [i for i in self._draft.encode(own) if i < self._size]
        return found

    def _text(self, token: int) -> str:
        return self._target.texts[token] if token < len(self._target.texts) else ""


class TranslatedRow:
    """A row of the target's tokens that grows, and what the draft model reads."""

    def __init__(self, translation: Translation) -> None:
        self._translation = translation
        self.tokens: list[int] = []
        self._closed: list[int] = []  # what the model reads of the words before the last one
        # of each word: its place, and how much is read before it
        self._words: list[tuple[int, int]] = [(0, 0)]

    def extended(self, tokens: Iterable[int]) -> TranslatedRow:
        """Take more tokens, and return the row."""
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
        """Return a row of the first tokens, which shares nothing with this one."""
        row = TranslatedRow(self._translation)
        count = max(bisect.bisect_left(self._words, (length, 0)), 1)
        row._words = self._words[:count]
        row._closed = self._closed[: row._words[-1][1]]
        row.tokens = self.tokens[:length]
        return row


def check_spellings(model: Any, *spellings: Any) -> None:
    """Refuse what is no model, or no spelling."""
    if not isinstance(model, LanguageModel):
        raise InvalidInputError(
            f"the draft model is a {type(model).__name__}; give a LanguageModel"
        )
    for spelling in spellings:
        if not isinstance(spelling, Spelling):
            raise InvalidInputError(
                f"a {type(spelling).__name__} as what tokens spell; give a Spelling, such as "
                "Spelling.of(tokenizer)"
            )


def end_of_row(tokens: list[int], most: int | None) -> list[int]:
    """Return what a model of so many tokens reads of a row: all, or the end if that is too long.

    The beginning is left out in large steps, not a token at a time, so that a cache serves again.
    """
    if most is None or len(tokens) <= most:
        return tokens
    step = max(most // 2, 1)
    return tokens[-(-(len(tokens) - most) // step) * step :]


def _as_strings(values: Any, name: str) -> tuple[str, ...]:
    """Check that these are strings."""
    try:
        given = tuple(values) if not isinstance(values, str) or not values else (None,)
    except TypeError:
        given = (None,)
    if not all(isinstance(value, str) for value in given):
        raise InvalidInputError(f"{name} = {shown(values)}; give a string for every token")
    return given
