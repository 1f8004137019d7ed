"""Steps of SpecTr's recursion inside Triton kernels: which chains continue, and the residual."""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from typing import NamedTuple

from otm.kernels.common.distributions.numpy import UNIT
from otm.kernels.common.distributions.triton import (
    Drafts,
    Rows,
    draft_at,
    make_rows,
    mass,
    target_at,
)
from otm.kernels.common.rows.triton import listed, listed_at, spread
from otm.kernels.common.runtime import constant, jit, tl
from otm.kernels.k_seq.triton_steps import find_split, one_draft
from otm.kernels.optimal.triton_steps import choose_slots, winner_probs

_UNIT = constant(UNIT)


class Options(NamedTuple):
    """Compile-time constants for all steps of a rule for several chains."""

    kind: tl.constexpr  # kind of rows: "probabilities" or "logits"
    width: tl.constexpr  # number of listed tokens read at once; 0 for dense rows
    tree: tl.constexpr  # whether some drafts are not counted
    edges: tl.constexpr  # number of edges of the bins; 0 for k-Seq
    padded_chains: tl.constexpr


class Paths(NamedTuple):
    """Draft tokens of a sequence's chains, the mask of counted drafts, K and γ."""

    tokens: tl.tensor
    counted: tl.tensor
    chains: tl.tensor
    gamma: tl.tensor


class Chains(NamedTuple):
    """A sequence's chains: rows of the first chain, drafts, sums of all nodes, strides, a size."""

    rows: Rows
    paths: Paths
    sums: tl.tensor
    target_chain: tl.tensor
    draft_chain: tl.tensor
    node_size: tl.tensor


@jit
def paths_of(tokens: tl.tensor, counted: tl.tensor, chains: tl.tensor, gamma: tl.tensor) -> Paths:
    """Return the draft tokens of this program's sequence."""
    first = tl.program_id(0).to(tl.int64) * chains * gamma
    return Paths(tokens + first, counted + first, chains, gamma)


@jit
def chains_of(pointers: tl.tuple, strides: tl.tuple, sizes: tl.tuple) -> Chains:
    """Return the chains of this program's sequence."""
    target, draft, tokens, listed_tokens, counted, softmaxes, sums = pointers
    target_sequence, target_chain, target_row, draft_sequence, draft_chain, draft_row = strides
    chains, gamma, size, draft_size, node_size = sizes
    sequence = tl.program_id(0).to(tl.int64)
    paths = paths_of(tokens, counted, chains, gamma)
    target += sequence * target_sequence
    draft += sequence * draft_sequence
    softmaxes += sequence * chains * (2 * gamma + 1) * 4
    of = Drafts(paths.tokens, listed_tokens + sequence * draft_sequence)
    of_rows = (target_row, draft_row, gamma, size, draft_size)
    rows = make_rows((target, draft, softmaxes), of_rows, (0.0, 0.0), of)
    sums += sequence * gamma * node_size
    return Chains(rows, paths, sums, target_chain, draft_chain, node_size)


@jit
def agree_at(
    agree: tl.tensor, position: tl.tensor, chains: tl.tensor, padded_chains: tl.constexpr
) -> tl.tensor:
    """Load the mask of chains that agree with the accepted tokens at a position."""
    chain = tl.arange(0, padded_chains)
    # [padded K]
    return tl.load(agree + position * chains + chain, mask=chain < chains, other=0) > 0


@jit
def first_of(chosen: tl.tensor, chains: tl.tensor, padded_chains: tl.constexpr) -> tl.tensor:
    """Return the first chosen chain, or the last chain if none is chosen."""
    return tl.min(tl.where(chosen, tl.arange(0, padded_chains), chains - 1), 0).to(tl.int64)


@jit
def drafts_at(paths: Paths, agree: tl.tensor, position: tl.tensor, options: Options) -> tl.tensor:
    """Return drafts, the mask and number of counted drafts, and the chain whose rows to read.

    A chain that does not agree has the draft −1 here.  The chain to read is the first with a draft,
    because a chain that has ended has no draft row here.
    """
    place = tl.arange(0, options.padded_chains) * paths.gamma + position
    inside = tl.where(agree, position, paths.gamma) < paths.gamma
    token = tl.load(paths.tokens + place, mask=inside, other=-1)  # [padded K]
    drafted = token >= 0
    some = tl.max(tl.where(drafted, 1, 0), 0)
    own = drafted
    if options.tree:
        own = drafted & (tl.load(paths.counted + place, mask=inside, other=0) > 0)  # [padded K]
    count = tl.sum(tl.where(own, 1, 0), 0)
    chosen = agree & (drafted | (some == 0))
    return token, own, count, first_of(chosen, paths.chains, options.padded_chains)


