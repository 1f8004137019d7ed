"""Steps of the optimal rule for bins inside Triton kernels, as in `otm.kernels.optimal.torch`.

The work memory of a node first holds two sums of each bin.  Atomic additions of integers, whose
order does not matter, fill the sums.  One program then builds the table in the same memory.
"""

# ruff: noqa: PLR0917 - pointers and sizes, in order

from __future__ import annotations

from otm.kernels.common.distributions.numpy import UNIT
from otm.kernels.common.distributions.triton import mass
from otm.kernels.common.runtime import constant, jit, tl
from otm.kernels.k_seq.triton_steps import at_least_once
from otm.kernels.optimal.numpy import FINE, LEAST, STEPS

_UNIT = constant(UNIT)
_COARSE = constant(FINE - LEAST + 1)
"""Number of bins below the fine ones; the first begins at 0."""
_BITS = constant(STEPS.bit_length() - 1)
_FIRST_FINE = constant(((1023 + FINE) << (STEPS.bit_length() - 1)) - (FINE - LEAST + 1))
_FIRST_COARSE = constant(1023 + LEAST - 1)
"""Difference between the upper bits of a float64 ratio and the index of its coarse bin."""
_FINE_RATIO, _INVERSE_LEAST = constant(2.0**FINE), constant(2.0**-LEAST)

# Sections of a node's memory, each as wide as the number of edges.  The table replaces the sums.
# It includes the cumulative masses of the bins if the number of drafts is random.
WIN, RISE, SLOPES, LACK, EXCESS, BELOW = map(constant, range(6))
SUMS, SECTIONS, SECTIONS_OF_WALK = 2, 5, 6


@jit
def edge_of(place: tl.tensor) -> tl.tensor:
    """Return the lower edge of a bin in float64."""
    place = place.to(tl.int64)
    fine, coarse = (place + _FIRST_FINE) << (52 - _BITS), (place + _FIRST_COARSE) << 52
    bits = tl.where(place >= _COARSE, fine, coarse)
    return tl.where(place > 0, bits.to(tl.float64, bitcast=True), 0.0)


@jit
def find_place(target_prob: tl.tensor, draft_prob: tl.tensor, width: tl.constexpr) -> tl.tensor:
    """Return the bins of tokens, and the relative positions of their ratios in these bins."""
    top = edge_of(tl.full((), width - 1, tl.int64))
    possible = draft_prob > 0
    ratio = tl.where(possible, target_prob / tl.where(possible, draft_prob, 1.0), top)
    ratio = tl.minimum(ratio, top)
    # The upper bits of the ratio are its bin, and the lower bits are the share.
    bits = ratio.to(tl.int64, bitcast=True)
    fine = ratio >= _FINE_RATIO
    shift = tl.where(fine, 52 - _BITS, 52)
    place = (bits >> shift) - tl.where(fine, _FIRST_FINE, _FIRST_COARSE)
    share = (bits - (bits >> shift << shift)).to(tl.float64)
    share *= tl.where(fine, 2.0 ** (_BITS - 52), 2.0**-52)
    share = tl.where(place > 0, share, ratio * _INVERSE_LEAST)
    share = tl.where(place < width - 1, share, 1.0)
    return tl.minimum(tl.maximum(place, 0), width - 2), share


@jit
def add_to_bins(
    memory: tl.tensor, target_prob: tl.tensor, draft_prob: tl.tensor, width: tl.constexpr
) -> None:
    """Add the tokens' draft masses, and these masses times the share, to the bins."""
    place, share = find_place(target_prob, draft_prob, width)
    whole = mass(draft_prob, _UNIT)
    upper = mass(draft_prob * share, _UNIT)
    tl.atomic_add(memory + place, whole, mask=whole != 0, sem="relaxed")
    tl.atomic_add(memory + width + place, upper, mask=upper != 0, sem="relaxed")


