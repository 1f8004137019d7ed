"""Inverse cumulative distributions: edges, zero weights, and the exact output distribution."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otm._core.arithmetic import Probs, is_exact
from otm._core.probs.sampling import InverseCdf, locate_in_rows
from otm.testing import exact_distribution
from otm.testing.strategies import distributions, uniforms

F = Fraction
LAST = 1 - 2.0**-53  # the largest uniform of 53 bits


@given(distributions(exact=True))
def test_the_law_of_locate_is_the_weights(weights: Probs) -> None:
    cdf = InverseCdf.from_weights(weights)
    located = exact_distribution(lambda u: int(cdf.locate(u)[0]), 1)
    assert all(p > 0 for p in located.values())
    assert [located.get(token, 0) for token in range(weights.size)] == weights.tolist()
    assert cdf.probs(weights.size).tolist() == weights.tolist()
    assert is_exact(cdf.probs(weights.size))


@given(distributions(exact=True), st.integers(1, 9))
def test_weights_need_not_sum_to_one(weights: Probs, scale: int) -> None:
    cdf = InverseCdf.from_weights(weights * F(scale, 7))
    located = exact_distribution(lambda u: int(cdf.locate(u)[0]), 1)
    assert [located.get(token, 0) for token in range(weights.size)] == weights.tolist()


@given(distributions(), st.data())
def test_a_token_of_weight_zero_is_never_drawn(weights: Probs, data: st.DataObject) -> None:
    # Sampling: a zero-weight token is never drawn, on no edge of the distribution either
    cdf = InverseCdf.from_weights(weights)
    uniform = data.draw(uniforms(np.cumsum(weights).tolist()))
    assert weights[cdf.locate(np.array([uniform]))[0]] > 0


@given(distributions())
def test_the_law_of_floats_is_the_weights(weights: Probs) -> None:
    law = InverseCdf.from_weights(weights).probs(weights.size)
    assert abs(law - weights).max() <= 1e-15
    assert (law[weights == 0] == 0).all()


@pytest.mark.parametrize("exact", [False, True])
def test_an_edge_belongs_to_the_next_token_of_positive_weight(exact: bool) -> None:
    # Sampling: a uniform exactly on an edge of the cumulative distribution
    quarter = F(1, 4) if exact else 0.25
    weights = np.array([0 * quarter, quarter, 0 * quarter, 3 * quarter, 0 * quarter])
    edges = np.array([0 * quarter, quarter, quarter - quarter / 2**50], dtype=weights.dtype)
    assert InverseCdf.from_weights(weights).locate(edges).tolist() == [1, 3, 1]


def test_the_largest_uniform_stays_in_the_vocabulary() -> None:
    # u · total rounds up to the total itself, so that a search alone would run past the end
    weights = np.array([0.1, 0.2, 5e-324, 0.0])
    cdf = InverseCdf.from_weights(weights)
    assert LAST * 5e-324 == 5e-324
    assert cdf.locate(np.array([LAST]))[0] in {1, 2}
    tiny = InverseCdf.from_weights(np.array([0.0, 5e-324, 0.0]))
    assert tiny.locate(np.array([0.0, 0.5, LAST])).tolist() == [1, 1, 1]


def test_the_shape_of_the_uniforms_is_kept() -> None:
    cdf = InverseCdf.from_weights(np.array([0.5, 0.5]))
    assert cdf.locate(np.array([[0.1, 0.6, 0.2]])).tolist() == [[0, 1, 0]]
    assert cdf.locate(np.empty((0, 2))).shape == (0, 2)


def test_uniforms_of_53_bits_resolve_a_large_vocabulary() -> None:
    # Sampling: at this size, uniforms of 24 bits are off by 10^-3 in total variation.
    n = 131_072
    law = np.random.default_rng(0).exponential(size=n) ** 3
    law /= law.sum()
    cdf = InverseCdf.from_weights(law)
    counts = {}
    for bits in (24, 53):
        # the number of uniforms i / 2^bits below each token, by bisection of what locate does
        low, high = np.zeros(n, dtype=np.int64), np.full(n, 2**bits)
        while (low < high).any():
            middle = (low + high) // 2
            beyond = cdf.locate(middle * 2.0**-bits) >= np.arange(n)
            high, low = np.where(beyond, middle, high), np.where(beyond, low, middle + 1)
        counts[bits] = np.diff(low, append=2**bits) * 2.0**-bits
    assert abs(counts[53] - law).sum() / 2 < 1e-11
    assert abs(counts[24] - law).sum() / 2 > 5e-4


# Rows of a table against each row alone


def test_rows_are_drawn_from_one_by_one() -> None:
    rng = np.random.default_rng(0)
    weights = rng.random((200, 7)) * (rng.random((200, 7)) < 0.5)
    weights[:, 3] += weights.sum(axis=1) == 0
    numbers = rng.random(200)
    expected = [
        int(InverseCdf.from_weights(row).locate(u)) for row, u in zip(weights, numbers, strict=True)
    ]
    assert locate_in_rows(weights, numbers).tolist() == expected


@pytest.mark.parametrize("u", [0.0, 1 - 2.0**-53])
def test_no_row_draws_a_token_of_weight_zero(u: float) -> None:
    # Bug: u · total rounded up to the total draws the last token, even one of weight zero.
    weights = np.array([[0.0, 0.1, 0.2, 0.7, 0.0], [0.0, 5e-324, 0.0, 0.0, 0.0]])
    tokens = locate_in_rows(weights, np.array([u, u])).tolist()
    assert tokens == [1 if u == 0 else 3, 1]


def test_an_edge_of_a_row_draws_the_next_token() -> None:
    weights = np.array([[F(1), F(0), F(1)]] * 2, dtype=object)
    numbers = np.array([F(1, 2) - F(1, 2**60), F(1, 2)], dtype=object)
    assert locate_in_rows(weights, numbers).tolist() == [0, 2]
