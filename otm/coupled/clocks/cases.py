"""Cases for the self-check of clock kernels against the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from otm.kernels.self_check.call_layout import layout_of, numbers_like, rows_like, size_class
from otm.kernels.self_check.chain_cases import (
    SEED,
    SEQUENCES,
    Numbers,
    draw_row,
    split_cases,
    support,
)
from otm.kernels.self_check.run import Call


def call_of_clocks(arguments: tuple[Any, ...], verify: Callable[..., Any]) -> Call:
    """Return a description of a `first_rings` call for the self-check."""
    *tensors, count = arguments
    probs = tensors[0]
    size = probs.shape[-1]
    family = ("clocks", probs.device, size, size_class(count), *map(layout_of, tensors))
    name = f"shared clocks ({probs.dtype}, {size:,} tokens, {count} lists)"
    return Call(name, family, probs.device, partial(cases_like, *arguments), verify)


def cases_like(
    probs: Tensor, keys: Tensor, positions: Tensor, lists: Tensor, count: int
) -> Iterator[tuple[Any, ...]]:
    """Yield arguments of `first_rings` with the same layout as the arguments of a call."""
    rows, size = probs.shape[1:]
    places = support(size, size)
    values, *numbers = draw_clocked(rows, len(places))
    for some in split_cases(rows * size):
        numbers_of_case = map(numbers_like, (keys, positions, lists), (x[some] for x in numbers))
        yield rows_like(probs, values[some], places, 0.0), *numbers_of_case, count


def draw_clocked(rows: int, tokens: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Draw rows [n, L, S], keys [n], positions and lists [n, L] from the fixed seed."""
    rng = np.random.default_rng(SEED)
    probs = [[draw_row(rng, tokens, logits=False) for _ in range(rows)] for _ in range(SEQUENCES)]
    shifts = np.array([0, 11, 60])[rng.integers(3, size=SEQUENCES)]
    keys = rng.integers(-(2**63), 2**63, SEQUENCES) >> shifts
    positions = rng.integers(2**40, size=(SEQUENCES, rows))
    lists = rng.integers(8, size=(SEQUENCES, rows))
    return np.array(probs).reshape(SEQUENCES, rows, tokens), keys, positions, lists
