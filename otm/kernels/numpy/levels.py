"""Nearly OTM-k at one node, without a sort: slots and swaps between levels of the ratio q/p.

The optimal rule ranks all tokens by their ratio.  Here the ratios of a fixed grid are the ranks: a
draft with a ratio between two of them takes the lower or the upper level at random, so that its
mean is right.  The masses of the levels are one histogram of the vocabulary; the optimal cap, the
slots and the swaps are then found for the levels, as if these were the tokens, and the draft in the
highest slot wins.  Its distribution v' is computed from what the tables really do, it is accepted
with probability min(1, q/v'), and the residual is q − min(q, v'): the output has the distribution q
whatever the grid, and only the acceptance depends on it.

Letters as in the papers: p the draft's distribution, q the target's, k the number of drafts.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm.kernels.numpy.distributions import mass
from otm.kernels.numpy.grid_k_seq import at_least_once
from otm.kernels.numpy.multi_draft import verify_chains
from otm.kernels.verified import Verified

STEPS = 32
"""Levels for each octave of the ratio; a power of two, which the kernels need."""

LEAST_RATIO = -4
"""Power of two of the least ratio of the grid that is not 0."""

Numbers = npt.NDArray[Any]
"""Fractions, or whole numbers or floats with the steps rounded as written."""


def verify(
    target_probs: Numbers,
    draft_probs: Numbers,
    draft_tokens: npt.NDArray[Any],
    uniforms: Numbers,
) -> Verified[npt.NDArray[np.int64]]:
    """Verify K chains, selecting among the drafts of a position by the levels of their ratios."""
    return verify_chains(select, target_probs, draft_probs, draft_tokens, uniforms)


def uniforms_per_position(chains: int) -> int:
    """Count the uniforms of a position: a level and a slot for each draft, and a coin."""
    return 2 * chains + 1


def ratio_grid(chains: int, steps: int) -> list[Fraction]:
    """Ascending ratios: 0, then 2^e (1 + m/steps), up to a power of two that is at least K."""
    octaves = range(LEAST_RATIO, (chains - 1).bit_length())
    ratios = (Fraction(2) ** e * (1 + Fraction(m, steps)) for e in octaves for m in range(steps))
    return [Fraction(0), *ratios, Fraction(2) ** octaves.stop]


class Places(NamedTuple):
    """Where drafts of each token stand: level `lower`, or the next with probability `share`."""

    lower: npt.NDArray[np.int64]
    share: Numbers


class Table(NamedTuple):
    """What the levels do."""

    masses: Numbers  # [G], draft mass of each level, and of the slot of the same number
    win: Numbers  # [G], how many times as likely a token wins as one draft is to be it
    low: npt.NDArray[np.int64]  # [2G], levels of each swap:
    high: npt.NDArray[np.int64]  # equal masses of both take the other's slot
    swapped: Numbers  # [2G + 1], cumulative mass of the swaps
    first: npt.NDArray[np.int64]  # [G], the swaps of each level are first, …, last − 1
    last: npt.NDArray[np.int64]


def select(
    target: Numbers, draft: Numbers, tokens: npt.NDArray[Any], uniforms: Numbers, steps: int = STEPS
) -> tuple[int, Numbers]:
    """Accept the draft that wins, if it passes: [V], [V], [K], [2K + 1] → place or −1, masses [V].

    The masses are those of q − v', or of q if no draft is running or, by rounding alone, nothing is
    left.  Uniforms: one for the level of each draft, one for the slot of each, one for the winner.
    """
    everything = mass(target)
    running = np.flatnonzero((tokens >= 0) & (tokens < target.size))
    count = int((tokens >= 0).sum())
    if count == 0:
        return -1, everything
    if target.dtype != object:
        target, draft = target.astype(np.float64), draft.astype(np.float64)
    places, table = at_node(target, draft, count, tokens.size, steps)
    won = winner(draft, places, table)

    index, best = -1, -1
    for i in running.tolist():
        x = int(tokens[i])
        level = int(places.lower[x]) + int(uniforms[i] < places.share[x])
        slot = slot_of(table, level, uniforms[tokens.size + i])
        if slot > best:
            index, best = i, slot
    if index >= 0:
        x = int(tokens[index])
        if uniforms[-1] * won[x] < target[x] and draft[x] > 0:
            return index, everything
    residual = np.maximum(everything - mass(np.minimum(target, won)), 0)
    return -1, residual if residual.any() else everything


def at_node(
    target: Numbers, draft: Numbers, count: int, chains: int, steps: int = STEPS
) -> tuple[Places, Table]:
    """Places of the tokens [V] and table for so many drafts, on the grid of so many chains."""
    ratios = np.array(ratio_grid(chains, steps))
    ratios = ratios if target.dtype == object else ratios.astype(np.float64)
    places = find_places(target, draft, ratios)
    return places, make_table(level_masses(draft, places, ratios.size), ratios, count)


def winner(draft: Numbers, places: Places, table: Table) -> Numbers:
    """Distribution v' of the draft that wins: [V]."""
    lower, upper = table.win[places.lower], table.win[places.lower + 1]
    won: Numbers = draft * (lower + places.share * (upper - lower))
    return won


