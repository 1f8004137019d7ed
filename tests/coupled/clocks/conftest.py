"""Rows, and clocks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest


class Clocked(NamedTuple):
    """Rows [B, L, V] and what their clocks follow from; as int64, maybe with the highest bit."""

    probs: npt.NDArray[np.float64]
    keys: npt.NDArray[np.int64]  # [B]
    positions: npt.NDArray[np.int64]  # [B, L]
    lists: npt.NDArray[np.int64]  # [B, L]
    count: int

    def tensors(self, device: str = "cpu", dtype: Any = None) -> list[Any]:
        """Return them as tensors, with rows of another type."""
        torch = pytest.importorskip("torch")
        probs, *others = (torch.from_numpy(x).to(device) for x in self[:4])
        return [probs if dtype is None else probs.to(dtype), *others, self.count]


def draw_clocked(seed: int, size: int) -> Clocked:
    """Draw rows with zeros, and keys and positions of all lengths."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 4, 2))
    probs = rng.dirichlet(np.full(size, 0.3), shape) * (rng.random((*shape, size)) < 0.7)
    probs[..., rng.integers(size)] += 0.1
    probs = (probs / probs.sum(axis=-1, keepdims=True)).astype(np.float32).astype(float)
    keys = rng.integers(-(2**63), 2**63, shape[0]) >> rng.choice([0, 11, 60], shape[0])
    positions = rng.integers(2**63, size=shape) >> rng.choice([0, 20, 58], shape)
    lists = rng.integers(6, size=shape)
    return Clocked(probs, keys, positions, lists, int(rng.integers(1, 5)))


@pytest.fixture
def clocked() -> Callable[..., Clocked]:
    """`draw_clocked`."""
    return draw_clocked
