"""Nearly optimal rule for k drafts at one node, without a sort: bins of the ratio q/p.

The optimal rule (OTM-k) ranks all tokens by their ratio.  The rule for bins puts each token into a
bin of a fixed grid of ratios, and ranks only the bins.  One pass over the vocabulary computes two
sums for each bin.  The sums determine the optimal cap, the slots of the bins, and the missing or
excess mass of each bin.

A draft takes the slot of its bin or, depending on its ratio, the slot of a partner bin.  The draft
in the highest slot wins.  Let v' be the distribution of the winner, which the table determines.
The winner is accepted with probability min(1, q/v'), and the residual is q − min(q, v').  The
output therefore has distribution q for every grid; only the acceptance depends on the grid.

Symbols as in the papers: p is the draft distribution, q the target, k the number of drafts.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm.kernels.common.arrays import (
    array_module,
    nonzero_or_one,
    prepend_zero,
    take,
    to_float64,
    to_int64,
)
from otm.kernels.common.distributions.numpy import mass
from otm.kernels.multi_draft.numpy import verify_chains

STEPS = 256
"""Number of fine bins for each octave of the ratio; the kernels need a power of two."""

LEAST, FINE = -6, -1
"""Exponents of the powers of two at which the grid's positive ratios and its fine bins begin.

The cut of the optimum lies at a ratio of at least 1.  For ratios below 1/2, one bin for each octave
is enough.
"""

Numbers = npt.NDArray[Any]
"""Exact fractions, or integers and floats that this code rounds in a fixed way."""


def uniforms_per_position(chains: int) -> int:
    """Count the uniforms at each position: one for the slot of each draft, one for acceptance."""
    return chains + 1


def edge_count(chains: int, steps: int = STEPS) -> int:
    """Return the number of bin edges, a power of two for which the last edge is at least K."""
    octaves = (chains - 1).bit_length() - FINE
    return 1 << (FINE - LEAST + 1 + octaves * steps).bit_length()


def ratio_grid(chains: int, steps: int = STEPS) -> list[Fraction]:
    """Return the ascending edges of the bins: 0, powers of two, then 2^e (1 + m/steps)."""
    coarse = [Fraction(0), *(Fraction(2) ** e for e in range(LEAST, FINE))]
    fine = (divmod(i, steps) for i in range(edge_count(chains, steps) - len(coarse)))
    return [*coarse, *(Fraction(2) ** (FINE + e) * (1 + Fraction(m, steps)) for e, m in fine)]


@lru_cache(maxsize=64)
def edges_of_grid(chains: int, steps: int, exact: bool) -> Numbers:
    """Return `ratio_grid` as a read-only array of fractions or floats."""
    edges = np.array(ratio_grid(chains, steps), dtype=object if exact else np.float64)
    edges.flags.writeable = False
    return edges


class Places(NamedTuple):
    """The bin of each token's ratio, and the ratio's relative position between the bin's edges."""

    bin: Any
    share: Any


class Table(NamedTuple):
    """Slots and winner ratios of the bins: arrays [G], or tensors [B, G]."""

    win: Any  # winner-to-draft ratio at a bin's lower edge
    rise: Any  # increase of the winner-to-draft ratio up to the upper edge
    slopes: Any  # winner-to-draft ratio of drafts that keep their bin's slot
    lack: Any  # cumulative mass that bins lack in their own slots
    excess: Any  # cumulative mass that bins have in excess in their own slots
    below: Any  # cumulative draft mass


def select(
    target: Numbers, draft: Numbers, tokens: npt.NDArray[Any], uniforms: Numbers, steps: int = STEPS
) -> tuple[int, Numbers]:
    """Accept or reject the winning draft: [V], [V], [K], [K + 1] → index or −1, masses [V].

    The masses are those of q − min(q, v').  If no draft is to be tested, or if rounding makes the
    residual empty, the masses of q are returned.  There is one uniform for the slot of each draft
    and one for the acceptance of the winner.
    """
    everything = mass(target)
    running = np.flatnonzero((tokens >= 0) & (tokens < target.size))
    count = int((tokens >= 0).sum())
    if count == 0:
        return -1, everything
    target, draft = to_float64(target), to_float64(draft)
    places, table = bin_tokens(target, draft, deterministic_count(count), tokens.size, steps)
    win_probs = winner_probs(draft, places, table)
    if running.size:
        drafted = tokens[running]
        slots = choose_slots(table, Places(*(x[drafted] for x in places)), uniforms[running])
        index = int(running[slots.argmax()])
        x = int(tokens[index])
        if uniforms[-1] * win_probs[x] < target[x] and draft[x] > 0:
            return index, everything
    residual = np.maximum(everything - mass(np.minimum(target, win_probs)), 0)
    return -1, residual if residual.any() else everything


verify = partial(verify_chains, select)
"""Verify K chains by the optimal rule for bins at each position."""


