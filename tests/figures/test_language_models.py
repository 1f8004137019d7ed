"""The figures' language models: a sound data split, and each distribution at its position."""

from __future__ import annotations

import hashlib
import math
import re
from importlib.resources import files

import numpy as np
import pytest

from figures.language_models import (
    UNKNOWN,
    Corpus,
    fit,
    load_corpus,
    next_token_probs,
    perplexity,
    tokenise,
)
from otm.errors import InvalidParameterError
from otm.models.ngram import NGramModel

DATA = files("otm.models") / "data"


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.split(load_corpus())


@pytest.fixture(scope="module")
def models(corpus: Corpus) -> tuple[NGramModel, NGramModel]:
    return fit(corpus)


def test_perplexity_is_that_of_each_token_after_its_history(
    corpus: Corpus, models: tuple[NGramModel, NGramModel]
) -> None:
    """Bug: a token scored by the distribution one place off, or sums where means belong."""
    text = corpus.held_out[:40]
    for model in models:
        surprise = [
            -math.log(model.batch_probs(text[i - 2 : i])[text[i]]) for i in range(2, len(text))
        ]
        expected = math.exp(math.fsum(surprise) / len(surprise))
        assert perplexity(model, text) == pytest.approx(expected, rel=1e-13)


def test_tokenise_keeps_words_whole_and_marks_apart() -> None:
    """Bug: punctuation glued to words, or names with hyphen and possessives torn apart."""
    text = "And Beth-el's well; (yea,)\nthe sons' sons?"
    assert tokenise(text) == [
        *["and", "beth-el's", "well", ";", "(", "yea", ",", ")"],
        *["the", "sons", "'", "sons", "?"],
    ]


def test_excerpt_is_the_one_that_its_readme_describes() -> None:
    """Bug: the text is edited, re-encoded or its line ends converted without a word."""
    excerpt = (DATA / "king_james_bible_excerpt.txt").read_bytes()
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"`([0-9a-f]{64})`", readme) == [hashlib.sha256(excerpt).hexdigest()]
    assert f"{len(excerpt):,} bytes" in readme
    verses = [int(n.replace(",", "")) for n in re.findall(r"^\| .* \| ([\d,]+) \|$", readme, re.M)]
    assert sum(verses[:-1]) == verses[-1] == excerpt.count(b"\n")


def test_vocabulary_comes_from_the_training_part_alone(corpus: Corpus) -> None:
    """Bug: held-out words leak into the vocabulary, or ids and words come apart."""
    tokens = load_corpus()
    boundary = corpus.train.size
    assert boundary + corpus.held_out.size == len(tokens)
    assert set(corpus.vocabulary) == {UNKNOWN, *tokens[:boundary]}
    assert len(set(corpus.vocabulary)) == len(corpus.vocabulary) > 5000
    assert [corpus.vocabulary[i] for i in corpus.train] == tokens[:boundary]
    for index, token in zip(corpus.held_out.tolist(), tokens[boundary:], strict=True):
        assert corpus.vocabulary[index] == (token if token in corpus.vocabulary else UNKNOWN)


def test_split_is_deterministic(corpus: Corpus) -> None:
    """Bug: ids that follow the order of a set, which changes from process to process."""
    frequency = np.bincount(corpus.train, minlength=len(corpus.vocabulary))[1:].tolist()
    order = list(zip([-f for f in frequency], corpus.vocabulary[1:], strict=True))
    assert order == sorted(order)


def test_laws_of_the_real_text_are_laws() -> None:
    """Bug: discounted mass lost or given out twice, negative probabilities, unseen contexts."""
    for draft, target, position in next_token_probs(200, seed=1):
        for law in (draft, target):
            assert law.dtype == np.float64
            assert law.min() > 0, f"position {position}"
            assert abs(math.fsum(law) - 1) < 1e-12, f"position {position}"


def test_laws_belong_to_their_position(
    corpus: Corpus, models: tuple[NGramModel, NGramModel]
) -> None:
    """Bug: a history that includes the token to be predicted, or that ends one token early."""
    draft_model, target_model = models
    for draft, target, position in next_token_probs(20, seed=2):
        before = [int(corpus.held_out[position - 2]), int(corpus.held_out[position - 1])]
        np.testing.assert_array_equal(draft, draft_model.batch_probs(before[1:]))
        np.testing.assert_array_equal(target, target_model.batch_probs(before))


def test_positions_are_evenly_spread_and_set_by_the_seed(corpus: Corpus) -> None:
    """Bug: a seed that is ignored, positions that repeat, bunch up or leave the text."""
    available = corpus.held_out.size - 2
    for contexts in (1, 7, 100):
        positions = [at.position for at in next_token_probs(contexts, seed=3)]
        assert positions == [at.position for at in next_token_probs(contexts, seed=3)]
        assert len(positions) == contexts
        assert 2 <= positions[0] <= positions[-1] < corpus.held_out.size
        assert set(np.diff(positions)) <= {available // contexts, -(-available // contexts)}
    assert len({next(next_token_probs(7, seed)).position for seed in range(10)}) > 5


def test_target_predicts_held_out_text_better_than_draft(
    corpus: Corpus, models: tuple[NGramModel, NGramModel]
) -> None:
    """Bug: draft and target swapped, or smoothing so poor that more context hurts."""
    draft, target = models
    assert perplexity(target, corpus.held_out) < perplexity(draft, corpus.held_out) < 500


@pytest.mark.parametrize("contexts", [0, -1, 10**6])
def test_an_impossible_number_of_contexts_is_refused(contexts: int) -> None:
    """Bug: an empty or repeating list of positions goes into a figure."""
    with pytest.raises(InvalidParameterError, match="the held-out positions"):
        next_token_probs(contexts, seed=0)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, math.nan])
def test_an_impossible_split_is_refused(share: float) -> None:
    """Bug: nothing is left to train on or to hold out."""
    with pytest.raises(InvalidParameterError, match="held-out share"):
        Corpus.split(["a", "b"], share)
