"""All three lossless rules for i.i.d. drafts on one pair of laws, for many k after one sort.

Each accepts min(q, c p) for a cap c of its own ("One family" in `docs/theory/cap.md`), so that a
sort by q/p with its running sums gives the acceptance probabilities of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import at_least_once
from otm._core.ratio_order import RatioOrder
from otm.optimum.cut import cap_of_value

Floats = npt.NDArray[np.float64]

CAPPED_RULES = ("optimal", "k-Seq", "recursive rejection")
"""The rules that accept min(q, c p), by their names in `otm.coupling.RULES`."""

MAX_STEPS = 4
"""Multiplications that are cheaper than the power itself."""

MAX_ITERATIONS = 100
"""More than bisection needs for the last digit of a number in [1, k]."""

RESOLVED = 2.0**-46
"""How much f(ρ) may be of V(ρ) where ρ is taken for ρ*.

As V ascends in ρ and 1 − (1 − V/ρ)^k descends, V(ρ*) is then no farther from V(ρ) than that.
"""


class Accepted(NamedTuple):
    """Acceptance probabilities [K], one for each number of drafts, and the caps [K]."""

    probability: Floats
    cap: Floats


def by_cut(
    order: RatioOrder, ks: Sequence[int], leniences: Sequence[float] = (), *, caps: bool = True
) -> tuple[Accepted, Floats]:
    """α_k of each k, with its cap, and α_k(l) of each lenience l: [K] and [l, K].

    Equivalent to, but faster than `optimal_value` and `lenient_value`, up to rounding: powers come
    from those for the next smaller k if close.  Without `caps` these are NaN.
    """
    below = [order.target_below / lenience for lenience in leniences]
    found, lenient = np.empty(len(ks)), np.empty((len(below), len(ks)))
    cap = np.full(len(ks), np.nan)
    above, before = order.draft_above.copy(), 1
    for i, k in enumerate(ks):
        if k - before > MAX_STEPS:
            above = at_least_once(order.draft_above, k)
        else:  # one draft more: 1 − (1 − T)^k grows to T + (1 − T) times itself
            for _ in range(k - before):
                above *= order.draft_below
                above += order.draft_above
        before = k
        found[i] = min((order.target_below + above).min(), 1)
        if caps:
            cap[i] = cap_of_value(order, float(found[i]), k)
        for j, masses in enumerate(below):
            lenient[j, i] = min((masses + above).min(), 1)
    return Accepted(found, cap), lenient


def by_division_factor(order: RatioOrder, ks: Sequence[int]) -> Accepted:
    """Compute the acceptance of k-Seq at its division factors ρ*, which are its caps: [K]."""
    # ρ* is the root of f(ρ) = 1 − (1 − V/ρ)^k − V, V(ρ) = Σ min(q, ρ p) the capped mass, as in
    # otm.optimum.division_factor; here by Newton's steps within a bracket
    counts = np.asarray(ks, dtype=np.float64)
    low, high = np.ones(counts.size), counts.copy()
    rho = low.copy()
    for _ in range(MAX_ITERATIONS):
        mass, slope = _capped(order, rho)
        share = np.minimum(mass / rho, 1)
        with np.errstate(divide="ignore"):  # ln 0 where every draft is accepted
            kept = counts * np.log1p(-share)
        excess = -np.expm1(kept) - mass
        valid = excess <= 0
        high, low = np.where(valid, rho, high), np.where(valid, low, rho)
        with np.errstate(divide="ignore", invalid="ignore"):
            fall = counts * np.exp(kept) / (1 - share) * (slope - share) / rho - slope
            step = rho - excess / fall
        inside = (step > low) & (step < high)
        following = np.where(inside, step, (low + high) / 2)
        done = (np.abs(excess) <= RESOLVED * mass) | (high - low <= RESOLVED * rho)
        rho = np.where(done, rho, following)
        if done.all():
            break
    mass, _ = _capped(order, rho)
    return Accepted(np.minimum(mass, 1), rho)


def by_rounds(order: RatioOrder, ks: Sequence[int]) -> Accepted:
    """Compute the acceptance of recursive rejection: [K]; its cap grows by 1 − V in each round."""
    mass, cap = 0.0, 0.0
    masses, caps = [], []
    for _ in range(max(ks)):
        cap += max(1 - mass, 0)
        mass = min(float(order.capped_mass(cap)), 1.0)
        masses.append(mass)
        caps.append(cap)
    places = np.asarray(ks) - 1
    return Accepted(np.array(masses)[places], np.array(caps)[places])


def _capped(order: RatioOrder, caps: Floats) -> tuple[Floats, Floats]:
    """`RatioOrder.capped_mass` for several caps, and its slopes to the right."""
    below = np.searchsorted(order.ratio, caps, side="right")
    slope = order.draft_above[below]
    return order.target_below[below] + caps * slope, slope
