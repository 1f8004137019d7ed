"""Successive sampling as a race of exponential clocks, for all prefixes of an order at once.

The clock of token x rings after an exponential time of rate p(x), and the k drafts are the first k
tokens to ring.  A set H, with s the mass outside it, misses a draft if a clock outside H rings
before k clocks of H have rung::

    Pr(S ⊄ H) = ∫ s e^(−s t) Pr(fewer than k clocks of H have rung by t) dt

Every term is positive, so no digits cancel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Law, running_sum

Floats = npt.NDArray[np.float64]

CHUNK = 2**20
"""Tokens times points of the quadrature that are worked on at once: about 50 MB."""

UNIT = 2.0**500
"""Masses are multiplied and times divided by this: 1 over a subnormal mass is no float."""

DIGITS = 37.0
"""What is left out is below e^−37 (1e-16) of the whole."""


def missed_by_first_rings(masses: Law, outside: Law, k: int) -> Floats:
    """Probability that the first j tokens do not hold the first k to ring: array [m + 1].

    `masses` [m] are the positive rates of the tokens, in order, and `outside` those of all other
    tokens; together they sum to one and are k or more.
    """
    m = masses.size
    above = running_sum(np.append(masses, outside.sum())[::-1])[::-1]
    missed = np.zeros(m + 1)
    missed[:k] = above[:k] > 0  # fewer than k tokens never hold k drafts
    live = slice(k, m + 1 if outside.size else m)
    if m < k or above[live].size == 0:
        return missed
    largest = np.partition(np.concatenate([masses, outside]), -k)[-k:]
    scaled, rates = masses * UNIT, above[live] * UNIT
    for times, weights in _quadrature(k, largest.min(), max(1, CHUNK // m)):
        fewer = _fewer_than(k, scaled, times)[k - 1 : live.stop - 1]
        with np.errstate(over="ignore"):  # to infinity: a clock that surely has rung
            fewer *= np.exp(-rates[:, None] * times)
        missed[live] += (fewer @ (times * weights)) * rates
    return np.minimum(missed, 1.0)


def _quadrature(k: int, smallest: float, size: int) -> Iterator[tuple[Floats, Floats]]:
    """Points t and weights w with ∫ f(t) dt ≈ Σ w t f(t), some at a time.

    The trapezoid rule in u, where t = exp(u − exp(−u)).  Near t = 0 the integrand is s, and the
    answer at least s, so the points start where t dt/du is negligible.
    """
    # the end: a time T by which the k heaviest tokens, of mass `smallest` or more each, have rung.
    # If they all are in H, the rest is at most s k e^(−T · smallest) / smallest, otherwise
    # e^(−T · smallest)
    end = math.log(DIGITS + math.log(k) - math.log(smallest)) - math.log(smallest)
    step = _step(k)
    points = np.arange(-3.7, end + step, step)
    for start in range(0, points.size, size):
        u = points[start : start + size]
        inverse = np.exp(-u)
        yield np.exp(u - inverse - math.log(UNIT)), step * (1 + inverse)


def _step(k: int) -> float:
    """Step of the trapezoid rule: at angle y of t the integrand grows by up to cos(y)^−k.

    The error falls as exp(−2π y / step) times that growth, for every y up to π/2.
    """
    y = np.linspace(0.01, 1.5, 150)
    return float((2 * math.pi * y / (DIGITS - k * np.log(np.cos(y)))).max())


def _fewer_than(k: int, masses: Floats, times: Floats) -> Floats:
    """Probability that fewer than k of the first j = 1, …, m clocks have rung: array [m, times].

    The numbers of rings are products of the polynomials e^(−p t) + (1 − e^(−p t)) y, cut off at
    y^k.  Prefix products in two passes over blocks of about √m tokens, all blocks side by side.
    """
    width = math.isqrt(masses.size - 1) + 1
    blocks = -(-masses.size // width)
    padded = np.zeros(blocks * width)  # a clock of rate 0 never rings
    padded[: masses.size] = masses
    with np.errstate(over="ignore"):
        rates = padded.reshape(blocks, width).T[:, :, None] * times
    silent, rung = np.exp(-rates), -np.expm1(-rates)

    counts = np.zeros((k, blocks, times.size))
    counts[0] = 1
    for i in range(width):
        _add_clock(counts, silent[i], rung[i])
    start = np.zeros_like(counts)
    start[0, 0] = 1
    for block in range(1, blocks):
        for i in range(k):
            start[i:, block] += start[i, block - 1] * counts[: k - i, block - 1]
    fewer = np.empty((blocks, width, times.size))
    for i in range(width):
        _add_clock(start, silent[i], rung[i])
        start.sum(axis=0, out=fewer[:, i])
    return fewer.reshape(-1, times.size)[: masses.size]


def _add_clock(counts: Floats, silent: Floats, rung: Floats) -> None:
    moved = counts[:-1] * rung
    counts *= silent
    counts[1:] += moved
