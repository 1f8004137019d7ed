"""Names that several tokens of a vocabulary have, on tokenizers of many kinds."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections import Counter
from functools import cache
from typing import Any

import pytest

from otm.models import IntersectionModel, Spelling, TableModel
from otm.models.vocabularies.name_index import NameIndex, SharedTokens
from otm.models.vocabularies.tokenizer_spelling import UNREADABLE
from otm.models.vocabularies.translation import Translation
from tests.models.vocabularies.tokenizer_kinds import bpe, sentencepiece, tokenizers, trained

THE = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("Ġ", "a")]

KINDS: dict[str, Any] = {
    "byte-level": bpe(THE[:3], "</s>"),
    "tokens added again": bpe(THE, "<|end|>", (" the", " a", "th")),
    "bytes before letters": sentencepiece(),
    "bytes behind letters": sentencepiece(bytes_first=False),
    "spaces joined": sentencepiece(squeeze=True),
    "unigram": sentencepiece("unigram"),
    "spaces before words": trained("bytes"),
    "pieces of words": trained("pieces"),
}

SEVERAL = set(KINDS) - {"byte-level", "pieces of words"}
"""Kinds with texts that several tokens have."""

FIRST_IS_RIGHT = "bytes behind letters"


@cache
def one_token(kind: str, text: str) -> int | None:
    """Return the token that a tokenizer itself writes for a text behind a line, if it is one."""
    backend = KINDS[kind].backend_tokenizer
    line = backend.encode("\n", add_special_tokens=False).ids
    both = backend.encode("\n" + text, add_special_tokens=False).ids
    if both[: len(line)] != line:
        both, line = backend.encode(text, add_special_tokens=False).ids, []
    return both[len(line)] if len(both) == len(line) + 1 else None


@cache
def texts(kind: str) -> dict[int, str]:
    """Return what tokens spell that spell whole characters."""
    spelled = enumerate(Spelling.of(KINDS[kind]).texts)
    return {i: text for i, text in spelled if text and UNREADABLE not in text}


def shared(of_target: str, of_draft: str) -> dict[int, int]:
    target, draft = Spelling.of(KINDS[of_target]), Spelling.of(KINDS[of_draft])
    return Translation(target, draft, (len(target.texts), len(draft.texts))).tokens.by_target


@pytest.mark.parametrize(("of_target", "of_draft"), [*itertools.product(KINDS, KINDS)])
def test_tokens_that_both_tokenizers_write_are_shared(of_target: str, of_draft: str) -> None:
    """Bug: a byte token that takes the name of a comma, so that no comma is ever drafted."""
    found, target, draft = shared(of_target, of_draft), texts(of_target), texts(of_draft)
    for token, text in target.items():
        own = one_token(of_draft, text)
        if one_token(of_target, text) == token and own is not None and draft.get(own) == text:
            assert found[token] == own, text
        if token in found:
            assert draft[found[token]] == text
    assert max(Counter(found.values()).values()) == 1, "a draft stands for one token"


@pytest.mark.parametrize("kind", sorted(SEVERAL))
def test_the_first_token_of_a_name_is_often_the_wrong_one(kind: str) -> None:
    """Negative control: the rule "the first of equal ones" fails on these tokenizers."""
    first: dict[str, int] = {}
    for token, text in texts(kind).items():
        first.setdefault(text, token)
    wrong = [text for text, token in first.items() if one_token(kind, text) not in (None, token)]
    assert bool(wrong) == (kind != FIRST_IS_RIGHT)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_comes_back_from_every_other_vocabulary(kind: str) -> None:
    """Bug: a word that a draft model reads in other characters than the target wrote."""
    spelling = Spelling.of(KINDS[kind])
    for other in map(Spelling.of, KINDS.values()):
        for token, text in texts(kind).items():
            there = other.decode(other.encode(text))
            if one_token(kind, text) == token and there == text:
                assert spelling.encode(there) == [token]


def test_a_name_without_a_token_that_is_written_has_the_first() -> None:
    """Also tokens that the model lacks: the name then belongs to one that it has."""
    never = NameIndex(["x", "x"], ["x", "x"], lambda text: [])
    assert never.below(2) == {"x": 0}
    index = NameIndex(["a", "b", "b", "c"], ["a", "b", "b", ""], lambda text: [2])
    assert index.below(4) == {"a": 0, "b": 2}
    assert index.below(2) == {"a": 0, "b": 1}
    assert index.below(1) == {"a": 0}


def test_words_are_translated_once_and_not_kept_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: a server whose memory grows with all words that it has seen."""
    monkeypatch.setattr("otm.models.vocabularies.name_index.MOST_WORDS", 2)
    calls: list[tuple[int, ...]] = []

    def translate(word: tuple[int, ...]) -> list[int]:
        calls.append(word)
        return [sum(word)]

    tokens = SharedTokens({"a": 0}, {"a": 1})
    for word in ((1,), (2, 3), (1,), (4,), (4,)):
        assert tokens.word(word, translate) == [sum(word)]
    assert calls == [(1,), (2, 3), (4,)]
    assert len(tokens._words) == 1


# What is kept of a tokenizer


def test_a_tokenizer_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: seconds at the beginning of every call of `generate`, for 262,144 tokens."""
    tokenizer, other = sentencepiece(), bpe(THE, "</s>")
    Translation(Spelling.of(tokenizer), Spelling.of(other), (360, 261))
    monkeypatch.setattr(type(tokenizer), "get_vocab", None)
    again = Translation(Spelling.of(tokenizer), Spelling.of(other), (360, 261))
    assert again.row(tokenizer.encode("the cat", add_special_tokens=False)) == other.encode(
        "the cat"
    )


@pytest.mark.parametrize("change", ["added", "end", "decoder", "special"])
def test_a_changed_tokenizer_is_read_again(change: str) -> None:
    """Bug: an added token that spells nothing, or an end token under the old id."""
    tokenizer = sentencepiece()
    before = Spelling.of(tokenizer)
    if change == "added":
        tokenizer.add_tokens(["cat"])
        assert Spelling.of(tokenizer).encode("the cat")[-1] == len(before.texts)
        assert Spelling.of(tokenizer).texts[-1] == "cat"
    elif change == "special":
        tokenizer.add_special_tokens({"pad_token": "the"})
        token = tokenizer.convert_tokens_to_ids("the")
        assert (before.texts[token], Spelling.of(tokenizer).texts[token]) == ("the", "")
    elif change == "end":
        tokenizer.eos_token = "<unk>"
        assert Spelling.of(tokenizer).names.index(before.names[1]) == 0
    else:
        tokenizer.backend_tokenizer.decoder = tokenizers.decoders.Replace("▁", "_")
        token = tokenizer.convert_tokens_to_ids("▁the")
        assert (before.texts[token], Spelling.of(tokenizer).texts[token]) == (" the", "_the")


def test_what_is_kept_keeps_no_tokenizer_alive() -> None:
    """Bug: every tokenizer that was ever used stays in memory."""
    pair = [sentencepiece(), bpe(THE, "</s>")]
    left = [weakref.ref(tokenizer) for tokenizer in pair]
    model = IntersectionModel(
        TableModel({(): [1 / 261] * 261}), Spelling.of(pair[1]), Spelling.of(pair[0])
    )
    assert model.translation.row(pair[0].encode("the", add_special_tokens=False))
    index = weakref.ref(model.translation.tokens)
    del pair, model
    gc.collect()
    assert [found() for found in (*left, index)] == [None] * 3
