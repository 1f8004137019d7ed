"""Shared clocks by their definition: Philox in whole numbers, and exact logarithms."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from otm._core.probs.sparse import SparseProbs
from otm.coupled.clocks.first_rings import first_rings
from otm.coupled.clocks.numpy import BELOW_ONE, SharedClocks, clock_bits, times

MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B


def test_clocks_are_philox_and_ring_by_their_logarithms() -> None:
    """Known answer: the first block of Philox 4x64-10, by its definition in whole numbers."""
    mask, key, counter = 2**64 - 1, (7, 0), (1, 2, 5, 0)  # NumPy counts before it draws
    for _ in range(10):
        high = [int(m) * c for m, c in zip(MULTIPLIERS, counter[::2], strict=True)]
        counter = (
            (high[1] >> 64) ^ counter[1] ^ key[0], high[1] & mask,
            (high[0] >> 64) ^ counter[3] ^ key[1], high[0] & mask,
        )  # fmt: skip
        key = tuple((k + w) & mask for k, w in zip(key, WEYL, strict=True))  # type: ignore[assignment]
    probs = SparseProbs(range(4), [0.1, 0.2, 0.3, 0.4])
    assert clock_bits(7, 5, range(2, 3), 4).tolist() == list(counter)
    uniforms = [(c + 0.5) * 2.0**-64 for c in counter]
    pairs = zip(uniforms, probs.probabilities, strict=True)
    rings = [-math.log1p(-u) / p for u, p in pairs]
    assert SharedClocks(7, 3).draft(5, 2, probs) == int(np.argmin(rings))


def test_the_first_ring_is_found_among_few_logarithms() -> None:
    rng = np.random.default_rng(0)
    for position in range(300):
        probs = SparseProbs(range(9), rng.dirichlet(np.full(9, 0.2)))
        bits = clock_bits(1, position, range(1), int(probs.tokens[-1]) + 1)
        uniforms = bits.astype(float) * 2.0**-64
        rings = -np.log1p(-uniforms[probs.tokens]) / probs.probabilities
        assert SharedClocks(1, 1).draft(position, 0, probs) == probs.tokens[rings.argmin()]


def test_times_are_logarithms_to_the_last_digit() -> None:
    """Against 40 decimals: small uniforms, where 1 − u is rounded, and large ones."""
    rng = np.random.default_rng(1)
    edges = [2.0**-65, 2.0**-54, 2.0**-53, 1 - 2.0**-0.5, 0.5, BELOW_ONE]
    small = 10.0 ** -rng.uniform(0, 19, 300)
    uniforms = np.concatenate([edges, small, rng.random(300), 1 - rng.random(100) * 1e-9])
    with localcontext(prec=40) as context:
        for u, found in zip(uniforms.tolist(), times(np, uniforms).tolist(), strict=True):
            exact = -(1 - Decimal(u)).ln(context) if u > 1e-9 else series(Decimal(u))
            assert abs(Decimal(found) / exact - 1) < Decimal(2) ** -52


def series(u: Decimal) -> Decimal:
    """−ln(1 − u) of a small number, whose logarithm 40 digits would not give."""
    return u + u**2 / 2 + u**3 / 3 + u**4 / 4


def test_rows_of_a_batch_are_those_of_sequences(clocked: Callable[..., Any]) -> None:
    """Catches rows that read clocks of another sequence, position or list."""
    seen = set()
    for seed in range(250):
        rows = clocked(seed, 1 + seed % 30)
        found = first_rings(*rows)
        assert found.dtype == np.int64
        for (b, i), token in np.ndenumerate(found):
            key, first = int(rows.keys[b]) % 2**64, int(rows.lists[b, i])
            position, probs = int(rows.positions[b, i]), SparseProbs.from_dense(rows.probs[b, i])
            if rows.count == 1:
                assert token == SharedClocks(key).draft(position, first, probs)
            elif first == 0:
                assert token == SharedClocks(key, rows.count).output(position, probs)
            assert rows.probs[b, i, token] > 0
            seen.add((key >= 2**63, position >= 2**32, rows.count == 1, first == 0))
    assert len(seen) == 16, "keys, positions and lists of all kinds"


def test_a_row_without_a_token_gives_one_of_the_vocabulary() -> None:
    """Bug: an error in a round whose scores have been found wrong already."""
    for wrong in (0.0, np.nan, -1.0):
        probs, ones = np.full((1, 1, 3), wrong), np.ones((1, 1), np.int64)
        assert first_rings(probs, ones[0], ones, ones, 2).tolist() == [[0]]
