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
from otm.kernels.tree_walk.numpy import STEPS, Winner, residual, winner


class Level(NamedTuple):
    """Masses of the nodes that the walks have reached, one node of each sequence."""

    row: Tensor  # the target's probabilities, [B, V]
    target: Tensor  # masses of the target, [B, V]
    below: Tensor  # masses of the drawn child's distribution, [B, V]; 0 if no child was drawn
    is_certain: Tensor  # tokens of the certain children, [B, V]
    of_children: Tensor  # the target's masses of the certain children, [B, N]
    certain: Tensor  # which drafts are certain children, [B, N]
    drawn: Tensor  # which draft is the drawn child, [B, N]

    @property
    def of_certain(self) -> Tensor:
        """The target's mass of all certain children, [B, 1]."""
        return self.of_children.sum(1, keepdim=True)


def walk(
    target: Tensor,
    draft: Tensor | None,
    trees: Trees[Tensor],
    probs: Callable[[Tensor], Tensor],
    steps: int = STEPS,
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
        here = (parents == node[:, None]) & (tokens >= 0) & (live & (share > 0))[:, None]
        if level == levels - 1:  # after L drafts only the bonus token follows
            here = here & False
        below = None if draft is None else probs(draft[sequence, node + 1])
        found = _level(probs(target[sequence, node + 1]), below, trees, here)
        outside = found.target.masked_fill(found.is_certain, 0)
        won = winner(outside, found.of_certain, found.below, steps)
        left = residual(found.row, found.is_certain, found.of_certain, share[:, None], won)
        goes_on = here.any(1)
        excess = left.sum(1).double() / UNIT
        chance = excess.where(goes_on, share)
        divisor = (excess + (1 - share)).where(goes_on, 1.0)
        passes = live & ((uniforms[:, level, 2] * divisor < chance) | (level == 0))
        # Only rounding can make the residual empty.
        left = left.where((goes_on & left.any(1))[:, None], found.target)
        kept, kept_node = kept.where(~passes, level), node.where(passes, kept_node)
        kept_masses = left.where(passes[:, None], kept_masses)
        if not tokens.shape[1]:
            break
        child, x, win = _winning_child(tokens, found, won, uniforms[:, level])
        share = capped_ratio(share * found.row.gather(1, x)[:, 0], win).where(goes_on, share)
        path[:, level] = x[:, 0].where(goes_on, -1)
        live, node = live & goes_on, child.where(goes_on, node)
    place = torch.arange(levels, device=target.device)
    token = locate(kept_masses, uniforms[sequence, kept, 3])
    output = path.where(place < kept[:, None], -1)
    output = torch.where(place == kept[:, None], token[:, None], output)
    return VerifiedTree(output, kept, kept_node)


def _level(row: Tensor, below: Tensor | None, trees: Trees[Tensor], here: Tensor) -> Level:
    """Return the masses at the nodes, from their rows and the mask of their children `here`."""
    row = row.double()
    masses = mass(row)
    is_drawn = trees.sampled if below is not None else torch.zeros_like(here)
    certain, drawn = here & ~is_drawn, here & is_drawn
    is_certain = torch.zeros_like(masses, dtype=torch.int8)
    of_children = masses[:, :0]
    if here.shape[1]:
        token = trees.tokens.clamp(min=0).long()
        is_certain = is_certain.scatter_reduce(1, token, certain.to(torch.int8), "amax")
        of_children = masses.gather(1, token).where(certain, 0)
    is_there = is_certain > 0
    of_draft = torch.zeros_like(masses)
    if below is not None:
        hidden = is_there | ~drawn.any(1, keepdim=True)
        of_draft = mass(extend(below, row.shape[1])).masked_fill(hidden, 0)
    return Level(row, masses, of_draft, is_there, of_children, certain, drawn)


def _winning_child(
    tokens: Tensor, found: Level, won: Winner, uniforms: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the child that wins, its token [B, 1], and the probability that its token wins."""
    count, token = tokens.shape[1], tokens.clamp(min=0).long()
    place = torch.arange(count, device=tokens.device)
    drawn = place.where(found.drawn, count).amin(1).clamp(max=count - 1)
    x = token.gather(1, drawn[:, None])
    drafted, wins = (masses.gather(1, x)[:, 0].double() for masses in (found.below, won.wins))
    is_drawn = (uniforms[:, 0] * drafted < wins) | ~found.certain.any(1)
    is_drawn = is_drawn & found.drawn.any(1)
    some = found.of_certain[:, 0] > 0
    first = place.where(found.certain, count).amin(1).clamp(max=count - 1)
    chosen = locate(found.of_children, uniforms[:, 1]).where(some, first)
    part = found.of_children.gather(1, chosen[:, None])[:, 0].double()
    part = (part / nonzero_or_one(found.of_certain[:, 0]).double()).where(some, 1.0)
    chance = won.certain[:, 0] * part
    chance = (wins / nonzero_or_one(won.drawn[:, 0]).double()).where(is_drawn, chance)
    child = drawn.where(is_drawn, chosen)
    return child, token.gather(1, child[:, None]), chance
