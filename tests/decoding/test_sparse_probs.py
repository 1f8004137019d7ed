"""Distributions by their supports, against the whole ones."""

from __future__ import annotations

import numpy as np
import pytest

from otm.decoding import SamplingParameters
from otm.errors import InvalidDistributionError


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64])
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParameters(),
        SamplingParameters(temperature=0),
        SamplingParameters(temperature=0.3),
        SamplingParameters(temperature=1e-300),
        SamplingParameters(temperature=1e-310, top_k=2),
        SamplingParameters(top_k=1),
        SamplingParameters(top_k=3),
        SamplingParameters(top_k=40),
        SamplingParameters(top_k=100),
        SamplingParameters(top_k=7, top_p=0.8, temperature=2.0),
        SamplingParameters(top_p=0.5),
        SamplingParameters(min_p=0.2, top_k=90),
    ],
    ids=str,
)
def test_sparse_laws_are_the_dense_ones(sampling: SamplingParameters, dtype: type) -> None:
    """Catches ties, rows of −∞ and types that the search for the largest logits gets wrong."""
    rng = np.random.default_rng(3)
    rows = [
        rng.normal(size=100) * 3,
        rng.integers(-2, 3, 100),  # ties everywhere
        np.where(np.arange(100) == 63, 1.0, -9.0),
        np.zeros(100),
        np.linspace(0, 2000, 100),
    ]
    if dtype is not np.int64:
        rows.append(np.where(np.arange(100) % 37 == 5, 1.0, -np.inf))
    logits = np.array(rows).astype(dtype)
    laws = sampling(logits)
    for row, law, found in zip(logits, laws, sampling.sparse_probs_rows(logits), strict=True):
        assert found.tokens.tolist() == np.flatnonzero(law).tolist()
        np.testing.assert_allclose(found.dense(100), law, rtol=1e-13, atol=0)
        np.testing.assert_array_equal(sampling.sparse_probs(row).dense(100), found.dense(100))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("top_k", [None, 2, 50])
def test_sparse_laws_refuse_what_the_dense_ones_refuse(bad: float, top_k: int | None) -> None:
    logits = np.zeros((3, 80))
    logits[1, 70] = bad
    for temperature in (0, 1.0):
        with pytest.raises(InvalidDistributionError, match=r"NaN|∞"):
            SamplingParameters(temperature=temperature, top_k=top_k).sparse_probs_rows(logits)
    logits[1] = -np.inf
    with pytest.raises(InvalidDistributionError, match="row 1: the logits have only −∞"):
        SamplingParameters(top_k=top_k).sparse_probs_rows(logits)
    with pytest.raises(InvalidDistributionError, match=r"\[V\]"):
        SamplingParameters().sparse_probs(logits)
    with pytest.raises(InvalidDistributionError, match=r"\[M, V\]"):
        SamplingParameters().sparse_probs_rows(logits[0])
