"""Segments of the upper concave hull."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from otm._core.arithmetic import as_fractions
from otm.coupling.optimal.agreeing import hull_segments

F = Fraction


def test_neighbours_are_pooled_alike_in_floats_and_fractions() -> None:
    """Catches blocks of SciPy's isotonic regression that are read the wrong way round."""
    rng = np.random.default_rng(17)
    for n in (1, 2, 7, 60, 500):
        won, target = (rng.integers(1, 1000, n) / 1024 for _ in range(2))
        target[: n // 3] = 0
        exact = hull_segments(as_fractions(won), as_fractions(target))
        assert hull_segments(won, target).tolist() == exact.tolist()


def test_a_segment_is_as_long_as_slopes_do_not_descend() -> None:
    won, target = as_fractions([1, 2, 2, 1, 5]), as_fractions([1] * 5)
    assert hull_segments(won, target).tolist() == [0]
    assert hull_segments(won[::-1], target).tolist() == [0, 1, 4]


def test_tokens_without_target_mass_are_segments_by_themselves() -> None:
    """Catches slopes that are divided by zero."""
    for target in ([0, 0, 1, 1], [0, 0, 0, 0]):
        found = hull_segments(np.array([0.5, 0.1, 0.1, 0.3]), np.array(target, dtype=float))
        assert found.tolist() == [0, 1, 2] + [3] * (target[3] == 0)
