"""Arithmetic that is exact for fractions and does not cancel in floats.

Everything in OTM is written once for two kinds of numbers: float64, and `fractions.Fraction`
held in NumPy object arrays.  The functions here are the ones in which the two kinds would
otherwise part: powers near one, their differences, and long sums.
"""

from __future__ import annotations

import functools
import math
import numbers
import operator
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from otm._core.display.reprs import Brief

Probs: TypeAlias = npt.NDArray[Any]
"""One number a token: float64, or `fractions.Fraction` in an object array."""

Number: TypeAlias = float | Fraction

_T = TypeVar("_T")

CACHED = 2**14
"""Numbers of an array that are worked on at a time: what is made of them stays in cache."""

TINY = 2.0**-1000
"""More than all that can get lost below the smallest normal float, where errors are absolute."""

FEW_DRAFTS = 6
"""Up to as many, powers that are multiplied out are not less accurate than by logarithms."""

SUM_BLOCK = 512
"""Terms that `running_sum` adds in one run; its rounding error grows with this, not with n."""


def is_exact(array: Probs) -> bool:
    """Whether an array holds fractions rather than floats."""
    return array.dtype == object


def as_number(value: Any) -> Number:
    """Turn a NumPy scalar into a Python float; let fractions pass through."""
    number: Number = value.item() if isinstance(value, np.generic) else value
    return number


def as_fraction(value: Any) -> Fraction:
    """Turn a number into a fraction of Python's own integers; those of NumPy would overflow."""
    if isinstance(value, numbers.Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, np.floating):  # long doubles too, which Python's floats cannot hold
        return Fraction(*value.as_integer_ratio())
    return Fraction(value.item() if isinstance(value, np.generic) else value)


def as_fractions(values: Any) -> Probs:
    """Turn an array of numbers into fractions, as `as_fraction` does."""
    array = np.asarray(values)
    fractions = np.empty(array.size, dtype=object)
    fractions[:] = [as_fraction(value) for value in array.flat]
    return fractions.reshape(array.shape)


def at_most_one(probability: Any) -> Number:
    """Turn a probability into a `Number`, cut off at one, which a sum of floats can pass."""
    number = as_number(probability)
    return min(number, 0 * number + 1)


def rounded(value: Number, towards: float) -> float:
    """Nearest float on the side of a number that −∞ or ∞ is on."""
    nearest = float(value)
    inside = nearest >= value if towards > 0 else nearest <= value
    return nearest if inside else math.nextafter(nearest, towards)