def deterministic_count(count: int, most: int = 0) -> Numbers:
    """Return the distribution of a fixed number: 1 at `count`, [max(count, most) + 1]."""
    return np.asarray(np.arange(max(count, most) + 1) == count, dtype=np.int64)


def bin_tokens(
    target: Numbers, draft: Numbers, numbers: Numbers, chains: int, steps: int = STEPS
) -> tuple[Places, Table]:
    """Return the tokens' bins, and the table for M ≥ 1 drafts, where Pr(M = m) = `numbers[m]`.

    The grid is the one for K = `chains`.  Fractions are slow, so for them the grid keeps only the
    edges next to tokens.
    """
    edges = edges_of_grid(chains, steps, target.dtype == object)
    places = find_places(target, draft, edges)
    if target.dtype == object:
        nearby = np.unique(np.concatenate([[0, edges.size - 1], places.bin, places.bin + 1]))
        edges, places = edges[nearby], places._replace(bin=nearby.searchsorted(places.bin))
    sums = []
    for masses in (mass(draft), mass(draft * places.share)):
        sums.append(np.zeros(edges.size - 1, dtype=masses.dtype) + 0 * masses[:1])
        np.add.at(sums[-1], places.bin, masses)
    return places, make_table(sums[0], sums[1], edges, numbers)


# The formulas below work on the last axis of NumPy arrays and tensors.  `numbers` is the
# distribution of the number of drafts, [..., K + 1].


def find_places(target: Any, draft: Any, edges: Any) -> Places:
    """Find the bins and relative positions of the tokens' ratios.

    A ratio above the end of the grid counts as the end.
    """
    xp = array_module(target)
    divisor = nonzero_or_one(draft) if draft.dtype == object else draft
    # The quotient is not used where the draft is 0.
    with np.errstate(all="ignore"):
        ratio = xp.where(draft > 0, target / divisor, edges[-1])
    ratio = xp.minimum(ratio, edges[-1])
    bins = (xp.searchsorted(edges, ratio, side="right") - 1).clip(0, len(edges) - 2)
    below = edges[bins]
    return Places(bins, (ratio - below) / (edges[bins + 1] - below))


def winner_probs(draft: Any, places: Places, table: Table) -> Any:
    """Return the distribution v' of the winning draft: [..., V]."""
    return draft * (take(table.win, places.bin) + places.share * take(table.rise, places.bin))


def make_table(masses: Any, uppers: Any, edges: Any, numbers: Any) -> Table:
    """Build the table from Σ p and Σ p · share of each bin."""
    xp = array_module(masses)
    below = masses.cumsum(axis=-1)
    slopes = mean_slopes(below, numbers)
    filled = to_float64(nonzero_or_one(masses))
    mean = uppers / filled
    # At the edges the winner-to-draft ratio is max(min(q/p, cap), floor).
    cap = find_cap(masses, uppers, edges, numbers)
    ratios = xp.maximum(xp.minimum(edges, cap), find_floor(masses, uppers, edges, cap))
    steps = ratios[..., 1:] - ratios[..., :-1]
    missing = to_int64((ratios[..., :-1] + mean * steps - slopes) * masses)
    lack, excess = (xp.maximum(x, 0 * x).cumsum(axis=-1) for x in (missing, -missing))
    poor, _, amount = swap_partners(lack, excess)
    # A token wins at least as often as in the slot of its bin if the bin is poor, and at most as
    # often if it is rich.
    room = to_float64(nonzero_or_one(xp.where(poor, uppers, masses - uppers)))
    rise = xp.minimum(steps, amount / room)
    win = slopes + xp.where(poor, amount, -amount) / filled - rise * mean
    return Table(win, rise, slopes, lack, excess, below)


def find_cap(masses: Any, uppers: Any, edges: Any, numbers: Any) -> Any:
    """Return the cap of the winner-to-draft ratio that maximizes the bins' acceptance: [..., 1]."""
    xp = array_module(masses)
    below, width = masses.cumsum(axis=-1), edges[1:] - edges[:-1]
    total = below[..., -1:]
    above = total - below
    target = to_int64(masses * edges[:-1] + uppers * width).cumsum(axis=-1)
    hit = hit_probability(above / to_float64(nonzero_or_one(total)), numbers)
    reach = xp.amin(target + total * hit, axis=-1, keepdims=True)
    reach = xp.minimum(reach, to_float64(total))
    mean = edges[:-1] + uppers / to_float64(nonzero_or_one(masses)) * width
    # Count the bins whose mean ratio is at most the cap.
    under = (target + mean * above <= reach).sum(axis=-1, keepdims=True)
    rest = take(xp.concatenate((total, above), axis=-1), under)
    cap = (reach - take(prepend_zero(target), under)) / to_float64(nonzero_or_one(rest))
    return xp.where((under < masses.shape[-1]) & (rest != 0), cap, edges[-1])


