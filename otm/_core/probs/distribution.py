"""Check, normalise and compare probability distributions on a vocabulary.

A distribution can be any array-like object.  Distributions are converted to read-only float64
arrays, or to object arrays of `fractions.Fraction` if their entries are fractions (exact mode).
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    CACHED,
    Number,
    Probs,
    as_fraction,
    as_fractions,
    as_number,
    is_exact,
    read_only,
    running_sum,
    zeros,
)
from otm._core.checks import as_array
from otm._core.display.text import shown
from otm._core.numbers import is_real
from otm._core.tensors import is_tensor
from otm.errors import InvalidDistributionError

SUM_TOLERANCE = {
    "float16": (1e-2, 2.0**-25),
    "bfloat16": (1e-2, 2.0**-25),
    "float32": (1e-4, 2.0**-26),
}
"""For each type, the allowed distance of a sum from one: a constant, and a distance per token.

The tolerance for n tokens is the larger of the constant and n times the distance per token.  In
float16, even a tiny probability can have an error of 2^−25.  The error of a float32 softmax of n
terms is up to about n 2^−27 if the terms are added one after another, and far less if torch or
NumPy adds them in blocks.
"""

DEFAULT_SUM_TOLERANCE = 1e-6, 2.0**-30
"""Tolerance of all types not in `SUM_TOLERANCE`.

This tolerance suits exponentials of log-probabilities in float32, for example.
"""

ROUNDED = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Largest relative rounding error of each 16-bit type."""

FEW_TOKENS = 64
"""Largest number of nonzero numbers that can fit a 16-bit type by chance, for example if typed."""

LARGEST_ENTRY = 1e200
"""Larger integers and fractions are rejected, before their sum can exceed the range of floats."""

UNIT_SUM_TOLERANCE = 2.0**-50
"""Floats whose sum is this close to one are not divided, so that normalising twice is stable."""


def sum_tolerance(kind: str, n: int) -> float:
    """Return how far the sum of n probabilities of a type may be from one."""
    least, per_token = SUM_TOLERANCE.get(kind, DEFAULT_SUM_TOLERANCE)
    return max(least, n * per_token)


def narrowest_type(kind: str, numbers: Probs) -> str:
    """Return the narrowest type that represents all numbers [n] exactly.

    Numbers that were rounded to a narrow type keep their rounding errors in a wider type.
    """
    if kind not in ("float32", "float64"):
        return kind
    with np.errstate(over="ignore"):
        single = numbers.astype(np.float32)
        if not np.array_equal(single, numbers):
            return kind
        if numbers.size > FEW_TOKENS:
            if np.array_equal(single.astype(np.float16), single):
                return "float16"
            # A bfloat16 is the upper half of a float32.
            if not np.count_nonzero(single.view(np.uint32) & 0xFFFF):
                return "bfloat16"
    return "float32"


def tolerance_of_numbers(kind: str, numbers: Probs) -> float:
    """Return how far the sum of these numbers may be from one, by their narrowest type.

    A few nonzero numbers can fit a 16-bit type by chance, so for them the tolerance is only the
    rounding error of the type.
    """
    narrowest, n = narrowest_type(kind, numbers), numbers.size
    if narrowest != kind and narrowest in ROUNDED and np.count_nonzero(numbers) <= FEW_TOKENS:
        return ROUNDED[narrowest] + n * SUM_TOLERANCE[narrowest][1]
    return sum_tolerance(narrowest, n)


def as_probs_pair(draft: Any, target: Any, *, keep: bool = True) -> tuple[Probs, Probs]:
    """Check and normalise a pair of distributions of the same length; return read-only arrays.

    Returned fractions sum to exactly one, and returned floats sum to one up to rounding.  If either
    distribution has floats, both become float64; integers can be combined with floats or fractions.
    If `keep` is false, a returned array can be a view of the argument.
    """
    return _checked_pair(draft, target, rows=False, keep=keep)


def as_probs_rows(draft: Any, target: Any, *, keep: bool = True) -> tuple[Probs, Probs]:
    """Check and normalise pairs of distributions along the last axis.

    The leading axes must broadcast, but each array keeps its shape.  Every row equals the result of
    `as_probs_pair` bit for bit.  An error names the row and the token.
    """
    return _checked_pair(draft, target, rows=True, keep=keep)


