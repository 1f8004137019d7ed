"""Slots and swaps between levels inside Triton kernels: each step of `otm.kernels.torch.levels`.

The work memory of a node holds whole numbers: a histogram of the vocabulary, filled by atomic
additions, whose order does not matter, and the table that one program makes of it.  Where the
reference searches an array, here it is searched in this memory, by bisection.
"""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from otm.kernels.numpy.distributions import UNIT
from otm.kernels.numpy.levels import LEAST_RATIO, STEPS, ratio_grid
from otm.kernels.triton.distributions import mass
from otm.kernels.triton.grid_k_seq_steps import at_least_once
from otm.kernels.triton.runtime import constant, jit, padded, tl

_UNIT = constant(UNIT)
_BITS = constant(STEPS.bit_length() - 1)
_FIRST = constant(((1023 + LEAST_RATIO) << (STEPS.bit_length() - 1)) - 1)
"""The upper bits of a float64 are a level, less this."""

# sections of the memory of a node, in units of the padded number of levels
_WIN, _LACK, _EXCESS = constant(1), constant(2), constant(3)
_SPAN_FIRST, _SPAN_LAST, _ENDS = constant(4), constant(5), constant(6)
_LOW, _HIGH, _SWAPPED, _GAINED = constant(8), constant(10), constant(12), constant(14)


def sizes(chains: int) -> tuple[int, int]:
    """Levels for K chains, and their padded number."""
    count = len(ratio_grid(chains, STEPS))
    return count, padded(count)


def node_size(chains: int) -> int:
    """Whole numbers that a node needs."""
    return 16 * sizes(chains)[1]


@jit
def ratio_of(level: tl.tensor) -> tl.tensor:
    """Ratio of a level, in float64."""
    bits = (level.to(tl.int64) + _FIRST) << (52 - _BITS)
    return tl.where(level > 0, bits.to(tl.float64, bitcast=True), 0.0)


@jit
def place(target_prob: tl.tensor, draft_prob: tl.tensor, count: tl.constexpr) -> tl.tensor:
    """Lower level of tokens, and the probability of the next."""
    top = ratio_of(tl.full((), count - 1, tl.int64))
    possible = draft_prob > 0
    ratio = tl.where(possible, target_prob / tl.where(possible, draft_prob, 1.0), top)
    ratio = tl.minimum(ratio, top)
    level = (ratio.to(tl.int64, bitcast=True) >> (52 - _BITS)) - _FIRST
    level = tl.minimum(tl.maximum(level, 0), count - 2)
    below = ratio_of(level)
    return level, (ratio - below) / (ratio_of(level + 1) - below)


@jit
def add_to_levels(
    memory: tl.tensor, target_prob: tl.tensor, draft_prob: tl.tensor, count: tl.constexpr
) -> None:
    """Add the draft masses of tokens to their levels."""
    level, share = place(target_prob, draft_prob, count)
    whole = mass(draft_prob, _UNIT)
    upper = mass(draft_prob * share, _UNIT)
    tl.atomic_add(memory + level, whole - upper, mask=whole != upper, sem="relaxed")
    tl.atomic_add(memory + level + 1, upper, mask=upper != 0, sem="relaxed")


@jit
def won(
    memory: tl.tensor,
    target_prob: tl.tensor,
    draft_prob: tl.tensor,
    count: tl.constexpr,
    width: tl.constexpr,
) -> tl.tensor:
    """Distribution of the token that wins."""
    level, share = place(target_prob, draft_prob, count)
    win = memory + _WIN * width + level
    lower = tl.load(win).to(tl.float64, bitcast=True)  # [n], as the tokens
    upper = tl.load(win + 1).to(tl.float64, bitcast=True)
    return draft_prob * (lower + share * (upper - lower))


