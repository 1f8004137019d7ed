"""Selection of the tokens with the smallest clock times, bitwise as in the NumPy reference.

Torch has little support for unsigned 64-bit numbers, so int64 stores their bits.  Sums and the low
halves of products are the same for signed and unsigned numbers.  The high half of a product is
assembled from 32-bit products.  Before a comparison of two numbers, their highest bits are flipped.
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
    """Return the token with the smallest time in each row, over `count` lists: int64 [B, L].

    `probs` [B, L, V], `keys` [B], `positions` [B, L]; `lists` [B, L] is the first list of a row.
    """
    # NumPy has no bfloat16.
    if probs.dtype == torch.bfloat16:
        probs = probs.float()
    size = probs.shape[-1]
    # On a CPU, NumPy's Philox is faster.
    if probs.device.type == "cpu" and size >= LEAST_VOCABULARY:
        rows = probs.detach().numpy()
        row_clocks = (keys.numpy(), positions.numpy(), lists.numpy())
        return torch.from_numpy(clocks.first_rings(rows, *row_clocks, count))
    bits = clock_bits(keys[:, None], positions, lists, count, size)
    high, low = (bits >> 32) & LOW, bits & LOW
    # The sum of both halves rounds only once, like a conversion of all 64 bits.
    uniforms = (high.double() * 2.0**32 + low.double()) * UNIT + HALF
    rates = probs.double()
    rings = (times(torch, uniforms.clamp(max=BELOW_ONE)) / rates).where(rates > 0, torch.inf)
    # Ties go to the first token.
    first = rings == rings.amin(-1, keepdim=True)
    token = torch.arange(size, device=probs.device)
    return token.where(first, size).amin(-1).clamp(max=size - 1)


def clock_bits(keys: Tensor, positions: Tensor, lists: Tensor, count: int, size: int) -> Tensor:
    """Return each token's smallest 64-bit number over lists: [B, 1], [B, L], [B, L] → [B, L, V]."""
    blocks = torch.arange(1, -(-size // 4) + 1, device=keys.device)

    def flipped_bits(further: int) -> Tensor:
        words = philox(blocks, lists[..., None] + further, positions[..., None], keys[..., None])
        return torch.stack(words, -1).flatten(-2) ^ HIGHEST_BIT

    least = reduce(torch.minimum, map(flipped_bits, range(count)))
    return least[..., :size] ^ HIGHEST_BIT


def philox(block: Tensor, of_list: Tensor, position: Tensor, key: Tensor) -> list[Tensor]:
    """Return the four 64-bit words of Philox at a counter and a key, each [B, L, V/4].

    Before the final broadcast, a word has the full shape only if block and position affect it.
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
    """Return the upper 64 bits of an unsigned product, computed from 32-bit halves."""
    # The shift copies the sign bit, so the mask is necessary.
    high, low = (number >> 32) & LOW, number & LOW
    above, below = multiplier >> 32, multiplier & LOW
    middle = high * below + ((low * below >> 32) & LOW)
    lower = low * above + (middle & LOW)
    return high * above + ((middle >> 32) & LOW) + ((lower >> 32) & LOW)


def signed(number: int) -> int:
    """Return the int64 number that has the 64 bits of an unsigned number."""
    return number - 2**64 if number >= 2**63 else number
