"""Steps of SpecTr's recursion inside Triton kernels: which chains go on, what is drawn from."""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from otm.kernels.definition import UNIT
from otm.kernels.k_seq_triton import find_split, one_draft
from otm.kernels.laws_triton import mass, probability
from otm.kernels.levels_triton import choose_slot, won
from otm.kernels.triton_ import constant, jit, tl

__all__ = ["advance", "at_node", "drafts_at", "first_of", "to_draw_from"]

_UNIT = constant(UNIT)


@jit
def first_of(chains: tl.tensor, most: tl.tensor, padded_most: tl.constexpr) -> tl.tensor:
    """Return the first of chains; the last of all if there is none."""
    return tl.min(tl.where(chains, tl.arange(0, padded_most), most - 1), 0).to(tl.int64)


@jit
def drafts_at(
    tokens: tl.tensor,
    agree: tl.tensor,
    position: tl.tensor,
    gamma: tl.tensor,
    most: tl.tensor,
    padded_most: tl.constexpr,
) -> tl.tensor:
    """Drafts of the chains that agree, −1 for the others, how many, and the chain to read laws of.

    That is the first with a draft: a chain that has ended has no draft law here.
    """
    place = tl.arange(0, padded_most) * gamma + position
    token = tl.load(tokens + place, mask=tl.where(agree, position, gamma) < gamma, other=-1)
    count = tl.sum(tl.where(token >= 0, 1, 0), 0)
    return token, count, first_of(agree & ((token >= 0) | (count == 0)), most, padded_most)


@jit
def at_node(
    target: tl.tensor,
    draft: tl.tensor,
    laws: tl.tensor,
    chain: tl.tensor,
    position: tl.tensor,
    token: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    kind: tl.constexpr,
) -> tl.tensor:
    """Probabilities of tokens by target and draft, in float64, 0 outside their rows.

    Pointers are to the first entries of the sequence.  Where there is no draft its size is given as
    0, and nothing of it is read.
    """
    target += chain * target_chain + position * target_row
    draft += chain * draft_chain + position * draft_row
    law = laws + (chain * (2 * gamma + 1) + position) * 4
    known = (token >= 0) & (token < size)
    wanted = probability(target, token, known, law, True, 0.0, 0.0, kind).to(tl.float64)
    law += (gamma + 1) * 4
    known, used = (token >= 0) & (token < draft_size), draft_size > 0
    offered = probability(draft, token, known, law, used, 0.0, 0.0, kind).to(tl.float64)
    return wanted, offered


@jit
def advance(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    laws: tl.tensor,
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
    room: tl.tensor,
    coins: tl.tensor,
    position: tl.tensor,
    blocks: tl.tensor,
    kind: tl.constexpr,
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
        token, count, read = drafts_at(tokens, agreed, before, gamma, most, padded_most)
        wanted, offered = at_node(
            target,
            draft,
            laws,
            read,
            before,
            token,
            target_chain,
            target_row,
            draft_chain,
            draft_row,
            gamma,
            size,
            draft_size,
            kind,
        )
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
    laws: tl.tensor,
    sums: tl.tensor,
    chain: tl.tensor,
    position: tl.tensor,
    token: tl.tensor,
    count: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    most: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    room: tl.tensor,
    blocks: tl.tensor,
    kind: tl.constexpr,
    levels: tl.constexpr,
    width: tl.constexpr,
    padded_blocks: tl.constexpr,
) -> tl.tensor:
    """Masses of the target's row at a position, and of its residual if there were drafts."""
    wanted, offered = at_node(
        target,
        draft,
        laws,
        chain,
        position,
        token,
        target_chain,
        target_row,
        draft_chain,
        draft_row,
        gamma,
        size,
        tl.where(count > 0, draft_size, 0),
        kind,
    )
    of_row = mass(wanted, _UNIT)
    left = tl.zeros_like(of_row)
    if count > 0:
        node = sums + position * room
        if levels > 0:
            given = tl.minimum(wanted, won(node, wanted, offered, levels, width))
        else:
            low, high, share, factor = find_split(node, count, most, blocks, padded_blocks)
            given = factor * one_draft(wanted, offered, low, high, share)
        left = tl.maximum(of_row - mass(given, _UNIT), 0)
    return of_row, left
