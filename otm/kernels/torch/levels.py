"""Slots and swaps between levels, batched: the decisions of `otm.kernels.numpy.levels`.

The vocabulary is read twice, for the histogram and for the residual, and never sorted: only the
ends of the swaps are, two for each level.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otm.kernels.numpy.levels import LEAST_RATIO, STEPS
from otm.kernels.torch.distributions import mass
from otm.kernels.torch.grid_k_seq import at_least_once
from otm.kernels.torch.multi_draft import verify_chains
from otm.kernels.verified import Verified


class Table(NamedTuple):
    """`otm.kernels.numpy.levels.Table` of B nodes: Tensors [B, …]."""

    masses: Tensor
    win: Tensor
    low: Tensor
    high: Tensor
    swapped: Tensor
    first: Tensor
    last: Tensor


def verify(
    target_probs: Tensor, draft_probs: Tensor, draft_tokens: Tensor, uniforms: Tensor
) -> Verified[Tensor]:
    """Verify K chains, selecting among the drafts of a position by the levels of their ratios."""
    return verify_chains(select, target_probs, draft_probs, draft_tokens, uniforms)


def select(
    target: Tensor, draft: Tensor, tokens: Tensor, uniforms: Tensor, steps: int = STEPS
) -> tuple[Tensor, Tensor]:
    """Accept the draft that wins, if it passes: [B, V], [B, V], [B, K], [B, 2K + 1]."""
    everything = mass(target)
    target, draft = target.double(), draft.double()
    chains, size = tokens.shape[1], target.shape[1]
    count = (tokens >= 0).sum(1, keepdim=True)
    ratios = ratio_grid(chains, steps, target)

    ratio = torch.where(draft > 0, target / draft, ratios[-1]).minimum(ratios[-1])
    lower = torch.searchsorted(ratios, ratio, right=True) - 1
    lower = lower.clamp(0, len(ratios) - 2)
    share = (ratio - ratios[lower]) / (ratios[lower + 1] - ratios[lower])
    whole, upper = mass(draft), mass(draft * share)
    masses = torch.zeros(len(target), len(ratios), dtype=torch.int64, device=target.device)
    masses = masses.scatter_add(1, lower, whole - upper).scatter_add(1, lower + 1, upper)
    table = make_table(masses, ratios, count, chains)
    wins = table.win.gather(1, lower)
    won = draft * (wins + share * (table.win.gather(1, lower + 1) - wins))

    column = tokens.clamp(0, size - 1)
    level = lower.gather(1, column) + (uniforms[:, :chains] < share.gather(1, column))
    slot = slot_of(table, level, uniforms[:, chains : 2 * chains])
    slot = slot.where((tokens >= 0) & (tokens < size), -1)
    best = slot.amax(1, keepdim=True)
    place = torch.arange(chains, device=tokens.device)
    index = torch.where(slot == best, place, chains - 1).amin(1)  # the first of the highest
    token = column.gather(1, index[:, None])
    of_target, of_draft = target.gather(1, token), draft.gather(1, token)  # [B, 1]
    passes = (uniforms[:, -1:] * won.gather(1, token) < of_target) & (of_draft > 0) & (best >= 0)
    residual = (everything - mass(torch.minimum(target, won))).clamp(min=0)
    use = residual.any(1, keepdim=True) & (count > 0)
    return torch.where(passes[:, 0], index, -1), torch.where(use, residual, everything)


def ratio_grid(chains: int, steps: int, like: Tensor) -> Tensor:
    """Ascending ratios of the levels, made on the device: [G]."""
    octaves = (chains - 1).bit_length() - LEAST_RATIO
    place = torch.arange(octaves * steps + 1, device=like.device)
    octave = place // steps
    numerator = ((steps + place - octave * steps) << octave).double()
    # torch takes tensor / number as tensor · reciprocal, which is rounded twice
    ratios = numerator / torch.full_like(numerator, steps) * 2.0**LEAST_RATIO
    return torch.nn.functional.pad(ratios, (1, 0))


def make_table(masses: Tensor, ratios: Tensor, count: Tensor, chains: int) -> Table:
    """Find slots and swaps of the levels for [B, 1] drafts."""
    below = masses.cumsum(1)
    slopes = power_slopes(below, count, chains)
    ratio = target_ratio(masses, below, ratios, count, chains)
    lacking = ((ratio - slopes) * masses).long()
    lack, excess = lacking.clamp(min=0).cumsum(1), (-lacking).clamp(min=0).cumsum(1)

    # the north-west corner rule: both are used up in order, from the end of one to the next end
    ends = torch.cat([lack, excess], 1).sort(1).values
    starts = _from_zero(ends[:, :-1])
    low, high = (
        torch.searchsorted(x, starts, right=True).clamp(max=len(ratios) - 1) for x in (lack, excess)
    )
    gain = slopes.gather(1, high) - slopes.gather(1, low)
    useful = (ends <= torch.minimum(lack[:, -1:], excess[:, -1:])) & (low < high) & (gain > 0)
    gain = gain.where(useful, 1.0)
    largest = torch.minimum(masses.gather(1, low), masses.gather(1, high))  # more only by rounding
    swap = torch.minimum((ends - starts) / gain, largest.double()).long().where(useful, 0)

    poor = lacking > 0
    edges = torch.where(poor, lack, excess)
    first = torch.searchsorted(ends, edges - lacking.abs(), right=True)
    last = torch.searchsorted(ends, edges, right=True)
    gained = _from_zero((swap * gain).long().cumsum(1))
    moved = gained.gather(1, last) - gained.gather(1, first)
    moved = torch.where(poor, moved, -moved).double()
    win = torch.where(masses > 0, slopes + moved / masses.clamp(min=1).double(), slopes)
    return Table(masses, win, low, high, _from_zero(swap.cumsum(1)), first, last)


def target_ratio(
    masses: Tensor, below: Tensor, ratios: Tensor, count: Tensor, chains: int
) -> Tensor:
    """Ratio of winning to drafting that the optimal cap and the floor leave: [B, G]."""
    total = below[:, -1:]
    target = (masses * ratios).long().cumsum(1)
    above = total - below
    divisor = total.clamp(min=1).double()
    reach = (target + total * at_least_once(above.double() / divisor, count, chains)).amin(1)
    reach = torch.minimum(reach[:, None], total.double())
    under = (target + ratios * above <= reach).sum(1, keepdim=True)
    rest = torch.cat([total, above], 1).gather(1, under)
    cap = (reach - _from_zero(target).gather(1, under)) / rest.double()
    cap = cap.where((under < len(ratios)) & (rest > 0), ratios[-1])
    capped = torch.minimum(ratios, cap)
    accepted = (masses * capped).long().cumsum(1)
    missing = total - accepted[:, -1:]
    raised = (capped * below - accepted <= missing).sum(1, keepdim=True)
    under_floor = _from_zero(below).gather(1, raised)
    floor = (missing + _from_zero(accepted).gather(1, raised)).double() / under_floor.double()
    floor = floor.where((missing > 0) & (under_floor > 0), 0.0).clamp(max=1)
    return torch.maximum(capped, floor)


def power_slopes(below: Tensor, count: Tensor, chains: int) -> Tensor:
    """Slopes (b^k − a^k) / (b − a) between cumulative masses a ≤ b, scaled to a total of one."""
    points = _from_zero(below).double() / below[:, -1:].clamp(min=1).double()
    start, end = points[:, :-1], points[:, 1:]
    slopes, power = torch.ones_like(end), start
    for i in range(1, chains):
        slopes = torch.where(i < count, slopes * end + power, slopes)
        power = power * start
    return slopes


def slot_of(table: Table, level: Tensor, uniforms: Tensor) -> Tensor:
    """Slot that drafts of levels take, its own or a partner's: all [B, K]."""
    first, last = table.first.gather(1, level), table.last.gather(1, level)
    point = (uniforms * table.masses.gather(1, level).double()).long()
    point = table.swapped.gather(1, first) + point
    swap = torch.searchsorted(table.swapped[:, 1:].contiguous(), point, right=True)
    inside = swap.clamp(max=table.low.shape[1] - 1)
    low, high = table.low.gather(1, inside), table.high.gather(1, inside)
    return torch.where(swap >= last, level, torch.where(low == level, high, low))


def _from_zero(sums: Tensor) -> Tensor:
    """Put 0 before cumulative sums: [B, n] → [B, n + 1]."""
    padded: Tensor = torch.nn.functional.pad(sums, (1, 0))
    return padded
