"""Walk and keep over a batch of trees, with the decisions of `otm.kernels.tree_walk.numpy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from otm.kernels.block.torch import capped_ratio
from otm.kernels.common.arrays import nonzero_or_one
from otm.kernels.common.distributions.numpy import UNIT, mass
from otm.kernels.common.distributions.torch import extend, locate
from otm.kernels.results import VerifiedTree
from otm.kernels.tree.checks import Trees
from otm.kernels.tree_walk.numpy import POINTS, Outside, Winner, residual, winner


class Level(NamedTuple):
    """The nodes that the walks have reached, one node of each sequence."""

    row: Tensor  # the target's probabilities, [B, V]
    target: Tensor  # masses of the target, [B, V]
    is_certain: Tensor  # tokens of the certain children, [B, V]
    of_children: Tensor  # the target's masses of the certain children, [B, N]
    certain: Tensor  # which drafts are certain children, [B, N]
    drawn: Tensor  # which draft is the drawn child, [B, N]
    outside: Outside  # masses outside the certain children


def walk(
    target: Tensor,
    draft: Tensor | None,
    trees: Trees[Tensor],
    probs: Callable[[Tensor], Tensor],
    points: int = POINTS,
) -> VerifiedTree[Tensor]:
    """Walk through all trees at once; `probs` converts the rows that the walk reaches: [B, V]."""
    tokens, parents, _, uniforms = trees
    batch, levels, _ = uniforms.shape
    sequence = torch.arange(batch, device=target.device)
    node = torch.full((batch,), -1, device=target.device)
    live, kept = node < 0, torch.zeros_like(node)
    share = torch.ones(batch, dtype=torch.float64, device=target.device)
    path = torch.full((batch, levels), -1, device=target.device)
    # The deepest node that its coin keeps; the masses of the token after it.
    kept_node, kept_masses = node, torch.zeros_like(target[:, 0], dtype=torch.int64)
    for level in range(levels):
        row = probs(target[sequence, node + 1]).double()
        masses, chance, divisor = mass(row), share, torch.ones_like(share)
        here = (parents == node[:, None]) & (tokens >= 0) & (live & (share > 0))[:, None]
        goes_on = here.any(1)
        # After L drafts only the bonus token follows.
        is_last = level == levels - 1 or not tokens.shape[1]
        if not is_last:
            below = None if draft is None else probs(draft[sequence, node + 1])
            found = _level(row, masses, below, trees, here)
            won = winner(found.outside, points)
            of_certain = found.outside.of_certain
            left = residual(row, found.is_certain, of_certain, share[:, None], won)
            excess = left.sum(1).double() / UNIT
            chance = excess.where(goes_on, chance)
            divisor = (excess + (1 - share)).where(goes_on, divisor)
            # Only rounding can make the residual empty.
            masses = left.where((goes_on & left.any(1))[:, None], masses)
        passes = live & ((uniforms[:, level, 2] * divisor < chance) | (level == 0))
        kept, kept_node = kept.where(~passes, level), node.where(passes, kept_node)
        kept_masses = masses.where(passes[:, None], kept_masses)
        if is_last:
            break
        child, x, win = _winning_child(tokens, found, won, uniforms[:, level])
        share = capped_ratio(share * row.gather(1, x)[:, 0], win).where(goes_on, share)
        path[:, level] = x[:, 0].where(goes_on, -1)
        live, node = live & goes_on, child.where(goes_on, node)
    place = torch.arange(levels, device=target.device)
    token = locate(kept_masses, uniforms[sequence, kept, 3])
    output = path.where(place < kept[:, None], -1)
    output = torch.where(place == kept[:, None], token[:, None], output)
    return VerifiedTree(output, kept, kept_node)


def _level(
    row: Tensor, masses: Tensor, below: Tensor | None, trees: Trees[Tensor], here: Tensor
) -> Level:
    """Describe the nodes by their rows and the mask of their children `here`."""
    is_drawn = trees.sampled if below is not None else torch.zeros_like(here)
    certain, drawn = here & ~is_drawn, here & is_drawn
    token = trees.tokens.clamp(min=0).long()
    is_certain = torch.zeros_like(masses, dtype=torch.int8)
    is_certain = is_certain.scatter_reduce(1, token, certain.to(torch.int8), "amax") > 0
    of_draft = torch.zeros_like(masses)
    if below is not None:
        none_drawn = ~drawn.any(1, keepdim=True)
        of_draft = mass(extend(below, row.shape[1])).masked_fill(none_drawn, 0)
    of_children, hidden = (x.gather(1, token).where(certain, 0) for x in (masses, of_draft))
    outside = (x.masked_fill(is_certain, 0) for x in (masses, of_draft))
    totals = (x.sum(1, keepdim=True) for x in (of_children, hidden))
    return Level(row, masses, is_certain, of_children, certain, drawn, Outside(*outside, *totals))


def _winning_child(
    tokens: Tensor, found: Level, won: Winner, uniforms: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the child that wins, its token [B, 1], and the probability that its token wins."""
    count, token = tokens.shape[1], tokens.clamp(min=0).long()
    place = torch.arange(count, device=tokens.device)
    drawn = place.where(found.drawn, count).amin(1).clamp(max=count - 1)
    x = token.gather(1, drawn[:, None])
    of_drawn = (found.outside.draft, won.wins)
    drafted, wins = (masses.gather(1, x)[:, 0].double() for masses in of_drawn)
    is_drawn = (uniforms[:, 0] * drafted < wins) | ~found.certain.any(1)
    is_drawn = is_drawn & found.drawn.any(1)
    of_certain = found.outside.of_certain[:, 0]
    some = of_certain > 0
    first = place.where(found.certain, count).amin(1).clamp(max=count - 1)
    chosen = locate(found.of_children, uniforms[:, 1]).where(some, first)
    part = found.of_children.gather(1, chosen[:, None])[:, 0].double()
    part = (part / nonzero_or_one(of_certain).double()).where(some, 1.0)
    chance = won.certain[:, 0] * part
    chance = (wins / nonzero_or_one(won.drawn[:, 0]).double()).where(is_drawn, chance)
    child = drawn.where(is_drawn, chosen)
    return child, token.gather(1, child[:, None]), chance
