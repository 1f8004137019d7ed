"""Verification of draft trees as Triton kernels, with the decisions of `otm.kernels.tree.torch`.

The kernels proceed level by level, and test by test within a level.  Each test has two launches.
In `add_up`, every program sums the residual mass of one block, in the row that its sequence has
reached.  In `step`, one program for each sequence tests a sampled child, or draws a token from the
residual and finds the child with this token.  For logits, two additional launches at each level
compute the sums of the rows.

Of the N + 1 rows of a tree, the kernels read only rows along the output.  A row along the output is
read once for each tested child and once for the drawn token.  The residual of a row is not stored,
because the shares of the earlier tests determine it.
"""

# ruff: noqa: PLR0915, PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otm.kernels.common import runtime
from otm.kernels.common.distributions.numpy import UNIT
from otm.kernels.common.distributions.triton import mass, probability
from otm.kernels.common.draw import first_above, pick_of_sums
from otm.kernels.common.runtime import check_device, constant, jit, launch, padded, tl
from otm.kernels.results import VerifiedTree
from otm.kernels.tree.checks import Trees
from otm.kernels.tree.triton_rows import NEXT, OVER, Softmaxes, lay_out_rows, row_of
from otm.kernels.workspace import Workspace

_UNIT = constant(UNIT)


