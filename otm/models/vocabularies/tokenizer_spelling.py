"""Texts and names of the tokens of a Hugging Face tokenizer."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from otm.errors import InvalidInputError
from otm.models.vocabularies.name_index import NameIndex

ANCHOR = "\n"
"""Text put before every encoded text, since tokenizers treat the beginning differently."""

OTHER_NAME = "\ud800"
"""Prefix of the names of tokens without a text; no text begins with it.

This prefix alone is the name of the end token.
"""

UNREADABLE = "\ufffd"
"""Character that stands for an incomplete character in decoded text."""

PLAIN: dict[str, Any] = {"add_special_tokens": False}
AS_IT_IS: dict[str, Any] = {"clean_up_tokenization_spaces": False}


class Table(NamedTuple):
    """Texts and names of all tokens, without a reference to the tokenizer."""

    state: Hashable
    texts: tuple[str, ...]
    names: tuple[str, ...]
    by_name: NameIndex
    # A token whose text consists of letters.
    word: int


_tables: WeakKeyDictionary[Any, Table] = WeakKeyDictionary()
"""Cached table of each tokenizer, since reading 262,144 tokens takes seconds."""


class TokenizerFunctions:
    """Functions that encode and decode a text as if it followed another text."""

    def __init__(self, tokenizer: Any, word: int) -> None:
        self._tokenizer = tokenizer
        self._head = list(tokenizer.encode(ANCHOR, **PLAIN))
        # Tokens put before all decoded tokens: the anchor, or a word if the anchor has no tokens.
        self._before = self._head or [word]
        self._start = tokenizer.decode(self._before, **AS_IT_IS)

    def encode(self, text: str) -> list[int]:
        """Split a text into tokens."""
        tokens = list(self._tokenizer.encode(ANCHOR + text, **PLAIN))
        if tokens[: len(self._head)] == self._head:
            return tokens[len(self._head) :]
        # Here the anchor and the beginning of the text merge into one token.
        return list(self._tokenizer.encode(text, **PLAIN))

    def start(self) -> tuple[int, ...]:
        """Return the tokens that the tokenizer puts before every text."""
        plain = list(self._tokenizer.encode(ANCHOR, **PLAIN))
        whole = list(self._tokenizer.encode(ANCHOR))
        places = range(len(whole) - len(plain) + 1)
        place = next((i for i in places if whole[i : i + len(plain)] == plain), 0)
        return tuple(whole[:place])

    def decode(self, tokens: list[int]) -> str:
        """Join the texts of tokens."""
        text = self._tokenizer.decode([*self._before, *tokens], **AS_IT_IS)
        return text[len(self._start) :] if text.startswith(self._start) else ""


def read_tokenizer(tokenizer: Any) -> tuple[Table, TokenizerFunctions]:
    """Read a tokenizer; compute its table only if it is new or has changed."""
    if not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise InvalidInputError(
            f"the tokenizer is a {type(tokenizer).__name__}; give a tokenizer of transformers, "
            "such as AutoTokenizer.from_pretrained(name)"
        )
    state, table = _state(tokenizer), None
    # TypeError is raised for objects without weak references or without a hash.
    with suppress(TypeError):
        table = _tables.get(tokenizer)
    if table is None or table.state != state:
        table = _read(tokenizer, state)
        with suppress(TypeError):
            _tables[tokenizer] = table
    return table, TokenizerFunctions(tokenizer, table.word)


def _read(tokenizer: Any, state: Hashable) -> Table:
    """Decode every token after another token, and return the table of texts and names."""
    # The token ids can have gaps.
    called = {i: name for name, i in tokenizer.get_vocab().items()}
    word = next((i for i, name in sorted(called.items()) if name.isalpha()), min(called))
    functions = TokenizerFunctions(tokenizer, word)
    special = set(tokenizer.all_special_ids)
    texts, names = [], []
    for i in range(max(called) + 1):
        name = called.get(i, "")
        text = functions.decode([i]) if name and i not in special else ""
        readable = text and UNREADABLE not in text
        texts.append(text)
        names.append(text if readable else name and OTHER_NAME + name)
    if tokenizer.eos_token_id in called:
        names[tokenizer.eos_token_id] = OTHER_NAME
    index = NameIndex(texts, names, functions.encode)
    return Table(state, tuple(texts), tuple(names), index, word)


def _state(tokenizer: Any) -> Hashable:
    """Return all data of a tokenizer that determine the texts of its tokens."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    parts = ("normalizer", "pre_tokenizer", "decoder")
    return (
        len(tokenizer),
        tokenizer.eos_token_id,
        tuple(tokenizer.all_special_ids),
        str(getattr(tokenizer, "added_tokens_decoder", None)),
        *(repr(getattr(backend, part, None)) for part in parts),
    )
