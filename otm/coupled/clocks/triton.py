"""Triton kernels that select the tokens with the smallest clock times, as the torch backend does.

The rows are read once.  A first launch finds the token of smallest time in each block of a row, and
a second launch finds the block with the smallest time.
"""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

import torch
from torch import Tensor

from otm.coupled.clocks import numpy as clocks
from otm.kernels.common import runtime
from otm.kernels.common.runtime import check_device, constant, jit, launch, padded, tl

_BELOW_ONE, _UNIT, _HALF = map(constant, (clocks.BELOW_ONE, clocks.UNIT, clocks.HALF))
_LEAST_MANTISSA, _TO_POWER = map(constant, (clocks.LEAST_MANTISSA, clocks.TO_POWER))
_OF_MANTISSA = constant(clocks.OF_MANTISSA)
_LN2_HIGH, _LN2_LOW = map(constant, (clocks.LN2_HIGH, clocks.LN2_LOW))
L1, L2, L3, L4, L5, L6, L7 = map(constant, clocks.COEFFICIENTS)


@jit
def _times(uniform: tl.tensor) -> tl.tensor:
    """Return −ln(1 − u), as `otm.coupled.clocks.numpy.times` does."""
    rest = 1.0 - uniform
    lost = (1.0 - rest) - uniform
    bits = rest.to(tl.int64, bitcast=True) + _TO_POWER
    power = ((bits >> 52) - 1023).to(tl.float64)
    f = ((bits & _OF_MANTISSA) + _LEAST_MANTISSA).to(tl.float64, bitcast=True) - 1.0
    s = f / (f + 2.0)
    half = 0.5 * f * f
    square = s * s
    series = square * L7
    series = square * (series + L6)
    series = square * (series + L5)
    series = square * (series + L4)
    series = square * (series + L3)
    series = square * (series + L2)
    series = square * (series + L1)
    small = power * _LN2_LOW + lost / rest
    return ((half - (s * (half + series) + small)) - f) - power * _LN2_HIGH


@jit
def _clock_bits(
    key: tl.tensor, counter: tl.tensor, of_list: tl.tensor, position: tl.tensor
) -> tl.tensor:
    """Return 64 bits of each token, for four tokens per counter: [n] → [4n]."""
    nothing = tl.full((), 0, tl.uint64)
    # The types select Philox 4x64-10.
    a, b, c, d = tl.philox(key, counter, of_list, position, nothing)
    return tl.interleave(tl.interleave(a, c), tl.interleave(b, d))


@jit
def ring_in_blocks(
    probs: tl.tensor,
    keys: tl.tensor,
    positions: tl.tensor,
    lists: tl.tensor,
    rings: tl.tensor,
    tokens: tl.tensor,
    probs_sequence: tl.tensor,
    probs_row: tl.tensor,
    rows: tl.tensor,
    size: tl.tensor,
    count: tl.tensor,
    block_size: tl.constexpr,
) -> None:
    """Write the smallest time of a block, and its token."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    sequence = row // rows
    key = tl.load(keys + sequence)  # scalar
    position = tl.load(positions + row)  # scalar
    first = tl.load(lists + row)  # scalar
    quarter: tl.constexpr = block_size // 4
    # Counters begin at 1, as in NumPy.
    counter = (block * quarter + tl.arange(0, quarter) + 1).to(tl.int64)
    least = _clock_bits(key, counter, first, position)
    for further in range(1, count):
        least = tl.minimum(least, _clock_bits(key, counter, first + further, position))
    uniform = tl.minimum(least.to(tl.float64) * _UNIT + _HALF, _BELOW_ONE)

    token = block * block_size + tl.arange(0, block_size)
    start = probs + sequence * probs_sequence + row % rows * probs_row
    rate = tl.load(start + token, mask=token < size, other=0.0).to(tl.float64)  # [block size]
    positive = rate > 0
    ring = _times(uniform) / tl.where(positive, rate, 1.0)
    ring = tl.where(positive, ring, float("inf"))
    soonest = tl.min(ring, 0)
    place = row * tl.num_programs(1) + block
    tl.store(rings + place, soonest)
    tl.store(tokens + place, tl.min(tl.where(ring == soonest, token, size), 0).to(tl.int64))


@jit
def first_of_blocks(
    rings: tl.tensor,
    tokens: tl.tensor,
    output: tl.tensor,
    blocks: tl.tensor,
    size: tl.tensor,
    padded_blocks: tl.constexpr,
) -> None:
    """Write the token with the smallest time in a row; ties go to the first token."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.arange(0, padded_blocks)
    place = row * blocks + block
    ring = tl.load(rings + place, mask=block < blocks, other=float("inf"))  # [padded blocks]
    token = tl.load(tokens + place, mask=block < blocks, other=size)  # [padded blocks]
    first = tl.min(tl.where(ring == tl.min(ring, 0), token, size), 0)
    tl.store(output + row, tl.minimum(first, size - 1))


def first_rings(
    probs: Tensor, keys: Tensor, positions: Tensor, lists: Tensor, count: int
) -> Tensor:
    """Return the token with the smallest time in each row, over `count` lists: int64 [B, L].

    `probs` [B, L, V], `keys` [B], `positions` [B, L]; `lists` [B, L] is the first list of a row.
    """
    check_device(probs)
    probs = probs if probs.stride(-1) == 1 else probs.contiguous()
    batch, rows, size = probs.shape
    # Larger blocks of float64 would spill registers.
    block_size = max(runtime.BLOCK // 4, 4)
    blocks = -(-size // block_size)
    device, shape = probs.device, (batch, rows, blocks)
    rings = torch.empty(shape, dtype=torch.float64, device=device)
    tokens = torch.empty(shape, dtype=torch.int64, device=device)
    output = torch.empty((batch, rows), dtype=torch.int64, device=device)
    row_clocks = (keys.contiguous(), positions.contiguous(), lists.contiguous())
    strides = probs.stride()[:2]
    arguments = (probs, *row_clocks, rings, tokens, *strides, rows, size, count)
    launch(ring_in_blocks, (batch * rows, blocks), *arguments, block_size=block_size)
    block_results = (rings, tokens, output, blocks, size)
    launch(first_of_blocks, (batch * rows,), *block_results, padded_blocks=padded(blocks))
    return output
