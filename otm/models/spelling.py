"""What the tokens of a vocabulary spell, and how tokens of one are read by another.

Two models with different tokenizers have in common what tokens spell.  A draft model reads the
target's tokens word by word, each as its own tokenizer cuts the text of the word; so what it reads
changes at the end alone, and its cache is kept.  Where a tokenizer would have cut a whole text
otherwise, drafts are worse, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from otm._core.shown import Brief
from otm._core.text import shown
from otm.errors import InvalidInputError

Encode = Callable[[str], Sequence[int]]
"""From a text to the tokens that spell it."""

ANCHOR = "\n"
"""A text before others, since tokenizers treat what they begin with in another way."""

LONGEST_WORD = 64
"""Most tokens that are read as one word, as of a text without spaces."""

UNREADABLE = "\ufffd"
"""What a tokenizer writes for bytes that are a part of a character."""


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

    Raises
    ------
    InvalidInputError
        If these are no texts, or the names are not as many.

    Examples
    --------
    >>> spelling = Spelling(["a", "b", "ab", ""], names=["a", "b", "ab", "<end>"])
    >>> spelling.encode("aab"), spelling.decode([0, 2, 3])
    ([0, 2], 'aab')
    """

    texts: Sequence[str]
    encoder: Encode | None = None
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        texts = _as_strings(self.texts, "texts")
        names = _as_strings(self.names, "names") or texts
        if len(names) != len(texts) or not texts:
            raise InvalidInputError(
                f"{len(names)} names for {len(texts)} texts; give one of each for every token"
            )
        object.__setattr__(self, "texts", texts)
        object.__setattr__(self, "names", names)
        if self.encoder is None:
            object.__setattr__(self, "encoder", _longest_match(texts))

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
        plain: dict[str, Any] = {"add_special_tokens": False}
        head = list(tokenizer.encode(ANCHOR, **plain))

        def encode(text: str) -> list[int]:
            tokens = list(tokenizer.encode(ANCHOR + text, **plain))
            if tokens[: len(head)] == head:
                return tokens[len(head) :]
            return list(tokenizer.encode(text, **plain))  # the anchor is one token with what begins

        ids = range(len(tokenizer))
        before = tokenizer.decode(head, clean_up_tokenization_spaces=False)
        after = tokenizer.batch_decode(
            [[*head, i] for i in ids], clean_up_tokenization_spaces=False
        )
        special = set(tokenizer.all_special_ids)
        texts = ["" if i in special else text[len(before) :] for i, text in enumerate(after)]
        called = tokenizer.convert_ids_to_tokens(list(ids))
        names = [
            "<end>" if i == tokenizer.eos_token_id
            else f"<{name}>" if not text or UNREADABLE in text
            else text
            for i, (text, name) in enumerate(zip(texts, called, strict=True))
        ]  # fmt: skip
        return cls(texts, encode, names)

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
        """
        return [] if self.encoder is None else [int(token) for token in self.encoder(text)]

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
        """
        return "".join(self.texts[token] for token in tokens)


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

    def begins_word(self, token: int) -> bool:
        """Whether a word begins with this token: a space comes first, or it spells nothing."""
        text = self._text(token)
        return not text or text[0].isspace()

    def row(self, tokens: Iterable[int]) -> list[int]:
        """Read tokens of the target as the draft model does."""
        row = TranslatedRow(self)
        for token in tokens:
            row.append(token)
        return row.read()

    def _word(self, tokens: tuple[int, ...]) -> list[int]:
        """Read the tokens of a word."""
        texts = [self._text(token) for token in tokens]
        if all(texts) and not any(UNREADABLE in text for text in texts):
            return [i for i in self._draft.encode("".join(texts)) if i < self._size]
        # parts of characters, and what spells nothing, are the same by their names alone
        return [self.shared[token] for token in tokens if token in self.shared]

    def _text(self, token: int) -> str:
        return self._target.texts[token] if token < len(self._target.texts) else ""


class TranslatedRow:
    """A row of the target's tokens that grows, and what the draft model reads."""

    def __init__(self, translation: Translation) -> None:
        self._translation = translation
        self.tokens: list[int] = []
        self._closed: list[int] = []  # what the model reads of the words before the last one
        self._start = 0  # of the last word

    def append(self, token: int) -> None:
        """Take a token."""
        word = self.tokens[self._start :]
        if word and (self._translation.begins_word(token) or len(word) == LONGEST_WORD):
            self._closed = self._closed + self._translation.word(tuple(word))
            self._start = len(self.tokens)
        self.tokens.append(token)

    def read(self) -> list[int]:
        """Return the draft model's tokens."""
        return self._closed + self._translation.word(tuple(self.tokens[self._start :]))

    def cut(self, length: int) -> TranslatedRow:
        """Return a row of the first tokens."""
        row = TranslatedRow(self._translation)
        if length > self._start:
            row._closed, row._start = self._closed, self._start
            row.tokens = self.tokens[:length]
        else:
            for token in self.tokens[:length]:
                row.append(token)
        return row


def _as_strings(values: Any, name: str) -> tuple[str, ...]:
    """Check that these are strings."""
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):
        raise InvalidInputError(f"{name} = {shown(values)}; give a string for every token")
    return tuple(values)


def _longest_match(texts: Sequence[str]) -> Encode:
    """Encode by the longest token that fits, of equal ones the first."""
    ids: dict[str, int] = {}
    for i, text in enumerate(texts):
        ids.setdefault(text, i)
    ids.pop("", None)
    lengths = sorted({len(text) for text in ids}, reverse=True)

    def encode(text: str) -> list[int]:
        tokens, place = [], 0
        while place < len(text):
            fitting = (n for n in lengths if text[place : place + n] in ids)
            length = next(fitting, 0)
            if length:
                tokens.append(ids[text[place : place + length]])
            place += length or 1
        return tokens

    return encode
