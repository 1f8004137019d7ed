"""The texts and names of the tokens of a tokenizer of Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from otm.errors import InvalidInputError
from otm.models.vocabularies.name_index import NameIndex

ANCHOR = "\n"
"""Text put before others, since tokenizers treat the beginning of a text differently."""

OTHER_NAME = "\ud800"
"""Begins the names of tokens without a text, and no text; alone, it names the end token."""

UNREADABLE = "\ufffd"
"""Character that a tokenizer writes for a part of a character."""

PLAIN: dict[str, Any] = {"add_special_tokens": False}
AS_IT_IS: dict[str, Any] = {"clean_up_tokenization_spaces": False}


class Table(NamedTuple):
    """Texts and names of all tokens, and the token of each name; it keeps no tokenizer alive."""

    state: Hashable
    texts: tuple[str, ...]
    names: tuple[str, ...]
    by_name: NameIndex
    word: int  # some token with a text of letters


_tables: WeakKeyDictionary[Any, Table] = WeakKeyDictionary()
"""The table of each tokenizer, since reading 262,144 tokens takes seconds."""


class TokenizerFunctions:
    """A tokenizer as functions between tokens and a text within other texts."""

    def __init__(self, tokenizer: Any, word: int) -> None:
        self._tokenizer = tokenizer
        self._head = list(tokenizer.encode(ANCHOR, **PLAIN))
        # Tokens put before a token to decode it: a word, if the tokenizer drops the line break.
        self._before = self._head or [word]
        self._start = tokenizer.decode(self._before, **AS_IT_IS)

    def encode(self, text: str) -> list[int]:
        """Cut a text into tokens."""
        tokens = list(self._tokenizer.encode(ANCHOR + text, **PLAIN))
        if tokens[: len(self._head)] == self._head:
            return tokens[len(self._head) :]
        # The anchor and the beginning of the text are one token.
        return list(self._tokenizer.encode(text, **PLAIN))

    def decode(self, tokens: list[int]) -> str:
        """Join tokens."""
        text = self._tokenizer.decode([*self._before, *tokens], **AS_IT_IS)
        return text[len(self._start) :] if text.startswith(self._start) else ""


def read_tokenizer(tokenizer: Any) -> tuple[Table, TokenizerFunctions]:
    """Read a tokenizer; compute its table only if it is new or has changed."""
    if not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise InvalidInputError(
            f"the tokenizer is a {type(tokenizer).__name__}; give one of transformers, such as "
            "AutoTokenizer.from_pretrained returns"
        )
    state, known = _state(tokenizer), None
    with suppress(TypeError):  # raised for objects without weak references or without a hash
        known = _tables.get(tokenizer)
    if known is None or known.state != state:
        known = _read(tokenizer, state)
        with suppress(TypeError):
            _tables[tokenizer] = known
    return known, TokenizerFunctions(tokenizer, known.word)


def _read(tokenizer: Any, state: Hashable) -> Table:
    """Decode every token behind another one."""
    called = {i: name for name, i in tokenizer.get_vocab().items()}  # ids may have gaps
    word = next((i for i, name in sorted(called.items()) if name.isalpha()), min(called))
    functions = TokenizerFunctions(tokenizer, word)
    special = set(tokenizer.all_special_ids)
    texts, names = [], []
    for i in range(max(called) + 1):
        name = called.get(i, "")
        text = functions.decode([i]) if name and i not in special else ""
        readable = text and UNREADABLE not in text
        texts.append(text)
        names.append(text if readable else name and OTHER_NAME + name)  # no text begins so
    if tokenizer.eos_token_id in called:
        names[tokenizer.eos_token_id] = OTHER_NAME
    index = NameIndex(texts, names, functions.encode)
    return Table(state, tuple(texts), tuple(names), index, word)


def _state(tokenizer: Any) -> Hashable:
    """Return all parts of a tokenizer that its tokens' texts depend on."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    parts = ("normalizer", "pre_tokenizer", "decoder")
    return (
        len(tokenizer),
        tokenizer.eos_token_id,
        tuple(tokenizer.all_special_ids),
        str(getattr(tokenizer, "added_tokens_decoder", None)),
        *(repr(getattr(backend, part, None)) for part in parts),
    )