@jit
def rows_of(of: Chains, chain: tl.tensor) -> tl.tensor:
    """Return the rows of a chain."""
    first = of.rows
    target, draft = first.target + chain * of.target_chain, first.draft + chain * of.draft_chain
    softmaxes = first.softmaxes + chain * (2 * first.gamma + 1) * 4
    tokens = first.of.tokens + chain * first.gamma
    drafts = Drafts(tokens, first.of.listed + chain * of.draft_chain)
    of_rows = (first.target_row, first.draft_row, first.gamma, first.size, first.draft_size)
    return make_rows((target, draft, softmaxes), of_rows, (first.low, first.span), drafts)


@jit
def at_node(
    of: Chains,
    chain: tl.tensor,
    position: tl.tensor,
    token: tl.tensor,
    drafted: tl.tensor,
    options: Options,
) -> tl.tensor:
    """Return target and draft probabilities of tokens, in float64, 0 outside the rows.

    If `drafted` is false, the draft's row is not read.  A sparse draft's row is never read by this
    function, and the draft probabilities returned for a sparse draft are 0.
    """
    rows = rows_of(of, chain)
    known = (token >= 0) & (token < rows.size)
    target_prob = target_at(rows, position, token, known, True, options.kind).to(tl.float64)
    draft_prob = tl.zeros_like(target_prob)
    if options.width == 0:
        known = (token >= 0) & (token < tl.where(drafted, rows.draft_size, 0))
        draft_prob = draft_at(rows, position, token, known, drafted, options.kind).to(tl.float64)
    return target_prob, draft_prob


@jit
def at_listed(
    of: Chains,
    chain: tl.tensor,
    position: tl.tensor,
    chunk: tl.tensor,
    drafted: tl.tensor,
    options: Options,
) -> tl.tensor:
    """Return the tokens of a sparse draft, and target and draft probabilities in float64.

    Tokens outside the vocabulary have probability 0.
    """
    rows = rows_of(of, chain)
    place = chunk * options.width + tl.arange(0, options.width)
    token, draft_prob = listed(rows, position, place, drafted, options.kind)
    known = (token >= 0) & (token < rows.size)
    target_prob = target_at(rows, position, token, known, True, options.kind).to(tl.float64)
    return token, target_prob, tl.where(known, draft_prob.to(tl.float64), 0.0)


@jit
def at_drafts(
    of: Chains,
    chain: tl.tensor,
    position: tl.tensor,
    token: tl.tensor,
    count: tl.tensor,
    options: Options,
) -> tl.tensor:
    """Return target and draft probabilities of the drafts at a position, from a chain's rows."""
    target_prob, draft_prob = at_node(of, chain, position, token, count > 0, options)
    if options.width > 0:
        at, used = tl.full((1, 1), 0, tl.int64) + position, tl.full((1, 1), 0, tl.int64) < count
        draft_prob = listed_at(rows_of(of, chain), at, token, used, options.kind)
    return target_prob, draft_prob


@jit
def advance(
    of: Chains,
    uniforms: tl.tensor,
    agree: tl.tensor,
    coins: tl.tensor,
    position: tl.tensor,
    options: Options,
) -> tl.tensor:
    """Return which chains agree with the accepted tokens before a position.

    No chain agrees if the output has ended.  Pointers are to the first entries of the sequence.
    """
    chain = tl.arange(0, options.padded_chains)
    left = chain < tl.where(position == 0, of.paths.chains, 0)
    if position > 0:
        before = position - 1
        agreed = agree_at(agree, before, of.paths.chains, options.padded_chains)
        token, own, count, read = drafts_at(of.paths, agreed, before, options)
        if count > 0:  # otherwise the node has no sums
            target_prob, draft_prob = at_drafts(of, read, before, token, count, options)
            known = own & (token < of.rows.size)
            node = of.sums + before * of.node_size
            coin = tl.load(uniforms + before * coins + chain, mask=known, other=0.0)  # [padded K]
            if options.edges > 0:
                slot = choose_slots(node, target_prob, draft_prob, coin, options.edges)
                highest = known & (slot == tl.max(tl.where(known, slot, -1), 0))
                coin = tl.load(uniforms + before * coins + of.paths.chains)  # scalar for the winner
                win = winner_probs(node, target_prob, draft_prob, options.edges)
                passes = (coin * win < target_prob) & (draft_prob > 0)
                index = tl.min(tl.where(highest, chain, options.padded_chains), 0)
            else:
                low, high, share, _ = find_split(node, count, of.paths.chains)
                mean = one_draft(target_prob, draft_prob, low, high, share)
                passes = known & (coin * draft_prob < mean)
                index = tl.min(tl.where(passes, chain, options.padded_chains), 0)
            accepted = tl.max(tl.where((chain == index) & passes, token, -1), 0)
            left = (token >= 0) & (token == accepted)
    return left