@jit
def float_at(memory: tl.tensor, place: tl.tensor, used: tl.tensor = None) -> tl.tensor:
    """Load float64 numbers from a node's memory; return 0 where not used."""
    other = None if used is None else 0
    bits = tl.load(memory + place, mask=used, other=other)  # [n], as the places
    return bits.to(tl.float64, bitcast=True)


@jit
def sum_before(sums: tl.tensor, place: tl.tensor) -> tl.tensor:
    """Return the sum of all entries before each place, read from the cumulative `sums`."""
    return tl.load(sums + place - 1, mask=place > 0, other=0)  # [n], as the places


@jit
def winner_probs(
    memory: tl.tensor,
    target_prob: tl.tensor,
    draft_prob: tl.tensor,
    width: tl.constexpr,
    sparse: tl.constexpr = False,
) -> tl.tensor:
    """Return the distribution of the winning token.

    If `sparse`, the table is read only for tokens with a positive draft probability.
    """
    place, share = find_place(target_prob, draft_prob, width)
    used = None
    if sparse:
        used = draft_prob > 0
    win = float_at(memory + WIN * width, place, used)
    return draft_prob * (win + share * float_at(memory + RISE * width, place, used))


@jit
def swap_partners(memory: tl.tensor, place: tl.tensor, width: tl.constexpr) -> tl.tensor:
    """Return whether bins lack mass, the start of their matched mass, and the matched amount."""
    lack, excess = memory + LACK * width, memory + EXCESS * width
    lacks, exceeds = tl.load(lack + place), tl.load(excess + place)  # [n], as the places
    before, exceeded = sum_before(lack, place), sum_before(excess, place)
    poor = lacks > before
    start = tl.where(poor, tl.maximum(before, exceeds), exceeded)
    stop = tl.minimum(lacks, tl.where(poor, tl.load(excess + width - 1), exceeds))
    return poor, start, tl.maximum(stop - start, 0)


@jit
def search(sums: tl.tensor, value: tl.tensor, size: tl.constexpr) -> tl.tensor:
    """Count the entries ≤ value in an ascending array whose size is a power of two."""
    place = value * 0
    step = tl.full((), size, tl.int64)
    while step > 0:
        ahead = place + step
        entry = tl.load(sums + ahead - 1, mask=ahead <= size, other=0)  # [n], as the values
        place = tl.where((ahead <= size) & (entry <= value), ahead, place)
        step = step // 2
    return place


@jit
def choose_slots(
    memory: tl.tensor,
    target_prob: tl.tensor,
    draft_prob: tl.tensor,
    uniform: tl.tensor,
    width: tl.constexpr,
) -> tl.tensor:
    """Return the slots that drafts take: the slots of their bins or of partners."""
    own, share = find_place(target_prob, draft_prob, width)
    poor, start, amount = swap_partners(memory, own, width)
    slopes = memory + SLOPES * width
    slope, win = float_at(slopes, own), float_at(memory + WIN * width, own)
    change = win + share * float_at(memory + RISE * width, own) - slope
    point = uniform * amount.to(tl.float64)
    value = start + tl.minimum(point.to(tl.int64), amount - 1)
    others = memory + tl.where(poor, EXCESS * width, LACK * width)
    partner = tl.minimum(search(others, value, width), width - 2)
    first = tl.maximum(start, sum_before(others, partner))
    last = tl.minimum(start + amount, tl.load(others + partner))  # [padded K]
    gain = tl.abs(float_at(slopes, partner) - slope)
    inside = point - (first - start).to(tl.float64)
    moves = (amount > 0) & (inside * gain < tl.abs(change) * (last - first).to(tl.float64))
    return tl.where(moves, partner, own)


@jit
def at(values: tl.tensor, index: tl.tensor, width: tl.constexpr) -> tl.tensor:
    """Return one entry of an array, or 0 for a negative index."""
    return tl.sum(tl.where(tl.arange(0, width) == index, values, 0), 0)


