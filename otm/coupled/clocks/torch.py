"""The first of the shared clocks to ring, batched: `otm.coupled.clocks.numpy`, bit for bit.

Tensors of torch have no unsigned numbers of 64 bits.  Here int64 holds their bits: sums and the low
halves of products are the same, the high half is put together from products of 32 bits, and two
numbers are compared with their highest bits turned over.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

from otm.coupled.clocks import numpy as clocks
from otm.coupled.clocks.numpy import BELOW_ONE, HALF, UNIT, times
from otm.kernels.common.host import LEAST_VOCABULARY

MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
ROUNDS = 10
LOW = 2**32 - 1
HIGHEST_BIT = -(2**63)


def first_rings(
    probs: Tensor, keys: Tensor, positions: Tensor, lists: Tensor, count: int
) -> Tensor:
    """Token that rings first in each row, in any of so many lists from one on.

    [B, L, V], key [B], position [B, L], first list [B, L] → int64 [B, L].
    """
    if probs.dtype == torch.bfloat16:  # which NumPy has not
        probs = probs.float()
    size = probs.shape[-1]
    if probs.device.type == "cpu" and size >= LEAST_VOCABULARY:  # NumPy's own Philox is faster
        rows = probs.detach().numpy()
        of_rows = (keys.numpy(), positions.numpy(), lists.numpy())
        return torch.from_numpy(clocks.first_rings(rows, *of_rows, count))
    bits = clock_bits(keys[:, None], positions, lists, count, size)
    high, low = (bits >> 32) & LOW, bits & LOW
    uniforms = (high.double() * 2.0**32 + low.double()) * UNIT + HALF  # rounded once, as a whole
    rates = probs.double()
    rings = (times(torch, uniforms.clamp(max=BELOW_ONE)) / rates).where(rates > 0, torch.inf)
    first = rings == rings.amin(-1, keepdim=True)  # of equal ones the first
    token = torch.arange(size, device=probs.device)
    return token.where(first, size).amin(-1).clamp(max=size - 1)


def clock_bits(keys: Tensor, positions: Tensor, lists: Tensor, count: int, size: int) -> Tensor:
    """64 bits for each token, the least of so many lists: [B, 1], [B, L], [B, L] → [B, L, V]."""
    blocks = torch.arange(1, -(-size // 4) + 1, device=keys.device)

    def turned(further: int) -> Tensor:
        words = philox(blocks, lists[..., None] + further, positions[..., None], keys[..., None])
        return torch.stack(words, -1).flatten(-2) ^ HIGHEST_BIT

    least = reduce(torch.minimum, map(turned, range(count)))
    return least[..., :size] ^ HIGHEST_BIT


def philox(block: Tensor, of_list: Tensor, position: Tensor, key: Tensor) -> list[Tensor]:
    """Four words of 64 bits at a counter and a key, each [B, L, V/4].

    Numbers grow to their full shape only where they depend on both block and position.
    """
    words = [block, of_list, position, torch.zeros_like(block)]
    keys = [key, torch.zeros_like(key)]
    for _ in range(ROUNDS):
        first, second, third, fourth = words
        words = [
            high_product(third, MULTIPLIERS[1]) ^ second ^ keys[0],
            third * signed(MULTIPLIERS[1]),
            high_product(first, MULTIPLIERS[0]) ^ fourth ^ keys[1],
            first * signed(MULTIPLIERS[0]),
        ]
        keys = [key + signed(weyl) for key, weyl in zip(keys, WEYL, strict=True)]
    return list(torch.broadcast_tensors(*words))


def high_product(number: Tensor, multiplier: int) -> Tensor:
    """Upper 64 bits of the product of two unsigned numbers, from 32 bits of each."""
    high, low = (number >> 32) & LOW, number & LOW  # >> fills up with the highest bit
    above, below = multiplier >> 32, multiplier & LOW
    middle = high * below + ((low * below >> 32) & LOW)
    lower = low * above + (middle & LOW)
    return high * above + ((middle >> 32) & LOW) + ((lower >> 32) & LOW)


def signed(number: int) -> int:
    """Return the number of int64 that has the bits of this one."""
    return number - 2**64 if number >= 2**63 else number
