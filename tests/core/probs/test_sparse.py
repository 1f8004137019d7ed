"""Sparse distributions: contents, alignment, and rejected inputs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otm
from otm._core.probs.sparse import SparseProbs, align
from otm.errors import InvalidDistributionError, InvalidParameterError
from otm.testing.strategies import distributions, pairs

F = Fraction


@given(distributions(max_tokens=6), st.integers(0, 3))
def test_dense_and_sparse_are_the_same_law(law: Any, more: int) -> None:
    sparse = SparseProbs.from_dense(law)
    assert sparse.dense(law.size + more).tolist() == [*law.tolist(), *[0.0] * more]
    assert sparse.tokens.tolist() == np.flatnonzero(law).tolist()


def test_tokens_come_in_any_order_and_zeros_are_dropped() -> None:
    law = SparseProbs([900, 4, 17, 2], [F(1, 2), F(0), F(1, 3), F(1, 6)])
    assert law.tokens.tolist() == [2, 17, 900]
    assert law.probabilities.tolist() == [F(1, 6), F(1, 3), F(1, 2)]


def test_probabilities_are_normalised_within_the_tolerance_of_their_type() -> None:
    """Catches float32 top-k distributions that are rejected, or kept with a sum off by 1e-5."""
    given_law = np.array([0.6, 0.39999], dtype=np.float32)
    law = SparseProbs(np.array([5, 3], dtype=np.uint16), given_law)
    assert law.probabilities.sum() == pytest.approx(1, abs=1e-15)
    assert law.tokens.dtype == np.int64
    with pytest.raises(InvalidDistributionError, match=r"sums to 0\.9.*divide it by its sum"):
        SparseProbs([5, 3], [0.6, 0.3])  # truncated without renormalisation


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    probabilities, tokens = torch.tensor([0.1, 0.5, 0.4], dtype=torch.float64).topk(2)
    law = SparseProbs(tokens, probabilities / probabilities.sum())
    assert law.tokens.tolist() == [1, 2]


def test_nothing_can_be_changed() -> None:
    given_tokens = np.array([1, 2])
    law = SparseProbs(given_tokens, [0.5, 0.5])
    tokens, *_ = align(law, law)
    assert not any(array.flags.writeable for array in (law.tokens, law.probabilities, tokens))
    given_tokens[0] = 7
    assert law.tokens.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("tokens", "probabilities", "says"),
    [
        ([1, 1], [0.5, 0.5], "token id 1 more than once"),
        ([-1, 1], [0.5, 0.5], "token id -1"),
        ([0.0, 1.0], [0.5, 0.5], "type float64"),
        ([True, False], [0.5, 0.5], "type bool"),
        (["a", "b"], [0.5, 0.5], "type <U1"),
        ([[0, 1]], [0.5, 0.5], "shape (1, 2)"),
        ([0, [1]], [0.5, 0.5], "not array-like"),
        ([0, 1, 2], [0.5, 0.5], "token ids of shape (3,) and probabilities of shape (2,)"),
        ([0, 1], [0.5, 0.6], "sums to 1.1"),
        ([0, 1], [1.5, -0.5], "-0.5 at index 1"),
        ([], [], "shape (0,)"),
        ([2**64], [1.0], "type object"),
    ],
)
def test_what_is_no_law_is_refused(tokens: Any, probabilities: Any, says: str) -> None:
    with pytest.raises(InvalidDistributionError) as caught:
        SparseProbs(tokens, probabilities)
    assert says in str(caught.value)


def test_a_vocabulary_that_is_too_small_is_refused() -> None:
    with pytest.raises(
        InvalidParameterError, match=r"n = 9; .* at least 10, since the distribution has token 9"
    ):
        SparseProbs([9], [1.0]).dense(9)


def test_a_certain_token_is_a_fraction_beside_fractions() -> None:
    """Bug: one float in a distribution of fractions rounds all later results."""
    certain = SparseProbs.from_support(np.array([3]), np.ones(1))
    law = SparseProbs([1, 3], [Fraction(1, 3), Fraction(2, 3)])
    for pair in ((certain, law), (law, certain)):
        _, *aligned = align(*pair)
        assert {type(p) for probabilities in aligned for p in probabilities} == {Fraction}
    floats = SparseProbs([1, 3], [0.25, 0.75])
    assert {p.dtype for p in align(certain, floats)[1:]} == {np.dtype(np.float64)}


@given(pairs(max_tokens=6, exact=True))
def test_alignment_is_on_the_union_of_the_supports(pair: Any) -> None:
    sparse = [SparseProbs.from_dense(law) for law in pair]
    tokens, *aligned = align(*sparse)
    assert tokens.tolist() == np.flatnonzero((pair[0] > 0) | (pair[1] > 0)).tolist()
    for law, probabilities in zip(pair, aligned, strict=True):
        assert probabilities.tolist() == law[tokens].tolist()


def test_a_sparse_and_a_dense_distribution_raise() -> None:
    """Bug: a support is taken for a dense distribution, and the message blames its shape."""
    sparse, dense = SparseProbs([0, 1], [0.75, 0.25]), [0.25, 0.75]
    for function in (otm.solve, otm.alpha):
        for pair in ((sparse, dense), (dense, sparse)):
            with pytest.raises(InvalidDistributionError, match="SparseProbs; give both as"):
                function(*pair, 2)
