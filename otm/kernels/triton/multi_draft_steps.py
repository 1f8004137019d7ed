"""Steps of SpecTr's recursion inside Triton kernels: which chains go on, what is drawn from."""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from otm.kernels.numpy.distributions import UNIT
from otm.kernels.triton.distributions import mass, probability
from otm.kernels.triton.grid_k_seq_steps import find_split, one_draft
from otm.kernels.triton.levels_steps import choose_slot, won
from otm.kernels.triton.runtime import constant, jit, tl

_UNIT = constant(UNIT)


@jit
def first_of(chosen: tl.tensor, chains: tl.tensor, padded_chains: tl.constexpr) -> tl.tensor:
    """Return the first chosen chain; the last of all if there is none."""
    return tl.min(tl.where(chosen, tl.arange(0, padded_chains), chains - 1), 0).to(tl.int64)


@jit
def drafts_at(
    tokens: tl.tensor,
    agree: tl.tensor,
    position: tl.tensor,
    gamma: tl.tensor,
    chains: tl.tensor,
    padded_chains: tl.constexpr,
) -> tl.tensor:
    """Drafts of the chains that agree, −1 for the others; how many; the chain whose rows are read.

    That is the first with a draft: a chain that has ended has no draft row here.
    """
    place = tl.arange(0, padded_chains) * gamma + position
    # [padded K]
    token = tl.load(tokens + place, mask=tl.where(agree, position, gamma) < gamma, other=-1)
    count = tl.sum(tl.where(token >= 0, 1, 0), 0)
    return token, count, first_of(agree & ((token >= 0) | (count == 0)), chains, padded_chains)


@jit
def at_node(
    target: tl.tensor,
    draft: tl.tensor,
    softmaxes: tl.tensor,
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

    Pointers are to the first entries of the sequence.  Where there is no draft its size is 0,
    and nothing of it is read.
    """
    target += chain * target_chain + position * target_row
    draft += chain * draft_chain + position * draft_row
    softmax = softmaxes + (chain * (2 * gamma + 1) + position) * 4
    known = (token >= 0) & (token < size)
    target_prob = probability(target, token, known, softmax, True, 0.0, 0.0, kind).to(tl.float64)
    softmax += (gamma + 1) * 4
    known, used = (token >= 0) & (token < draft_size), draft_size > 0
    draft_prob = probability(draft, token, known, softmax, used, 0.0, 0.0, kind).to(tl.float64)
    return target_prob, draft_prob


@jit
def advance(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    softmaxes: tl.tensor,
    agree: tl.tensor,
    sums: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    chains: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    node_size: tl.tensor,
    coins: tl.tensor,
    position: tl.tensor,
    blocks: tl.tensor,
    kind: tl.constexpr,
    levels: tl.constexpr,
    width: tl.constexpr,
    padded_chains: tl.constexpr,
    padded_blocks: tl.constexpr,
) -> tl.tensor:
    """Which chains agree with what is accepted before a position; none if the output has ended.

    Pointers are to the first entries of the sequence.
    """
    chain = tl.arange(0, padded_chains)
    if position == 0:
        left = chain < chains
    else:
        before = position - 1
        # [padded K]
        agreed = tl.load(agree + before * chains + chain, mask=chain < chains, other=0) > 0
        token, count, read = drafts_at(tokens, agreed, before, gamma, chains, padded_chains)
        target_prob, draft_prob = at_node(
            target,
            draft,
            softmaxes,
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
        node = sums + before * node_size
        known = (token >= 0) & (token < size)
        coin = tl.load(uniforms + before * coins + chain, mask=known, other=0.0)  # [padded K]
        if levels > 0:
            place = uniforms + before * coins + chains
            for_slot = tl.load(place + chain, mask=known, other=0.0)  # [padded K]
            slot = choose_slot(node, target_prob, draft_prob, coin, for_slot, levels, width)
            slot = tl.where(known & (count > 0), slot, -1)
            highest = known & (slot == tl.max(slot, 0))
            coin = tl.load(place + chains)  # scalar: of the winner
            win = won(node, target_prob, draft_prob, levels, width)
            passes = (coin * win < target_prob) & (draft_prob > 0)
            index = tl.min(tl.where(highest, chain, padded_chains), 0)
            accepts = tl.max(tl.where((chain == index) & passes, 1, 0), 0)
            index = tl.where(accepts > 0, index, padded_chains)
        else:
            low, high, share, _ = find_split(node, count, chains, blocks, padded_blocks)
            mean = one_draft(target_prob, draft_prob, low, high, share)
            passes = known & (coin * draft_prob < mean)
            index = tl.min(tl.where(passes, chain, padded_chains), 0)
        accepted = tl.max(tl.where(chain == index, token, -1), 0)
        left = (token >= 0) & (token == accepted)
    return left


@jit
def to_draw_from(
    target: tl.tensor,
    draft: tl.tensor,
    softmaxes: tl.tensor,
    sums: tl.tensor,
    chain: tl.tensor,
    position: tl.tensor,
    token: tl.tensor,
    count: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    chains: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    node_size: tl.tensor,
    blocks: tl.tensor,
    kind: tl.constexpr,
    levels: tl.constexpr,
    width: tl.constexpr,
    padded_blocks: tl.constexpr,
) -> tl.tensor:
    """Masses of the target's row at a position, and of its residual if there were drafts."""
    target_prob, draft_prob = at_node(
        target,
        draft,
        softmaxes,
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
    of_row = mass(target_prob, _UNIT)
    left = tl.zeros_like(of_row)
    if count > 0:
        node = sums + position * node_size
        if levels > 0:
            covered = tl.minimum(target_prob, won(node, target_prob, draft_prob, levels, width))
        else:
            low, high, share, factor = find_split(node, count, chains, blocks, padded_blocks)
            covered = factor * one_draft(target_prob, draft_prob, low, high, share)
        left = tl.maximum(of_row - mass(covered, _UNIT), 0)
    return of_row, left