def as_integers(probs: Probs) -> tuple[list[int], int]:
    """Write fractions as integers over their least common denominator, which comes second."""
    unit = math.lcm(*(value.denominator for value in probs))
    return [value.numerator * (unit // value.denominator) for value in probs], unit


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make an array unwritable before it is handed out.

    Whoever changed an array of a plan would change its distributions silently.

    Parameters
    ----------
    array : array
        An array of any shape, which is changed itself.

    Returns
    -------
    array
        The same array.

    Examples
    --------
    >>> read_only(np.zeros(2))[0] = 1
    Traceback (most recent call last):
    ValueError: assignment destination is read-only
    """
    array.flags.writeable = False
    return array


class Frozen(Brief):
    """Objects whose arrays stay unwritable when they are copied or unpickled: NumPy forgets it."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        _freeze(state)
        self.__dict__.update(state)


def _freeze(value: Any) -> None:
    """Make the arrays in a value unwritable, in tuples and mappings too."""
    if isinstance(value, np.ndarray):
        read_only(value)
    elif isinstance(value, tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            _freeze(part)


def zeros(shape: int | tuple[int, ...], like: Probs) -> Probs:
    """Zeros of the kind of numbers that `like` holds."""
    return np.full(shape, Fraction(0), dtype=object) if is_exact(like) else np.zeros(shape)


def at_least_once(mass: _T, k: int) -> _T:
    """Probability 1 − (1 − mass)^k that k ≥ 1 independent draws hit a set of this mass.

    Binary powering on the complement: every step adds non-negative terms, so a float result keeps
    full relative accuracy however small the mass or large k, and a fraction stays exact.
    """
    once: Any = mass
    hit = once
    for bit in bin(k)[3:]:  # the binary digits of k after the leading one
        hit = hit * (2 - hit)
        if bit == "1":
            hit = hit + (1 - hit) * once
    result: _T = hit
    return result


def power_slopes(points: Probs, k: int) -> Probs:
    """Slopes (b^k − a^k) / (b − a) between neighbouring points a ≤ b, also where a = b.

    Equal to the sum of a^i b^(k−1−i), but in log2(k) steps; no step subtracts.  The m + 1 points
    ascend from zero or above, and so do the m slopes.
    """
    high = points[1:]
    if k == 1:
        return 0 * high + 1
    slopes, powers = points[:-1] + high, points * points
    for step, bit in enumerate(bin(k)[3:]):
        if step:
            slopes *= powers[:-1] + powers[1:]
            powers *= powers
        if bit == "1":  # b^(m+1) − a^(m+1) = b (b^m − a^m) + a^m (b − a)
            slopes *= high
            slopes += powers[:-1]
            powers *= points
    return slopes


def interval_slopes(below: Probs, above: Probs, mass: Probs, k: int) -> Probs:
    """Slopes (b^k − a^k) / (b − a) over m intervals [a, b] that make up [0, 1].

    Equivalent to `power_slopes(below, k)`, but floats keep full relative accuracy for any k, given
    the lengths of the intervals [m] and how much is below and above each of their ends [m + 1].
    """
    if k <= FEW_DRAFTS or is_exact(mass):
        return power_slopes(below, k)
    end, rest = below[1:], above[1:]
    with np.errstate(divide="ignore"):
        log_end = np.where(end < 0.5, np.log(end), np.log1p(-rest))
        share = np.minimum(mass / end, 1)
        of_share = -np.expm1(float(k) * np.log1p(-share))
    # the limit k stands for shares whose digits are lost below the smallest normal float
    lost = share < TINY
    of_share = np.where(lost, float(k), of_share / np.where(lost, 1, share))
    slopes: Probs = np.exp(float(k - 1) * log_end) * of_share
    return slopes


def total(terms: Iterable[_T], start: Any = 0) -> _T:
    """Sum of terms, each added to those before it.

    Equivalent to the built-in `sum`, which since Python 3.12 makes up for the rounding of floats:
    plans, bounds and decisions would differ between versions of Python in the last digits.
    """
    result: _T = functools.reduce(operator.add, terms, start)
    return result


def running_sum(terms: Probs, *, from_zero: bool = False) -> Probs:
    """Cumulative sums along the last axis, [..., n] or, from zero, [..., n + 1].

    Like `np.cumsum`, but more accurate: if no term is negative, the relative error is below
    `sum_error(n)`, and the sums never decrease.
    """
    *rows, n = terms.shape
    exact = is_exact(terms)
    sums = np.empty((*rows, n + 1), dtype=terms.dtype)
    sums[..., 0] = Fraction(0) if exact else 0
    if exact or n <= SUM_BLOCK:
        terms.cumsum(axis=-1, out=sums[..., 1:])
    else:
        # in blocks, for an error of about (SUM_BLOCK + n / SUM_BLOCK) · 2^−53 instead of n · 2^−53
        whole = n - n % SUM_BLOCK
        blocks, rest = (
            sums[..., 1 : whole + 1].reshape(*rows, -1, SUM_BLOCK),
            sums[..., whole + 1 :],
        )
        terms[..., :whole].reshape(blocks.shape).cumsum(axis=-1, out=blocks)
        terms[..., whole:].cumsum(axis=-1, out=rest)
        totals = blocks[..., -1].cumsum(axis=-1)
        blocks[..., 1:, :] += totals[..., :-1, None]
        rest += totals[..., -1:]
    return sums if from_zero else sums[..., 1:]


def split_units(probs: Probs) -> tuple[Probs, Probs]:
    """Split probabilities into whole units of 2^−52, which add up exactly, and rests of half one.

    Fractions need no split.
    """
    if is_exact(probs):
        return probs, 0 * probs
    whole = probs + 1.0
    whole -= 1.0
    return whole, probs - whole


def split_parts(probs: Probs) -> Probs:
    """`split_units` in one array: [...] → [2, ...]."""
    parts = np.empty((2, *probs.shape), dtype=probs.dtype)
    parts[0], parts[1] = split_units(probs)
    return parts


def sum_excess(parts: Probs) -> Probs:
    """How far distributions sum above one, from `split_parts` of them: [2, ..., n] → [..., 1]."""
    whole, rest = np.add.reduce(parts, axis=-1, keepdims=True)
    return np.asarray(whole - 1 + rest)


def shares(parts: Any, excess: Any) -> Probs:
    """Masses from their whole units and rests, divided by a total of 1 + excess."""
    whole, rest = parts
    return np.asarray(whole + (rest - (whole + rest) * excess))


def running_parts(parts: Probs, excess: Any) -> Probs:
    """Cumulative sums from zero of a distribution of total 1 + excess, over that total.

    Equivalent to `running_sum`, but correct to the last digit but for rests.  Takes `split_parts`
    of the distribution: [2, ..., n] → [..., n + 1].
    """
    whole, rest = running_sum(parts, from_zero=True)
    rest -= (whole + rest) * excess  # `shares` in place
    whole += rest
    return np.asarray(whole)


def sum_error(n: int) -> float:
    """Bound on the relative error of `running_sum` over n terms of at least zero.

    It covers a dozen more rounded operations on each term and on the result.
    """
    return (min(n, SUM_BLOCK) + n // SUM_BLOCK + 16) * 2.0**-53


def scatter_sum(index: npt.NDArray[np.int64], terms: Probs, size: int) -> Probs:
    """Sum of the terms that share an index in [0, size): array [size], of the kind of the terms."""
    if is_exact(terms):
        sums = zeros(size, terms)
        np.add.at(sums, index, terms)
        return sums
    # of no terms at all, bincount makes integers
    return np.bincount(index, weights=terms, minlength=size).astype(np.float64, copy=False)
