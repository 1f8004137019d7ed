"""The texts and names of the tokens of a vocabulary."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from otm._core.display.reprs import ShortRepr
from otm._core.display.text import shown
from otm.errors import InvalidInputError
from otm.models.base import LanguageModel
from otm.models.vocabularies.name_index import NameIndex
from otm.models.vocabularies.tokenizer_spelling import UNREADABLE, read_tokenizer

Encode = Callable[[str], Sequence[int]]
"""A function that splits a text into tokens."""


class LongestMatch:
    """An encoder that takes the longest matching token, the first one if several are equal."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._ids: dict[str, int] = {}
        for i, text in enumerate(texts):
            self._ids.setdefault(text, i)
        self._ids.pop("", None)
        self._lengths = sorted({len(text) for text in self._ids}, reverse=True)

    def __call__(self, text: str) -> list[int]:
        """Split a text into tokens; skip characters at which no token matches."""
        tokens, place = [], 0
        while place < len(text):
            fitting = (n for n in self._lengths if text[place : place + n] in self._ids)
            length = next(fitting, 0)
            if length:
                tokens.append(self._ids[text[place : place + length]])
            place += length or 1
        return tokens


@dataclass(frozen=True, eq=False)
class Spelling(ShortRepr):
    """The text and name of each token of a vocabulary, with an encoder and a decoder.

    Parameters
    ----------
    texts : sequence of V str
        The text of each token; empty for a token without text, such as an end token.
    encoder : callable, optional
        Function from a text to its tokens.  By default, the longest matching token is taken at each
        position, and a character at which no token matches is skipped.
    names : sequence of V str, optional
        The name of each token, by default its text.  Tokens of two vocabularies are the same if
        their names are equal; a token with an empty name is never shared.  A name of several tokens
        refers to the token that the encoder uses for the text, or else to the first token.
    decoder : callable, optional
        Function from tokens to their text; needed if a token can be a part of a character.
    start : sequence of int, optional
        Tokens that the tokenizer puts before every text, such as a begin token.  A draft model
        reads them before a translated text.

    Raises
    ------
    InvalidInputError
        If an argument has a wrong type, or the numbers of names and texts differ.

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
    start: Sequence[int] = ()

    def __post_init__(self) -> None:
        texts = _as_strings(self.texts, "texts")
        names = _as_strings(self.names, "names") or texts
        if len(names) != len(texts) or not texts:
            raise InvalidInputError(
                f"{len(names)} names for {len(texts)} texts; give a name and a text for every token"
            )
        for name in ("encoder", "decoder"):
            if not (getattr(self, name) is None or callable(getattr(self, name))):
                raise InvalidInputError(f"{name} = {shown(getattr(self, name))}; give a function")
        object.__setattr__(self, "texts", texts)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "start", tuple(self._checked([*map(operator.index, self.start)])))
        if self.encoder is None:
            object.__setattr__(self, "encoder", LongestMatch(texts))

    @classmethod
    def of(cls, tokenizer: Any) -> Self:
        """Build the spelling of a Hugging Face tokenizer.

        Parameters
        ----------
        tokenizer : PreTrainedTokenizerBase
            Any tokenizer.  A token's name is its text.  All end tokens have the same name.  A token
            without a text, or with a part of a character, keeps the tokenizer's name for it.

        Returns
        -------
        Spelling
            The spelling of all tokens.  The table of texts and names is cached until the tokens of
            the tokenizer change.

        Raises
        ------
        InvalidInputError
            If the argument is not a tokenizer of transformers.

        Examples
        --------
        ::

            Spelling.of(AutoTokenizer.from_pretrained("Qwen/Qwen3-8B"))
        """
        table, functions = read_tokenizer(tokenizer)
        # The checks of the constructor are skipped, since they take long for 262,144 tokens.
        spelling = object.__new__(cls)
        vars(spelling).update(
            texts=table.texts,
            encoder=functions.encode,
            names=table.names,
            decoder=functions.decode,
            start=functions.start(),
            index=table.by_name,
        )
        return spelling

    @cached_property
    def index(self) -> NameIndex:
        """The token of each name."""
        return NameIndex(self.texts, self.names, self.encode)

    def encode(self, text: str) -> list[int]:
        """Split a text into tokens.

        Parameters
        ----------
        text : str
            Any text.

        Returns
        -------
        list of int
            The tokens of the text; the default encoder skips characters without a token.

        Raises
        ------
        InvalidInputError
            If the text is not a string, or the encoder does not return token ids.
        """
        if not isinstance(text, str):
            raise InvalidInputError(f"{shown(text)} is not a text; give a string")
        encoded = None if self.encoder is None else self.encoder(text)
        try:
            tokens = list(map(operator.index, encoded or []))
        except TypeError as error:
            raise InvalidInputError(
                f"the encoder returned {shown(encoded)} for {shown(text)}; it must return integers"
            ) from error
        return self._checked(tokens)

    def decode(self, tokens: Iterable[int]) -> str:
        """Join the texts of tokens.

        Parameters
        ----------
        tokens : iterable of int
            Token ids from 0 to V − 1.

        Returns
        -------
        str
            The text of the tokens.

        Raises
        ------
        InvalidInputError
            If a token is not an integer from 0 to V − 1.
        """
        try:
            checked = self._checked(list(map(operator.index, tokens)))
        except TypeError as error:
            raise InvalidInputError(
                f"{shown(tokens)} is not a sequence of tokens; give integers"
            ) from error
        text = "".join(self.texts[token] for token in checked)
        if UNREADABLE in text and self.decoder is not None:
            return self.decoder(checked)
        return text

    def _checked(self, tokens: list[int]) -> list[int]:
        if tokens and not 0 <= min(tokens) <= max(tokens) < len(self.texts):
            raise InvalidInputError(
                f"tokens {shown(tokens)}; they must be from 0 to {len(self.texts) - 1}"
            )
        return tokens


def check_spellings(model: Any, *spellings: Any) -> None:
    """Raise unless the model is a LanguageModel and all spellings are Spelling objects."""
    if not isinstance(model, LanguageModel):
        raise InvalidInputError(
            f"the draft model is a {type(model).__name__}; give a LanguageModel"
        )
    for spelling in spellings:
        if not isinstance(spelling, Spelling):
            raise InvalidInputError(
                f"the spelling is a {type(spelling).__name__}; give a Spelling, such as "
                "Spelling.of(tokenizer)"
            )


def _as_strings(values: Any, name: str) -> tuple[str, ...]:
    """Convert to a tuple; raise unless all values are strings."""
    try:
        strings = tuple(values) if not isinstance(values, str) or not values else (None,)
    except TypeError:
        strings = (None,)
    if not all(isinstance(value, str) for value in strings):
        raise InvalidInputError(f"{name} = {shown(values)}; give a string for every token")
    return strings