@jit
def search(sums: tl.tensor, value: tl.tensor, size: tl.constexpr) -> tl.tensor:
    """Count the entries that are at most a value, among ascending ones; the size a power of two."""
    place = value * 0
    step = tl.full((), size, tl.int64)
    while step > 0:
        ahead = place + step
        entry = tl.load(sums + ahead - 1, mask=ahead <= size, other=0)  # [n], as the values
        place = tl.where((ahead <= size) & (entry <= value), ahead, place)
        step = step // 2
    return place


@jit
def choose_slot(
    memory: tl.tensor,
    target_prob: tl.tensor,
    draft_prob: tl.tensor,
    for_level: tl.tensor,
    for_slot: tl.tensor,
    count: tl.constexpr,
    width: tl.constexpr,
) -> tl.tensor:
    """Slots that drafts take: their own or a partner's."""
    level, share = place(target_prob, draft_prob, count)
    level = level + tl.where(for_level < share, 1, 0)
    first = tl.load(memory + _SPAN_FIRST * width + level)  # [padded K]
    last = tl.load(memory + _SPAN_LAST * width + level)
    point = (for_slot * tl.load(memory + level).to(tl.float64)).to(tl.int64)
    swapped = memory + _SWAPPED * width
    point += tl.load(swapped + first - 1, mask=first > 0, other=0)
    swap = search(swapped, point, 2 * width)
    swaps = swap < last
    low = tl.load(memory + _LOW * width + swap, mask=swaps, other=0)  # [padded K]
    high = tl.load(memory + _HIGH * width + swap, mask=swaps, other=0)
    return tl.where(swaps, tl.where(low == level, high, low), level)


@jit
def at(values: tl.tensor, index: tl.tensor, width: tl.constexpr) -> tl.tensor:
    """Return one entry; 0 before the first."""
    return tl.sum(tl.where(tl.arange(0, width) == index, values, 0), 0)


@jit
def target_ratio(
    masses: tl.tensor,
    below: tl.tensor,
    drafts: tl.tensor,
    count: tl.constexpr,
    width: tl.constexpr,
) -> tl.tensor:
    """Ratio of winning to drafting that the optimal cap and the floor leave."""
    level = tl.arange(0, width)
    inside = level < count
    ratios = tl.where(inside, ratio_of(level), 0.0)
    total = tl.sum(masses, 0)
    weights = masses.to(tl.float64)
    target = tl.cumsum((weights * ratios).to(tl.int64), 0)
    above = (total - below).to(tl.float64)
    divisor = tl.maximum(total, 1).to(tl.float64)
    hit = at_least_once(above / divisor, drafts, drafts)
    reached = target.to(tl.float64) + total.to(tl.float64) * hit
    reach = tl.minimum(tl.min(reached, 0), total.to(tl.float64))
    fits = inside & (target.to(tl.float64) + ratios * above <= reach)
    under = tl.sum(tl.where(fits, 1, 0), 0)
    rest = tl.where(under > 0, total - at(below, under - 1, width), total)
    useful = (under < count) & (rest > 0)
    before = at(target, under - 1, width).to(tl.float64)
    cap = (reach - before) / tl.where(useful, rest, 1).to(tl.float64)
    cap = tl.where(useful, cap, ratio_of(tl.full((), count - 1, tl.int64)))

    capped = tl.minimum(ratios, cap)
    accepted = tl.cumsum((weights * capped).to(tl.int64), 0)
    missing = total - at(accepted, count - 1, width)
    gained = capped * below.to(tl.float64) - accepted.to(tl.float64)
    raised = tl.sum(tl.where(inside & (gained <= missing.to(tl.float64)), 1, 0), 0)
    lowest = at(below, raised - 1, width)
    useful = (missing > 0) & (lowest > 0)
    floor = (missing + at(accepted, raised - 1, width)).to(tl.float64)
    floor = floor / tl.where(useful, lowest, 1).to(tl.float64)
    return tl.maximum(capped, tl.minimum(tl.where(useful, floor, 0.0), 1.0))


