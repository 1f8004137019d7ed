"""How kernels draw a token: whole numbers for each token, a block by its sum, a token within it."""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from otm.kernels.numpy.distributions import UNIT
from otm.kernels.triton.distributions import mass, probability
from otm.kernels.triton.runtime import constant, jit, tl

_UNIT = constant(UNIT)


@jit
def of_drafts(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    softmaxes: tl.tensor,
    target_row: tl.tensor,
    draft_row: tl.tensor,
    gamma: tl.tensor,
    length: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    low: tl.constexpr,
    high: tl.constexpr,
    kind: tl.constexpr,
    one_hot: tl.constexpr,
    padded_gamma: tl.constexpr,
) -> tl.tensor:
    """Probabilities of a chain's drafts in float64, by target and draft, and which are tokens.

    Pointers are to the first entries of the chain.
    """
    step = tl.arange(0, padded_gamma)
    drafted = step < length
    place = step.to(tl.int64)
    token = tl.load(tokens + step, mask=drafted, other=0)  # [padded γ]
    known = drafted & (token < size)
    row, softmax = target + place * target_row, softmaxes + step * 4
    target_prob = probability(row, token, known, softmax, drafted, low, high, kind).to(tl.float64)
    draft_prob = tl.full((padded_gamma,), 1.0, tl.float64)
    if not one_hot:
        row, softmax = draft + place * draft_row, softmaxes + (step + gamma + 1) * 4
        inside = drafted & (token < draft_size)
        draft_prob = probability(row, token, inside, softmax, drafted, low, high, kind).to(
            tl.float64
        )
    return target_prob, draft_prob, known


@jit
def masses(
    target: tl.tensor,
    draft: tl.tensor,
    target_softmax: tl.tensor,
    draft_softmax: tl.tensor,
    token: tl.tensor,
    drafted: tl.tensor,
    weight: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    low: tl.constexpr,
    high: tl.constexpr,
    kind: tl.constexpr,
    one_hot: tl.constexpr,
) -> tl.tensor:
    """Masses of the target's row, and of max(weight · target − draft, 0); the weight may be None.

    Where there is no draft to subtract, its size is 0, and nothing of it is read; a one-hot
    draft is −1 there.
    """
    prob = probability(target, token, token < size, target_softmax, True, low, high, kind)
    of_row = mass(prob, _UNIT)
    left = of_row
    if weight is not None:
        left = mass(prob.to(tl.float64) * weight, _UNIT)
    if one_hot:
        subtracted = mass(tl.where(token == drafted, 1.0, 0.0), _UNIT)
    else:
        known, used = token < draft_size, draft_size > 0
        subtracted = mass(
            probability(draft, token, known, draft_softmax, used, low, high, kind), _UNIT
        )
    return of_row, tl.maximum(left - subtracted, 0)


@jit
def pick_block(
    sums: tl.tensor, uniform: tl.tensor, blocks: tl.tensor, padded_blocks: tl.constexpr
) -> tl.tensor:
    """Return the first block where the cumulative mass exceeds the point, and what is left of it.

    Masses are whole numbers, hence the token is the one that a cumulative sum over all of the
    vocabulary would find.
    """
    block = tl.arange(0, padded_blocks)
    values = tl.load(sums + block, mask=block < blocks, other=0)  # [padded blocks]
    total = tl.sum(values, 0)
    # the product can round up to the total
    point = tl.minimum((uniform * total.to(tl.float64)).to(tl.int64), total - 1)
    above = tl.cumsum(values, 0) > point
    chosen = tl.minimum(tl.min(tl.where(above, block, padded_blocks), 0), blocks - 1)
    return chosen, point - tl.sum(tl.where(block < chosen, values, 0), 0)


@jit
def first_above(
    values: tl.tensor, token: tl.tensor, point: tl.tensor, size: tl.tensor
) -> tl.tensor:
    """First token where the cumulative mass exceeds the point; whatever happens, below the size."""
    above = tl.cumsum(values, 0) > point
    return tl.min(tl.where(above, token, size - 1), 0)


@jit
def write_output(
    output: tl.tensor,
    tokens: tl.tensor,
    accepted: tl.tensor,
    token: tl.tensor,
    gamma: tl.tensor,
    padded_rows: tl.constexpr,
) -> None:
    """Write a chain's output: the accepted drafts, the token that follows, and −1."""
    place = tl.arange(0, padded_rows)
    draft = tl.load(tokens + place, mask=place < accepted, other=-1).to(tl.int64)  # [padded rows]
    draft = tl.where(place == accepted, token.to(tl.int64), draft)
    tl.store(output + place, draft, mask=place <= gamma)
