"""Nearly OTM-k at one node, without a sort: bins of the ratio q/p in place of single tokens.

The optimal rule ranks all tokens by their ratio.  Here each token is in one bin of a fixed grid of
ratios, and the bins are ranked.  Two sums of each bin, one pass over the vocabulary, give the
optimal cap, the slots of the bins, and what each bin lacks or has too much of.  A draft takes the
slot of its bin or, by its own ratio, that of a partner; the draft in the highest slot wins.  Its
distribution v' is that of the stored table, it is accepted with probability min(1, q/v'), and the
residual is q − min(q, v'): the output has the distribution q whatever the grid, and only the
acceptance depends on it.

Letters as in the papers: p the draft's distribution, q the target's, k the number of drafts.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm.kernels.common.distributions.numpy import mass
from otm.kernels.multi_draft.numpy import verify_chains

STEPS = 256
"""Bins for each octave of the ratio, of the fine ones; a power of two, which the kernels need."""

LEAST, FINE = -6, -1
"""Powers of two of the least ratio of the grid that is not 0, and of the first fine bin.

The cut of the optimum is at a ratio of at least 1; below 1/2 one bin for each octave is enough."""

Numbers = npt.NDArray[Any]
"""Fractions, or whole numbers or floats with the steps rounded as written."""

Bins = npt.NDArray[np.int64]


def uniforms_per_position(chains: int) -> int:
    """Count the uniforms of a position: a slot for each draft, and a coin."""
    return chains + 1


def edge_count(chains: int, steps: int = STEPS) -> int:
    """Count the edges of the bins: a power of two, so many that the last is at least K."""
    octaves = (chains - 1).bit_length() - FINE
    return 1 << (FINE - LEAST + 1 + octaves * steps).bit_length()


def ratio_grid(chains: int, steps: int = STEPS) -> list[Fraction]:
    """Ascending edges of the bins: 0, powers of two, then 2^e (1 + m/steps)."""
    coarse = [Fraction(0), *(Fraction(2) ** e for e in range(LEAST, FINE))]
    fine = (divmod(i, steps) for i in range(edge_count(chains, steps) - len(coarse)))
    return [*coarse, *(Fraction(2) ** (FINE + e) * (1 + Fraction(m, steps)) for e, m in fine)]


@lru_cache(maxsize=64)
def edges_of_grid(chains: int, steps: int, exact: bool) -> Numbers:
    """`ratio_grid` as an array that nobody can write to, of fractions or of floats."""
    edges = np.array(ratio_grid(chains, steps), dtype=object if exact else np.float64)
    edges.flags.writeable = False
    return edges


class Places(NamedTuple):
    """Where the ratio of each token is: its bin, and its share of the way between the edges."""

    bin: Any
    share: Any


class Table(NamedTuple):
    """What the bins do: arrays [G], or Tensors [B, G]."""

    win: Any  # how many times as likely a token wins as a draft is it, at a bin's lower edge
    rise: Any  # how much more at its upper edge
    slopes: Any  # the same for drafts that keep the slot of their bin
    lack: Any  # cumulative, what bins shall win more than with their own slots
    excess: Any  # cumulative, what they shall win less
    below: Any  # cumulative, the mass of drafts in the bins


def select(
    target: Numbers, draft: Numbers, tokens: npt.NDArray[Any], uniforms: Numbers, steps: int = STEPS
) -> tuple[int, Numbers]:
    """Accept the draft that wins, if it passes: [V], [V], [K], [K + 1] → place or −1, masses [V].

    The masses are those of q − min(q, v'), or of q if no draft is running or, by rounding alone,
    nothing is left.  Uniforms: one for the slot of each draft, one for the winner.
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
    if running.size:
        drafted = tokens[running]
        slots = choose_slots(table, Places(*(x[drafted] for x in places)), uniforms[running])
        index = int(running[slots.argmax()])
        x = int(tokens[index])
        if uniforms[-1] * won[x] < target[x] and draft[x] > 0:
            return index, everything
    residual = np.maximum(everything - mass(np.minimum(target, won)), 0)
    return -1, residual if residual.any() else everything


verify = partial(verify_chains, select)
"""Verify K chains, selecting among the drafts of a position by the bins of their ratios."""


def at_node(
    target: Numbers, draft: Numbers, count: int, chains: int, steps: int = STEPS
) -> tuple[Places, Table]:
    """Places of the tokens [V] and table for so many drafts, on the grid of so many chains."""
    return of_numbers(target, draft, certain(count), chains, steps)


def certain(count: int, most: int = 0) -> Numbers:
    """Law of a number that is not random, and at most so large: [most + 1]."""
    return np.asarray(np.arange(max(count, most) + 1) == count, dtype=np.int64)


def of_numbers(
    target: Numbers, draft: Numbers, numbers: Numbers, chains: int, steps: int = STEPS
) -> tuple[Places, Table]:
    """Places of the tokens and table for m drafts with probability `numbers[m]`, at least one.

    In fractions, which are slow, the grid has no other edges than those beside tokens.
    """
    edges = edges_of_grid(chains, steps, target.dtype == object)
    places = find_places(target, draft, edges)
    if target.dtype == object:
        beside = np.unique(np.concatenate([[0, edges.size - 1], places.bin, places.bin + 1]))
        edges, places = edges[beside], places._replace(bin=beside.searchsorted(places.bin))
    sums = []
    for masses in (mass(draft), mass(draft * places.share)):
        sums.append(np.zeros(edges.size - 1, dtype=masses.dtype) + 0 * masses[:1])
        np.add.at(sums[-1], places.bin, masses)
    return places, make_table(sums[0], sums[1], edges, numbers)


def winner(draft: Numbers, places: Places, table: Table) -> Numbers:
    """Distribution v' of the draft that wins: [V]."""
    won: Numbers = draft * (table.win[places.bin] + places.share * table.rise[places.bin])
    return won


def find_places(target: Numbers, draft: Numbers, edges: Numbers) -> Places:
    """Place tokens on the grid, those with a ratio beyond its end at the end."""
    top = np.full_like(target, edges[-1])
    with np.errstate(over="ignore"):
        ratio = np.divide(target, draft, out=top.copy(), where=draft > 0)
    ratio = np.minimum(ratio, top)
    places = np.clip(np.searchsorted(edges, ratio, side="right") - 1, 0, edges.size - 2)
    below = edges[places]
    return Places(places, (ratio - below) / (edges[places + 1] - below))


def make_table(masses: Numbers, uppers: Numbers, edges: Numbers, numbers: Numbers) -> Table:
    """Find the table for a number of drafts, from Σ p and Σ p · share of each bin."""
    below = np.cumsum(masses)
    slopes = mean_slopes(below, numbers)
    filled = positive(masses)
    mean = uppers / filled
    # at the edges the ratio of winning to drafting shall be max(min(q/p, c), b)
    cap = find_cap(masses, uppers, edges, numbers)
    ratios = np.maximum(np.minimum(edges, cap), find_floor(masses, uppers, edges, cap))
    steps = ratios[1:] - ratios[:-1]
    lacking = rounded((ratios[:-1] + mean * steps - slopes) * masses)
    lack, excess = np.cumsum(np.maximum(lacking, 0)), np.cumsum(np.maximum(-lacking, 0))
    poor, _, amount = matched(lack, excess, np.arange(masses.size))
    # no token of a poor bin wins less than in its own slot, none of a rich one more
    rise = np.minimum(steps, amount / positive(np.where(poor, uppers, masses - uppers)))
    win = slopes + np.where(poor, amount, -amount) / filled - rise * mean
    return Table(win, rise, slopes, lack, excess, below)


def find_cap(masses: Numbers, uppers: Numbers, edges: Numbers, numbers: Numbers) -> Any:
    """Cap c of the ratio of winning to drafting: capped at it, bins accept as much as possible."""
    below, width = np.cumsum(masses), edges[1:] - edges[:-1]
    total = below[-1]
    above = total - below
    target = np.cumsum(rounded(masses * edges[:-1] + uppers * width))
    hit = some_draft(above / max(total, 1 * (total == 0)), numbers)
    reach = np.append(total, target + total * hit).min()
    mean = edges[:-1] + uppers / positive(masses) * width
    under = int((target + mean * above <= reach).sum())  # bins whose mean ratio is at most c
    rest = above[under - 1] if under else total
    if under == masses.size or rest == 0:
        return edges[-1]
    return (reach - (target[under - 1] if under else 0 * total)) / rest


def find_floor(masses: Numbers, uppers: Numbers, edges: Numbers, cap: Any) -> Any:
    """Floor b of this ratio: with it some draft always wins."""
    # between two edges all is linear: a token counts for both of them, by its share
    none = 0 * masses[:1]
    shared = np.append(masses - uppers, none) + np.append(none, uppers)
    capped = np.minimum(edges, cap)
    accepted, below = np.cumsum(rounded(shared * capped)), np.cumsum(shared)
    missing = below[-1] - accepted[-1]
    raised = int((capped * below - accepted <= missing).sum())
    if missing <= 0 or not raised or below[raised - 1] == 0:
        return none[0]
    floor = (missing + accepted[raised - 1]) / below[raised - 1]
    return min(floor, 0 * floor + 1)


def mean_slopes(below: Numbers, numbers: Numbers) -> Numbers:
    """Slopes of x ↦ E x^M between cumulative masses, scaled to a total of one; M has a law.

    By Horner's rule; no step subtracts.
    """
    total = below[-1]
    points = np.append(0 * total, below) / max(total, 1 * (total == 0))
    start, end = points[:-1], points[1:]
    slopes = value = 0 * end
    for number in numbers[:0:-1]:
        slopes = slopes * end + value
        value = value * start + number
    return np.asarray(slopes * end + value)


def some_draft(part: Numbers, numbers: Numbers) -> Numbers:
    """Probability 1 − E (1 − x)^M that one of M drafts is in a part of the drafts' distribution."""
    hit = some = 0 * part
    for number in numbers[1:]:
        hit = hit + (1 - hit) * part
        some = some + number * hit
    return some


def matched(
    lack: Numbers, excess: Numbers, bins: Bins
) -> tuple[npt.NDArray[Any], Numbers, Numbers]:
    """Match what bins lack with what higher ones have too much of, by cumulative amount, in order.

    Returns whether bins lack something, where what is matched of them starts, and how much it is.
    Only rounding leaves an amount without a match.
    """
    before = [np.append(0 * sums[:1], sums)[bins] for sums in (lack, excess)]
    poor = lack[bins] > before[0]
    start = np.where(poor, np.maximum(before[0], excess[bins]), before[1])
    end = np.where(poor, np.minimum(lack[bins], excess[-1]), np.minimum(excess[bins], lack[bins]))
    return poor, start, np.maximum(end - start, 0 * start)


def choose_slots(table: Table, places: Places, uniforms: Numbers) -> Bins:
    """Slots that drafts take, those of their bins or partners': arrays of one shape.

    The point u · amount is in the piece of a partner, and a draft moves if it is in the first part
    of this piece, (t − W) / (W' − W) of it: t is its ratio of winning to drafting, W and W' are the
    slopes of both slots.
    """
    slots: Bins = places.bin.copy()
    exact = table.lack.dtype == object
    poor, start, amount = matched(table.lack, table.excess, places.bin)
    change = (
        table.win[places.bin] + places.share * table.rise[places.bin] - table.slopes[places.bin]
    )
    for side, others in ((poor, table.excess), (~poor, table.lack)):
        some = side & (amount > 0)
        own, begin, size, point = slots[some], start[some], amount[some], uniforms[some]
        point = point * size
        # the product can round up to the amount
        whole = point if exact else np.minimum(point.astype(np.int64), size - 1)
        partner = np.searchsorted(others, begin + whole, side="right")
        first = np.maximum(begin, np.append(0 * others[:1], others)[partner])
        last = np.minimum(begin + size, others[partner])
        gain = abs(table.slopes[partner] - table.slopes[own])
        moves = (point - (first - begin)) * gain < abs(change[some]) * (last - first)
        slots[some] = np.where(moves, partner, own)
    return slots


def rounded(numbers: Numbers) -> Numbers:
    """Whole numbers of parts; fractions stay as they are."""
    return numbers if numbers.dtype == object else numbers.astype(np.int64)


def positive(masses: Numbers) -> Numbers:
    """Put 1 in the place of masses of 0, to divide by them."""
    return np.where(masses > 0, masses, 0 * masses + 1)
