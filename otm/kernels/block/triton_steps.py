"""Steps of block verification inside Triton kernels, as in `otm.kernels.block.torch`."""

# ruff: noqa: PLR0917 - pointers and sizes, in order

from __future__ import annotations

from otm.kernels.common.distributions.numpy import UNIT
from otm.kernels.common.runtime import constant, jit, tl

_PART = constant(1 / UNIT)


@jit
def next_weight(
    weight: tl.tensor,
    target_prob: tl.tensor,
    draft_prob: tl.tensor,
    index: tl.tensor,
    padded_gamma: tl.constexpr,
) -> tl.tensor:
    """Return min(weight · target / draft, 1) for the draft at `index`; never divide by zero."""
    here = tl.arange(0, padded_gamma) == index
    weighted = weight * tl.sum(tl.where(here, target_prob, 0.0), 0)
    return capped_ratio(weighted, tl.sum(tl.where(here, draft_prob, 0.0), 0))


@jit
def capped_ratio(weighted: tl.tensor, of_draft: tl.tensor) -> tl.tensor:
    """Return min(weighted / draft, 1), with 0/0 = 0, without a division by zero."""
    below = weighted < of_draft
    divided = weighted / tl.where(below, of_draft, 1.0)
    return tl.where(below, divided, tl.where(weighted > 0, 1.0, 0.0))


@jit
def weight_before(
    target_prob: tl.tensor, draft_prob: tl.tensor, count: tl.tensor, padded_gamma: tl.constexpr
) -> tl.tensor:
    """Return the weight of the first `count` drafts from the drafts' probabilities [padded γ]."""
    weight = tl.full((), 1.0, tl.float64)
    for i in range(count):
        weight = next_weight(weight, target_prob, draft_prob, i, padded_gamma)
    return weight


@jit
def longest_prefix(
    target_prob: tl.tensor,
    draft_prob: tl.tensor,
    uniforms: tl.tensor,
    sums: tl.tensor,
    length: tl.tensor,
    blocks: tl.tensor,
    padded_gamma: tl.constexpr,
    padded_blocks: tl.constexpr,
) -> tl.tensor:
    """Test each prefix of the drafts; return length and weight of the longest that passes."""
    part = tl.arange(0, padded_blocks)
    weight = tl.full((), 1.0, tl.float64)
    count, weight_there = length * 0, weight
    for i in range(1, length + 1):
        weight = next_weight(weight, target_prob, draft_prob, i - 1, padded_gamma)
        # [padded blocks]
        values = tl.load(sums + i * 2 * blocks + part, mask=part < blocks, other=0)
        excess = tl.sum(values, 0).to(tl.float64) * _PART
        coin = tl.load(uniforms + i - 1)  # scalar of test i
        chance = tl.where(i == length, weight, excess)
        divisor = tl.where(i == length, 1.0, excess + (1.0 - weight))
        passes = (coin * divisor < chance) & (weight > 0)
        count = tl.where(passes, i, count)
        weight_there = tl.where(passes, weight, weight_there)
    return count, weight_there
