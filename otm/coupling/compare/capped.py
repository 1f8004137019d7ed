"""Acceptance of the rules that accept min(q, c p), for many k, from one histogram of q/p.

The optimum, k-Seq and recursive rejection differ only in the cap c ("One family" in
`docs/theory/cap.md`).  So prefix sums over the tokens in the order of q/p, or over bins of tokens,
give the acceptance probabilities of all three rules for many values of k.
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
"""Names of the rules that accept min(q, c p), as in `otm.rules.RULES`."""

MAX_STEPS = 4
"""Largest step in k for which multiplications are faster than a new power."""

MAX_ITERATIONS = 100
"""Limit on the iterations; bisection to the last digit of a number in [1, k] needs fewer steps."""

FACTOR_TOLERANCE = 2.0**-46
"""Largest |f(ρ)| / V(ρ) for which ρ is accepted as ρ*.

V(ρ) increases in ρ, and 1 − (1 − V/ρ)^k decreases.  So V(ρ*) differs from V(ρ) by at most |f(ρ)|.
"""


class Accepted(NamedTuple):
    """Acceptance probabilities and caps for each number of drafts: arrays [K].

    For the optimum, `above` has the draft masses above the cuts, [K].
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
    """Compute the results of the capped rules, by name, and the lenient optimum [l, K].

    If there are many tokens, each bin is treated as one token.  Bins that could change a result are
    split, all in one step.
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
        # A cap of recursive rejection depends on the caps of all previous rounds.
        doubtful = np.zeros(order.least.size, dtype=np.bool_)
        doubtful[_bins_with_caps(order, [rule.cap for rule in rules.values()])] = True
        now_wide = order.wide.size
        # A lower optimum cannot make other bins doubtful, so the test is only for new wide bins.
        if wide is None or now_wide > wide:
            values = rules["optimal"].probability, *lenient
            doubtful[_bins_with_cuts(order, ks, (1, *leniences), values)] = True
        # `np.union1d` is slower, and imports masked arrays on first use.
        places = doubtful.nonzero()[0]
        if not places.size:
            break
        order, wide = order.split(places), now_wide - places.size
    if "recursive rejection" in rules:
        of_rounds = rules["recursive rejection"]
        rules["recursive rejection"] = Accepted(*(each[np.array(ks) - 1] for each in of_rounds[:2]))
    return rules, lenient


def _bins_with_caps(bins: RatioBins, caps: Sequence[Floats]) -> npt.NDArray[np.int64]:
    """Return the bins with ratios q/p on both sides of a cap."""
    cap = np.concatenate(caps)
    place = np.searchsorted(bins.least, cap, side="right") - 1
    return np.asarray(place[(bins.least[place] < cap) & (cap < bins.most[place])])


def _bins_with_cuts(
    bins: RatioBins, ks: Sequence[int], leniences: Sequence[float], values: Sequence[Floats]
) -> npt.NDArray[np.int64]:
    """Return bins that may contain a cut whose value is smaller than the one in `values`.

    `values` has an array [K] for each lenience.
    """
    draft_above, target_below = bins.corners(bins.wide)
    below = [target_below / lenience for lenience in leniences]
    better = np.zeros(bins.wide.size, dtype=np.bool_)
    for i, hit in enumerate(_at_least_once(draft_above, ks)):
        for masses, of_lenience in zip(below, values, strict=True):
            better |= masses + hit < of_lenience[i] * (1 - FULL_SUPPORT_TOLERANCE)
    return np.asarray(bins.wide[better])


def _at_least_once(hit: Floats, ks: Sequence[int]) -> Iterator[Floats]:
    """Yield `at_least_once(hit, k)` for each k, updated from the previous k if it is close.

    The yielded array may be reused for the next k.
    """
    some, miss, before = hit.copy(), 1 - hit, 1
    for k in ks:
        if k - before > MAX_STEPS:
            some = at_least_once(hit, k)
        else:
            # One more draft changes x = 1 − (1 − T)^k to T + (1 − T) x.
            for _ in range(k - before):
                some *= miss
                some += hit
        before = k
        yield some


def by_cut(
    order: RatioBins, ks: Sequence[int], leniences: Sequence[float] = (), *, with_cap: bool = True
) -> tuple[Accepted, Floats]:
    """Compute α_k with its cap for each k [K], and α_k(l) for each lenience l [l, K].

    The results equal those of `optimal_value` and `lenient_value` up to rounding, but take less
    time, because powers are updated from the previous k.  If `with_cap` is false, the caps are NaN.
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
    # An infinite ratio without draft mass above it gives ∞ · 0 = NaN.
    with np.errstate(invalid="ignore"):
        capped = order.target_below[:-1] + order.ratio * order.draft_above[:-1]
    below = np.searchsorted(capped, values, side="right")
    with np.errstate(divide="ignore", invalid="ignore"):
        cap = (values - order.target_below[below]) / order.draft_above[below]
    # If little draft mass is above the cap, the difference can cancel.
    cap = np.maximum(cap, np.append(0, order.ratio)[below])
    everything = order.target_below[-1] * (1 - FULL_SUPPORT_TOLERANCE)
    largest = np.asarray(ks, dtype=np.float64)
    free = (values >= everything) | (below == capped.size)
    return np.where(free, largest, np.clip(cap, 1, largest))