def find_floor(masses: Any, uppers: Any, edges: Any, cap: Any) -> Any:
    """Return the floor of the winner-to-draft ratio for which some draft always wins: [..., 1]."""
    xp = array_module(masses)
    # The ratios are linear between two edges, so the share splits a token between both edges.
    shared = xp.concatenate((masses - uppers, 0 * masses[..., :1]), axis=-1) + prepend_zero(uppers)
    capped = xp.minimum(edges, cap)
    accepted, below = to_int64(shared * capped).cumsum(axis=-1), shared.cumsum(axis=-1)
    missing = below[..., -1:] - accepted[..., -1:]
    raised = (capped * below - accepted <= missing).sum(axis=-1, keepdims=True)
    under = take(prepend_zero(below), raised)
    floor = (missing + take(prepend_zero(accepted), raised)) / to_float64(nonzero_or_one(under))
    floor = xp.where((missing > 0) & (under != 0), floor, 0 * floor)
    return xp.minimum(floor, 0 * floor + 1)


def mean_slopes(below: Any, numbers: Any) -> Any:
    """Return slopes of x ↦ E x^M between cumulative masses, which are scaled to a total of one.

    M is the random number of drafts, with the distribution `numbers`.
    """
    return slopes_between(
        prepend_zero(below) / to_float64(nonzero_or_one(below[..., -1:])), numbers
    )


def slopes_between(points: Any, numbers: Any) -> Any:
    """Return slopes of x ↦ E x^M between neighbours, where M = m has probability `numbers[m]`.

    The computation uses Horner's rule without subtraction.  The points [..., m + 1] ascend from at
    least 0.
    """
    start, end = points[..., :-1], points[..., 1:]
    slopes = value = 0 * end
    for m in range(numbers.shape[-1] - 1, 0, -1):
        slopes = slopes * end + value
        value = value * start + numbers[..., m : m + 1]
    return slopes * end + value


def hit_probability(part: Any, numbers: Any) -> Any:
    """Return the probability 1 − E (1 − x)^M that one of M drafts hits a set of probability x."""
    hit = total = 0 * part
    for m in range(1, numbers.shape[-1]):
        hit = hit + (1 - hit) * part
        total = total + numbers[..., m : m + 1] * hit
    return total


def swap_partners(lack: Any, excess: Any, bins: Any = None) -> tuple[Any, Any, Any]:
    """Match the missing mass of bins with the excess of higher bins, by cumulative mass, in order.

    Return three results for all bins, or for those at `bins`: whether the bin lacks mass, the start
    of its matched mass, and the amount matched.  Rounding may leave a small amount unmatched.
    """
    xp = array_module(lack)
    ends = (lack, excess, prepend_zero(lack)[..., :-1], prepend_zero(excess)[..., :-1])
    lacks, exceeds, lack_before, excess_before = (
        x if bins is None else take(x, bins) for x in ends
    )
    poor = lacks > lack_before
    start = xp.where(poor, xp.maximum(lack_before, exceeds), excess_before)
    end = xp.minimum(lacks, xp.where(poor, excess[..., -1:], exceeds))
    return poor, start, xp.maximum(end - start, 0 * start)


def choose_slots(table: Table, places: Places, uniforms: Any) -> Any:
    """Return the slots that drafts take: the slots of their bins or of partner bins.

    The matched mass of a bin consists of pieces, one for each partner bin.  The uniform u selects
    the point u · amount in the matched mass, and the piece with this point selects the partner.
    The draft moves to the partner's slot if the point lies in the lowest fraction
    (t − W) / (W' − W) of the piece.  Here t is the draft's winner-to-draft ratio, and W and W' are
    the slopes of the slots of its own bin and of the partner.
    """
    xp, own = array_module(table.lack), places.bin
    poor, start, amount = swap_partners(table.lack, table.excess, own)
    slope = take(table.slopes, own)
    change = take(table.win, own) + places.share * take(table.rise, own) - slope
    point = uniforms * to_float64(amount)
    # The product can round up to the amount.
    exact = table.lack.dtype == object
    value = start + (point if exact else xp.minimum(to_int64(point), amount - 1))

    def find(sums: Any, side: Any) -> Any:
        # Exact tests explore both outcomes of every comparison, so replace unused values by
        # `start`.
        index = xp.searchsorted(sums, xp.where(side, value, start), side="right")
        return index.clip(0, sums.shape[-1] - 1)

    partner = xp.where(poor, find(table.excess, poor), find(table.lack, ~poor))

    def of_partner(excess: Any, lack: Any) -> Any:
        return xp.where(poor, take(excess, partner), take(lack, partner))

    first = of_partner(prepend_zero(table.excess), prepend_zero(table.lack))
    first, last = xp.maximum(start, first), of_partner(table.excess, table.lack)
    last = xp.minimum(start + amount, last)
    gain = abs(take(table.slopes, partner) - slope)
    moves = (amount > 0) & ((point - (first - start)) * gain < abs(change) * (last - first))
    return xp.where(moves, partner, own)
