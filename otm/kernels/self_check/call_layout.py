"""The parts of a tensor's memory layout that Triton's compiled kernels depend on.

Triton compiles a kernel once for each combination of types, constants, and a few properties of
integers and pointers.  Triton distinguishes strides and sizes that are 1 or multiples of 16, and
pointers that are multiples of 16 bytes.  Two calls run the same compiled kernels if they agree in
all properties that Triton distinguishes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from otm._core.tensors import on_device
from otm.kernels.common.runtime import padded

ALIGNMENT = 16
"""Triton compiles separate kernels for pointers and integers that are multiples of this number."""


@lru_cache(maxsize=4096)
def size_class(count: int) -> tuple[int, ...]:
    """Return the properties of a count (drafts, nodes or listed tokens) that kernels depend on."""
    return padded(count), padded(count + 1), count == 1, count % ALIGNMENT == 0


def layout_of(tensor: Tensor | None) -> tuple[Any, ...]:
    """Return type, alignment, sizes and strides of a tensor [B, …], without its first size."""
    if tensor is None:
        return ()
    strides = [(step == 1, step % ALIGNMENT == 0, step < 2**31) for step in tensor.stride()]
    aligned = tensor.data_ptr() % ALIGNMENT == 0
    return tensor.dtype, aligned, *map(size_class, tensor.shape[1:]), *strides


def rows_like(tensor: Tensor, values: npt.NDArray[Any], places: list[int], other: float) -> Tensor:
    """Build rows with the layout of a tensor: values [n, …, S] at `places`, `other` elsewhere.

    Axes with stride 0 in the tensor have stride 0 in the result too, except the first axis.  The
    values must be equal along axes with stride 0.  A row with a NaN value is NaN throughout, and so
    is all memory between rows.
    """
    shape = (len(values), *tensor.shape[1:])
    steps, extent = [0] * tensor.ndim, 1
    strides = (
        tensor.stride() if tensor.stride(-1) == 1 else torch.empty(shape, device="meta").stride()
    )
    for axis in reversed(range(tensor.ndim)):
        if axis == 0 or strides[axis]:
            steps[axis] = extent + (strides[axis] - extent) % ALIGNMENT
            if steps[axis] == 1 != strides[axis]:
                steps[axis] += ALIGNMENT
            extent += (shape[axis] - 1) * steps[axis]
    start = tensor.data_ptr() % ALIGNMENT // tensor.element_size()
    memory = torch.full((start + extent,), torch.nan, dtype=tensor.dtype, device=tensor.device)
    rows = memory.as_strided(shape, steps, start)
    written, kept = rows, values
    for axis in range(1, tensor.ndim - 1):
        if shape[axis] and not steps[axis]:
            written, kept = written.narrow(axis, 0, 1), kept.take([0], axis)
    if kept.size:
        entries = on_device(kept, tensor.device).to(tensor.dtype)
        rest = torch.full_like(entries[..., :1], other).where(~entries[..., :1].isnan(), torch.nan)
        written.copy_(rest.expand(written.shape))
        written[..., places] = entries
    return rows


def numbers_like(tensor: Tensor, values: npt.NDArray[Any]) -> Tensor:
    """Build contiguous numbers with the type and alignment of a tensor."""
    start = tensor.data_ptr() % ALIGNMENT // tensor.element_size()
    memory = torch.zeros(start + values.size, dtype=tensor.dtype, device=tensor.device)
    numbers = memory[start:].view(values.shape)
    return numbers.copy_(on_device(np.ascontiguousarray(values), tensor.device))


def temperatures_like(temperature: float | Tensor, values: npt.NDArray[Any]) -> float | Tensor:
    """Return temperatures of n sequences, or the first one if the call has one temperature."""
    if not isinstance(temperature, Tensor):
        return float(values[0])
    made = numbers_like(temperature, values)
    return made if temperature.stride(0) else made[:1]
