"""Drawing from the rows of a table against drawing from each row alone."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from otm.coupling.row_sampling import locate_in_rows
from otm.sampling import InverseCdf

F = Fraction


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
def test_no_token_of_weight_zero_is_drawn(u: float) -> None:
    # bug: u · total rounded up to the total draws the last token, whatever its weight
    weights = np.array([[0.0, 0.1, 0.2, 0.7, 0.0], [0.0, 5e-324, 0.0, 0.0, 0.0]])
    tokens = locate_in_rows(weights, np.array([u, u])).tolist()
    assert tokens == [1 if u == 0 else 3, 1]


def test_an_edge_draws_the_next_token() -> None:
    weights = np.array([[F(1), F(0), F(1)]] * 2, dtype=object)
    numbers = np.array([F(1, 2) - F(1, 2**60), F(1, 2)], dtype=object)
    assert locate_in_rows(weights, numbers).tolist() == [0, 2]