def find_places(target: Numbers, draft: Numbers, ratios: Numbers) -> Places:
    """Place tokens on the grid, those with a ratio beyond its end at the end."""
    possible = draft > 0
    top = np.full_like(target, ratios[-1])
    with np.errstate(over="ignore"):
        ratio = np.divide(target, draft, out=top.copy(), where=possible)
    ratio = np.minimum(ratio, top)
    lower = np.searchsorted(ratios, ratio, side="right") - 1
    lower = np.clip(lower, 0, ratios.size - 2)
    below = ratios[lower]
    return Places(lower, (ratio - below) / (ratios[lower + 1] - below))


def level_masses(draft: Numbers, places: Places, size: int) -> Numbers:
    """Draft mass of each level, as drafts take them at random."""
    whole, upper = mass(draft), mass(draft * places.share)
    masses: Numbers = np.zeros(size, dtype=whole.dtype) + 0 * whole[:1]
    np.add.at(masses, places.lower, whole - upper)
    np.add.at(masses, places.lower + 1, upper)
    return masses


def make_table(masses: Numbers, ratios: Numbers, count: int) -> Table:
    """Find slots and swaps of the levels for so many drafts."""
    below = np.cumsum(masses)
    slopes = power_slopes(below, count)
    lacking = rounded((target_ratio(masses, below, ratios, count) - slopes) * masses)
    lack, excess = np.cumsum(np.maximum(lacking, 0)), np.cumsum(np.maximum(-lacking, 0))

    # the north-west corner rule: both are used up in order, from the end of one to the next end
    ends = np.sort(np.concatenate([lack, excess]))
    starts = np.concatenate([0 * ends[:1], ends[:-1]])
    last_level = ratios.size - 1
    low = np.minimum(np.searchsorted(lack, starts, side="right"), last_level)
    high = np.minimum(np.searchsorted(excess, starts, side="right"), last_level)
    gain = slopes[high] - slopes[low]
    useful = (ends <= min(lack[-1], excess[-1])) & (low < high) & (gain > 0)
    gain = np.where(useful, gain, 0 * gain + 1)
    largest = np.minimum(masses[low], masses[high])  # more only by rounding
    swap = np.where(useful, rounded(np.minimum((ends - starts) / gain, largest)), 0 * ends)

    edges = np.where(lacking > 0, lack, excess)
    size = np.where(lacking > 0, lacking, -lacking)
    first = np.searchsorted(ends, edges - size, side="right")
    last = np.searchsorted(ends, edges, side="right")
    gained = np.concatenate([0 * ends[:1], np.cumsum(rounded(swap * gain))])
    moved = gained[last] - gained[first]
    moved = np.where(lacking > 0, moved, -moved)
    filled = masses > 0
    divisor = np.where(filled, masses, 0 * masses + 1)
    win = np.where(filled, slopes + moved / divisor, slopes)
    swapped = np.concatenate([0 * ends[:1], np.cumsum(swap)])
    return Table(masses, win, low, high, swapped, first, last)


def target_ratio(masses: Numbers, below: Numbers, ratios: Numbers, count: int) -> Numbers:
    """Ratio r = max(min(q/p, c*), b) of winning to drafting, with the masses r p adding to one."""
    total = below[-1]
    target = np.cumsum(rounded(masses * ratios))
    above = total - below
    divisor = max(total, 1 * (total == 0))
    reach = np.append(total, target + total * at_least_once(above / divisor, count)).min()
    # the cap c*: capped at it, the levels accept as much as is possible
    under = int((target + ratios * above <= reach).sum())  # levels with a ratio of at most c*
    cap = ratios[-1]
    if under < ratios.size and (above[under - 1] if under else total) > 0:
        before = target[under - 1] if under else 0 * total
        cap = (reach - before) / (above[under - 1] if under else total)
    capped = np.minimum(ratios, cap)
    accepted = np.cumsum(rounded(masses * capped))
    missing = total - accepted[-1]
    raised = int((capped * below - accepted <= missing).sum())
    floor = 0 * total
    if missing > 0 and raised and below[raised - 1] > 0:
        floor = (missing + accepted[raised - 1]) / below[raised - 1]
    ratio: Numbers = np.maximum(capped, np.minimum(floor, 0 * floor + 1))
    return ratio


def power_slopes(below: Numbers, count: int) -> Numbers:
    """Slopes (b^k − a^k) / (b − a) between cumulative masses a ≤ b, scaled to a total of one."""
    total = below[-1]
    points = np.concatenate([0 * below[:1], below]) / max(total, 1 * (total == 0))
    start, end = points[:-1], points[1:]
    slopes: Numbers = 0 * end + 1
    power = start
    for _ in range(count - 1):  # b^(m+1) − a^(m+1) = b (b^m − a^m) + a^m (b − a)
        slopes = slopes * end + power
        power = power * start
    return slopes


def slot_of(table: Table, level: int, uniform: Any) -> int:
    """Slot that a draft of a level takes: its own, or a partner's."""
    first, last = table.first[level], table.last[level]
    point = uniform * table.masses[level]
    if table.masses.dtype != object:
        point = int(point)
    swap = int(np.searchsorted(table.swapped[1:], table.swapped[first] + point, side="right"))
    if swap >= last:
        return level
    low, high = int(table.low[swap]), int(table.high[swap])
    return high if low == level else low


def rounded(numbers: Numbers) -> Numbers:
    """Whole numbers of parts; fractions stay as they are."""
    return numbers if numbers.dtype == object else numbers.astype(np.int64)
