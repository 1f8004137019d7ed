"""Series of groups of tokens, for `otm.coupled.grouped_acceptance`, which has the notation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

TOLERANCE = 2.0**-57
"""Largest error of each approximation."""

HEAVY = 2.0**-8
"""A token is heavy if (k − 1) s exceeds this value."""


class Tokens(NamedTuple):
    """Tokens in ascending order of q/p: arrays [m]."""

    draft: Floats
    target: Floats
    # Draft mass P of all tokens up to this one.
    below: Floats
    # Share s = p/P.
    share: Floats
    # Rates D.
    rates: Floats
    # Coefficients c; zero for the first token.
    falls: Floats


class Groups(NamedTuple):
    """The groups of a block of tokens."""

    # First token of each group, and the number of tokens: [G + 1].
    edges: Places
    # u − 1 [G].
    centres: Floats
    # The largest ρ.
    ratio: float
    # The heavy tokens of the block [H].
    heavy: Places


class Integral(NamedTuple):
    """The integral over t."""

    k: int
    nodes: Floats
    # Σ (k − 1) q s, an upper limit of the integral.
    mass: float
    # Largest error of each approximation in a block.
    tolerance: float


class Series(NamedTuple):
    """The series of a block, in powers of r."""

    # Numbers of terms of the powers of Ĝ, in descending order.
    terms: list[int]
    # Σ c r^j/j! of each group [G, J].
    falls: Floats
    # Coefficients of Ĝ within the group, for each heavy token [J, H].
    heavy: Floats
    # Sums over the light tokens of each group [G, R, C]; see `_light`.
    sums: Floats


def groups_of(block: Tokens, begins: npt.NDArray[np.bool_], k: int) -> Groups:
    """Return the groups of a block, from the tokens at which groups begin."""
    edges = np.append(np.flatnonzero(begins), begins.size)
    lowest, highest = block.rates[edges[:-1]], block.rates[edges[1:] - 1]
    ratio = float(((highest - lowest) / (1 + lowest)).max()) / 2
    heavy = np.flatnonzero((k - 1) * block.share > HEAVY)
    return Groups(edges, (lowest + highest) / 2, ratio, heavy)


def series_of(block: Tokens, groups: Groups, integral: Integral) -> Series:
    """Return the series of a block, with as many terms as the tolerance needs."""
    full = _terms(4 * integral.mass, groups.ratio, TOLERANCE)
    sizes, edges = np.diff(groups.edges), groups.edges.tolist()
    offsets = (block.rates - np.repeat(groups.centres, sizes)) / np.repeat(
        1 + groups.centres, sizes
    )
    # r^j/j! [J, m].
    powers = np.empty((full, offsets.size))
    powers[0] = 1
    for j in range(1, full):
        np.multiply(powers[j - 1], offsets / j, out=powers[j])
    falls, own = powers * block.falls, powers / block.below
    of_groups = np.empty((sizes.size, full))
    for g, (start, stop) in enumerate(itertools.pairwise(edges)):
        sums = np.cumsum(falls[:, start:stop][:, ::-1], axis=1)[:, ::-1]
        own[:, start : stop - 1] -= sums[:, 1:]
        of_groups[g] = sums[:, 0]
    terms, weights = _weights(block, groups, integral, full)
    matrices = np.empty((sizes.size, 1 + sum(terms), sum(terms)))
    if terms:
        left = np.concatenate([powers[:1], *_powers(own, terms)])
        columns = zip(terms, weights, strict=True)
        right = np.concatenate([powers[:count] * weight for count, weight in columns])
        for g, (start, stop) in enumerate(itertools.pairwise(edges)):
            np.matmul(left[:, start:stop], right[:, start:stop].T, out=matrices[g])
    return Series(terms, of_groups, own[:, groups.heavy], matrices)


def _weights(
    block: Tokens, groups: Groups, integral: Integral, full: int
) -> tuple[list[int], list[Floats]]:
    """Return numbers of terms, and the factors ± C(k − 1, b) q p^b, of the powers b = 1, 2, …."""
    bound = block.target.copy()
    bound[groups.heavy] = 0
    weight = bound
    terms: list[int] = []
    weights: list[Floats] = []
    for power in range(1, integral.k):
        ways = math.comb(integral.k - 1, power)
        bound, weight = bound * block.share, weight * block.draft
        mass = ways * float(bound.sum())
        if mass <= integral.tolerance:
            break
        count = _terms(2 ** (power + 1) * mass, groups.ratio, integral.tolerance)
        terms.append(min(count, full))
        weights.append((-1) ** (power + 1) * ways * weight)
    return terms, weights


def _terms(mass: float, ratio: float, tolerance: float) -> int:
    """Return the least J with mass ρ^J ≤ tolerance, at least 1."""
    return max(1, math.ceil(math.log(tolerance / mass) / math.log(ratio))) if ratio else 1


def _powers(series: Floats, terms: list[int]) -> Iterator[Floats]:
    """Yield the powers 1, 2, … of a series [J, m], each with its number of terms."""
    power = series[: terms[0]]
    yield power
    for count in terms[1:]:
        product = power[0] * series[:count]
        for j in range(1, count):
            product[j:] += power[j] * series[: count - j]
        power = product
        yield power