@jit
def next_token_masses(
    of: Chains,
    chain: tl.tensor,
    position: tl.tensor,
    token: tl.tensor,
    count: tl.tensor,
    share: tl.tensor,
    memory: tl.tensor,
    options: Options,
) -> tl.tensor:
    """Return masses of the target's row at a position, and of its residual if there were drafts.

    In walk and keep the target is weighted by the node's share.  A sparse draft is expanded in
    `memory`, which has the size of a block.  If `memory` is None, the probabilities of a sparse
    draft count as 0.
    """
    target_prob, draft_prob = at_node(of, chain, position, token, count > 0, options)
    of_row = mass(target_prob, _UNIT)
    if options.width > 0 and memory is None:
        left = tl.where(count > 0, weighted_mass(target_prob, share), 0)
    else:
        if options.width > 0:
            rows = rows_of(of, chain)
            used = count > 0
            draft_prob = spread(memory, rows, position, token, used, options.kind, options.width)
            draft_prob = draft_prob.to(tl.float64)
        left = node_residual(of, position, target_prob, draft_prob, count, share, options)
    return of_row, left


@jit
def weighted_mass(target_prob: tl.tensor, share: tl.tensor) -> tl.tensor:
    """Return masses of share · target; a share of None counts as 1."""
    if share is not None:
        target_prob = share * target_prob
    return mass(target_prob, _UNIT)


@jit
def node_residual(
    of: Chains,
    position: tl.tensor,
    target_prob: tl.tensor,
    draft_prob: tl.tensor,
    count: tl.tensor,
    share: tl.tensor,
    options: Options,
) -> tl.tensor:
    """Return masses of the residual if there were drafts, otherwise 0."""
    of_row = weighted_mass(target_prob, share)
    left = tl.zeros_like(of_row)
    if count > 0:
        node = of.sums + position * of.node_size
        sparse: tl.constexpr = options.width > 0
        if share is not None:
            weighted = share * target_prob
            covered = winner_probs(node, weighted, draft_prob, options.edges, sparse)
        elif options.edges > 0:
            win = winner_probs(node, target_prob, draft_prob, options.edges, sparse)
            covered = tl.minimum(target_prob, win)
        else:
            low, high, part, factor = find_split(node, count, of.paths.chains)
            covered = factor * one_draft(target_prob, draft_prob, low, high, part)
        left = tl.maximum(of_row - mass(covered, _UNIT), 0)
    return left


@jit
def change_of_listed(
    block: tl.tensor,
    of: Chains,
    chain: tl.tensor,
    position: tl.tensor,
    count: tl.tensor,
    share: tl.tensor,
    options: Options,
) -> tl.tensor:
    """Return the change of a block's residual mass at the tokens that a sparse draft lists."""
    start, stop = tl.min(block, 0), tl.minimum(tl.max(block, 0) + 1, of.rows.size)
    change = tl.full((), 0, tl.int64)
    width: tl.constexpr = options.width
    for chunk in range((tl.where(count > 0, of.rows.draft_size, 0) + width - 1) // width):
        token, target_prob, draft_prob = at_listed(of, chain, position, chunk, count > 0, options)
        inside = (token >= start) & (token < stop)
        left = node_residual(of, position, target_prob, draft_prob, count, share, options)
        before = weighted_mass(target_prob, share)
        change += tl.sum(tl.where(inside, left - before, 0), 0)
    return change
