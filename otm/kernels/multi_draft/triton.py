"""SpecTr's recursion as Triton kernels, with the same decisions as `otm.kernels.multi_draft.torch`.

There is one launch per position.  The programs of a launch first finish the previous position, from
the sums of the previous launch.  Afterwards the programs compute the sums of their own position,
for the chains that still begin with the accepted tokens.  The drafts are therefore tested on the
device, and the number of launches does not depend on acceptance.

k-Seq needs γ + 3 launches.  The rule for bins needs 2γ + 3 launches, because one program per
position builds the table.  One of the launches sets all sums to 0.  For logits, two additional
launches compute the sum of each row.  The kernels read two rows at each position.  The last two
launches draw one token, as in chain verification.  After the end of a sequence's output, its rows
are no longer read.
"""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from otm.kernels.common import runtime
from otm.kernels.common.distributions.triton import summarise_logits
from otm.kernels.common.draw import first_above, pick_block, write_output
from otm.kernels.common.rows.triton import lay_out_lists
from otm.kernels.common.runtime import check_device, jit, launch, lay_out, padded, tl
from otm.kernels.k_seq.triton_steps import FACTORS, add_up_factors
from otm.kernels.multi_draft.triton_steps import (
    Options,
    advance,
    agree_at,
    at_listed,
    at_node,
    chains_of,
    change_of_listed,
    drafts_at,
    first_of,
    next_token_masses,
    paths_of,
)
from otm.kernels.optimal.numpy import edge_count
from otm.kernels.optimal.triton_steps import SECTIONS, SUMS, add_to_bins, make_table
from otm.kernels.results import Verified
from otm.kernels.sparse_drafts import SparseDrafts
from otm.kernels.workspace import Workspace


