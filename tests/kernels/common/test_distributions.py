"""Rows that are read one by one: their softmax, the memory they share, tokens located in them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm.kernels.common.distributions.numpy import BLOCK, Softmax, locate, probs_from_logits

LAST = 1 - 2.0**-53


def exact(logits: np.ndarray, temperature: float) -> np.ndarray:
    wide = (logits.astype(float) - logits.max().astype(float)) / temperature
    weights = np.exp(wide)
    return weights / weights.sum()


@pytest.mark.parametrize(("dtype", "limit"), [("f2", 1e-6), ("f4", 1e-6), ("f8", 1e-14)])
@pytest.mark.parametrize(("spread", "temperature"), [(0.5, 1.0), (3.0, 0.6), (10.0, 2.0), (9, 1)])
def test_the_softmax_is_near_the_exact_one_at_full_vocabulary(
    dtype: str, limit: float, spread: float, temperature: float
) -> None:
    """Bug: a sum in float32 that drifts, or float64 logits that are narrowed."""
    logits = (spread * np.random.default_rng(1).normal(size=(1, 128_256))).astype(dtype)
    rows = Softmax("target", logits, temperature)
    expected = exact(logits[0], temperature)
    likely = int(expected.argmax())
    assert abs(rows[0, likely] / expected[likely] - 1) < 10 * limit
    assert rows[0, likely] == rows[0][likely], "an entry is that of its row, to the last bit"
    assert abs(rows[0].astype(float) - expected).sum() / 2 < limit


def test_rows_that_share_memory_are_not_mixed_up() -> None:
    """Bug: a row of the sequence before, or of another thread, read from the shared memory."""
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(2, 3, 50))

    def read(seed: int) -> None:
        order = np.random.default_rng(seed)
        sequences = [Softmax("target", each, 0.7) for each in logits]
        for _ in range(200):
            b, i, x = (int(order.integers(n)) for n in (2, 3, 50))
            expected = exact(logits[b, i], 0.7)
            if order.random() < 0.5:
                assert sequences[b][i, x] == pytest.approx(expected[x], rel=1e-12)
            else:
                np.testing.assert_allclose(sequences[b][i], expected, rtol=1e-12)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(read, seed) for seed in range(8)]:
            done.result()


def test_cold_rows_are_one_hot_at_the_first_of_equals() -> None:
    logits = np.array([[[0.0, 2.0, 2.0], [-np.inf, -1.0, -np.inf]]], dtype=np.float32)
    drafts = np.array([[2, -1]])
    for temperature in (0.0, 1e-300):
        target, draft = probs_from_logits(logits, logits, drafts, temperature)
        assert draft is not None
        t, d = next(target), next(draft)
        assert t[1].tolist() == [0, 1, 0]
        if temperature == 0:
            assert (t[0].tolist(), t[0, 1], t[0, 2]) == ([0, 1, 0], 1, 0)
            assert (d[0].tolist(), d[1].tolist()) == ([0, 0, 1], [0, 0, 0])
        else:
            assert t[0].tolist() == d[0].tolist() == [0, 0.5, 0.5]


def masses_of(kind: str, size: int, rng: np.random.Generator) -> np.ndarray:
    masses = rng.integers(0, 2**40, size)
    if kind == "sparse":
        masses[rng.random(size) < 0.999] = 0
    if kind == "empty blocks":
        masses[: size // 2] = 0
    masses[-1] += kind == "last alone"
    masses[:-1] *= kind != "last alone"
    return masses


@pytest.mark.parametrize("kind", ["dense", "sparse", "empty blocks", "last alone"])
@pytest.mark.parametrize("size", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_a_token_is_located_as_in_one_sum(kind: str, size: int) -> None:
    """Bug: a token of an empty block, or one off where blocks meet."""
    rng = np.random.default_rng([size, len(kind)])
    masses = masses_of(kind, size, rng)
    masses[-1] += 1
    cumulative = masses.cumsum()
    total = int(cumulative[-1])
    meets = [cumulative[i] / total for i in range(BLOCK - 1, size, BLOCK)]
    edges = [np.nextafter(x, to) for x in meets for to in (0, x, 1)]
    for u in [0.0, LAST, *rng.random(30), *(x for x in edges if x < 1)]:
        point = min(int(u * total), total - 1)
        expected = int(np.searchsorted(cumulative, point, side="right"))
        assert locate(masses, np.float64(u)) == expected
        assert masses[expected] > 0


def test_fractions_are_located_exactly() -> None:
    masses: Any = np.array([Fraction(i % 3, 7) for i in range(BLOCK + 5)], dtype=object)
    total = sum(masses)
    for x in (1, BLOCK - 1, BLOCK, BLOCK + 3):
        edge = sum(masses[:x]) / total
        after = next(i for i in range(x, masses.size) if masses[i])
        assert locate(masses, edge) == after