def _checked_pair(draft: Any, target: Any, *, rows: bool, keep: bool) -> tuple[Probs, Probs]:
    first, of_draft = _as_array(draft, "draft", rows=rows)
    second, of_target = _as_array(target, "target", rows=rows)
    broadcast_shape(first, second)
    if is_exact(first) != is_exact(second):
        other = of_draft if is_exact(second) else of_target
        whole = other.startswith(("int", "uint"))
        first, second = (
            as_fractions(x) if whole else x.astype(np.float64) for x in (first, second)
        )
    return (
        _normalise(first, of_draft, "draft", keep=keep),
        _normalise(second, of_target, "target", keep=keep),
    )


def as_probs(values: Any, name: str) -> Probs:
    """Check and normalise one distribution, as `as_probs_pair` does for two."""
    return _normalise(*_as_array(values, name), name)


def to_exact(probs: Probs) -> Probs:
    """Convert float distributions [..., n] to fractions, and divide them by their exact sums."""
    if is_exact(probs):
        return probs
    exact = as_fractions(probs)
    return np.asarray(exact / exact.sum(axis=-1, keepdims=True))


def to_floats(probs: Probs) -> Probs:
    """Convert a distribution, or rows of distributions, to float64."""
    return probs.astype(np.float64)


def total_variation(a: Probs, b: Probs) -> Number:
    """Return the total variation distance Σ |a − b| / 2 of two distributions."""
    return as_number(np.abs(a - b).sum() / 2)


def mass_beyond(probs: Probs, order: npt.NDArray[np.int64]) -> Probs:
    """Return the mass of all tokens except the first j tokens of `order`, for each j.

    The order has m distinct tokens, so the result is an array [m + 1].  Masses are clipped to one.
    """
    outside = np.ones(probs.size, dtype=np.bool_)
    outside[order] = False
    masses = np.append(probs[order], probs[outside].sum() + zeros(1, probs))
    # Summing from the end keeps the precision of small masses.
    return np.asarray(np.minimum(running_sum(masses[::-1])[::-1], 1 + zeros(1, probs)))


def residual_weights(target: Probs, accepted: Probs) -> Probs:
    """Return the weights max(target − accepted, 0) of the recovered token.

    `accepted` is the probability that a token is output as an accepted draft.  The weights are not
    normalised; if all weights are zero, the function returns the target distribution.
    """
    weights: Probs = target - accepted
    np.maximum(weights, zeros(1, target), out=weights)
    # If all weights are zero, rejections have probability zero up to rounding.  Then every
    # distribution on the target's support is valid.
    return weights if weights.any() else target


def _as_array(values: Any, name: str, *, rows: bool = False) -> tuple[Probs, str]:
    """Convert distributions to a float64 or Fraction array; also return the original type."""
    what, advice = f"the entries of the {name} distribution", "give a flat sequence of numbers"
    array: Probs = as_array(values, what, InvalidDistributionError, advice)
    # NumPy takes long to compute dtype.name, so the usual type is treated separately.
    float64 = array.dtype == np.float64
    dtype = "float64" if float64 else array.dtype.name
    dtype = str(values.dtype).removeprefix("torch.") if is_tensor(values) else dtype
    if rows and array.ndim and array.shape[-1] == 0:
        raise InvalidDistributionError(
            f"the {name} distributions have shape {array.shape}; the last axis must have one "
            "probability per token"
        )
    if array.ndim == 0 or (not rows and (array.ndim != 1 or array.size == 0)):
        kind = f"has shape {array.shape}" if array.ndim else f"is of type {type(values).__name__}"
        raise InvalidDistributionError(
            f"the {name} distribution {kind}; give one distribution as a flat, non-empty sequence "
            "with one probability per token"
        )
    if float64:
        return array, dtype
    if array.dtype == object:
        return _from_objects(array, name)
    if array.dtype.kind not in "fiu":
        raise InvalidDistributionError(
            f"the {name} distribution has entries of type {dtype}; allowed are real numbers and "
            "fractions"
        )
    # Values that overflow become infinite, and are rejected later.
    with np.errstate(over="ignore"):
        return array.astype(np.float64), dtype


def broadcast_shape(draft: Any, target: Any) -> tuple[int, ...]:
    """Return the common leading shape of two arrays or tensors [..., n]; raise if there is none."""
    first, second = tuple(draft.shape), tuple(target.shape)
    if first[-1] != second[-1]:
        raise InvalidDistributionError(
            f"the draft distribution has {first[-1]} tokens and the target distribution "
            f"{second[-1]}; both must have the same vocabulary: give absent tokens probability 0"
        )
    if first == second:
        return first[:-1]
    try:
        return np.broadcast_shapes(first[:-1], second[:-1])
    except ValueError:
        raise InvalidDistributionError(
            f"draft distributions of shape {first} and target distributions of shape {second}; "
            "all axes but the last must broadcast"
        ) from None


