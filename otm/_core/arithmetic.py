"""Arithmetic that is exact for fractions and avoids cancellation in floats.

OTM runs the same code on two kinds of numbers: float64, and `fractions.Fraction` in NumPy object
arrays.  This module has the functions for which the plain formula is inaccurate in floats: powers
near one, their differences, and long sums.
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

from otm._core.display.reprs import ShortRepr

Probs: TypeAlias = npt.NDArray[Any]
"""Array with one number per token: float64, or `fractions.Fraction` in an object array."""

Number: TypeAlias = float | Fraction

_T = TypeVar("_T")

CACHED = 2**14
"""Size of the blocks in which large arrays are processed, so that temporaries stay in cache."""

TINY = 2.0**-1000
"""Upper bound on all absolute errors from numbers below the smallest normal float."""

FEW_DRAFTS = 6
"""Largest k for which repeated multiplication is at least as accurate as logarithms."""

SUM_BLOCK = 512
"""Number of terms in one block of `running_sum`, which determines its rounding error."""


def is_exact(array: Probs) -> bool:
    """Return whether an array holds fractions rather than floats."""
    return array.dtype == object


def as_number(value: Any) -> Number:
    """Convert a NumPy scalar to a Python float; return fractions unchanged."""
    number: Number = value.item() if isinstance(value, np.generic) else value
    return number


def as_fraction(value: Any) -> Fraction:
    """Convert a number to a fraction of Python integers, because NumPy integers overflow."""
    if isinstance(value, numbers.Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    # This includes long doubles, which may have more digits than Python floats.
    if isinstance(value, np.floating):
        return Fraction(*value.as_integer_ratio())
    return Fraction(value.item() if isinstance(value, np.generic) else value)


def as_fractions(values: Any) -> Probs:
    """Convert an array of numbers to fractions with `as_fraction`."""
    array = np.asarray(values)
    fractions = np.empty(array.size, dtype=object)
    fractions[:] = [as_fraction(value) for value in array.flat]
    return fractions.reshape(array.shape)


def at_most_one(probability: Any) -> Number:
    """Convert a probability to a `Number`, and lower it to one if rounding has made it larger."""
    number = as_number(probability)
    return min(number, 0 * number + 1)


def rounded(value: Number, towards: float) -> float:
    """Return the nearest float at or beyond a number in the direction of −∞ or ∞."""
    nearest = float(value)
    inside = nearest >= value if towards > 0 else nearest <= value
    return nearest if inside else math.nextafter(nearest, towards)


def as_integers(probs: Probs) -> tuple[list[int], int]:
    """Return numerators over the least common denominator of fractions, and this denominator."""
    unit = math.lcm(*(value.denominator for value in probs))
    return [value.numerator * (unit // value.denominator) for value in probs], unit


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make an array read-only.

    If a caller could write to an array of a plan, this would silently change the plan's
    distributions.

    Parameters
    ----------
    array : array
        An array of any shape; it is modified in place.

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


class Frozen(ShortRepr):
    """Base class whose arrays stay read-only in copies and pickles, which NumPy does not ensure."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        _freeze(state)
        self.__dict__.update(state)


