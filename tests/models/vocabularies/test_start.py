"""A draft model reads its own begin token before a translated text."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, models, processors
from transformers import PreTrainedTokenizerFast

from otm.decoding import SamplingParameters, StringDrafter
from otm.errors import InvalidInputError
from otm.models import IntersectionModel, Spelling, StatelessModel
from otm.models.vocabularies.translation import TranslatedRow, Translation

BEGIN = 2


class Recorder(StatelessModel):
    """Knows what follows only after its begin token, and records what it reads."""

    vocabulary = 3

    def __init__(self) -> None:
        self.read: list[tuple[int, ...]] = []

    def probs(self, context: tuple[int, ...]) -> np.ndarray:
        self.read.append(context)
        return np.array([0.0, 1.0, 0.0] if context[:1] == (BEGIN,) else [1.0, 0.0, 0.0])


DRAFT = Spelling(["a", "b", ""], names=["a", "b", "<begin>"], start=[BEGIN])
TARGET = Spelling(["a", "b", "", ""], names=["a", "b", "<s>", "<begin>"])


def translation(target: Spelling = TARGET) -> Translation:
    return Translation(target, DRAFT, (len(target.texts), 3))


def test_a_tokenizer_says_what_it_puts_before_a_text() -> None:
    """Bug: a model that was trained with a begin token reads text without one."""
    inner = Tokenizer(models.BPE(vocab={"<b>": 0, "\n": 1, "<e>": 2}, merges=[]))
    inner.post_processor = processors.TemplateProcessing(
        single="<b> $A <e>", special_tokens=[("<b>", 0), ("<e>", 2)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<b>", eos_token="<e>")
    assert Spelling.of(tokenizer).start == (0,)
    inner.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    plain = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<b>", eos_token="<e>")
    assert Spelling.of(plain).start == ()


def test_the_begin_token_stands_once_before_every_translation() -> None:
    """Bugs: none, or two where the target has the same token; lost by a cut."""
    of = translation().row
    assert of([0, 1]) == [BEGIN, 0, 1]
    assert of([2, 0, 1]) == [BEGIN, 0, 1]  # a begin token of the target alone
    assert of([3, 0, 1]) == [BEGIN, 0, 1]  # the same token in both
    row = TranslatedRow(translation()).extended([3, 0])
    assert row.cut(1).extended([1]).read() == [BEGIN, 1]
    assert row.cut(0).extended([1]).read() == [BEGIN, 1]


def test_both_kinds_of_drafts_are_read_after_the_begin_token() -> None:
    """Bug: the session of shared tokens or the drafter of strings starts elsewhere."""
    model = Recorder()
    shared = IntersectionModel(model, DRAFT, TARGET)
    assert shared.start(1).append(np.array([[0]]))[0, 0].tolist() == [0, 1, 0, 0]
    drafter = StringDrafter(model, DRAFT, TARGET, SamplingParameters(temperature=0))
    (root,) = drafter.draft([(0,)], [2], None, [np.random.default_rng(0).random])
    assert root.leaf_paths() == [(1, 1)]
    assert {context[0] for context in model.read if context} == {BEGIN}


def test_a_begin_token_outside_the_vocabulary_is_an_error() -> None:
    """Bug: an index error in the first step."""
    with pytest.raises(InvalidInputError, match="from 0 to 0"):
        Spelling(["a"], start=[1])