@jit
def match_swaps(
    memory: tl.tensor,
    lack: tl.tensor,
    excess: tl.tensor,
    count: tl.constexpr,
    width: tl.constexpr,
) -> None:
    """Match what levels lack with what others have too much of, in order."""
    level = tl.arange(0, width)
    ends = memory + _ENDS * width
    tl.store(ends + level + search(memory + _EXCESS * width, lack - 1, width), lack)
    tl.store(ends + level + search(memory + _LACK * width, excess, width), excess)
    tl.debug_barrier()
    swap = tl.arange(0, 2 * width)
    stop = tl.load(ends + swap)  # [2 · width]: ends of the swaps
    before = tl.load(ends + swap - 1, mask=swap > 0, other=0)
    low = tl.minimum(search(memory + _LACK * width, before, width), count - 1)
    high = tl.minimum(search(memory + _EXCESS * width, before, width), count - 1)
    slope = memory + _WIN * width
    gain = tl.load(slope + high).to(tl.float64, bitcast=True)  # [2 · width]
    gain = gain - tl.load(slope + low).to(tl.float64, bitcast=True)
    matched = tl.minimum(tl.max(lack, 0), tl.max(excess, 0))
    useful = (stop <= matched) & (low < high) & (gain > 0)
    gain = tl.where(useful, gain, 1.0)
    largest = tl.minimum(tl.load(memory + low), tl.load(memory + high)).to(tl.float64)
    moved = tl.minimum((stop - before).to(tl.float64) / gain, largest).to(tl.int64)
    moved = tl.where(useful, moved, 0)
    tl.store(memory + _LOW * width + swap, low)
    tl.store(memory + _HIGH * width + swap, high)
    tl.store(memory + _SWAPPED * width + swap, tl.cumsum(moved, 0))
    tl.store(
        memory + _GAINED * width + swap,
        tl.cumsum((moved.to(tl.float64) * gain).to(tl.int64), 0),
    )


@jit
def make_table(
    memory: tl.tensor, drafts: tl.tensor, count: tl.constexpr, width: tl.constexpr
) -> None:
    """Find slots and swaps of the levels for so many drafts, from their masses."""
    level = tl.arange(0, width)
    masses = tl.load(memory + level)  # [width]: the histogram
    below = tl.cumsum(masses, 0)
    divisor = tl.maximum(tl.sum(masses, 0), 1).to(tl.float64)
    start, end = (below - masses).to(tl.float64) / divisor, below.to(tl.float64) / divisor
    slopes, power = end * 0.0 + 1.0, start
    for _ in range(1, drafts):
        slopes = slopes * end + power
        power = power * start

    ratio = target_ratio(masses, below, drafts, count, width)
    lacking = ((ratio - slopes) * masses.to(tl.float64)).to(tl.int64)
    lack = tl.cumsum(tl.maximum(lacking, 0), 0)
    excess = tl.cumsum(tl.maximum(-lacking, 0), 0)
    tl.store(memory + _LACK * width + level, lack)
    tl.store(memory + _EXCESS * width + level, excess)
    tl.store(memory + _WIN * width + level, slopes.to(tl.int64, bitcast=True))
    tl.debug_barrier()

    match_swaps(memory, lack, excess, count, width)
    tl.debug_barrier()
    ends, gained = memory + _ENDS * width, memory + _GAINED * width
    edge = tl.where(lacking > 0, lack, excess)
    first = search(ends, edge - tl.abs(lacking), 2 * width)
    last = search(ends, edge, 2 * width)
    won_here = tl.load(gained + last - 1, mask=last > 0, other=0)  # [width]
    won_here -= tl.load(gained + first - 1, mask=first > 0, other=0)
    won_here = tl.where(lacking > 0, won_here, -won_here).to(tl.float64)
    filled = masses > 0
    change = won_here / tl.where(filled, masses, 1).to(tl.float64)
    win = tl.where(filled, slopes + change, slopes)
    tl.store(memory + _WIN * width + level, win.to(tl.int64, bitcast=True))
    tl.store(memory + _SPAN_FIRST * width + level, first)
    tl.store(memory + _SPAN_LAST * width + level, last)
