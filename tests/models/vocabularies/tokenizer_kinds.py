"""Small tokenizers of many kinds, in transformers' form, for tests of vocabularies."""

from __future__ import annotations

from typing import Any

import pytest

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

TEXTS = ["the cat and the dog went to the house. unbelievable things happening é 中文字 x-ray"] * 3

BYTES = [f"<0x{i:02X}>" for i in range(256)]
LETTERS = [chr(i) for i in range(33, 127)]
MERGES = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "a"), (",", "▁the")]


def bpe(merges: list[tuple[str, str]], end: str, added: tuple[str, ...] = ()) -> Any:
    """Make a byte-level tokenizer with these merges, and tokens added to it."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokens = [end, *alphabet, *map("".join, merges)]
    model = tokenizers.models.BPE({token: i for i, token in enumerate(tokens)}, merges)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in added])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end)


def sentencepiece(kind: str = "bpe", *, squeeze: bool = False, bytes_first: bool = True) -> Any:
    """Make a tokenizer with byte tokens beside letters, as Gemma's; `squeeze` joins spaces."""
    letters = ["▁", *LETTERS, "\n"]
    pieces = ["<unk>", "</s>", *(BYTES + letters if bytes_first else letters + BYTES)]
    pieces += [*map("".join, MERGES), "▁▁"]
    if kind == "bpe":
        ids = {piece: i for i, piece in enumerate(pieces)}
        merges = [*MERGES, ("▁", "▁")]
        model = tokenizers.models.BPE(ids, merges, byte_fallback=True, unk_token="<unk>")
    else:
        scored = [
            (piece, -float(not piece.startswith("<0x")) - i / 999) for i, piece in enumerate(pieces)
        ]
        model = tokenizers.models.Unigram(scored, 0, byte_fallback=True)
    steps = tokenizers.normalizers
    joined = [steps.Replace(tokenizers.Regex(" {2,}"), " ")] if squeeze else []
    made = tokenizers.Tokenizer(model)
    made.normalizer = steps.Sequence([*joined, steps.Replace(" ", "▁")])
    decoders = tokenizers.decoders
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="</s>", unk_token="<unk>"
    )


def trained(kind: str) -> Any:
    """Make a tokenizer that keeps no lines, one with bytes for what it does not know, and so on."""
    models, pre, decoders = tokenizers.models, tokenizers.pre_tokenizers, tokenizers.decoders
    trainers, special = tokenizers.trainers, ["<unk>", "</s>"]
    if kind == "words":
        made = tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>"))
        made.pre_tokenizer = pre.Whitespace()
        trainer = trainers.WordLevelTrainer(special_tokens=special)
    elif kind == "pieces":
        made = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
        made.pre_tokenizer, made.decoder = pre.BertPreTokenizer(), decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=80, special_tokens=special)
    elif kind == "unigram":
        made = tokenizers.Tokenizer(models.Unigram())
        made.pre_tokenizer, made.decoder = pre.Metaspace(), decoders.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=70, special_tokens=special, unk_token="<unk>")
    else:  # SentencePiece with bytes, as Llama's
        made = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
        steps = tokenizers.normalizers
        made.normalizer = steps.Sequence([steps.Prepend("▁"), steps.Replace(" ", "▁")])
        made.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
             decoders.Strip(" ", 1, 0)]
        )  # fmt: skip
        special += BYTES
        trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=special)
    made.train_from_iterator(TEXTS, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="</s>", unk_token="<unk>"
    )
