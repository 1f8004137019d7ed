"""The optimum of bins, batched: the decisions of `otm.kernels.optimal.numpy`.

The vocabulary is read twice, for the sums of the bins and for the residual, and never sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from otm.kernels.common.distributions.torch import mass
from otm.kernels.multi_draft.torch import verify_chains
from otm.kernels.optimal.numpy import FINE, LEAST, STEPS, Places, Table, edge_count


def select(
    target: Tensor, draft: Tensor, tokens: Tensor, uniforms: Tensor, steps: int = STEPS
) -> tuple[Tensor, Tensor]:
    """Accept the draft that wins, if it passes: [B, V], [B, V], [B, K], [B, K + 1]."""
    everything = mass(target)
    target, draft = target.double(), draft.double()
    chains, size = tokens.shape[1], target.shape[1]
    count = (tokens >= 0).sum(1, keepdim=True)
    places, table = at_node(target, draft, count, chains, steps)
    won = winner(draft, places, table)

    column = tokens.clamp(0, size - 1)
    drafted = Places(*(x.gather(1, column) for x in places))
    slot = choose_slots(table, drafted, uniforms[:, :chains])
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


verify = partial(verify_chains, select)
"""Verify K chains, selecting among the drafts of a position by the bins of their ratios."""


def at_node(
    target: Tensor, draft: Tensor, count: Tensor, chains: int, steps: int = STEPS
) -> tuple[Places, Table]:
    """Places of the tokens [B, V] and table for [B, 1] drafts, on the grid of so many chains."""
    return of_numbers(target, draft, certain(count, chains), steps)


def certain(count: Tensor, most: int) -> Tensor:
    """Law of a number that is not random, and at most so large: [B, 1] → [B, most + 1]."""
    return (torch.arange(most + 1, device=count.device) == count).double()


def of_numbers(
    target: Tensor, draft: Tensor, numbers: Tensor, steps: int = STEPS
) -> tuple[Places, Table]:
    """Places of the tokens [B, V] and table for a random number of drafts: law [B, K + 1]."""
    chains = numbers.shape[1] - 1
    edges = ratio_grid(chains, steps, target)
    ratio = torch.where(draft > 0, target / draft, edges[-1]).minimum(edges[-1])
    bins = (torch.searchsorted(edges, ratio, right=True) - 1).clamp(0, len(edges) - 2)
    share = (ratio - edges[bins]) / (edges[bins + 1] - edges[bins])
    sums = torch.zeros(len(target), len(edges) - 1, dtype=torch.int64, device=target.device)
    masses, uppers = (sums.scatter_add(1, bins, mass(x)) for x in (draft, draft * share))
    return Places(bins, share), make_table(masses, uppers, edges, numbers)


def winner(draft: Tensor, places: Places, table: Table) -> Tensor:
    """Distribution v' of the draft that wins: [B, V]."""
    rise = table.rise.gather(1, places.bin)
    return draft * (table.win.gather(1, places.bin) + places.share * rise)


def ratio_grid(chains: int, steps: int, like: Tensor) -> Tensor:
    """Ascending edges of the bins, made on the device: [G + 1]."""
    coarse = FINE - LEAST
    place = torch.arange(edge_count(chains, steps) - coarse - 1, device=like.device)
    octave = place // steps
    numerator = ((steps + place - octave * steps) << octave).double()
    # torch takes tensor / number as tensor · reciprocal, which is rounded twice
    fine = numerator / torch.full_like(numerator, steps) * 2.0**FINE
    low = (1 << torch.arange(coarse, device=like.device)).double() * 2.0**LEAST
    return from_zero(torch.cat([low, fine])[None])[0]


def make_table(masses: Tensor, uppers: Tensor, edges: Tensor, numbers: Tensor) -> Table:
    """Find the table for a number of drafts, from Σ p and Σ p · share of each bin."""
    below = masses.cumsum(1)
    slopes = mean_slopes(below, numbers)
    filled = masses.clamp(min=1).double()
    mean = uppers.double() / filled
    # at the edges the ratio of winning to drafting shall be max(min(q/p, c), b)
    cap = find_cap(masses, uppers, edges, numbers)
    ratios = torch.maximum(torch.minimum(edges, cap), find_floor(masses, uppers, edges, cap))
    steps = ratios[:, 1:] - ratios[:, :-1]
    lacking = ((ratios[:, :-1] + mean * steps - slopes) * masses).long()
    lack, excess = lacking.clamp(min=0).cumsum(1), (-lacking).clamp(min=0).cumsum(1)
    bins = torch.arange(masses.shape[1], device=masses.device).expand(masses.shape)
    poor, _, amount = matched(lack, excess, bins)
    # no token of a poor bin wins less than in its own slot, none of a rich one more
    room = torch.where(poor, uppers, masses - uppers).clamp(min=1).double()
    rise = torch.minimum(steps, amount.double() / room)
    win = slopes + torch.where(poor, amount, -amount).double() / filled - rise * mean
    return Table(win, rise, slopes, lack, excess, below)