def verify(
    target: Tensor,
    draft: Tensor | None,
    trees: Trees[Tensor],
    temperature: float | Tensor | None = None,
    workspace: Workspace | None = None,
) -> VerifiedTree[Tensor]:
    """Launch the kernels; a temperature means that the rows are logits, else probabilities."""
    check_device(target)
    tokens, parents, sampled, uniforms = trees
    work = Workspace() if workspace is None else workspace
    batch, levels, passes = uniforms.shape
    size, nodes, device = target.shape[-1], tokens.shape[1], target.device
    models = target, below = lay_out_rows(work, target, draft)
    drafts = (tokens.contiguous(), parents.contiguous(), sampled.contiguous().view(torch.uint8))
    blocks = -(-size // runtime.BLOCK)
    output = torch.full((batch, levels), -1, dtype=torch.int64, device=device)
    accepted = torch.empty(batch, dtype=torch.int64, device=device)
    reached = torch.full((batch,), -1, dtype=torch.int64, device=device)
    # For each test: the row, and the number of sampled children after it.
    states = work.take("states", (levels * passes + 1, batch, 2), torch.int64, device)
    of_context = sampled & (parents < 0) & (tokens >= 0) if draft is not None else sampled[:, :0]
    states[0, :, 0] = -2  # `NEXT` for the row after the context
    states[0, :, 1] = of_context.sum(1) if levels > 1 else 0
    # `shares` holds the subtracted share of each failed test; `totals` holds the draft mass before
    # each test.
    shares = work.take("shares", (passes, batch), torch.float64, device)
    totals = work.take("totals", (passes + 1, batch), torch.int64, device)
    tested = work.take("tested", (passes, batch), torch.int64, device)
    sums = work.take("sums", (batch, 2, blocks), torch.int64, device)
    softmaxes, kind = sums, "probabilities"
    if temperature is not None:
        softmaxes = work.take("softmaxes", (batch, 2, 4), torch.float32, device)
        kind = "logits"
    strides = (*target.stride()[:2], *below.stride()[:2])
    of_rows = (size, below.shape[-1], blocks)
    sum_rows = None
    if temperature is not None:
        sum_rows = Softmaxes(models, states, temperature, work, has_draft=draft is not None)
    for level in range(levels):
        first = level * passes
        if sum_rows is not None:
            sum_rows(softmaxes, first)
        for test in range(passes):
            state = (states, shares, totals, tested, sums, softmaxes)
            constants = {"kind": kind, "has_draft": draft is not None, "block_size": runtime.BLOCK}
            numbers = (*strides, *of_rows, first + test, test)
            launch(add_up, (batch, blocks), *models, *state, *numbers, **constants)
            constants |= {"padded_nodes": padded(nodes), "padded_blocks": padded(blocks)}
            results = (*drafts, uniforms.contiguous(), output, accepted, reached)
            numbers = (*numbers, nodes, levels, level, passes)
            launch(step, (batch,), *models, *state, *results, *numbers, **constants)
    return VerifiedTree(output, accepted, reached)


class Node(NamedTuple):
    """Pointers to the rows that a sequence has reached, and to earlier tests at the node."""

    target: tl.tensor
    draft: tl.tensor
    softmaxes: tl.tensor
    shares: tl.tensor
    tested: tl.tensor
    batch: tl.tensor
    size: tl.tensor
    draft_size: tl.tensor
    count: tl.tensor


@jit
def residual_and_draft(
    node: Node, token: tl.tensor, test: tl.tensor, kind: tl.constexpr, has_draft: tl.constexpr
) -> tl.tensor:
    """Return residual masses of tokens after `test` tests, and masses of the draft distribution.

    The draft distribution excludes the children that were tested.
    """
    known = token < node.size
    softmax = node.softmaxes
    left = mass(probability(node.target, token, known, softmax, True, 0.0, 1.0, kind), _UNIT)
    below = left * 0
    if has_draft:
        known = token < tl.where(node.count > 0, node.draft_size, 0)
        prob = probability(node.draft, token, known, softmax + 4, node.count > 0, 0.0, 1.0, kind)
        below = mass(prob, _UNIT)
        for i in range(test):
            share = tl.load(node.shares + i * node.batch)  # scalar
            gone = tl.load(node.tested + i * node.batch)  # scalar
            left = tl.maximum(left - (below.to(tl.float64) * share).to(tl.int64), 0)
            below = tl.where(token == gone, 0, below)
    return left, below


@jit
def add_up(
    target: tl.tensor,
    draft: tl.tensor,
    states: tl.tensor,
    shares: tl.tensor,
    totals: tl.tensor,
    tested: tl.tensor,
    sums: tl.tensor,
    softmaxes: tl.tensor,
    target_sequence: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_row: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    blocks: tl.tensor,
    position: tl.tensor,
    test: tl.tensor,
    kind: tl.constexpr,
    has_draft: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Sum a block's residual mass after `test` tests, and at the first test the draft mass."""
    sequence, batch = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    block = tl.program_id(1)
    row, count = row_of(states, sequence, batch, position, test)
    if row < 0:
        return
    target += sequence * target_sequence + row * target_row
    draft += sequence * draft_sequence + row * draft_row
    of_tests = (shares + sequence, tested + sequence)
    softmaxes += sequence * 8
    node = Node(target, draft, softmaxes, *of_tests, batch, size, draft_size, count)
    token = block * block_size + tl.arange(0, block_size)
    left, below = residual_and_draft(node, token, test, kind, has_draft)
    place = sums + sequence * 2 * blocks + block
    tl.store(place, tl.sum(left, 0))
    if has_draft:  # noqa: SIM102 - a compile-time test, which can remove the code below
        if test == 0:
            tl.store(place + blocks, tl.sum(below, 0))


@jit
def step(
    target: tl.tensor,
    draft: tl.tensor,
    states: tl.tensor,
    shares: tl.tensor,
    totals: tl.tensor,
    tested: tl.tensor,
    sums: tl.tensor,
    softmaxes: tl.tensor,
    tokens: tl.tensor,
    parents: tl.tensor,
    sampled: tl.tensor,
    uniforms: tl.tensor,
    output: tl.tensor,
    accepted: tl.tensor,
    reached: tl.tensor,
    target_sequence: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_row: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    blocks: tl.tensor,
    position: tl.tensor,
    test: tl.tensor,
    nodes: tl.tensor,
    levels: tl.tensor,
    level: tl.tensor,
    passes: tl.tensor,
    kind: tl.constexpr,
    has_draft: tl.constexpr,
    block_size: tl.constexpr,
    padded_nodes: tl.constexpr,
    padded_blocks: tl.constexpr,
) -> None:
    """Test a sampled child, or draw a token from the residual and go to the child that has it."""
    sequence, batch = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    row, count = row_of(states, sequence, batch, position, test)
    after = states + ((position.to(tl.int64) + 1) * batch + sequence) * 2
    if row < 0:  # the output is complete, or the row belongs to the next level
        tl.store(after, row)
        tl.store(after + 1, count)
        return
    target += sequence * target_sequence + row * target_row
    draft += sequence * draft_sequence + row * draft_row
    of_tests = (shares + sequence, tested + sequence)
    softmaxes += sequence * 8
    node = Node(target, draft, softmaxes, *of_tests, batch, size, draft_size, count)
    sums += sequence * 2 * blocks
    uniforms += (sequence * levels + level) * passes
    place = tl.arange(0, padded_nodes)
    inside = place < nodes
    x = tl.load(tokens + sequence * nodes + place, mask=inside, other=-1)  # [padded nodes]
    parent = tl.load(parents + sequence * nodes + place, mask=inside, other=-2)  # [padded nodes]
    drawn = tl.load(sampled + sequence * nodes + place, mask=inside, other=0) > 0  # [padded nodes]
    children = (x >= 0) & (parent == row - 1) & (level + 1 < levels)
    block = tl.arange(0, padded_blocks)
    of_blocks = tl.load(sums + block, mask=block < blocks, other=0)  # [padded blocks]
    total = tl.sum(of_blocks, 0)
    child, token = tl.full((), padded_nodes, tl.int32), tl.full((), -1, tl.int64)
    done = tl.full((), 1, tl.int32)
    if has_draft:
        is_exhausted = (test > 0) & (total == 0)  # the previous draft had all residual mass
        if is_exhausted | (test < count):
            order = tl.cumsum((children & drawn).to(tl.int32), 0)
            here = children & drawn & (order == tl.where(is_exhausted, test, test + 1))
            it = tl.min(tl.where(here, place, padded_nodes), 0)
            token = tl.sum(tl.where(place == it, x.to(tl.int64), 0), 0)
            of_drafts = tl.load(sums + blocks + block, mask=block < blocks, other=0)
            rest = tl.sum(of_drafts, 0)
            if test > 0:
                rest = tl.load(totals + test * batch + sequence)  # scalar
            target_mass, below = residual_and_draft(node, token, test, kind, has_draft)
            coin = tl.load(uniforms + test)  # scalar
            chance = below.to(tl.float64) * total.to(tl.float64)
            passed = coin * chance < target_mass.to(tl.float64) * rest.to(tl.float64)
            if is_exhausted | passed:
                child = it
            else:
                share = total.to(tl.float64) / tl.maximum(rest, 1).to(tl.float64)
                tl.store(shares + test * batch + sequence, tl.where(rest > 0, share, 0.0))
                tl.store(tested + test * batch + sequence, token)
                tl.store(totals + (test + 1) * batch + sequence, rest - below)
                tl.store(after, row)
                tl.store(after + 1, count)
                done = done * 0
    if done > 0:
        if child == padded_nodes:
            uniform = tl.load(uniforms + passes - 1)  # scalar
            chosen, point = pick_of_sums(sums, uniform, blocks, padded_blocks)
            around = chosen * block_size + tl.arange(0, block_size)
            left, _ = residual_and_draft(node, around, test, kind, has_draft)
            token = first_above(left, around, point, size).to(tl.int64)
            child = tl.min(tl.where(children & (x == token), place, padded_nodes), 0)
        tl.store(output + sequence * levels + level, token)
        if child < padded_nodes:
            below_it = (x >= 0) & drawn & (parent == child) & (level + 2 < levels)
            tl.store(reached + sequence, child.to(tl.int64))
            tl.store(after, -(child + 1).to(tl.int64) + NEXT)
            tl.store(after + 1, tl.sum(below_it.to(tl.int64), 0) if has_draft else count)
        else:
            tl.store(accepted + sequence, level.to(tl.int64))
            tl.store(after, row * 0 + OVER)
            tl.store(after + 1, count)
