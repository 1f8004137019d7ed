"""Draw of a token in Triton kernels by integer masses: first its block, then the token."""

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
    """Pick a block by `pick_of_sums` from the residual of a rejected draft, otherwise from the row.

    If rounding makes the residual empty, the block is also picked from the row.  The third result
    says whether the residual was used.
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
    """Return the first block whose cumulative mass exceeds the point, and the offset in it.

    Masses are integers, so the drawn token is the same as with a cumulative sum over the whole
    vocabulary.
    """
    block = tl.arange(0, padded_blocks)
    values = tl.load(sums + block, mask=block < blocks, other=0)  # [padded blocks]
    total = tl.sum(values, 0)
    # The product can round up to the total.
    point = tl.minimum((uniform * total.to(tl.float64)).to(tl.int64), total - 1)
    above = tl.cumsum(values, 0) > point
    chosen = tl.minimum(tl.min(tl.where(above, block, padded_blocks), 0), blocks - 1)
    return chosen, point - tl.sum(tl.where(block < chosen, values, 0), 0)


@jit
def first_above(
    values: tl.tensor, token: tl.tensor, point: tl.tensor, size: tl.tensor
) -> tl.tensor:
    """Return the first token whose cumulative mass exceeds the point, else the last token."""
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
    """Write a chain's output: the accepted drafts, the next token and −1."""
    place = tl.arange(0, padded_rows)
    draft = tl.load(tokens + place, mask=place < accepted, other=-1).to(tl.int64)  # [padded rows]
    draft = tl.where(place == accepted, token.to(tl.int64), draft)
    tl.store(output + place, draft, mask=place <= gamma)