@jit
def load_sums(memory: tl.tensor, width: tl.constexpr) -> tl.tensor:
    """Load the sums Σ p and Σ p · share of the bins: [width].

    Each step that builds the table loads the sums again, because registers cannot keep them.
    """
    place = tl.arange(0, width)
    tl.debug_barrier()
    return tl.load(memory + place), tl.load(memory + width + place)


@jit
def hit_probability(
    part: tl.tensor, drafts: tl.tensor, numbers: tl.tensor, walk: tl.constexpr
) -> tl.tensor:
    """Return the probability that some draft lies in a set of probability `part`.

    The number of drafts is `drafts`.  In walk and keep the number of drafts is random, at most
    `drafts`, with the distribution `numbers`.
    """
    if not walk:
        return at_least_once(part, drafts, drafts)
    hit, some = part * 0.0, part * 0.0
    for count in range(1, drafts + 1):
        hit = hit + (1.0 - hit) * part
        some = some + tl.load(numbers + count) * hit  # scalar
    return some


@jit
def mean_slopes(
    start: tl.tensor, end: tl.tensor, drafts: tl.tensor, numbers: tl.tensor, walk: tl.constexpr
) -> tl.tensor:
    """Return slopes of x ↦ E x^M between points, where M is the number of drafts.

    M is `drafts`.  In walk and keep M is random, at most `drafts`, with the distribution `numbers`.
    """
    if not walk:
        slopes, power = end * 0.0 + 1.0, start
        for _ in range(1, drafts):
            slopes = slopes * end + power
            power = power * start
        return slopes
    slopes, value = end * 0.0, end * 0.0
    for back in range(drafts):
        slopes = slopes * end + value
        value = value * start + tl.load(numbers + drafts - back)  # scalar
    return slopes * end + value


@jit
def find_cap(
    memory: tl.tensor,
    drafts: tl.tensor,
    numbers: tl.tensor,
    width: tl.constexpr,
    walk: tl.constexpr,
) -> tl.tensor:
    """Return the cap of the winner-to-draft ratio that maximizes the acceptance of the bins."""
    place = tl.arange(0, width)
    masses, uppers = load_sums(memory, width)
    edge = edge_of(place)
    step = edge_of(place + 1) - edge
    total = tl.sum(masses, 0)
    target = (masses.to(tl.float64) * edge + uppers.to(tl.float64) * step).to(tl.int64)
    target = tl.cumsum(target, 0)
    below = tl.cumsum(masses, 0)
    above = (total - below).to(tl.float64)
    hit = hit_probability(above / tl.maximum(total, 1).to(tl.float64), drafts, numbers, walk)
    reach = tl.min(target.to(tl.float64) + total.to(tl.float64) * hit, 0)
    reach = tl.minimum(reach, total.to(tl.float64))
    mean = uppers.to(tl.float64) / tl.maximum(masses, 1).to(tl.float64)
    fits = (place < width - 1) & (target.to(tl.float64) + (edge + mean * step) * above <= reach)
    under = tl.sum(tl.where(fits, 1, 0), 0)
    rest = tl.where(under > 0, total - at(below, under - 1, width), total)
    useful = (under < width - 1) & (rest != 0)
    cap = reach - at(target, under - 1, width).to(tl.float64)
    cap = cap / tl.where(useful, rest, 1).to(tl.float64)
    return tl.where(useful, cap, edge_of(tl.full((), width - 1, tl.int64)))


