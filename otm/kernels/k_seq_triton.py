"""k-Seq at one node inside Triton kernels: step by step what `k_seq_reference` does."""

from __future__ import annotations

from otm.kernels.definition import UNIT
from otm.kernels.k_seq_definition import INTERVALS, SHARES
from otm.kernels.laws_triton import mass
from otm.kernels.triton_ import constant, jit, padded, tl

__all__ = ["FACTORS", "add_up_factors", "find_split", "one_draft"]

FACTORS = INTERVALS + 1
"""Sums that are kept of a node: one for each fixed factor."""

_FACTORS = constant(FACTORS)
_INTERVALS = constant(INTERVALS)
_PADDED = constant(padded(FACTORS))
_PART = constant(1 / UNIT)
_SHARES = constant(SHARES)
_UNIT = constant(UNIT)


@jit
def one_draft(
    wanted: tl.tensor, offered: tl.tensor, low: tl.tensor, high: tl.tensor, share: tl.tensor
) -> tl.tensor:
    """Mass of tokens that one draft gives."""
    less = tl.minimum(offered, low * wanted)
    return less + share * (tl.minimum(offered, high * wanted) - less)


@jit
def scale_of(place: tl.tensor, most: tl.tensor) -> tl.tensor:
    """Inverse of a fixed factor, in float64."""
    ascending = place.to(tl.float64)
    top = ascending * 0.0 + _INTERVALS * _INTERVALS
    return top / (top + (most - 1) * ascending * ascending)


@jit
def add_up_factors(
    sums: tl.tensor,
    wanted: tl.tensor,
    offered: tl.tensor,
    most: tl.tensor,
    blocks: tl.tensor,
) -> None:
    """Write the sum of min(p, q/ρ) over a block for each fixed factor."""
    for place in range(_FACTORS):
        scale = scale_of(tl.full((), place, tl.int32), most)
        found = mass(tl.minimum(offered, scale * wanted), _UNIT)
        tl.store(sums + place * blocks, tl.sum(found, 0))


@jit
def at_least_once(beta: tl.tensor, count: tl.tensor, most: tl.tensor) -> tl.tensor:
    """Probability that one of so many drafts is accepted."""
    hit = beta
    for i in range(1, most):
        hit = tl.where(i < count, hit + (1.0 - hit) * beta, hit)
    return hit


@jit
def _valid(scale: tl.tensor, beta: tl.tensor, count: tl.tensor, most: tl.tensor) -> tl.tensor:
    """Whether no token is accepted more often than the target has it."""
    return scale * at_least_once(beta, count, most) <= beta


@jit
def find_split(
    sums: tl.tensor,
    count: tl.tensor,
    most: tl.tensor,
    blocks: tl.tensor,
    padded_blocks: tl.constexpr,
) -> tl.tensor:
    """Largest valid mixture: low and high inverse factor, share and F."""
    place = tl.arange(0, _PADDED)
    block = tl.arange(0, padded_blocks)
    inside = (place < _FACTORS)[:, None] & (block < blocks)[None, :]
    found = tl.load(sums + place[:, None] * blocks + block[None, :], mask=inside, other=0)
    beta = tl.minimum(tl.sum(found, 1).to(tl.float64) * _PART, 1.0)
    scale = scale_of(place, most)

    right = _valid(scale, beta, count, most) | (place >= _FACTORS)
    at_low = tl.minimum(tl.sum(tl.where(right, 0, 1), 0), _INTERVALS)
    at_high = tl.maximum(at_low - 1, 0)
    low = tl.sum(tl.where(place == at_low, scale, 0.0), 0)
    high = tl.sum(tl.where(place == at_high, scale, 0.0), 0)
    beta_low = tl.sum(tl.where(place == at_low, beta, 0.0), 0)
    rise = tl.sum(tl.where(place == at_high, beta, 0.0), 0) - beta_low

    step = tl.arange(0, _SHARES)
    shares = step.to(tl.float64) / _SHARES
    right = _valid(low + shares * (high - low), beta_low + shares * rise, count, most) & (step > 0)
    share = tl.sum(tl.where(right, 1, 0), 0).to(tl.float64) / _SHARES
    beta_there = beta_low + share * rise
    divisor = tl.where(beta_there > 0, beta_there, 1.0)
    factor = at_least_once(beta_there, count, most) / divisor
    return low, high, share, tl.where(beta_there > 0, factor, 0.0)