def _freeze(value: Any) -> None:
    """Make all arrays in a value read-only, including those in tuples and mappings."""
    if isinstance(value, np.ndarray):
        read_only(value)
    elif isinstance(value, tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            _freeze(part)


def zeros(shape: int | tuple[int, ...], like: Probs) -> Probs:
    """Return an array of zeros with the number type of `like`."""
    return np.full(shape, Fraction(0), dtype=object) if is_exact(like) else np.zeros(shape)


def at_least_once(mass: _T, k: int) -> _T:
    """Compute the probability 1 − (1 − mass)^k that k ≥ 1 independent draws hit a set.

    The method is binary powering of the complement.  Every step adds nonnegative terms, so floats
    keep full relative accuracy for any mass and k, and fractions stay exact.
    """
    once: Any = mass
    hit = once
    for bit in bin(k)[3:]:  # Skip "0b" and the leading digit of k.
        hit = hit * (2 - hit)
        if bit == "1":
            hit = hit + (1 - hit) * once
    result: _T = hit
    return result


def power_slopes(points: Probs, k: int) -> Probs:
    """Compute the slopes (b^k − a^k) / (b − a) between neighbouring points a ≤ b; a = b is allowed.

    The slope is the sum of a^i b^(k−1−i), computed in log2(k) steps without subtraction.  The m + 1
    points are nonnegative and ascending, so the m slopes ascend too.
    """
    high = points[1:]
    if k == 1:
        return 0 * high + 1
    slopes, powers = points[:-1] + high, points * points
    for step, bit in enumerate(bin(k)[3:]):
        if step:
            slopes *= powers[:-1] + powers[1:]
            powers *= powers
        if bit == "1":  # Use b^(m+1) − a^(m+1) = b (b^m − a^m) + a^m (b − a).
            slopes *= high
            slopes += powers[:-1]
            powers *= points
    return slopes


def interval_slopes(below: Probs, above: Probs, mass: Probs, k: int) -> Probs:
    """Compute the slopes (b^k − a^k) / (b − a) over m intervals [a, b] that partition [0, 1].

    Equivalent to `power_slopes(below, k)`, but floats keep full relative accuracy for any k.
    `mass` [m] has the lengths of the intervals; `below` and `above` [m + 1] have the masses on the
    two sides of each end of an interval.
    """
    if k <= FEW_DRAFTS or is_exact(mass):
        return power_slopes(below, k)
    end, rest = below[1:], above[1:]
    with np.errstate(divide="ignore"):
        log_end = np.where(end < 0.5, np.log(end), np.log1p(-rest))
        share = np.minimum(mass / end, 1)
        of_share = -np.expm1(float(k) * np.log1p(-share))
    # For subnormal lengths the quotient has no correct digits, and its limit k is used.
    lost = share < TINY
    of_share = np.where(lost, float(k), of_share / np.where(lost, 1, share))
    slopes: Probs = np.exp(float(k - 1) * log_end) * of_share
    return slopes


def total(terms: Iterable[_T], start: Any = 0) -> _T:
    """Add terms from left to right.

    The built-in `sum` compensates rounding errors of floats since Python 3.12, so plans, bounds and
    decisions would differ between Python versions in the last digits.
    """
    result: _T = functools.reduce(operator.add, terms, start)
    return result


def running_sum(terms: Probs, *, from_zero: bool = False) -> Probs:
    """Compute cumulative sums along the last axis: [..., n], or [..., n + 1] with `from_zero`.

    This is more accurate than `np.cumsum`: for nonnegative terms the relative error is below
    `sum_error(n)`, and the sums never decrease.
    """
    *rows, n = terms.shape
    exact = is_exact(terms)
    sums = np.empty((*rows, n + 1), dtype=terms.dtype)
    sums[..., 0] = Fraction(0) if exact else 0
    if exact or n <= SUM_BLOCK:
        terms.cumsum(axis=-1, out=sums[..., 1:])
    else:
        # Blocks reduce the error from n · 2^−53 to about (SUM_BLOCK + n / SUM_BLOCK) · 2^−53.
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
    """Split probabilities into multiples of 2^−52, which add exactly, and remainders.

    Fractions are returned unchanged, with zero remainders.
    """
    if is_exact(probs):
        return probs, 0 * probs
    whole = probs + 1.0
    whole -= 1.0
    return whole, probs - whole


def split_parts(probs: Probs) -> Probs:
    """Return the result of `split_units` in one array: [...] → [2, ...]."""
    parts = np.empty((2, *probs.shape), dtype=probs.dtype)
    parts[0], parts[1] = split_units(probs)
    return parts


def sum_excess(parts: Probs) -> Probs:
    """Compute sum − 1 of distributions from their `split_parts`: [2, ..., n] → [..., 1]."""
    whole, rest = np.add.reduce(parts, axis=-1, keepdims=True)
    return np.asarray(whole - 1 + rest)


def shares(parts: Any, excess: Any) -> Probs:
    """Compute masses from their multiples and remainders, divided by a total of 1 + excess."""
    whole, rest = parts
    return np.asarray(whole + (rest - (whole + rest) * excess))


def running_parts(parts: Probs, excess: Any) -> Probs:
    """Compute cumulative sums, from zero, of a distribution, divided by its total 1 + excess.

    Equivalent to `running_sum`, but takes the result of `split_parts`, and is exact except for the
    remainders: [2, ..., n] → [..., n + 1].
    """
    whole, rest = running_sum(parts, from_zero=True)
    rest -= (whole + rest) * excess  # This is `shares`, in place.
    whole += rest
    return np.asarray(whole)


def sum_error(n: int) -> float:
    """Return a bound on the relative error of `running_sum` over n nonnegative terms.

    The bound includes a dozen further rounded operations on each term and on the result.
    """
    return (min(n, SUM_BLOCK) + n // SUM_BLOCK + 16) * 2.0**-53


def scatter_sum(index: npt.NDArray[np.int64], terms: Probs, size: int) -> Probs:
    """Add the terms that share an index in [0, size): array [size] with the dtype of the terms."""
    if is_exact(terms):
        sums = zeros(size, terms)
        np.add.at(sums, index, terms)
        return sums
    # Without any terms, np.bincount would return integers.
    return np.bincount(index, weights=terms, minlength=size).astype(np.float64, copy=False)