@jit
def find_floor(memory: tl.tensor, cap: tl.tensor, width: tl.constexpr) -> tl.tensor:
    """Return the floor of the winner-to-draft ratio for which some draft always wins."""
    place = tl.arange(0, width)
    masses, uppers = load_sums(memory, width)
    capped = tl.minimum(edge_of(place), cap)
    # The ratios are linear between two edges, so the share splits a token between both edges.
    shared = masses - uppers + sum_before(memory + width, place)  # [width]
    accepted = tl.cumsum((shared.to(tl.float64) * capped).to(tl.int64), 0)
    below = tl.cumsum(shared, 0)
    missing = tl.sum(masses, 0) - at(accepted, width - 1, width)
    gained = capped * below.to(tl.float64) - accepted.to(tl.float64)
    raised = tl.sum(tl.where(gained <= missing.to(tl.float64), 1, 0), 0)
    lowest = at(below, raised - 1, width)
    useful = (missing > 0) & (lowest != 0)
    floor = (missing + at(accepted, raised - 1, width)).to(tl.float64)
    floor = floor / tl.where(useful, lowest, 1).to(tl.float64)
    return tl.minimum(tl.where(useful, floor, 0.0), 1.0)


@jit
def ratio_at(place: tl.tensor, floor: tl.tensor, cap: tl.tensor) -> tl.tensor:
    """Return the winner-to-draft ratio at the lower edges of bins."""
    return tl.maximum(tl.minimum(edge_of(place), cap), floor)


@jit
def match_bins(
    memory: tl.tensor,
    floor: tl.tensor,
    cap: tl.tensor,
    drafts: tl.tensor,
    numbers: tl.tensor,
    width: tl.constexpr,
    walk: tl.constexpr,
) -> None:
    """Write the slopes of the bins' own slots, and the bins' missing and excess masses."""
    place = tl.arange(0, width)
    masses, uppers = load_sums(memory, width)
    below = tl.cumsum(masses, 0)
    divisor = tl.maximum(tl.sum(masses, 0), 1).to(tl.float64)
    start, end = (below - masses).to(tl.float64) / divisor, below.to(tl.float64) / divisor
    slopes = mean_slopes(start, end, drafts, numbers, walk)
    lowest = ratio_at(place, floor, cap)
    step = ratio_at(place + 1, floor, cap) - lowest
    mean = uppers.to(tl.float64) / tl.maximum(masses, 1).to(tl.float64)
    lacking = ((lowest + mean * step - slopes) * masses.to(tl.float64)).to(tl.int64)
    tl.store(memory + SLOPES * width + place, slopes.to(tl.int64, bitcast=True))
    tl.store(memory + LACK * width + place, tl.cumsum(tl.maximum(lacking, 0), 0))
    tl.store(memory + EXCESS * width + place, tl.cumsum(tl.maximum(-lacking, 0), 0))
    if walk:
        tl.store(memory + BELOW * width + place, below)


@jit
def make_table(
    memory: tl.tensor,
    drafts: tl.tensor,
    numbers: tl.tensor,
    width: tl.constexpr,
    walk: tl.constexpr,
) -> None:
    """Build the table from the sums of the bins for `drafts` drafts.

    In walk and keep `drafts` is the largest possible number.
    """
    cap = find_cap(memory, drafts, numbers, width, walk)
    floor = find_floor(memory, cap, width)
    match_bins(memory, floor, cap, drafts, numbers, width, walk)
    place = tl.arange(0, width)
    masses, uppers = load_sums(memory, width)
    poor, _, amount = swap_partners(memory, place, width)
    # A token wins at least as often as in the slot of its bin if the bin is poor, and at most as
    # often if it is rich.
    room = tl.maximum(tl.where(poor, uppers, masses - uppers), 1).to(tl.float64)
    step = ratio_at(place + 1, floor, cap) - ratio_at(place, floor, cap)
    rise = tl.minimum(step, amount.to(tl.float64) / room)
    filled = tl.maximum(masses, 1).to(tl.float64)
    win = float_at(memory + SLOPES * width, place)
    win += tl.where(poor, amount, -amount).to(tl.float64) / filled
    win -= rise * (uppers.to(tl.float64) / filled)
    # All threads must have read the sums before the table replaces them.
    tl.debug_barrier()
    tl.store(memory + WIN * width + place, win.to(tl.int64, bitcast=True))
    tl.store(memory + RISE * width + place, rise.to(tl.int64, bitcast=True))
