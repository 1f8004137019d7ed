"""The language models of the figures: exact laws on a tiny text, a sound split of the real one."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from fractions import Fraction
from importlib.resources import files

import numpy as np
import pytest

from otm.errors import InvalidInputError, InvalidParameterError
from otm.figures.language_models import (
    UNKNOWN,
    BigramModel,
    Corpus,
    TrigramModel,
    load_corpus,
    next_token_laws,
    perplexity,
    tokenise,
)

# token 5 never occurs; 4 occurs once, at the end, so that nothing follows it
TINY = [1, 2, 1, 3, 1, 2, 0, 1, 2, 1, 1, 3, 2, 3, 1, 2, 4]
V = 6
DATA = files("otm.figures") / "data"


def occurrences(gram: tuple[int, ...]) -> int:
    """Count an n-gram in the tiny text by looking at every place."""
    n = len(gram)
    return sum(tuple(TINY[i : i + n]) == gram for i in range(len(TINY) - n + 1))


def predecessors(gram: tuple[int, ...]) -> int:
    """Count the different tokens that stand before an n-gram in the tiny text."""
    return sum(occurrences((before, *gram)) > 0 for before in range(V))


def witten_bell(context: tuple[int, ...], word: int) -> Fraction:
    """Witten-Bell probability as the papers write it, recursively, one word at a time."""
    lower = witten_bell(context[1:], word) if context else Fraction(1, V)
    counts = [occurrences((*context, w)) for w in range(V)]
    types = sum(count > 0 for count in counts)
    return (counts[word] + types * lower) / (sum(counts) + types) if types else lower


def kneser_ney(context: tuple[int, ...], word: int) -> Fraction:
    """Interpolated Kneser-Ney probability, recursively, one word at a time."""
    lower = kneser_ney(context[1:], word) if context else Fraction(1, V)
    order = len(context) + 1
    count = occurrences if order == 3 else predecessors
    table = [count(gram) for gram in np.ndindex(*[V] * order)]
    once, twice = table.count(1), table.count(2)
    discount = Fraction(once, once + 2 * twice)
    counts = [count((*context, w)) for w in range(V)]
    types = sum(c > 0 for c in counts)
    if types == 0:
        return lower
    return (max(counts[word] - discount, Fraction(0)) + discount * types * lower) / sum(counts)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.split(load_corpus())


@pytest.fixture(scope="module")
def models(corpus: Corpus) -> tuple[BigramModel, TrigramModel]:
    size = len(corpus.vocabulary)
    return BigramModel.fit(corpus.train, size), TrigramModel.fit(corpus.train, size)


def test_bigram_laws_of_a_tiny_text_are_witten_bell() -> None:
    """Bug: wrong context column, a type count off by one, or unseen contexts (4 and 5) at 0/0."""
    laws = BigramModel.fit(TINY, V).law([[v] for v in range(V)])
    for v in range(V):
        expected = [float(witten_bell((v,), w)) for w in range(V)]
        np.testing.assert_allclose(laws[v], expected, rtol=1e-14, err_msg=f"context {v}")


def test_trigram_laws_of_a_tiny_text_are_kneser_ney() -> None:
    """Bug: plain counts where Kneser-Ney wants predecessors, context reversed, wrong discount."""
    contexts = list(np.ndindex(V, V))
    laws = TrigramModel.fit(TINY, V).law(contexts)
    for context, law in zip(contexts, laws, strict=True):
        expected = [float(kneser_ney(context, w)) for w in range(V)]
        np.testing.assert_allclose(law, expected, rtol=1e-14, err_msg=f"context {context}")


def test_one_law_by_hand() -> None:
    """Bug: the reference above and the model share a mistake.

    Of the 17 tokens of 5 kinds 7 are the token 1, and after 3 come 1, 2, 1:
    P(1) = (7 + 5/6) / (17 + 5) and P(1 | 3) = (2 + 2 P(1)) / (3 + 2).
    """
    law = BigramModel.fit(TINY, V).law([3])
    expected = (2 + 2 * (7 + Fraction(5, 6)) / 22) / 5
    assert law[1] == pytest.approx(float(expected), rel=1e-14)


@pytest.mark.parametrize("model", [BigramModel.fit(TINY, V), TrigramModel.fit(TINY, V)])
def test_longer_histories_and_batches_give_the_same_law(model: BigramModel | TrigramModel) -> None:
    """Bug: the first instead of the last tokens of a history are used, or batch rows mix."""
    one = model.law([2, 1])
    assert one.shape == (V,)
    np.testing.assert_array_equal(model.law([3, 3, 2, 1]), one)
    batch = np.array([[[1, 2], [2, 1]], [[4, 0], [2, 1]]])
    laws = model.law(batch)
    assert laws.shape == (2, 2, V)
    np.testing.assert_array_equal(laws[:, 1], [one, one])
    np.testing.assert_array_equal(laws[1, 0], model.law([4, 0]))


@pytest.mark.parametrize(
    ("fit", "reference"), [(BigramModel.fit, witten_bell), (TrigramModel.fit, kneser_ney)]
)
def test_perplexity_of_a_tiny_text(
    fit: Callable[[list[int], int], BigramModel | TrigramModel],
    reference: Callable[[tuple[int, ...], int], Fraction],
) -> None:
    """Bug: a token scored by the law one place off, or sums where means belong."""
    text = [3, 1, 2, 5, 2, 1]
    context = 1 if reference is witten_bell else 2
    chance = Fraction(1)
    for i in range(2, len(text)):
        chance *= reference(tuple(text[i - context : i]), text[i])
    expected = math.exp(-math.log(chance) / (len(text) - 2))
    assert perplexity(fit(TINY, V), np.array(text)) == pytest.approx(expected, rel=1e-13)


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
    for draft, target, position in next_token_laws(200, seed=1):
        for law in (draft, target):
            assert law.dtype == np.float64
            assert law.min() > 0, f"position {position}"
            assert abs(math.fsum(law) - 1) < 1e-12, f"position {position}"


def test_laws_belong_to_their_position(
    corpus: Corpus, models: tuple[BigramModel, TrigramModel]
) -> None:
    """Bug: a history that includes the token to be predicted, or that ends one token early."""
    draft_model, target_model = models
    for draft, target, position in next_token_laws(20, seed=2):
        before = [int(corpus.held_out[position - 2]), int(corpus.held_out[position - 1])]
        np.testing.assert_array_equal(draft, draft_model.law(before[1:]))
        np.testing.assert_array_equal(target, target_model.law(before))


def test_positions_are_evenly_spread_and_set_by_the_seed(corpus: Corpus) -> None:
    """Bug: a seed that is ignored, positions that repeat, bunch up or leave the text."""
    available = corpus.held_out.size - 2
    for contexts in (1, 7, 100):
        positions = [at.position for at in next_token_laws(contexts, seed=3)]
        assert positions == [at.position for at in next_token_laws(contexts, seed=3)]
        assert len(positions) == contexts
        assert 2 <= positions[0] <= positions[-1] < corpus.held_out.size
        assert set(np.diff(positions)) <= {available // contexts, -(-available // contexts)}
    assert len({next(next_token_laws(7, seed)).position for seed in range(10)}) > 5


def test_target_predicts_held_out_text_better_than_draft(
    corpus: Corpus, models: tuple[BigramModel, TrigramModel]
) -> None:
    """Bug: draft and target swapped, or smoothing so poor that more context hurts."""
    draft, target = models
    assert perplexity(target, corpus.held_out) < perplexity(draft, corpus.held_out) < 500


@pytest.mark.parametrize("tokens", [[1, 2, 5], [1, -1, 2], [0.5, 1.0, 2.0], [1, 2], 3])
def test_bad_token_ids_are_refused(tokens: object) -> None:
    """Bug: an id outside the vocabulary is read as the digits of another trigram."""
    with pytest.raises(InvalidInputError, match="allowed are"):
        TrigramModel.fit(tokens, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("context", [[V, 1], [-1, 1], [1], []])
def test_bad_contexts_are_refused(context: list[int]) -> None:
    """Bug: a history too short for the trigram model silently means another context."""
    with pytest.raises(InvalidInputError, match="allowed are"):
        TrigramModel.fit(TINY, V).law(context)


@pytest.mark.parametrize("contexts", [0, -1, 10**6])
def test_an_impossible_number_of_contexts_is_refused(contexts: int) -> None:
    """Bug: an empty or repeating list of positions goes into a figure."""
    with pytest.raises(InvalidParameterError, match="held-out text has 1 to"):
        next_token_laws(contexts, seed=0)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, math.nan])
def test_an_impossible_split_is_refused(share: float) -> None:
    """Bug: nothing is left to train on or to hold out."""
    with pytest.raises(InvalidParameterError, match="held-out share"):
        Corpus.split(["a", "b"], share)
