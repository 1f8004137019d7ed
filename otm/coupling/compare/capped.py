"""The rules that accept min(q, c p): the acceptance of all of them for many k, from one histogram.

The optimum, k-Seq and recursive rejection differ in their caps c alone ("One family" in
`docs/theory/cap.md`).  So running sums over one order of the tokens by q/p, or over bins of them,
give the acceptance probabilities of all three, for any number of k.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import at_least_once
from otm._core.ratios.bins import RatioBins
from otm._core.ratios.keys import FINEST
from otm.optimum.cut import FULL_SUPPORT_TOLERANCE

Floats = npt.NDArray[np.float64]

CAPPED_RULES = ("optimal", "k-Seq", "recursive rejection")
"""The rules that accept min(q, c p), by their names in `otm.rules.RULES`."""

MAX_STEPS = 4
"""Multiplications that are cheaper than the power itself."""

MAX_ITERATIONS = 100
"""More than bisection needs for the last digit of a number in [1, k]."""

RESOLVED = 2.0**-46
"""How much f(ρ) may be of V(ρ) where ρ is taken for ρ*.

As V ascends in ρ and 1 − (1 − V/ρ)^k descends, V(ρ*) is then no farther from V(ρ) than that.
"""


class Accepted(NamedTuple):
    """Acceptance probabilities [K], one for each number of drafts, and the caps [K].

    Of the optimum also the draft's masses above the cuts.
    """

    probability: Floats
    cap: Floats
    above: Floats | None = None


def capped_rules(
    draft: Floats,
    target: Floats,
    ks: Sequence[int],
    names: Collection[str],
    leniences: Sequence[float] = (),
    *,
    with_cap: bool = True,
) -> tuple[dict[str, Accepted], Floats]:
    """Compute the optimum and the other capped rules, by name, and the lenient optimum [l, K].

    Of many tokens a bin stands for one; all bins in which that could matter are split together.
    """
    order = RatioBins.of(draft, target, bits=FINEST, units=False)
    rules: dict[str, Accepted] = {}
    wide = None
    while True:
        rules["optimal"], lenient = by_cut(order, ks, leniences, with_cap=with_cap)
        if "k-Seq" in names:
            start = rules["k-Seq"].cap if "k-Seq" in rules else None
            rules["k-Seq"] = by_division_factor(order, ks, start)
        if "recursive rejection" in names:
            rules["recursive rejection"] = by_rounds(order, range(1, ks[-1] + 1))
        if not order.wide.size:
            break
        # a cap depends on those of all rounds before
        doubtful = np.zeros(order.least.size, dtype=np.bool_)
        doubtful[_with_caps(order, [rule.cap for rule in rules.values()])] = True
        now_wide = order.wide.size
        if wide is None or now_wide > wide:  # as the optimum descends, others come to no doubt
            values = rules["optimal"].probability, *lenient
            doubtful[_with_cuts(order, ks, (1, *leniences), values)] = True
        places = doubtful.nonzero()[0]  # `np.union1d` is slow, and first loads masked arrays
        if not places.size:
            break
        order, wide = order.split(places), now_wide - places.size
    if "recursive rejection" in rules:
        of_rounds = rules["recursive rejection"]
        rules["recursive rejection"] = Accepted(*(each[np.array(ks) - 1] for each in of_rounds[:2]))
    return rules, lenient


def _with_caps(bins: RatioBins, caps: Sequence[Floats]) -> npt.NDArray[np.int64]:
    """Bins whose tokens have ratios on both sides of a cap."""
    cap = np.concatenate(caps)
    place = np.searchsorted(bins.least, cap, side="right") - 1
    return np.asarray(place[(bins.least[place] < cap) & (cap < bins.most[place])])


def _with_cuts(
    bins: RatioBins, ks: Sequence[int], leniences: Sequence[float], values: Sequence[Floats]
) -> npt.NDArray[np.int64]:
    """Bins inside of which a cut may have less than some value, [K] a lenience."""
    draft_above, target_below = bins.corners(bins.wide)
    below = [target_below / lenience for lenience in leniences]
    better = np.zeros(bins.wide.size, dtype=np.bool_)
    for i, hit in enumerate(_at_least_once(draft_above, ks)):
        for masses, of_lenience in zip(below, values, strict=True):
            better |= masses + hit < of_lenience[i] * (1 - FULL_SUPPORT_TOLERANCE)
    return np.asarray(bins.wide[better])


def _at_least_once(hit: Floats, ks: Sequence[int]) -> Iterator[Floats]:
    """Give `at_least_once` of probabilities for each k, from that of the next smaller k if close.

    The same array may come again, with other numbers.
    """
    some, miss, before = hit.copy(), 1 - hit, 1
    for k in ks:
        if k - before > MAX_STEPS:
            some = at_least_once(hit, k)
        else:  # one draft more: 1 − (1 − T)^k grows to T + (1 − T) times itself
            for _ in range(k - before):
                some *= miss
                some += hit
        before = k
        yield some


def by_cut(
    order: RatioBins, ks: Sequence[int], leniences: Sequence[float] = (), *, with_cap: bool = True
) -> tuple[Accepted, Floats]:
    """α_k of each k, with its cap, and α_k(l) of each lenience l: [K] and [l, K].

    Equivalent to, but faster than `optimal_value` and `lenient_value`, up to rounding: powers come
    from those for the next smaller k if close.  Without `with_cap` these are NaN.
    """
    below = [order.target_below / lenience for lenience in leniences]
    values, lenient = np.empty(len(ks)), np.empty((len(below), len(ks)))
    above = np.empty(len(ks))
    for i, hit in enumerate(_at_least_once(order.draft_above, ks)):
        sums = order.target_below + hit
        place = sums.argmin()
        values[i], above[i] = sums[place], order.draft_above[place]
        for j, masses in enumerate(below):
            lenient[j, i] = np.minimum.reduce(masses + hit)
    np.minimum(values, 1, out=values)
    np.minimum(lenient, 1, out=lenient)
    cap = _caps_of_values(order, values, ks) if with_cap else np.full(len(ks), np.nan)
    return Accepted(values, cap, above), lenient


def _caps_of_values(order: RatioBins, values: Floats, ks: Sequence[int]) -> Floats:
    """Compute the optimal cap for each α_k [K], as `optimal_cap` does."""
    with np.errstate(invalid="ignore"):  # ∞ · 0 where no mass is above
        capped = order.target_below[:-1] + order.ratio * order.draft_above[:-1]
    below = np.searchsorted(capped, values, side="right")
    with np.errstate(divide="ignore", invalid="ignore"):
        cap = (values - order.target_below[below]) / order.draft_above[below]
    # the difference can cancel where little mass is above
    cap = np.maximum(cap, np.append(0, order.ratio)[below])
    everything = order.target_below[-1] * (1 - FULL_SUPPORT_TOLERANCE)
    largest = np.asarray(ks, dtype=np.float64)
    free = (values >= everything) | (below == capped.size)
    return np.where(free, largest, np.clip(cap, 1, largest))


def by_division_factor(
    order: RatioBins, ks: Sequence[int], start: Floats | None = None
) -> Accepted:
    """Compute the acceptance of k-Seq at its division factors ρ*, which are its caps: [K].

    From factors close by it takes fewer steps.
    """
    begin = np.sqrt(ks) if start is None else start  # not far off for models that are alike
    found = [_at_factor(order, k, rho) for k, rho in zip(ks, begin.tolist(), strict=True)]
    mass, cap = np.transpose(found)
    return Accepted(np.minimum(mass, 1), cap)


def _at_factor(order: RatioBins, k: int, rho: float) -> tuple[float, float]:
    """Capped mass V(ρ*) of k-Seq, and ρ*, found from a factor in [1, k]."""
    # ρ* is the root of f(ρ) = 1 − (1 − V/ρ)^k − V, V(ρ) = Σ min(q, ρ p) the capped mass, as in
    # otm.optimum.division_factor; here by Newton's steps within a bracket, in Python's floats,
    # which for few k are faster than arrays
    ratio, draft_above, target_below = order.ratio, order.draft_above, order.target_below
    low, high = 1.0, float(k)
    for _ in range(MAX_ITERATIONS):
        place = ratio.searchsorted(rho, "right").item()
        slope = draft_above.item(place)
        mass = target_below.item(place) + rho * slope
        share = min(mass / rho, 1.0)
        kept = k * math.log1p(-share) if share < 1 else -math.inf  # ln of what no draft takes
        excess = -math.expm1(kept) - mass
        low, high = (low, rho) if excess <= 0 else (rho, high)
        if abs(excess) <= RESOLVED * mass or high - low <= RESOLVED * rho:
            break
        fall = k * math.exp(kept) / (1 - share) * (slope - share) / rho - slope if share < 1 else 0
        step = rho - excess / fall if fall else high
        rho = step if low < step < high else (low + high) / 2
    return mass, rho


def by_rounds(order: RatioBins, ks: Sequence[int]) -> Accepted:
    """Compute the acceptance of recursive rejection: [K]; its cap grows by 1 − V in each round."""
    ratio, draft_above, target_below = order.ratio, order.draft_above, order.target_below
    mass, cap = 0.0, 0.0
    rounds = []
    for _ in range(max(ks)):
        cap += max(1 - mass, 0)
        place = ratio.searchsorted(cap, "right").item()
        mass = min(target_below.item(place) + cap * draft_above.item(place), 1.0)
        rounds.append((mass, cap))
    return Accepted(*np.transpose(rounds)[:, np.asarray(ks) - 1])
