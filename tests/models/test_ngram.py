"""N-gram models: the papers' formulas in fractions on a tiny text, at every order and context."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from otm.errors import InvalidInputError, InvalidParameterError
from otm.models.ngram import NGramCounts, NGramModel
from otm.models.table import UniformModel

# token 5 never occurs; 4 occurs once, at the end, so that nothing follows it
TINY = [1, 2, 1, 3, 1, 2, 0, 1, 2, 1, 1, 3, 2, 3, 1, 2, 4]
V = 6


def occurrences(gram: tuple[int, ...], distance: int = 1) -> int:
    """Count an n-gram in the tiny text by looking at every place."""
    if len(gram) == 1:
        return TINY.count(gram[0])
    before, last = gram[:-1], gram[-1]
    starts = range(len(TINY) - len(before) - distance + 1)
    return sum(
        tuple(TINY[i : i + len(before)]) == before and TINY[i + len(before) + distance - 1] == last
        for i in starts
    )


def predecessors(gram: tuple[int, ...]) -> int:
    """Count the different tokens that stand before an n-gram in the tiny text."""
    return sum(occurrences((before, *gram)) > 0 for before in range(V))


def witten_bell(context: tuple[int, ...], word: int, distance: int = 1) -> Fraction:
    """Witten-Bell probability as the papers write it, recursively, one word at a time."""
    lower = witten_bell(context[1:], word, distance) if context else Fraction(1, V)
    counts = [occurrences((*context, w), distance) for w in range(V)]
    types = sum(count > 0 for count in counts)
    return (counts[word] + types * lower) / (sum(counts) + types) if types else lower


def kneser_ney(context: tuple[int, ...], word: int, highest: int) -> Fraction:
    """Interpolated Kneser-Ney probability of a model of order `highest`, one word at a time."""
    lower = kneser_ney(context[1:], word, highest) if context else Fraction(1, V)
    order = len(context) + 1
    count = occurrences if order == highest else predecessors
    table = [count(gram) for gram in product(range(V), repeat=order)]
    once, twice = table.count(1), table.count(2)
    discount = Fraction(once, once + 2 * twice)
    counts = [count((*context, w)) for w in range(V)]
    types = sum(c > 0 for c in counts)
    if types == 0:
        return lower
    return (max(counts[word] - discount, Fraction(0)) + discount * types * lower) / sum(counts)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("distance", [1, 2, 3])
def test_laws_are_witten_bell(order: int, distance: int) -> None:
    """Bug: wrong context column, a type count off by one, or unseen contexts (4 and 5) at 0/0.

    And for distances: the token counted is one place off, or single tokens are lost at the start.
    """
    model = NGramModel.witten_bell(TINY, order, V, distance=distance)
    for length in range(order):
        for context in product(range(V), repeat=length):
            expected = [float(witten_bell(context, w, distance)) for w in range(V)]
            np.testing.assert_allclose(model.probs(context), expected, rtol=1e-14)


@pytest.mark.parametrize(("order", "contexts"), [(1, [()]), (2, None), (3, None)])
def test_laws_are_kneser_ney(order: int, contexts: list[tuple[int, ...]] | None) -> None:
    """Bug: plain counts where Kneser-Ney wants predecessors, context reversed, wrong discount."""
    model = NGramModel.kneser_ney(TINY, order, V)
    for context in contexts or product(range(V), repeat=order - 1):
        expected = [float(kneser_ney(context, w, order)) for w in range(V)]
        np.testing.assert_allclose(model.probs(context), expected, rtol=1e-14)


def test_one_law_by_hand() -> None:
    """Bug: the references above and the model share a mistake.

    Of the 17 tokens of 5 kinds 7 are the token 1, and after 3 come 1, 2, 1:
    P(1) = (7 + 5/6) / (17 + 5) and P(1 | 3) = (2 + 2 P(1)) / (3 + 2).
    """
    law = NGramModel.witten_bell(TINY, 2, V).probs((3,))
    expected = (2 + 2 * (7 + Fraction(5, 6)) / 22) / 5
    assert law[1] == pytest.approx(float(expected), rel=1e-14)


FITS = [NGramModel.witten_bell, NGramModel.kneser_ney]


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("fit", FITS)
def test_longer_contexts_and_batches_give_the_same_law(
    fit: Callable[..., NGramModel], order: int
) -> None:
    """Bug: the first instead of the last tokens of a context are used, or batch rows mix."""
    model = fit(TINY, order, V)
    one = model.probs((3, 2, 1))
    assert one.shape == (V,)
    np.testing.assert_array_equal(model.probs((5, 0, 3, 2, 1)), one)
    np.testing.assert_array_equal(model.batch_probs([5, 3, 2, 1]), one)
    laws = model.batch_probs(np.array([[[0, 1, 2], [3, 2, 1]], [[2, 4, 0], [3, 2, 1]]]))
    assert laws.shape == (2, 2, V)
    np.testing.assert_array_equal(laws[:, 1], [one, one])
    np.testing.assert_array_equal(laws[1, 0], model.probs((2, 4, 0)))
    assert model.batch_probs(np.zeros((3, 0), dtype=np.int64)).shape == (3, V)


@pytest.mark.parametrize("fit", FITS)
def test_a_short_context_has_the_law_of_the_lower_order(fit: Callable[..., NGramModel]) -> None:
    """Bug: the first tokens of a text cannot be drafted, or an absent token is read as token 0."""
    model = fit(TINY, 3, V)
    np.testing.assert_array_equal(model.probs((5, 5)), model.probs(()))  # 5 is in no context at all
    np.testing.assert_array_equal(model.probs((5, 1)), model.probs((1,)))
    assert (model.probs((1,)) != model.probs((0, 1))).any()


@pytest.mark.parametrize("fit", FITS)
def test_laws_sum_to_one_and_cannot_be_changed(fit: Callable[..., NGramModel]) -> None:
    """Bug: smoothing loses or repeats mass; a caller overwrites the unigram distribution."""
    tokens = np.random.default_rng(0).integers(0, 40, 500) ** 2 % 256
    model = fit(tokens, 4, 256)
    for context in [(), (0,), (3, 1), tuple(tokens[:3]), tuple(tokens[-3:])]:
        law = model.probs(context)
        assert law.min() >= 0
        assert math.fsum(law) == pytest.approx(1, abs=1e-13)
        with pytest.raises(ValueError, match="read-only"):
            law[0] = 1


def test_a_discount_of_zero_leaves_nothing_for_what_did_not_occur() -> None:
    """Bug: 0/0 where no n-gram occurs just once, so that Kneser and Ney's discount is zero."""
    model = NGramModel.kneser_ney([0, 1, 0, 1, 0, 1, 0, 1], 2, 3)
    assert model.probs((0,)).tolist() == [0, 1, 0]
    assert model.probs((2,)).sum() == 1