def verify_chains(
    target: Tensor,
    draft: Tensor | SparseDrafts[Tensor],
    tokens: Tensor,
    uniforms: Tensor,
    kind: str = "probabilities",
    *,
    by_bins: bool,
    temperature: float | Tensor = 1.0,
    workspace: Workspace | None = None,
    counted: Tensor | None = None,
) -> Verified[Tensor]:
    """Launch the kernels for rows of "probabilities" or "logits", by bins or by k-Seq."""
    block = runtime.BLOCK // 2  # half a block keeps two float64 rows in registers
    edges = edge_count(tokens.shape[1]) if by_bins else 0
    sections = (SECTIONS * edges, SUMS * edges) if by_bins else (FACTORS, FACTORS)
    call = lay_out_chains(
        target, draft, tokens, uniforms, kind, temperature, workspace, counted, block, sections
    )
    batch, _, gamma = tokens.shape
    last_sums = call.work.take("last sums", (batch, 2, call.blocks), torch.int64, target.device)
    arguments = (*call.tensors, call.agree, call.sums, last_sums)
    sizes = (*call.sizes, (uniforms.shape[1] - 2) // max(gamma, 1))
    constants = {**call.constants, "edges": edges}
    for i in range(gamma + 1):
        last = i == gamma
        grid = (batch, call.blocks if last else call.node_blocks)
        launch(add_up, grid, *arguments, *sizes, i, last=last, block_size=block, **constants)
        if by_bins and not last:
            launch_tables(call, call.sums, i, edges, walk=False)
    rest = (call.memory, *call.result, *sizes, call.blocks)
    launch(draw, (batch,), *arguments, *rest, block_size=block, **call.to_draw, **constants)
    return call.result


class ChainsCall(NamedTuple):
    """Arguments that all launches of a rule for several chains share."""

    work: Workspace
    tensors: tuple[Tensor, ...]  # target, draft, tokens, uniforms, lists, counted, softmaxes
    agree: Tensor  # [B, γ + 1, K]
    sums: Tensor  # sums at each node
    memory: Tensor  # memory for a block of a sparse draft
    result: Verified[Tensor]
    sizes: tuple[int, ...]  # strides of both models, K, γ, V, V', size of a node
    blocks: int
    node_blocks: int  # number of blocks of a row or a list
    constants: dict[str, Any]

    @property
    def to_draw(self) -> dict[str, int]:
        """Constants that the launch of `draw` needs in addition."""
        rows = self.result.tokens.shape[1]
        return {"padded_rows": padded(rows), "padded_blocks": padded(self.blocks)}


def lay_out_chains(
    target: Tensor,
    draft: Tensor | SparseDrafts[Tensor],
    tokens: Tensor,
    uniforms: Tensor,
    kind: str,
    temperature: float | Tensor,
    workspace: Workspace | None,
    counted: Tensor | None,
    block: int,
    sections: tuple[int, int],
) -> ChainsCall:
    """Prepare the arguments of a call, with blocks of `block` tokens.

    `sections` holds the number of sums at a node, and how many of these sums are set to 0.  The
    sums run over the vocabulary, or over the tokens that a sparse draft lists.
    """
    check_device(target)
    work = Workspace() if workspace is None else workspace
    batch, chains, gamma = tokens.shape
    size, device, (node_size, cleared) = target.shape[3], target.device, sections
    lists, rows = (draft, None) if isinstance(draft, SparseDrafts) else (None, draft)
    target, draft_rows, tokens, uniforms = lay_out(work, target, rows, tokens, uniforms)
    blocks = -(-size // block)
    agree = work.take("agree", (batch, gamma + 1, chains), torch.int64, device)
    sums = work.take("sums", (batch, max(gamma, 1), node_size), torch.int64, device)
    sums[..., :cleared].zero_()
    listed_tokens, width, node_blocks, memory = tokens, 0, blocks, sums
    if lists is not None:
        listed_tokens, draft_rows, width = lay_out_lists(work, lists)
        node_blocks = -(-draft_rows.shape[-1] // width)
        memory = work.take("drawn from", (batch, block), draft_rows.dtype, device)
    softmaxes = sums
    if kind == "logits":
        logits = (target, target if rows is None else draft_rows)
        softmaxes = summarise_logits(*logits, tokens, temperature, work, of_target=rows is None)
    own = tokens if counted is None else counted.contiguous().view(torch.uint8)
    shapes = ((batch, gamma + 1), (batch,), (batch,))
    result = Verified(*(torch.empty(x, dtype=torch.int64, device=device) for x in shapes))
    tensors = (target, draft_rows, tokens, uniforms, listed_tokens, own, softmaxes)
    strides = (*target.stride()[:3], *draft_rows.stride()[:3])
    sizes = (*strides, chains, gamma, size, draft_rows.shape[3], node_size)
    of_chains = {"tree": counted is not None, "padded_chains": padded(chains)}
    constants = {**of_chains, "kind": kind, "width": width}
    return ChainsCall(
        work, tensors, agree, sums, memory, result, sizes, blocks, node_blocks, constants
    )


def launch_tables(
    call: ChainsCall, numbers: Tensor, position: int, edges: int, *, walk: bool
) -> None:
    """Launch the kernel that builds the tables of a position."""
    _, _, tokens, _, _, own, _ = call.tensors
    *_, chains, gamma, _, _, node_size = call.sizes
    pointers = (tokens, own, call.agree, call.sums, numbers)
    constants = {name: call.constants[name] for name in ("tree", "padded_chains")}
    sizes = (chains, gamma, node_size, position)
    launch(make_tables, (len(tokens),), *pointers, *sizes, edges=edges, walk=walk, **constants)


@jit
def add_up(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    listed_tokens: tl.tensor,
    counted: tl.tensor,
    softmaxes: tl.tensor,
    agree: tl.tensor,
    sums: tl.tensor,
    last_sums: tl.tensor,
    target_sequence: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    chains: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    node_size: tl.tensor,
    coins: tl.tensor,
    position: tl.tensor,
    last: tl.constexpr,
    kind: tl.constexpr,
    width: tl.constexpr,
    tree: tl.constexpr,
    edges: tl.constexpr,
    padded_chains: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Find the chains that agree before a position, and add a block to the position's sums.

    At the last position, which follows all drafts, the kernel sums the masses that the next token
    is drawn from, in the rows where the output ended.
    """
    sequence = tl.program_id(0).to(tl.int64)
    block, blocks = tl.program_id(1), tl.num_programs(1)
    options: tl.constexpr = Options(kind, width, tree, edges, padded_chains)
    several = chains_of(
        (target, draft, tokens, listed_tokens, counted, softmaxes, sums),
        (target_sequence, target_chain, target_row, draft_sequence, draft_chain, draft_row),
        (chains, gamma, size, draft_size, node_size),
    )
    paths = several.paths
    agree += sequence * (gamma + 1) * chains
    position = tl.full((), 0, tl.int64) + position
    uniforms += sequence * (gamma * coins + 2)
    agreed = advance(several, uniforms, agree, coins, position, options)
    chain, start = tl.arange(0, padded_chains), block * block_size
    token = start + tl.arange(0, block_size)
    if block == 0:
        tl.store(agree + position * chains + chain, tl.where(agreed, 1, 0), mask=chain < chains)
    if last:
        for back in range(gamma):  # all chains agree at position 0
            if tl.max(tl.where(agreed, 1, 0), 0) == 0:
                position = tl.full((), 0, tl.int64) + gamma - 1 - back
                agreed = agree_at(agree, position, chains, padded_chains)
    _token, _own, count, read = drafts_at(paths, agreed, position, options)
    if last:
        of_row, left = next_token_masses(several, read, position, token, count, None, None, options)
        total = tl.sum(left, 0)
        if width > 0:
            total += change_of_listed(token, several, read, position, count, None, options)
        place = last_sums + sequence * 2 * blocks + block
        tl.store(place, total)
        tl.store(place + blocks, tl.sum(of_row, 0))
    elif count > 0:
        if width > 0:
            _, target_prob, draft_prob = at_listed(
                several, read, position, block, count > 0, options
            )
        else:
            target_prob, draft_prob = at_node(several, read, position, token, count > 0, options)
        node = several.sums + position * node_size
        if edges > 0:
            add_to_bins(node, target_prob, draft_prob, edges)
        else:
            add_up_factors(node, target_prob, draft_prob, chains)


@jit
def make_tables(
    tokens: tl.tensor,
    counted: tl.tensor,
    agree: tl.tensor,
    sums: tl.tensor,
    numbers: tl.tensor,
    chains: tl.tensor,
    gamma: tl.tensor,
    node_size: tl.tensor,
    position: tl.tensor,
    edges: tl.constexpr,
    tree: tl.constexpr,
    walk: tl.constexpr,
    padded_chains: tl.constexpr,
) -> None:
    """Build the table of a position from the sums of its bins.

    In walk and keep the number of drafts is random, with the distribution in `numbers`.
    """
    sequence = tl.program_id(0).to(tl.int64)
    position = tl.full((), 0, tl.int64) + position
    agreed = agree_at(agree + sequence * (gamma + 1) * chains, position, chains, padded_chains)
    options: tl.constexpr = Options("probabilities", 0, tree, edges, padded_chains)
    paths = paths_of(tokens, counted, chains, gamma)
    _, _, count, _ = drafts_at(paths, agreed, position, options)
    if count > 0:
        node = sequence * gamma + position
        if walk:
            numbers += node * (chains + 1)
            make_table(sums + node * node_size, chains, numbers, edges, True)
        else:
            make_table(sums + node * node_size, count, numbers, edges, False)


@jit
def draw(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    uniforms: tl.tensor,
    listed_tokens: tl.tensor,
    counted: tl.tensor,
    softmaxes: tl.tensor,
    agree: tl.tensor,
    sums: tl.tensor,
    last_sums: tl.tensor,
    drawn_from: tl.tensor,
    output: tl.tensor,
    accepted: tl.tensor,
    first_chain: tl.tensor,
    target_sequence: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    chains: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    node_size: tl.tensor,
    coins: tl.tensor,
    blocks: tl.tensor,
    kind: tl.constexpr,
    width: tl.constexpr,
    tree: tl.constexpr,
    edges: tl.constexpr,
    padded_chains: tl.constexpr,
    padded_rows: tl.constexpr,
    padded_blocks: tl.constexpr,
    block_size: tl.constexpr,
) -> None:
    """Draw the next token after the accepted drafts, and write a sequence's output."""
    sequence = tl.program_id(0).to(tl.int64)
    options: tl.constexpr = Options(kind, width, tree, edges, padded_chains)
    several = chains_of(
        (target, draft, tokens, listed_tokens, counted, softmaxes, sums),
        (target_sequence, target_chain, target_row, draft_sequence, draft_chain, draft_row),
        (chains, gamma, size, draft_size, node_size),
    )
    paths = several.paths
    agree += sequence * (gamma + 1) * chains
    last_sums += sequence * 2 * blocks
    position = tl.full((), 0, tl.int64)
    for i in range(1, gamma + 1):
        position += tl.max(tl.where(agree_at(agree, i, chains, padded_chains), 1, 0), 0)
    agreed = agree_at(agree, position, chains, padded_chains)
    _, _, count, read = drafts_at(paths, agreed, position, options)
    rejected = count > 0
    uniforms += sequence * (gamma * coins + 2) + gamma * coins
    uniform = tl.load(uniforms + tl.where(rejected, 0, 1))  # scalar
    block, point, subtract = pick_block(last_sums, rejected, uniform, blocks, padded_blocks)
    start = block * block_size
    token = start + tl.arange(0, block_size)
    drawn_from += sequence * block_size
    of_row, left = next_token_masses(
        several, read, position, token, count, None, drawn_from, options
    )
    drawn = first_above(tl.where(subtract, left, of_row), token, point, size)
    first = first_of(agreed, chains, padded_chains)
    tl.store(accepted + sequence, position)
    tl.store(first_chain + sequence, first)
    output += sequence * (gamma + 1)
    write_output(output, paths.tokens + first * gamma, position, drawn, gamma, padded_rows)