def by_division_factor(
    order: RatioBins, ks: Sequence[int], start: Floats | None = None
) -> Accepted:
    """Compute the acceptance of k-Seq at its division factors ρ*, which are its caps: [K].

    The search starts at the factors `start`, and needs fewer steps if they are close to ρ*.
    """
    # For similar draft and target distributions, √k is close to ρ*.
    begin = np.sqrt(ks) if start is None else start
    results = [_at_factor(order, k, rho) for k, rho in zip(ks, begin.tolist(), strict=True)]
    mass, cap = np.transpose(results)
    return Accepted(np.minimum(mass, 1), cap)


def _at_factor(order: RatioBins, k: int, rho: float) -> tuple[float, float]:
    """Compute ρ* of k-Seq from a start in [1, k]; return the capped mass V(ρ*), then ρ*."""
    # ρ* is the root of f(ρ) = 1 − (1 − V/ρ)^k − V, where V(ρ) = Σ min(q, ρ p) is the capped mass
    # (otm.optimum.division_factor).  Newton steps within a bracket find it.  For few k, Python
    # floats are faster than arrays.
    ratio, draft_above, target_below = order.ratio, order.draft_above, order.target_below
    low, high = 1.0, float(k)
    for _ in range(MAX_ITERATIONS):
        place = ratio.searchsorted(rho, "right").item()
        slope = draft_above.item(place)
        mass = target_below.item(place) + rho * slope
        share = min(mass / rho, 1.0)
        # This is the logarithm of (1 − V/ρ)^k, the probability that no draft passes.
        kept = k * math.log1p(-share) if share < 1 else -math.inf
        excess = -math.expm1(kept) - mass
        low, high = (low, rho) if excess <= 0 else (rho, high)
        if abs(excess) <= FACTOR_TOLERANCE * mass or high - low <= FACTOR_TOLERANCE * rho:
            break
        fall = k * math.exp(kept) / (1 - share) * (slope - share) / rho - slope if share < 1 else 0
        step = rho - excess / fall if fall else high
        rho = step if low < step < high else (low + high) / 2
    return mass, rho


def by_rounds(order: RatioBins, ks: Sequence[int]) -> Accepted:
    """Compute the acceptance V of recursive rejection; each round adds 1 − V to its cap: [K]."""
    ratio, draft_above, target_below = order.ratio, order.draft_above, order.target_below
    mass, cap = 0.0, 0.0
    rounds = []
    for _ in range(max(ks)):
        cap += max(1 - mass, 0)
        place = ratio.searchsorted(cap, "right").item()
        mass = min(target_below.item(place) + cap * draft_above.item(place), 1.0)
        rounds.append((mass, cap))
    return Accepted(*np.transpose(rounds)[:, np.asarray(ks) - 1])