def find_cap(masses: Tensor, uppers: Tensor, edges: Tensor, numbers: Tensor) -> Tensor:
    """Cap c of the ratio of winning to drafting: [B, 1]."""
    below, width = masses.cumsum(1), edges[1:] - edges[:-1]
    total = below[:, -1:]
    above = total - below
    target = (masses * edges[:-1] + uppers * width).long().cumsum(1)
    hit = some_draft(above.double() / total.clamp(min=1).double(), numbers)
    reach = torch.minimum((target + total * hit).amin(1, keepdim=True), total.double())
    mean = edges[:-1] + uppers.double() / masses.clamp(min=1).double() * width
    under = (target + mean * above <= reach).sum(1, keepdim=True)
    rest = torch.cat([total, above], 1).gather(1, under)
    cap = (reach - from_zero(target).gather(1, under)) / rest.double()
    return cap.where((under < masses.shape[1]) & (rest != 0), edges[-1])


def find_floor(masses: Tensor, uppers: Tensor, edges: Tensor, cap: Tensor) -> Tensor:
    """Floor b of this ratio: [B, 1]."""
    # between two edges all is linear: a token counts for both of them, by its share
    shared = torch.nn.functional.pad(masses - uppers, (0, 1)) + from_zero(uppers)
    capped = torch.minimum(edges, cap)
    accepted, below = (shared * capped).long().cumsum(1), shared.cumsum(1)
    missing = below[:, -1:] - accepted[:, -1:]
    raised = (capped * below - accepted <= missing).sum(1, keepdim=True)
    under = from_zero(below).gather(1, raised)
    floor = (missing + from_zero(accepted).gather(1, raised)).double() / under.double()
    return floor.where((missing > 0) & (under != 0), 0.0).clamp(max=1)


def mean_slopes(below: Tensor, numbers: Tensor) -> Tensor:
    """Slopes of x ↦ E x^M between cumulative masses, scaled to a total of one."""
    points = from_zero(below).double() / below[:, -1:].clamp(min=1).double()
    start, end = points[:, :-1], points[:, 1:]
    slopes = value = torch.zeros_like(end)
    for number in numbers[:, 1:, None].flip(1).unbind(1):
        slopes = slopes * end + value
        value = value * start + number
    return slopes * end + value


def some_draft(part: Tensor, numbers: Tensor) -> Tensor:
    """Probability 1 − E (1 − x)^M that one of M drafts is in a part."""
    hit = some = torch.zeros_like(part)
    for number in numbers[:, 1:, None].unbind(1):
        hit = hit + (1 - hit) * part
        some = some + number * hit
    return some


def matched(lack: Tensor, excess: Tensor, bins: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Whether bins lack something, where what is matched of them starts, and how much it is."""
    lacks, exceeds = lack.gather(1, bins), excess.gather(1, bins)
    before, exceeded = (from_zero(sums).gather(1, bins) for sums in (lack, excess))
    poor = lacks > before
    start = torch.where(poor, torch.maximum(before, exceeds), exceeded)
    end = torch.where(poor, torch.minimum(lacks, excess[:, -1:]), torch.minimum(exceeds, lacks))
    return poor, start, (end - start).clamp(min=0)


def choose_slots(table: Table, places: Places, uniforms: Tensor) -> Tensor:
    """Slots that drafts take, those of their bins or partners': all [B, K]."""
    own = places.bin
    poor, start, amount = matched(table.lack, table.excess, own)
    slope = table.slopes.gather(1, own)
    change = table.win.gather(1, own) + places.share * table.rise.gather(1, own) - slope
    point = uniforms * amount.double()
    value = start + torch.minimum(point.long(), amount - 1)

    def of_others(find: Callable[[Tensor], Tensor]) -> Tensor:
        return torch.where(poor, find(table.excess), find(table.lack))

    partner = of_others(lambda sums: torch.searchsorted(sums, value, right=True))
    partner = partner.clamp(max=table.lack.shape[1] - 1)
    first = torch.maximum(start, of_others(lambda sums: from_zero(sums).gather(1, partner)))
    last = torch.minimum(start + amount, of_others(lambda sums: sums.gather(1, partner)))
    gain = (table.slopes.gather(1, partner) - slope).abs()
    inside = point - (first - start).double()
    moves = (amount > 0) & (inside * gain < change.abs() * (last - first).double())
    return torch.where(moves, partner, own)


def from_zero(sums: Tensor) -> Tensor:
    """Put 0 before cumulative sums: [B, n] → [B, n + 1]."""
    padded: Tensor = torch.nn.functional.pad(sums, (1, 0))
    return padded
