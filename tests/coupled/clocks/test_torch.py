"""Shared clocks in torch: the bits and decisions of the NumPy reference for all inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from otm.coupled.clocks import numpy as definition  # noqa: E402
from otm.coupled.clocks import torch as clocks  # noqa: E402
from otm.coupled.clocks.first_rings import first_rings  # noqa: E402
from otm.kernels.common.host import LEAST_VOCABULARY  # noqa: E402

WORDS = st.integers(0, 2**64 - 1)


@given(WORDS, WORDS)
def test_the_high_half_of_a_product(number: int, multiplier: int) -> None:
    """Catches a carry that is lost, and a sign that is taken for one."""
    found = int(clocks.high_product(torch.tensor(clocks.signed(number)), multiplier))
    assert found % 2**64 == number * multiplier >> 64


@pytest.mark.parametrize("size", [1, 3, 4, 5, 30])
def test_bits_are_those_of_numpy(size: int, clocked: Callable[..., Any]) -> None:
    for seed in range(30):
        rows = clocked(seed, size)
        _, keys, positions, lists, count = rows.tensors()
        found = clocks.clock_bits(keys[:, None], positions, lists, count, size).numpy()
        for b, i in np.ndindex(positions.shape):
            first = int(lists[b, i])
            of_lists = range(first, first + count)
            expected = definition.clock_bits(int(keys[b]), int(positions[b, i]), of_lists, size)
            assert (found[b, i].view(np.uint64) == expected).all()


def test_times_have_the_same_bits() -> None:
    """Bug: a library's logarithm, or a product and a sum that are rounded once."""
    uniforms = np.random.default_rng(2).random(100_000) ** 8 + 2.0**-65
    found = definition.times(torch, torch.from_numpy(uniforms)).numpy()
    assert (found == definition.times(np, uniforms)).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_decision_is_that_of_the_definition(
    dtype: Any, clocked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batched, and where rows are long and read one by one by the definition itself."""
    for seed in range(60):
        rows = clocked(seed, 1 + seed % 40)
        tensors = rows.tensors(dtype=dtype)
        probs = tensors[0].double().numpy()  # which half precision rounds
        expected = first_rings(*rows._replace(probs=probs)).tolist()
        assert first_rings(*tensors).tolist() == expected
        with monkeypatch.context() as patch:
            patch.setattr(clocks, "LEAST_VOCABULARY", 1)
            assert first_rings(*tensors).tolist() == expected
        views = [tensors[0].expand(2, *tensors[0].shape)[1], *tensors[1:]]
        assert first_rings(*views).tolist() == expected


def test_at_full_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = torch.Generator().manual_seed(3)
    probs = torch.randn(1, 2, LEAST_VOCABULARY + 1, generator=rng).mul(3).softmax(-1)
    positions = torch.arange(2)[None]
    for key in range(5):
        arguments = (probs, torch.tensor([key]), positions, 0 * positions, 2)
        expected = first_rings(*arguments)
        monkeypatch.setattr(clocks, "LEAST_VOCABULARY", 2**62)
        assert first_rings(*arguments).tolist() == expected.tolist()
        monkeypatch.undo()


@pytest.mark.parametrize("place", ["keys", "positions", "lists", "count"])
def test_other_clocks_give_other_tokens(place: str, clocked: Callable[..., Any]) -> None:
    """Negative control: the comparisons above see a row that reads the clocks of another."""
    differ = 0
    for seed in range(20):
        rows = clocked(seed, 40)
        others = rows._replace(**{place: getattr(rows, place) + 1})
        differ += int((first_rings(*others.tensors()).numpy() != first_rings(*rows)).sum())
    assert differ > 20


def test_a_row_without_a_token_gives_one_of_the_vocabulary() -> None:
    for wrong in (0.0, torch.nan, -1.0):
        probs, ones = torch.full((1, 1, 3), wrong), torch.ones(1, 1, dtype=torch.int64)
        assert first_rings(probs, ones[0], ones, ones, 2).tolist() == [[0]]
