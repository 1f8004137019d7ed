"""The trapezoid rule in log t against Γ(j + 1) / a^(j + 1)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from otm._core.quadrature import log_trapezoid, node_chunks


@pytest.mark.parametrize("powers", [0, 1, 8, 60])
def test_mixtures_of_exponentials_are_integrated_to_rounding(powers: int) -> None:
    nodes, weights = log_trapezoid(1e-30, 1e30, powers)
    for j in {0, powers // 2, powers}:
        for rate in (1e-9, 0.3, 1.0, 7.0, 1e10):
            logarithms = j * np.log(nodes * rate) - rate * nodes - math.lgamma(j + 1)
            integral = rate * (weights @ np.exp(logarithms))
            assert integral == pytest.approx(1, abs=3e-13 if j > 8 else 3e-14)


def test_more_powers_take_more_nodes() -> None:
    # the peak of t^j e^(−t) in log t has a width of 1/√j
    sizes = [log_trapezoid(1e-18, 100, powers)[0].size for powers in (0, 10, 1_000, 100_000)]
    assert sizes == sorted(sizes)
    assert sizes[3] <= 12 * sizes[2]


def test_chunks_cover_all_nodes() -> None:
    for tokens in (1, 1_000, 10**7):
        chunks = list(node_chunks(300, tokens))
        assert [i for chunk in chunks for i in range(300)[chunk]] == list(range(300))
    assert len(list(node_chunks(300, 10**7))) == 300
