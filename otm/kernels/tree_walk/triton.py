"""Walk and keep over trees as Triton kernels, with the decisions of `otm.kernels.tree_walk.torch`.

The kernels proceed level by level, with at most three launches at each level.  In `add_steps`, every
program sums one block for all steps of Newton's method.  In `add_left`, every program finds c from
these sums, and sums the residual of one block.  In `step`, one program for each sequence tests
whether the node is kept, and goes to the child that wins.  At last, `draw` draws a token after the
deepest kept node.  For logits, two additional launches at each level compute the sums of the rows.

Of the N + 1 rows of a tree, the kernels read only rows along the walk: the target's row once, or
both rows twice if a child was drawn.  The sums include the certain children, as if they were other
tokens; a program that uses sums subtracts these children, which are few.
"""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from otm.kernels.block.triton_steps import capped_ratio
from otm.kernels.common import runtime
from otm.kernels.common.distributions.numpy import UNIT
from otm.kernels.common.draw import first_above, pick_block
from otm.kernels.common.runtime import check_device, constant, jit, launch, padded, tl
from otm.kernels.results import VerifiedTree
from otm.kernels.tree.checks import Trees
from otm.kernels.tree.triton_rows import OVER, Softmaxes, lay_out_rows, row_of
from otm.kernels.tree_walk.numpy import POINTS
from otm.kernels.tree_walk.triton_steps import (
    Node,
    Tree,
    Winner,
    at,
    capped_at,
    certain_residual,
    children_of,
    is_any,
    largest_step,
    locate,
    masses_of,
    outside_of,
)
from otm.kernels.workspace import Workspace

_PART = constant(1 / UNIT)
_POINTS = constant(POINTS)

SUMS = 1 + 2 * POINTS
"""Number of sums of a block: the draft's mass, and two sums for each step of Newton's method."""

LEFT = 3
"""Number of sums of a block: residual, target, and masses of winning drawn children."""

NUMBERS = 3
"""Numbers of a sequence at a level: its share, c, and the probability that a certain child wins."""

