"""The soak of `benchmarks.soak` in short: ten thousand tokens, and the largest deviations alone."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

from benchmarks.soak import DRAFT_PROBS, LENGTH, METHODS, TARGET_PROBS, Observations, check, read


@pytest.mark.parametrize("name", ["chain, γ by step", "traversal"])
def test_long_decoding_has_the_law_of_the_target(name: str) -> None:
    """Bug: the distribution gets wrong later in a text, in a batch, or before an end token."""
    right, wrong, _ = check(name, delta=0.42)
    assert min(right.tokens, wrong.tokens) > 1_000


def test_the_laws_differ_by_more_than_what_is_seen() -> None:
    assert sum(TARGET_PROBS) == pytest.approx(1, abs=1e-12)
    assert abs(np.subtract(TARGET_PROBS, DRAFT_PROBS)).sum() / 2 > 0.42


def test_readings_do_not_overlap() -> None:
    """Bug: readings that share tokens, or that the limit cuts off: these are not independent."""
    assert [*read((1, 2, 0, 0, 0, 1, 3))] == [*read((1, 2, 0)), *read((0, 0, 1))]
    assert len([*read((1,) * LENGTH)]) == 1
    assert len([*read((1,) * (LENGTH - 2) + (0, 1))]) == 1
    assert len([*read((1,) * (LENGTH - 4) + (0, 1, 1, 1))]) == 2


def growth(readings: Observations) -> tuple[int, int]:
    """Objects, and blocks of memory, that stay when a way of decoding is used again and again."""
    rng = np.random.default_rng(3)
    objects, blocks = [], []
    gc.freeze()  # what was there before, all tests among it, is not looked through each time
    for _ in range(5):
        readings(rng, 12)
        gc.collect()
        objects.append(len(gc.get_objects()))
        blocks.append(sys.getallocatedblocks())
    gc.unfreeze()
    return objects[-1] - objects[1], blocks[-1] - blocks[1]


@pytest.mark.parametrize("name", ["chain, γ by step", "traversal"])
def test_long_decoding_keeps_no_memory(name: str) -> None:
    """Bug: rows of finished sequences that stay, or a cache that grows with every step."""
    objects, blocks = growth(Observations(METHODS[name]))
    assert objects < 20
    assert blocks < 800  # what NumPy and Python keep to use again


def test_memory_that_is_kept_is_seen() -> None:
    kept: list[object] = []

    def keeps(*given: Any, **options: Any) -> Any:
        kept.append(METHODS["chain"](*given, **options))
        return kept[-1]

    objects, _ = growth(Observations(keeps))
    assert objects > 100
