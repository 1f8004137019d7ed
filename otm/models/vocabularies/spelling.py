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
"""From a text to the tokens that spell it."""


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
class Spelling(ShortRepr):
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
        Tokens with an empty name are shared with none.  If several tokens have one name, it belongs
        to the token that the encoder writes for its text, else to the first.
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
            The spelling of all its tokens.  It is cached until the tokens of the tokenizer change.

        Raises
        ------
        InvalidInputError
            If it is none.

        Examples
        --------
        ::

            Spelling.of(AutoTokenizer.from_pretrained("Qwen/Qwen3-8B"))
        """
        table, functions = read_tokenizer(tokenizer)
        spelling = object.__new__(cls)  # without the checks, which take long for 262,144 tokens
        vars(spelling).update(
            texts=table.texts,
            encoder=functions.encode,
            names=table.names,
            decoder=functions.decode,
            index=table.by_name,
        )
        return spelling

    @cached_property
    def index(self) -> NameIndex:
        """The token of each name."""
        return NameIndex(self.texts, self.names, self.encode)

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


def _as_strings(values: Any, name: str) -> tuple[str, ...]:
    """Check that these are strings."""
    try:
        given = tuple(values) if not isinstance(values, str) or not values else (None,)
    except TypeError:
        given = (None,)
    if not all(isinstance(value, str) for value in given):
        raise InvalidInputError(f"{name} = {shown(values)}; give a string for every token")
    return given
