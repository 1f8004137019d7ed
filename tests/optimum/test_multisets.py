"""Draft multisets: complete, in the order of their rank, with exact probabilities."""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otm._core.arithmetic import Probs
from otm.errors import ProblemTooLargeError
from otm.optimum.multisets import (
    first_occurrences,
    multiset_count,
    multiset_probabilities,
    multiset_rank,
    multisets,
)
from otm.testing.strategies import distributions

SIZES = [(m, k) for m in (1, 2, 3, 5) for k in (1, 2, 3, 6)]


@pytest.mark.parametrize(("m", "k"), SIZES)
def test_every_multiset_occurs_once(m: int, k: int) -> None:
    rows = [tuple(row) for row in multisets(m, k).tolist()]
    assert sorted(rows) == list(itertools.combinations_with_replacement(range(m), k))
    assert len(rows) == multiset_count(m, k)


@pytest.mark.parametrize(("m", "k"), SIZES)
def test_the_rank_is_the_row(m: int, k: int) -> None:
    sets = multisets(m, k)
    assert multiset_rank(sets).tolist() == list(range(len(sets)))


def test_the_rank_does_not_depend_on_the_number_of_tokens() -> None:
    # a table over more tokens starts with the table over fewer: a lexicographic order would not
    assert multisets(5, 3)[: multiset_count(3, 3)].tolist() == multisets(3, 3).tolist()
    assert multiset_rank(np.array([[1, 1, 2]])) == [multisets(9, 3).tolist().index([1, 1, 2])]


def test_the_rank_is_the_sum_of_binomial_coefficients() -> None:
    row = [0, 3, 3, 7, 20]
    expected = sum(math.comb(x + i, i + 1) for i, x in enumerate(row))
    assert multiset_rank(np.array(row)) == expected
    assert multiset_rank(np.zeros((0, 2), dtype=np.int64)).shape == (0,)


def test_a_table_that_is_too_large_is_refused_before_it_is_allocated() -> None:
    with pytest.raises(ProblemTooLargeError, match=r"1\.25e9 rows.*closed-form"):
        multisets(50_000, 2)
    with pytest.raises(ProblemTooLargeError):
        multisets(50_000, 10**5)  # the count itself has tens of thousands of digits
    with pytest.raises(ProblemTooLargeError, match="limit of 100 bytes"):
        multisets(3, 3, memory_limit=100)


def test_tokens_count_where_they_first_occur() -> None:
    rows = np.array([[0, 0, 1], [2, 2, 2], [0, 1, 2]])
    assert first_occurrences(rows).tolist() == [
        [True, False, True],
        [True, False, False],
        [True, True, True],
    ]


@given(distributions(max_tokens=4, exact=True), st.integers(1, 4))
def test_probabilities_are_those_of_the_sorted_tuples(law: Probs, k: int) -> None:
    # a coefficient k! in place of the multinomial one passes at k = 1 and for equal rows alone
    expected: Counter[tuple[int, ...]] = Counter()
    for drafts in itertools.product(range(law.size), repeat=k):
        expected[tuple(sorted(drafts))] += math.prod(law[list(drafts)])
    sets = multisets(law.size, k)
    found = multiset_probabilities(law, sets)
    assert dict(zip(map(tuple, sets.tolist()), found, strict=True)) == expected
    assert all(type(value.numerator) is int for value in found)  # NumPy's would overflow


@given(distributions(max_tokens=4), st.integers(1, 4))
def test_floats_are_accurate_relative_to_each_probability(law: Probs, k: int) -> None:
    sets = multisets(law.size, k)
    exact = multiset_probabilities(np.array([Fraction(x) for x in law]), sets)
    for found, expected in zip(multiset_probabilities(law, sets), exact, strict=True):
        error = abs(Fraction(found.item()) - expected)
        assert error <= expected * 20 * Fraction(2) ** -53 + Fraction(sys.float_info.min)


def test_many_drafts_neither_overflow_nor_vanish() -> None:
    # 1000! overflows on its own, and (1/2)^1000 nearly vanishes
    found = multiset_probabilities(np.array([0.5, 0.5]), multisets(2, 1000))
    assert found.sum() == pytest.approx(1, abs=1e-12)
    assert found[500] == pytest.approx(math.comb(1000, 500) / 2**1000, rel=1e-12)
