"""Steps of SpecTr's recursion inside Triton kernels: which chains go on, what is drawn from."""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from typing import NamedTuple

from otm.kernels.numpy.distributions import UNIT
from otm.kernels.triton.distributions import Rows, draft_at, mass, target_at
from otm.kernels.triton.grid_k_seq_steps import find_split, one_draft
from otm.kernels.triton.grid_optimal_steps import choose_slots, won
from otm.kernels.triton.runtime import constant, jit, tl

_UNIT = constant(UNIT)


class Chains(NamedTuple):
    """The chains of a sequence: rows of the first, drafts, sums of all nodes; strides and sizes."""

    rows: Rows
    tokens: tl.tensor
    sums: tl.tensor
    target_chain: tl.tensor
    draft_chain: tl.tensor
    chains: tl.tensor
    node_size: tl.tensor


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
    of: Chains,
    chain: tl.tensor,
    position: tl.tensor,
    token: tl.tensor,
    drafted: tl.tensor,
    kind: tl.constexpr,
) -> tl.tensor:
    """Probabilities of tokens by target and draft, in float64, 0 outside their rows.

    Where there is no draft nothing of it is read.
    """
    first = of.rows
    rows = Rows(
        first.target + chain * of.target_chain,
        first.draft + chain * of.draft_chain,
        first.softmaxes + chain * (2 * first.gamma + 1) * 4,
        first.target_row,
        first.draft_row,
        first.gamma,
        first.size,
        first.draft_size,
        first.low,
        first.span,
    )
    known = (token >= 0) & (token < rows.size)
    target_prob = target_at(rows, position, token, known, True, kind).to(tl.float64)
    known = (token >= 0) & (token < tl.where(drafted, rows.draft_size, 0))
    draft_prob = draft_at(rows, position, token, known, drafted, kind).to(tl.float64)
    return target_prob, draft_prob


@jit
def advance(
    of: Chains,
    uniforms: tl.tensor,
    agree: tl.tensor,
    coins: tl.tensor,
    position: tl.tensor,
    kind: tl.constexpr,
    edges: tl.constexpr,
    padded_chains: tl.constexpr,
) -> tl.tensor:
    """Which chains agree with what is accepted before a position; none if the output has ended.

    Pointers are to the first entries of the sequence.
    """
    rows = of.rows
    chain = tl.arange(0, padded_chains)
    if position == 0:
        left = chain < of.chains
    else:
        before, inside = position - 1, chain < of.chains
        agreed = tl.load(agree + before * of.chains + chain, mask=inside, other=0) > 0
        token, count, read = drafts_at(
            of.tokens, agreed, before, rows.gamma, of.chains, padded_chains
        )
        target_prob, draft_prob = at_node(of, read, before, token, count > 0, kind)
        node = of.sums + before * of.node_size
        known = (token >= 0) & (token < rows.size)
        coin = tl.load(uniforms + before * coins + chain, mask=known, other=0.0)  # [padded K]
        if edges > 0:
            slot = choose_slots(node, target_prob, draft_prob, coin, edges)
            highest = known & (slot == tl.max(tl.where(known, slot, -1), 0))
            coin = tl.load(uniforms + before * coins + of.chains)  # scalar: of the winner
            win = won(node, target_prob, draft_prob, edges)
            passes = (coin * win < target_prob) & (draft_prob > 0)
            index = tl.min(tl.where(highest, chain, padded_chains), 0)
        else:
            low, high, share, _ = find_split(node, count, of.chains)
            mean = one_draft(target_prob, draft_prob, low, high, share)
            passes = known & (coin * draft_prob < mean)
            index = tl.min(tl.where(passes, chain, padded_chains), 0)
        accepted = tl.max(tl.where((chain == index) & passes, token, -1), 0)
        left = (token >= 0) & (token == accepted)
    return left


@jit
def to_draw_from(
    of: Chains,
    chain: tl.tensor,
    position: tl.tensor,
    token: tl.tensor,
    count: tl.tensor,
    kind: tl.constexpr,
    edges: tl.constexpr,
) -> tl.tensor:
    """Masses of the target's row at a position, and of its residual if there were drafts."""
    target_prob, draft_prob = at_node(of, chain, position, token, count > 0, kind)
    of_row = mass(target_prob, _UNIT)
    left = tl.zeros_like(of_row)
    if count > 0:
        node = of.sums + position * of.node_size
        if edges > 0:
            win = won(node, target_prob, draft_prob, edges)
            covered = tl.minimum(target_prob, win)
        else:
            low, high, share, factor = find_split(node, count, of.chains)
            covered = factor * one_draft(target_prob, draft_prob, low, high, share)
        left = tl.maximum(of_row - mass(covered, _UNIT), 0)
    return of_row, left
