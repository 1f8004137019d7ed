"""How kernels draw a token, by masses in whole numbers: a block by its sum, a token within it."""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from otm.kernels.common.runtime import jit, tl


@jit
def pick_block(
    sums: tl.tensor,
    rejected: tl.tensor,
    uniform: tl.tensor,
    blocks: tl.tensor,
    padded_blocks: tl.constexpr,
) -> tl.tensor:
    """`pick_of_sums` of the residual; of the row if nothing was rejected or, by rounding, is left.

    The third result says which.
    """
    block = tl.arange(0, padded_blocks)
    inside = block < blocks
    residual = tl.load(sums + block, mask=inside, other=0)  # [padded blocks]
    subtract = rejected & (tl.max(residual, 0) > 0)
    sums += tl.where(subtract, 0, blocks)
    chosen, left = pick_of_sums(sums, uniform, blocks, padded_blocks)
    return chosen, left, subtract


@jit
def pick_of_sums(
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