def _from_objects(array: Probs, name: str) -> tuple[Probs, str]:
    """Convert an object array to fractions if all entries are rational, otherwise to floats."""
    entries: list[Any] = []
    for position, value in enumerate(array.flat):
        if not is_real(value):
            row, index = _place(array, position)
            kind = type(value).__name__
            raise InvalidDistributionError(
                f"the {name} distribution{row} has {shown(value)} of type {kind} at index "
                f"{index}; allowed are real numbers and fractions"
            )
        if not isinstance(value, numbers.Rational):
            entries.append(value)
            continue
        entries.append(as_fraction(value))
        if abs(entries[-1]) > LARGEST_ENTRY:
            row, index = _place(array, position)
            raise InvalidDistributionError(
                f"the {name} distribution{row} has a number beyond ±{LARGEST_ENTRY:g} at index "
                f"{index}; every probability must be at least 0 and at most 1"
            )
    if all(isinstance(entry, Fraction) for entry in entries):
        return np.array(entries, dtype=object).reshape(array.shape), "Fraction"
    return np.array(entries, dtype=np.float64).reshape(array.shape), "float64"


def _place(array: Probs, position: int) -> tuple[str, int]:
    """Return the row of a flat position in words (empty without rows), and the index in the row."""
    *row, index = (int(i) for i in np.unravel_index(position, array.shape))
    if not row:
        return "", index
    return f" of row {row[0] if len(row) == 1 else tuple(row)}", index


def _normalise(array: Probs, dtype: str, name: str, *, keep: bool = True) -> Probs:
    """Check the entries and the sum of each row, and divide it by its sum: [..., n] → [..., n]."""
    rows = np.ascontiguousarray(array)
    # Memory that is never written costs no time.
    normalised, n = np.empty_like(rows), rows.shape[-1]
    tolerance = sum_tolerance(dtype, n)
    least_excess = -1 if is_exact(rows) else UNIT_SUM_TOLERANCE
    done = 0
    for block, copy in _in_cache(rows, normalised):
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.add.reduce(block, axis=-1)
            excess = abs(total - 1)
        valid = np.asarray((np.minimum.reduce(block, axis=-1) >= 0) & (excess <= tolerance))
        # NaN and infinity make the sum invalid.
        if np.count_nonzero(valid) < valid.size:
            for place in np.flatnonzero(~valid).tolist():
                row, _ = _place(array, (done + place) * n)
                _check_row(block.reshape(-1, n)[place], dtype, f"{name} distribution{row}")
        settled = np.asarray(excess <= least_excess)
        if np.count_nonzero(settled) == settled.size:
            if not keep and block.size == rows.size:
                return read_only(rows.view())
            copy[...] = block
        else:
            np.divide(block, np.where(settled, 1, total)[..., None], out=copy)
        done += valid.size
    return read_only(normalised)


def _in_cache(rows: Probs, copies: Probs) -> Iterable[tuple[Probs, Probs]]:
    """Return blocks of rows that fit into the cache, each with the same block of `copies`."""
    # The sum of a single row is a number, which is faster than an array.
    if rows.ndim == 1:
        return [(rows, copies)]
    n = rows.shape[-1]
    rows, copies, step = rows.reshape(-1, n), copies.reshape(-1, n), max(1, CACHED // n)
    return ((rows[i : i + step], copies[i : i + step]) for i in range(0, len(rows), step))


def _check_row(entries: Probs, dtype: str, name: str) -> None:
    """Raise unless a row is a distribution within the tolerance of its narrowest type."""
    wrong = np.flatnonzero(~((entries >= 0) & (entries < np.inf)))
    # Finite entries can also have an infinite sum; that error is raised below.
    if wrong.size:
        raise InvalidDistributionError(
            f"the {name} has {entries[wrong[0]]} at index {wrong[0]}; every probability must be a "
            "finite number of at least 0 (if these are logits, apply a softmax first)"
        )
    with np.errstate(over="ignore"):
        total = entries.sum()
    tolerance = tolerance_of_numbers(dtype, entries)
    if abs(total - 1) <= tolerance:
        return
    if total == 0:
        raise InvalidDistributionError(
            f"the {name} is zero everywhere; at least one token needs a positive probability"
        )
    raise InvalidDistributionError(
        f"the {name} sums to {float(total):.9g}; a distribution of type {dtype} must sum to one "
        f"within {tolerance:g}: apply a softmax if these are logits, or divide it by its sum if "
        "these are weights"
    )
