"""Steps of k-Seq at one node inside Triton kernels, equal to those of `otm.kernels.k_seq.torch`.

The work memory of a node holds one sum for each fixed factor.  Atomic additions of integers, whose
order does not matter, fill the sums.  Every program that tests drafts reads the sums of its node.
Reading separate sums for each block would take as long as reading a row.
"""

from __future__ import annotations

from otm.kernels.common.distributions.numpy import UNIT
from otm.kernels.common.distributions.triton import mass
from otm.kernels.common.runtime import constant, jit, padded, tl
from otm.kernels.k_seq.numpy import INTERVALS, SHARES

FACTORS = INTERVALS + 1
"""Number of sums at each node: one for each fixed factor."""

_FACTORS = constant(FACTORS)
_INTERVALS = constant(INTERVALS)
_PADDED = constant(padded(FACTORS))
_PART = constant(1 / UNIT)
_SHARES = constant(SHARES)
_UNIT = constant(UNIT)


@jit
def one_draft(
    target_prob: tl.tensor, draft_prob: tl.tensor, low: tl.tensor, high: tl.tensor, share: tl.tensor
) -> tl.tensor:
    """Return the masses with which one draft yields each token."""
    less = tl.minimum(draft_prob, low * target_prob)
    return less + share * (tl.minimum(draft_prob, high * target_prob) - less)


@jit
def scale_of(place: tl.tensor, chains: tl.tensor) -> tl.tensor:
    """Return the inverse of a fixed factor in float64."""
    ascending = place.to(tl.float64)
    top = ascending * 0.0 + _INTERVALS * _INTERVALS
    return top / (top + (chains - 1) * ascending * ascending)


@jit
def add_up_factors(
    sums: tl.tensor, target_prob: tl.tensor, draft_prob: tl.tensor, chains: tl.tensor
) -> None:
    """Add a block's part of Σ min(p, q/ρ) to the sum of each fixed factor."""
    for place in range(_FACTORS):
        scale = scale_of(tl.full((), place, tl.int32), chains)
        values = mass(tl.minimum(draft_prob, scale * target_prob), _UNIT)
        tl.atomic_add(sums + place, tl.sum(values, 0), sem="relaxed")


@jit
def at_least_once(beta: tl.tensor, count: tl.tensor, chains: tl.tensor) -> tl.tensor:
    """Return the probability that at least one of `count` drafts is accepted."""
    hit = beta
    for i in range(1, chains):
        hit = tl.where(i < count, hit + (1.0 - hit) * beta, hit)
    return hit


@jit
def _valid(scale: tl.tensor, beta: tl.tensor, count: tl.tensor, chains: tl.tensor) -> tl.tensor:
    """Whether no token is accepted more often than its target probability."""
    return scale * at_least_once(beta, count, chains) <= beta


@jit
def find_split(sums: tl.tensor, count: tl.tensor, chains: tl.tensor) -> tl.tensor:
    """Return the largest valid mixture: low and high inverse factor, share and F."""
    place = tl.arange(0, _PADDED)
    values = tl.load(sums + place, mask=place < _FACTORS, other=0)  # [padded factors]
    beta = tl.minimum(values.to(tl.float64) * _PART, 1.0)
    scale = scale_of(place, chains)

    right = _valid(scale, beta, count, chains) | (place >= _FACTORS)
    at_low = tl.minimum(tl.sum(tl.where(right, 0, 1), 0), _INTERVALS)
    at_high = tl.maximum(at_low - 1, 0)
    low = tl.sum(tl.where(place == at_low, scale, 0.0), 0)
    high = tl.sum(tl.where(place == at_high, scale, 0.0), 0)
    beta_low = tl.sum(tl.where(place == at_low, beta, 0.0), 0)
    rise = tl.sum(tl.where(place == at_high, beta, 0.0), 0) - beta_low

    step = tl.arange(0, _SHARES)
    shares = step.to(tl.float64) / _SHARES
    right = _valid(low + shares * (high - low), beta_low + shares * rise, count, chains) & (
        step > 0
    )
    share = tl.sum(tl.where(right, 1, 0), 0).to(tl.float64) / _SHARES
    beta_there = beta_low + share * rise
    divisor = tl.where(beta_there > 0, beta_there, 1.0)
    factor = at_least_once(beta_there, count, chains) / divisor
    return low, high, share, tl.where(beta_there > 0, factor, 0.0)
