"""Assistants with another tokenizer: spellings of real tokenizers, and `generate`."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from otm.decoding import StringDrafter
from otm.errors import InvalidInputError, InvalidParameterError
from otm.integrations.huggingface import AssistedDecoding, patch_generate
from otm.models import IntersectionModel, Spelling, TableModel
from tests.models.vocabularies.tokenizer_kinds import (
    bpe,
    sentencepiece,
    tokenizers,
    trained,
    transformers,
)

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def tokenizers_of_two() -> tuple[Any, Any]:
    """Tokenizers of a target and a draft, with words of their own and end tokens of two names."""
    of_target = bpe([("t", "h"), ("th", "e"), ("Ġ", "the"), ("Ġ", "a")], "</s>")
    of_draft = bpe([("h", "e"), ("t", "he"), ("Ġ", "t")], "<|end|>")
    return of_target, of_draft


def test_spelling_of_a_tokenizer(tokenizers_of_two: tuple[Any, Any]) -> None:
    """Bug: spaces lost where a text begins, an end token that spells its name."""
    for tokenizer in tokenizers_of_two:
        spelling = Spelling.of(tokenizer)
        assert spelling.texts[tokenizer.eos_token_id] == ""
        for text in (" the cat", "the\n a  theé", "\n\nx"):
            tokens = spelling.encode(text)
            assert tokens == tokenizer.encode(text, add_special_tokens=False)
            if text.isascii():
                assert spelling.decode(tokens) == text


def test_shared_tokens_of_two_tokenizers(tokenizers_of_two: tuple[Any, Any]) -> None:
    """All bytes, parts of characters too, "the" in two ways, and the end under two names."""
    of_target, of_draft = tokenizers_of_two
    model = TableModel({(): np.ones(len(of_draft)) / len(of_draft)})
    shared = IntersectionModel(model, Spelling.of(of_draft), Spelling.of(of_target)).translation
    assert len(shared.tokens.by_target) == 256 + 2
    assert shared.tokens.by_target[of_target.eos_token_id] == of_draft.eos_token_id
    the, space_the = of_target.convert_tokens_to_ids(["the", "Ġthe"])
    assert of_draft.convert_ids_to_tokens(shared.tokens.by_target[the]) == "the"
    assert space_the not in shared.tokens.by_target
    assert of_draft.convert_ids_to_tokens(shared.row([space_the])) == ["Ġ", "the"]
    letter = of_target.encode("é", add_special_tokens=False)  # two tokens, of a byte each
    assert shared.row(letter) == of_draft.encode("é", add_special_tokens=False)
    parts = of_target.convert_tokens_to_ids(["Ġ", "t", "h", "e"])
    assert of_draft.convert_ids_to_tokens(shared.row(parts)) == ["Ġ", "the"]


def llama(vocabulary: int, seed: int, width: int = 16) -> Any:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=24, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=128,
        initializer_range=0.8, bos_token_id=None, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).double().eval()


@pytest.mark.parametrize(
    "options",
    [{"k": 2}, {"k": 1, "rule": "block"}, {"k": 1, "rule": "target-only", "match": "strings"}],
    ids=str,
)
def test_greedy_text_is_that_of_generate(
    tokenizers_of_two: tuple[Any, Any], options: dict[str, Any]
) -> None:
    """Two tokenizers, a target padded to more logits than tokens, a batch with padding."""
    of_target, of_draft = tokenizers_of_two
    target, draft = llama(len(of_target) + 3, 0), llama(len(of_draft), 1)
    of_target.pad_token, of_target.padding_side = of_target.eos_token, "left"
    inputs = of_target([" the cat", "a dog and the cat é"], return_tensors="pt", padding=True)
    inputs.pop("token_type_ids", None)
    how: dict[str, Any] = {"do_sample": False, "max_new_tokens": 12, "pad_token_id": 0}
    named = {"tokenizer": of_target, "assistant_tokenizer": of_draft}
    expected = target.generate(**inputs, **how)
    decoding = AssistedDecoding(draft, gamma=3, tokenizers=tokenizers_of_two, **options)
    assert torch.equal(target.generate(**inputs, custom_generate=decoding, **how), expected)
    with patch_generate(target, gamma=3, **options):
        patched = target.generate(**inputs, assistant_model=draft, **named, **how)
    assert torch.equal(patched, expected)


def parrot(tokenizer: Any, text: str = " the the") -> Any:
    """Make a model that repeats " the" or another text forever."""
    model = llama(len(tokenizer), 0, width=4 * len(tokenizer))
    weights = model.state_dict()
    for name, weight in weights.items():
        if "norm" not in name:
            weight.zero_()
    tokens = tokenizer.encode(text, add_special_tokens=False)
    for token, following in itertools.pairwise(tokens):
        weights["model.embed_tokens.weight"][token, token] = 1
        weights["lm_head.weight"][following, token] = 100
    return model


def test_an_assistant_that_writes_the_same_text_is_accepted(
    tokenizers_of_two: tuple[Any, Any],
) -> None:
    """Bug: wrongly cut or joined texts make correct drafts fail; both models repeat " the"."""
    of_target, of_draft = tokenizers_of_two
    target, draft = map(parrot, tokenizers_of_two)
    ids = of_target(" the", return_tensors="pt").input_ids
    decoding = AssistedDecoding(
        draft, k=1, gamma=4, rule="target-only", tokenizers=(of_target, of_draft), match="strings"
    )
    out = target.generate(
        ids, custom_generate=decoding, do_sample=False, max_new_tokens=9, pad_token_id=0
    )
    assert of_target.decode(out[0]) == " the" * 10
    assert decoding.generation is not None
    # four tokens of the draft are two of these
    assert [len(step.output) for step in decoding.generation.steps] == [3, 3, 2, 1]


@pytest.mark.parametrize(
    "options",
    [{"rule": "k-Seq"}, {"rule": "list coupling"}, {"rule": "target-only", "match": "strings"}],
    ids=str,
)
@pytest.mark.parametrize("bytes_of", ["target", "draft"])
def test_commas_are_drafted(options: dict[str, Any], bytes_of: str) -> None:
    """Bug: the byte token of a comma in its place, so that one token a step comes out."""
    pair = [bpe([], "</s>"), sentencepiece()]
    if bytes_of == "target":
        pair.reverse()
    target, draft = (parrot(tokenizer, "x,x") for tokenizer in pair)
    ids = torch.tensor([pair[0].encode("x", add_special_tokens=False)])
    decoding = AssistedDecoding(draft, k=1, gamma=3, tokenizers=tuple(pair), **options)
    out = target.generate(
        ids, custom_generate=decoding, do_sample=False, max_new_tokens=8, pad_token_id=0
    )
    assert pair[0].decode(out[0]) == "x,x,x,x,x"
    assert decoding.generation is not None
    assert [len(step.output) for step in decoding.generation.steps] == [4, 4]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"tokenizers": "gpt2"}, InvalidInputError, "must be a pair"),
        ({"tokenizers": ("a", "b")}, InvalidInputError, "the tokenizer is a str"),
        ({"match": "strings"}, InvalidParameterError, "k=1 and a rule that needs no draft"),
        (
            {"match": "strings", "k": 1, "rule": "block"},
            InvalidParameterError,
            "needs no draft probabilities",
        ),
        ({"match": "text"}, Exception, "there is no match 'text'"),
    ],
    ids=["one", "strings", "several", "rule", "match"],
)
def test_wrong_options_are_refused_at_once(
    tokenizers_of_two: tuple[Any, Any], options: dict[str, Any], error: Any, words: str
) -> None:
    """Bug: an error of transformers, or one in the middle of a call."""
    draft = llama(len(tokenizers_of_two[1]), 1)
    with pytest.raises(error, match=words):
        AssistedDecoding(draft, **{"tokenizers": tokenizers_of_two} | options)


@pytest.mark.parametrize("options", [{"match": "text"}, {"match": "strings"}], ids=str)
def test_a_patch_refuses_a_wrong_match_at_once(options: dict[str, Any]) -> None:
    """Bug: an error in the first call, or none."""
    with pytest.raises(Exception, match=r"no match 'text'|set k=1"):
        patch_generate(llama(8, 0), **options)


# Tokenizers of other kinds


@pytest.mark.parametrize("kind", ["words", "pieces", "unigram", "bytes"])
def test_a_tokenizer_is_read_by_itself_as_it_writes(kind: str) -> None:
    """Bug: spaces or marks of pieces lost, so that a draft model reads what nobody wrote."""
    tokenizer = trained(kind)
    spelling = Spelling.of(tokenizer)
    tokens = tokenizer.encode("the unbelievable dog and the house", add_special_tokens=False)
    model = TableModel({(): np.ones(len(tokenizer)) / len(tokenizer)})
    shared = IntersectionModel(model, spelling, spelling).translation
    assert shared.row(tokens) == tokens
    assert len(shared.tokens.by_target) > 0.9 * len(
        tokenizer
    )  # bytes spell letters that there are, too


def test_characters_in_parts_keep_their_words(tokenizers_of_two: tuple[Any, Any]) -> None:
    """Bug: a word with a character of several tokens that loses its other letters, or all of it."""
    of_target, other = tokenizers_of_two[0], trained("bytes")
    model = TableModel({(): np.ones(len(other)) / len(other)})
    shared = IntersectionModel(model, Spelling.of(other), Spelling.of(of_target)).translation
    for text in (" the中day", "happening中文字happening", " café x-ray"):
        row = shared.row(of_target.encode(text, add_special_tokens=False))
        assert other.decode(row).strip() == text.strip()
    half = of_target.encode("中", add_special_tokens=False)[:1]  # the rest is not yet written
    before = of_target.encode(" day", add_special_tokens=False)
    assert other.decode(shared.row([*before, *half])).startswith("day")
    drafter = StringDrafter(
        TableModel({(): np.ones(len(of_target)) / len(of_target)}),
        *map(Spelling.of, (of_target, tokenizers_of_two[1])),
    )
    drafts = of_target.encode("the é", add_special_tokens=False)
    assert tokenizers_of_two[1].decode(drafter.cut(tuple(drafts), 9)) == "the é"


def test_ids_with_gaps(tokenizers_of_two: tuple[Any, Any]) -> None:
    """Bug: ids above the number of tokens have no text, and gaps are alike."""
    content = json.loads(tokenizers_of_two[0].backend_tokenizer.to_str())
    ids = content["model"]["vocab"]
    ids.update({token: i + 20 for token, i in ids.items() if i > 200})
    gaps = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(content)), eos_token="</s>"
    )
    spelling = Spelling.of(gaps)
    model = TableModel({(): np.ones(281) / 281})
    shared = IntersectionModel(model, spelling, spelling).translation
    tokens = gaps.encode(" the house", add_special_tokens=False)
    assert max(tokens) > len(gaps)
    assert shared.row(tokens) == tokens
    assert not set(range(201, 221)) & set(shared.tokens.by_target)
