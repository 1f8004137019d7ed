"""Steps of SpecTr's recursion inside Triton kernels: which chains go on, what is drawn from."""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from otm.kernels.definition import UNIT
from otm.kernels.k_seq_triton import find_split, of_tokens, one_draft
from otm.kernels.laws_triton import mass
from otm.kernels.levels_triton import choose_slot, won
from otm.kernels.triton_ import constant, jit, tl

__all__ = ["advance", "first_of", "running", "to_draw_from"]

_UNIT = constant(UNIT)


@jit
def first_of(agree: tl.tensor, most: tl.tensor, padded_most: tl.constexpr) -> tl.tensor:
    """Return the first chain that agrees; the last if none does."""
    return tl.min(tl.where(agree, tl.arange(0, padded_most), most - 1), 0).to(tl.int64)


@jit
def running(
    tokens: tl.tensor,
    agree: tl.tensor,
    position: tl.tensor,
    gamma: tl.tensor,
    padded_most: tl.constexpr,
) -> tl.tensor:
    """Drafts of the chains that agree, −1 for the others, and how many there are."""
    place = tl.arange(0, padded_most) * gamma + position
    token = tl.load(tokens + place, mask=tl.where(agree, position, gamma) < gamma, other=-1)
    return token, tl.sum(tl.where(token >= 0, 1, 0), 0)


@jit
def advance(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    agree: tl.tensor,
    sums: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    most: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    position: tl.tensor,
    room: tl.tensor,
    coins: tl.tensor,
    blocks: tl.tensor,
    levels: tl.constexpr,
    width: tl.constexpr,
    padded_most: tl.constexpr,
    padded_blocks: tl.constexpr,
) -> tl.tensor:
    """Which chains agree with what is accepted before a position; none if the output has ended.

    Pointers are to the first entries of the sequence.
    """
    chain = tl.arange(0, padded_most)
    if position == 0:
        left = chain < most
    else:
        before = position - 1
        agreed = tl.load(agree + before * most + chain, mask=chain < most, other=0) > 0
        first = first_of(agreed, most, padded_most)
        token, count = running(tokens, agreed, before, gamma, padded_most)
        wanted = of_tokens(target + first * target_chain + before * target_row, token, size)
        offered = of_tokens(draft + first * draft_chain + before * draft_row, token, draft_size)
        node = sums + before * room
        known = (token >= 0) & (token < size)
        coin = tl.load(uniforms + before * coins + chain, mask=known, other=0.0)
        if levels > 0:
            place = uniforms + before * coins + most
            for_slot = tl.load(place + chain, mask=known, other=0.0)
            slot = choose_slot(node, wanted, offered, coin, for_slot, levels, width)
            slot = tl.where(known & (count > 0), slot, -1)
            highest = known & (slot == tl.max(slot, 0))
            coin = tl.load(place + most)
            law = won(node, wanted, offered, levels, width)
            passed = (coin * law < wanted) & (offered > 0)
            index = tl.min(tl.where(highest, chain, padded_most), 0)
            passes = tl.max(tl.where((chain == index) & passed, 1, 0), 0)
            index = tl.where(passes > 0, index, padded_most)
        else:
            low, high, share, _ = find_split(node, count, most, blocks, padded_blocks)
            passed = known & (coin * offered < one_draft(wanted, offered, low, high, share))
            index = tl.min(tl.where(passed, chain, padded_most), 0)
        accepted = tl.max(tl.where(chain == index, token, -1), 0)
        left = (token >= 0) & (token == accepted)
    return left


@jit
def to_draw_from(
    target: tl.tensor,
    draft: tl.tensor,
    first: tl.tensor,
    count: tl.tensor,
    sums: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    most: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    position: tl.tensor,
    token: tl.tensor,
    room: tl.tensor,
    blocks: tl.tensor,
    levels: tl.constexpr,
    width: tl.constexpr,
    padded_blocks: tl.constexpr,
) -> tl.tensor:
    """Masses of the target's row at a position, and of its residual if there were drafts."""
    wanted = of_tokens(target + first * target_chain + position * target_row, token, size)
    of_row = mass(wanted, _UNIT)
    left = tl.zeros_like(of_row)
    if count > 0:
        offered = of_tokens(draft + first * draft_chain + position * draft_row, token, draft_size)
        node = sums + position * room
        if levels > 0:
            given = tl.minimum(wanted, won(node, wanted, offered, levels, width))
        else:
            low, high, share, factor = find_split(node, count, most, blocks, padded_blocks)
            given = factor * one_draft(wanted, offered, low, high, share)
        left = tl.maximum(of_row - mass(given, _UNIT), 0)
    return of_row, left