def test_a_session_gives_the_law_after_every_token() -> None:
    """Bug: the session hands the model a context that starts too late, or rows are swapped."""
    model = NGramModel.kneser_ney(TINY, 3, V)
    session = model.start(2)
    session.read(np.array([[3, 1], [2, -1]]))
    laws = session.append(np.array([[2, 0], [1, -1]]))
    np.testing.assert_array_equal(laws[0], [model.probs((1, 2)), model.probs((2, 0))])
    np.testing.assert_array_equal(laws[1, 0], model.probs((2, 1)))


@pytest.mark.parametrize(
    "tokens",
    [[1, 2, 5], [1, -1, 2], [0.5, 1.0, 2.0], [1, 2], 3, [[1, 2], [3]], [[1, 2, 3], [3, 2, 1]]],
)
def test_bad_token_ids_are_refused(tokens: object) -> None:
    """Bug: an id outside the vocabulary is read as the digits of another trigram."""
    for fit in FITS:
        with pytest.raises(InvalidInputError, match=r"allowed are|give an?"):
            fit(tokens, 3, 5)


@pytest.mark.parametrize("context", [(V, 1), (-1, 1), (0.5, 1)])
def test_bad_contexts_are_refused(context: tuple[int, ...]) -> None:
    """Bug: a wrong id in a context silently means another context."""
    for order in (2, 3):
        with pytest.raises(InvalidInputError, match=r"allowed are|give an?"):
            NGramModel.kneser_ney(TINY, order, V).batch_probs(context)


@pytest.mark.parametrize("number", [0, -1, 1.0, True, None, "2"])
def test_bad_numbers_are_refused(number: object) -> None:
    """Bug: an order of zero fails somewhere inside; 1.0 or True pass for 1."""
    for fit in FITS:
        with pytest.raises(InvalidParameterError, match="order = "):
            fit(TINY, number, V)
        with pytest.raises(InvalidParameterError, match="vocabulary = "):
            fit(TINY, 2, number)
    with pytest.raises(InvalidParameterError, match="distance = "):
        NGramModel.witten_bell(TINY, 2, V, distance=number)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="vocabulary = "):
        UniformModel(number)  # type: ignore[arg-type]


def test_an_n_gram_that_fits_no_integer_is_refused() -> None:
    """Bug: integers overflow, and different n-grams are counted as one."""
    NGramCounts.of(range(7), 7, 256)
    with pytest.raises(InvalidParameterError, match="choose a lower order"):
        NGramCounts.of(range(8), 8, 256)


def test_the_largest_n_grams_are_counted_apart() -> None:
    """Bug: powers of the vocabulary size overflow before the bound raises an error."""
    v = 2**21 - 1  # v³ is just below 2⁶³
    model = NGramModel.witten_bell([v - 1, v - 2, v - 1, v - 1, v - 2, 0], 3, v)
    assert model.probs((v - 1, v - 2)).argsort()[-2:].tolist() in ([0, v - 1], [v - 1, 0])


def test_the_uniform_model_knows_nothing() -> None:
    """Bug: a distribution that depends on the context, or that a caller can change."""
    model = UniformModel(3)
    assert model.vocabulary == 3
    assert model.probs(()).tolist() == model.probs((2, 1)).tolist() == [1 / 3] * 3
    assert not model.probs(()).flags.writeable


@pytest.mark.parametrize("vocabulary", [2**31, 10**13])
def test_vocabularies_beyond_all_memory_are_refused(vocabulary: int) -> None:
    """Bug: gigabytes are allocated before the size is checked."""
    with pytest.raises(InvalidParameterError, match="from 1 to 16,777,216"):
        UniformModel(vocabulary)
    for fit in FITS:
        with pytest.raises(InvalidParameterError, match="from 1 to 16,777,216"):
            fit([0, 1], 1, vocabulary)