_SUMS, _LEFT, _NUMBERS = map(constant, (SUMS, LEFT, NUMBERS))


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
    batch, levels, _ = uniforms.shape
    size, nodes, device = target.shape[-1], tokens.shape[1], target.device
    models = target, below = lay_out_rows(work, target, draft)
    drafts = (tokens.contiguous(), parents.contiguous(), sampled.contiguous().view(torch.uint8))
    # Half a block keeps the masses of both rows in registers.
    block = max(runtime.BLOCK // 2, 1)
    blocks, has_draft = -(-size // block), draft is not None
    output = torch.empty((batch, levels), dtype=torch.int64, device=device)
    accepted, reached = torch.empty((2, batch), dtype=torch.int64, device=device)
    # At each level: the row, and the number of drawn children after it.
    states = work.take("states", (levels + 1, batch, 2), torch.int64, device)
    states[0, :, 0] = 0
    of_context = sampled & (parents < 0) & (tokens >= 0) if has_draft else sampled[:, :0]
    states[0, :, 1] = of_context.sum(1) if levels > 1 else 0
    numbers = work.take("numbers", (levels, batch, NUMBERS), torch.float64, device)
    numbers[0, :, 0] = 1
    drawn = work.take("drawn", (levels, batch), torch.int64, device)
    left = work.take("left", (levels, batch, LEFT, blocks), torch.int64, device)
    sums = work.take("sums", (batch, SUMS, blocks), torch.int64, device) if has_draft else left
    softmaxes, kind, sum_rows = [numbers] * levels, "probabilities", None
    if temperature is not None:
        kind = "logits"
        softmaxes = list(work.take("softmaxes", (levels, batch, 2, 4), torch.float32, device))
        sum_rows = Softmaxes(models, states, temperature, work, has_draft=has_draft)
    strides = (*target.stride()[:2], *below.stride()[:2])
    sizes = (*strides, size, below.shape[-1], blocks, nodes, levels)
    constants: dict[str, Any] = {"kind": kind, "has_draft": has_draft, "block_size": block}
    constants |= {"padded_nodes": padded(nodes), "padded_blocks": padded(blocks)}
    for level in range(levels):
        if sum_rows is not None:
            sum_rows(softmaxes[level], level)
        state = (*models, states, numbers, drawn, softmaxes[level], *drafts)
        if has_draft and level + 1 < levels:
            launch(add_steps, (batch, blocks), *state, sums, *sizes, level, **constants)
        launch(add_left, (batch, blocks), *state, sums, left, *sizes, level, **constants)
        results = (uniforms.contiguous(), accepted, reached)
        launch(step, (batch,), *state, left, *results, *sizes, level, **constants)
    state = (*models, states, numbers, drawn, softmaxes[0], *drafts)
    further = {"padded_levels": padded(levels), **constants}
    launch(draw, (batch,), *state, left, uniforms.contiguous(), accepted, output, *sizes, **further)
    return VerifiedTree(output, accepted, reached)


@jit
def add_steps(
    target: tl.tensor,
    draft: tl.tensor,
    states: tl.tensor,
    numbers: tl.tensor,
    drawn: tl.tensor,
    softmaxes: tl.tensor,
    tokens: tl.tensor,
    parents: tl.tensor,
    sampled: tl.tensor,
    sums: tl.tensor,
    target_sequence: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_row: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    blocks: tl.tensor,
    nodes: tl.tensor,
    levels: tl.tensor,
    level: tl.tensor,
    kind: tl.constexpr,
    has_draft: tl.constexpr,
    block_size: tl.constexpr,
    padded_nodes: tl.constexpr,
    padded_blocks: tl.constexpr,
) -> None:
    """Sum the masses of a block of both rows for all steps of Newton's method."""
    sequence, batch = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    row, count = row_of(states, sequence, batch, level, 0)
    if (row < 0) | (count == 0):
        return
    target += sequence * target_sequence + row * target_row
    draft += sequence * draft_sequence + row * draft_row
    node = Node(target, draft, softmaxes + sequence * 8, size, draft_size)
    first = sequence * nodes
    tree = Tree(tokens + first, parents + first, sampled + first, nodes)
    children = children_of(tree, node, row, count > 0, kind, has_draft, padded_nodes)
    block = tl.program_id(1)
    token = block * block_size + tl.arange(0, block_size)
    _, of_target, of_draft = masses_of(node, token, token >= 0, kind, has_draft)
    place = sums + sequence * _SUMS * blocks + block
    tl.store(place, tl.sum(of_draft, 0))
    if children.certain > 0:
        for i in tl.static_range(_POINTS):
            capped = capped_at(i, of_target, of_draft, children.certain, children.hidden)
            here = place + (1 + 2 * i) * blocks
            tl.store(here, tl.sum(tl.where(capped, of_draft, 0), 0))
            tl.store(here + blocks, tl.sum(tl.where(capped, of_target, 0), 0))


@jit
def add_left(
    target: tl.tensor,
    draft: tl.tensor,
    states: tl.tensor,
    numbers: tl.tensor,
    drawn: tl.tensor,
    softmaxes: tl.tensor,
    tokens: tl.tensor,
    parents: tl.tensor,
    sampled: tl.tensor,
    sums: tl.tensor,
    left: tl.tensor,
    target_sequence: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_row: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    blocks: tl.tensor,
    nodes: tl.tensor,
    levels: tl.tensor,
    level: tl.tensor,
    kind: tl.constexpr,
    has_draft: tl.constexpr,
    block_size: tl.constexpr,
    padded_nodes: tl.constexpr,
    padded_blocks: tl.constexpr,
) -> None:
    """Find c, and sum the residual and the target's masses of a block.

    After a node without children there is no residual.
    """
    sequence, batch = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    row, count = row_of(states, sequence, batch, level, 0)
    if row < 0:
        return
    here = level.to(tl.int64) * batch + sequence
    share = tl.load(numbers + here * _NUMBERS)  # scalar
    target += sequence * target_sequence + row * target_row
    draft += sequence * draft_sequence + row * draft_row
    read = tl.where(count > 0, draft_size, 0)
    node = Node(target, draft, softmaxes + sequence * 8, size, read)
    first, is_open = sequence * nodes, (share > 0) & (level + 1 < levels)
    tree = Tree(tokens + first, parents + first, sampled + first, nodes)
    children = children_of(tree, node, row, is_open, kind, has_draft, padded_nodes)
    c, of_drawn = tl.full((), 0.0, tl.float64), tl.full((), 0, tl.int64)
    block = tl.program_id(1)
    if has_draft:
        if count > 0:
            sums += sequence * _SUMS * blocks
            c, of_drawn = largest_step(sums, children, blocks, padded_blocks)
        if block == 0:
            tl.store(numbers + here * _NUMBERS + 1, c)
            tl.store(drawn + here, of_drawn)
    winner = Winner(c, of_drawn, children.certain > 0)
    token = block * block_size + tl.arange(0, block_size)
    prob, of_target, of_draft = masses_of(node, token, token >= 0, kind, has_draft)
    wins, residual = outside_of(winner, share, prob, of_target, of_draft, has_draft)
    goes_on = is_any(children.is_certain | children.is_drawn)
    place = left + here * _LEFT * blocks + block
    tl.store(place, tl.where(goes_on, tl.sum(residual, 0), 0))
    tl.store(place + blocks, tl.sum(of_target, 0))
    tl.store(place + 2 * blocks, tl.sum(wins, 0))


@jit
def step(
    target: tl.tensor,
    draft: tl.tensor,
    states: tl.tensor,
    numbers: tl.tensor,
    drawn: tl.tensor,
    softmaxes: tl.tensor,
    tokens: tl.tensor,
    parents: tl.tensor,
    sampled: tl.tensor,
    left: tl.tensor,
    uniforms: tl.tensor,
    accepted: tl.tensor,
    reached: tl.tensor,
    target_sequence: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_row: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    blocks: tl.tensor,
    nodes: tl.tensor,
    levels: tl.tensor,
    level: tl.tensor,
    kind: tl.constexpr,
    has_draft: tl.constexpr,
    block_size: tl.constexpr,
    padded_nodes: tl.constexpr,
    padded_blocks: tl.constexpr,
) -> None:
    """Test whether a node is kept, correct its residual, and go to the child that wins."""
    sequence, batch = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    row, count = row_of(states, sequence, batch, level, 0)
    here = level.to(tl.int64) * batch + sequence
    after, next_row = states + (here + batch) * 2, tl.full((), OVER, tl.int64)
    drawn_after = tl.full((), 0, tl.int64)
    if row >= 0:
        share = tl.load(numbers + here * _NUMBERS)  # scalar
        target += sequence * target_sequence + row * target_row
        draft += sequence * draft_sequence + row * draft_row
        read = tl.where(count > 0, draft_size, 0)
        node = Node(target, draft, softmaxes + sequence * 8, size, read)
        first, is_open = sequence * nodes, (share > 0) & (level + 1 < levels)
        tree = Tree(tokens + first, parents + first, sampled + first, nodes)
        children = children_of(tree, node, row, is_open, kind, has_draft, padded_nodes)
        coins = uniforms + here_of(sequence, level, levels) * 4
        chance, divisor = share, tl.full((), 1.0, tl.float64)
        if is_any(children.is_certain | children.is_drawn):
            c, of_drawn = tl.full((), 0.0, tl.float64), tl.full((), 0, tl.int64)
            if has_draft:
                c = tl.load(numbers + here * _NUMBERS + 1)  # scalar
                of_drawn = tl.load(drawn + here)  # scalar
            some = children.certain > 0
            winner = Winner(c, of_drawn, some)
            of_blocks = left + here * _LEFT * blocks
            block = tl.arange(0, padded_blocks)
            inside = block < blocks
            values = tl.load(of_blocks + block, mask=inside, other=0)  # [padded blocks]
            won = tl.load(of_blocks + 2 * blocks + block, mask=inside, other=0)  # [padded blocks]
            masses = children.target, children.of_target, children.of_draft
            wins, outside = outside_of(winner, share, *masses, has_draft)
            rest = (of_drawn - tl.sum(won, 0) + tl.sum(wins, 0)).to(tl.float64)
            whole = tl.maximum(of_drawn, 1).to(tl.float64)
            certain_wins = tl.where(of_drawn > 0, rest / whole, 1.0)
            tl.store(numbers + here * _NUMBERS + 2, certain_wins)
            change = certain_residual(children, share, certain_wins, children.target) - outside
            change = tl.where(children.is_certain, change, 0)
            tl.debug_barrier()
            of_tokens = of_blocks + children.token // block_size
            tl.atomic_add(of_tokens, change, mask=change != 0, sem="relaxed")
            chance = (tl.sum(values, 0) + tl.sum(change, 0)).to(tl.float64) * _PART
            divisor = chance + (1.0 - share)

            # The child that wins, and the probability that it does.
            place = tl.arange(0, padded_nodes)
            has_certain, has_drawn = is_any(children.is_certain), is_any(children.is_drawn)
            initial = tl.min(tl.where(children.is_certain, place, padded_nodes), 0)
            located = locate(children.of_target, tl.load(coins + 1), padded_nodes)
            child = tl.where(some, located, initial)
            part = at(children.of_target, child, padded_nodes).to(tl.float64)
            part = part / tl.maximum(children.certain, 1).to(tl.float64)
            win = certain_wins * tl.where(some, part, 1.0)
            prob = at(children.target, child, padded_nodes)
            if has_draft:
                if has_drawn:
                    it = tl.min(tl.where(children.is_drawn, place, padded_nodes), 0)
                    x = at(children.token, it, padded_nodes)
                    of_x = masses_of(node, x, x >= 0, kind, has_draft)
                    wins_there, _ = outside_of(winner, share, *of_x, has_draft)
                    coin = tl.load(coins) * of_x[2].to(tl.float64)
                    if (coin < wins_there.to(tl.float64)) | (has_certain == 0):
                        child, prob = it, of_x[0]
                        win = wins_there.to(tl.float64) / whole
            share = capped_ratio(share * prob, win)
            next_row = (child + 1).to(tl.int64)
            tl.store(numbers + (here + batch) * _NUMBERS, share)
            if has_draft:
                x = tl.load(tree.tokens + place, mask=place < nodes, other=-1)  # [padded nodes]
                parent = tl.load(tree.parents + place, mask=place < nodes, other=-2)
                mark = tl.load(tree.sampled + place, mask=place < nodes, other=0)
                below = (x >= 0) & (parent == child) & (mark > 0)
                is_read = (share > 0) & (level + 2 < levels)
                drawn_after = tl.where(is_read, tl.sum(below.to(tl.int64), 0), 0)
        if (tl.load(coins + 2) * divisor < chance) | (level == 0):
            tl.store(accepted + sequence, level.to(tl.int64))
            tl.store(reached + sequence, row - 1)
    tl.store(after, next_row)
    tl.store(after + 1, drawn_after)


@jit
def here_of(sequence: tl.tensor, level: tl.tensor, levels: tl.tensor) -> tl.tensor:
    """Return the index of a level among the levels of all sequences."""
    return sequence * levels + level


@jit
def draw(
    target: tl.tensor,
    draft: tl.tensor,
    states: tl.tensor,
    numbers: tl.tensor,
    drawn: tl.tensor,
    softmaxes: tl.tensor,
    tokens: tl.tensor,
    parents: tl.tensor,
    sampled: tl.tensor,
    left: tl.tensor,
    uniforms: tl.tensor,
    accepted: tl.tensor,
    output: tl.tensor,
    target_sequence: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_row: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    blocks: tl.tensor,
    nodes: tl.tensor,
    levels: tl.tensor,
    kind: tl.constexpr,
    has_draft: tl.constexpr,
    block_size: tl.constexpr,
    padded_nodes: tl.constexpr,
    padded_blocks: tl.constexpr,
    padded_levels: tl.constexpr,
) -> None:
    """Draw the token after the deepest kept node, and write a sequence's output."""
    sequence, batch = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    kept = tl.load(accepted + sequence)  # scalar
    row, count = row_of(states, sequence, batch, kept, 0)
    here = kept * batch + sequence
    share = tl.load(numbers + here * _NUMBERS)  # scalar
    target += sequence * target_sequence + row * target_row
    draft += sequence * draft_sequence + row * draft_row
    read = tl.where(count > 0, draft_size, 0)
    node = Node(target, draft, softmaxes + here * 8, size, read)
    first, is_open = sequence * nodes, (share > 0) & (kept + 1 < levels)
    tree = Tree(tokens + first, parents + first, sampled + first, nodes)
    children = children_of(tree, node, row, is_open, kind, has_draft, padded_nodes)
    goes_on = is_any(children.is_certain | children.is_drawn)
    uniform = tl.load(uniforms + here_of(sequence, kept, levels) * 4 + 3)  # scalar
    of_blocks = left + here * _LEFT * blocks
    block, point, subtract = pick_block(of_blocks, goes_on, uniform, blocks, padded_blocks)
    c, of_drawn = tl.full((), 0.0, tl.float64), tl.full((), 0, tl.int64)
    if has_draft:
        c, of_drawn = tl.load(numbers + here * _NUMBERS + 1), tl.load(drawn + here)  # scalars
    winner = Winner(c, of_drawn, children.certain > 0)
    token = block * block_size + tl.arange(0, block_size)
    masses = masses_of(node, token, token >= 0, kind, has_draft)
    _, residual = outside_of(winner, share, *masses, has_draft)
    certain_wins = tl.load(numbers + here * _NUMBERS + 2, mask=goes_on, other=1.0)  # scalar
    inside = certain_residual(children, share, certain_wins, masses[0])
    for i in range(tl.where(goes_on, nodes, 0)):
        x, parent = tl.load(tree.tokens + i), tl.load(tree.parents + i)  # scalars
        is_it = (token == x) & (parent == row - 1)
        if has_draft:
            is_it = is_it & (tl.load(tree.sampled + i) == 0)
        residual = tl.where(is_it, inside, residual)
    token = first_above(tl.where(subtract, residual, masses[1]), token, point, size)
    place = tl.arange(0, padded_levels)
    walked = place < kept
    rows = tl.load(states + ((place + 1) * batch + sequence) * 2, mask=walked, other=1)  # [padded]
    drafted = tl.load(tree.tokens + rows - 1, mask=walked, other=-1).to(tl.int64)  # [padded levels]
    drafted = tl.where(place == kept, token.to(tl.int64), drafted)
    tl.store(output + sequence * levels + place, drafted, mask=place < levels)
