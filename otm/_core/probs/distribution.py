"""Probability distributions on a vocabulary: checked, normalised, compared.

A distribution comes in as anything array-like and is held as a read-only float64 array, or as an
object array of `fractions.Fraction` when it was given in fractions (exact mode).
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
"""Allowed distance of the sum of a distribution from one: in all, and for each token.

The larger of the two counts.  In float16 each probability may be wrong by 2^−25, however small it
is.  A softmax in float32 adds up its n terms with an error that grows with n: up to about n 2^−27
one after the other, far less in the blocks of torch or NumPy.
"""

DEFAULT_SUM_TOLERANCE = 1e-6, 2.0**-30
"""The same for all other types, such as exponentials of log-probabilities in float32."""

ROUNDED = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Largest relative error of a number that is rounded to one of these types."""

FEW_TOKENS = 64
"""Most numbers that may fit a type of 16 bits by chance, such as numbers typed by hand."""

LARGEST_ENTRY = 1e200
"""Whole numbers and fractions beyond this are refused, before their sum can exceed all floats."""

UNIT_SUM_TOLERANCE = 2.0**-50
"""Floats that sum to one within this are left as they are: normalising twice changes nothing."""


def sum_tolerance(kind: str, n: int) -> float:
    """Return the allowed distance from one of a sum of n probabilities of a type."""
    least, per_token = SUM_TOLERANCE.get(kind, DEFAULT_SUM_TOLERANCE)
    return max(least, n * per_token)


def narrowest_type(kind: str, numbers: Probs) -> str:
    """Name the narrowest type that holds all of these numbers [n] of a wider type.

    Numbers that were rounded to a narrow type keep this rounding in a wide one.
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
            if not np.count_nonzero(single.view(np.uint32) & 0xFFFF):  # half of a float32
                return "bfloat16"
    return "float32"


def tolerance_of_numbers(kind: str, numbers: Probs) -> float:
    """Return the allowed distance from one of these numbers' sum, by the narrowest type for them.

    A few nonzero numbers may fit 16 bits by chance; they have only the error of their rounding.
    """
    narrowest, n = narrowest_type(kind, numbers), numbers.size
    if narrowest != kind and narrowest in ROUNDED and np.count_nonzero(numbers) <= FEW_TOKENS:
        return ROUNDED[narrowest] + n * SUM_TOLERANCE[narrowest][1]
    return sum_tolerance(narrowest, n)


def as_probs_pair(draft: Any, target: Any, *, keep: bool = True) -> tuple[Probs, Probs]:
    """Check and normalise a pair of distributions of one length; both come back read-only.

    Fractions, and whole numbers among or beside them, are made to sum to one exactly, floats up to
    rounding.  If one of the two distributions holds floats, both become float64.  What the caller
    does not `keep` may be a view of what was given.
    """
    return _checked_pair(draft, target, rows=False, keep=keep)


def as_probs_rows(draft: Any, target: Any, *, keep: bool = True) -> tuple[Probs, Probs]:
    """Check and normalise many pairs; equivalent to `as_probs_pair` row by row.

    Distributions stand along the last axis; the leading axes must broadcast, but each array keeps
    its shape. Every row comes out bit for bit as from `as_probs_pair`; a refusal names the row and
    the token.
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
    """Check and normalise one distribution as `as_probs_pair` does a pair."""
    return _normalise(*_as_array(values, name), name)


def to_exact(probs: Probs) -> Probs:
    """Return float distributions [..., n] as fractions, divided by their exact sums."""
    if is_exact(probs):
        return probs
    exact = as_fractions(probs)
    return np.asarray(exact / exact.sum(axis=-1, keepdims=True))


def to_floats(probs: Probs) -> Probs:
    """Return a distribution, or rows of them, in float64."""
    return probs.astype(np.float64)


def total_variation(a: Probs, b: Probs) -> Number:
    """Total variation distance Σ |a − b| / 2 of two distributions."""
    return as_number(np.abs(a - b).sum() / 2)


def mass_beyond(probs: Probs, order: npt.NDArray[np.int64]) -> Probs:
    """Mass of all tokens but the first j of an order, for each j: array [m + 1].

    The order holds m different tokens.  No mass is above one by rounding.
    """
    outside = np.ones(probs.size, dtype=np.bool_)
    outside[order] = False
    masses = np.append(probs[order], probs[outside].sum() + zeros(1, probs))
    # summed from the end, so that small masses keep their digits
    return np.asarray(np.minimum(running_sum(masses[::-1])[::-1], 1 + zeros(1, probs)))


def residual_weights(target: Probs, accepted: Probs) -> Probs:
    """Weights max(target − accepted, 0) of the token drawn when every draft is rejected.

    `accepted` has the probability of each token to be output as an accepted draft.  The weights are
    not normalised; where no token has any, they are the target distribution.
    """
    left: Probs = target - accepted
    np.maximum(left, zeros(1, target), out=left)
    # a rejection then has probability zero up to rounding: any distribution of the target's support
    # serves
    return left if left.any() else target


def _as_array(values: Any, name: str, *, rows: bool = False) -> tuple[Probs, str]:
    """Turn a distribution, or rows of them, into float64 or Fraction arrays; also name the type."""
    what, advice = f"the entries of the {name} distribution", "give a flat sequence of numbers"
    array: Probs = as_array(values, what, InvalidDistributionError, advice)
    float64 = array.dtype == np.float64  # of which NumPy takes its time to find the name
    given = "float64" if float64 else array.dtype.name
    given = str(values.dtype).removeprefix("torch.") if is_tensor(values) else given
    if rows and array.ndim and array.shape[-1] == 0:
        raise InvalidDistributionError(
            f"the {name} distributions have shape {array.shape}; the last axis must hold one "
            "probability a token"
        )
    if array.ndim == 0 or (not rows and (array.ndim != 1 or array.size == 0)):
        kind = f"has shape {array.shape}" if array.ndim else f"is of type {type(values).__name__}"
        raise InvalidDistributionError(
            f"the {name} distribution {kind}; give one distribution as a flat, non-empty sequence "
            "with one probability a token"
        )
    if float64:
        return array, given
    if array.dtype == object:
        return _from_objects(array, name)
    if array.dtype.kind not in "fiu":
        raise InvalidDistributionError(
            f"the {name} distribution has entries of type {given}; allowed are real numbers and "
            "fractions"
        )
    with np.errstate(over="ignore"):  # to infinity, which is refused below
        return array.astype(np.float64), given


def broadcast_shape(draft: Any, target: Any) -> tuple[int, ...]:
    """Leading shape of a pair, arrays or tensors [..., n]; refuses shapes that do not fit."""
    first, second = tuple(draft.shape), tuple(target.shape)
    if first[-1] != second[-1]:
        raise InvalidDistributionError(
            f"the draft distribution has {first[-1]} tokens and the target distribution "
            f"{second[-1]}; both must be distributions on the same vocabulary: give absent tokens "
            "probability 0"
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
    """Take an object array as fractions if all entries are rational, otherwise as floats."""
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
                f"the {name} distribution{row} has a number beyond {LARGEST_ENTRY:g} at index "
                f"{index}; every probability must be at least 0 and at most 1"
            )
    if all(isinstance(entry, Fraction) for entry in entries):
        return np.array(entries, dtype=object).reshape(array.shape), "Fraction"
    return np.array(entries, dtype=np.float64).reshape(array.shape), "float64"


def _place(array: Probs, position: int) -> tuple[str, int]:
    """Row of a flat position in words, empty without rows, and the index in the row."""
    *row, index = (int(i) for i in np.unravel_index(position, array.shape))
    if not row:
        return "", index
    return f" of row {row[0] if len(row) == 1 else tuple(row)}", index


def _normalise(array: Probs, given: str, name: str, *, keep: bool = True) -> Probs:
    """Check the entries and the sum of each row, and divide it by its sum: [..., n] → [..., n]."""
    rows = np.ascontiguousarray(array)
    normalised, n = np.empty_like(rows), rows.shape[-1]  # memory that is not written costs nothing
    tolerance = sum_tolerance(given, n)
    least_excess = -1 if is_exact(rows) else UNIT_SUM_TOLERANCE
    done = 0
    for block, copy in _in_cache(rows, normalised):
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.add.reduce(block, axis=-1)
            excess = abs(total - 1)
        valid = np.asarray((np.minimum.reduce(block, axis=-1) >= 0) & (excess <= tolerance))
        if np.count_nonzero(valid) < valid.size:  # NaN and infinity show in the sum
            for place in np.flatnonzero(~valid).tolist():
                row, _ = _place(array, (done + place) * n)
                _check_row(block.reshape(-1, n)[place], given, f"{name} distribution{row}")
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
    """Yield blocks of rows [R, n] that fit in the cache, with their copies; a row [n] is whole."""
    if rows.ndim == 1:  # as it is: its sum is then a number, which is quicker than an array
        return [(rows, copies)]
    n = rows.shape[-1]
    rows, copies, step = rows.reshape(-1, n), copies.reshape(-1, n), max(1, CACHED // n)
    return ((rows[i : i + step], copies[i : i + step]) for i in range(0, len(rows), step))


def _check_row(entries: Probs, given: str, name: str) -> None:
    """Raise for a row that is not a distribution, unless the tolerance of a narrower type helps."""
    wrong = np.flatnonzero(~((entries >= 0) & (entries < np.inf)))
    if wrong.size:  # not so where finite entries sum to infinity
        raise InvalidDistributionError(
            f"the {name} has {entries[wrong[0]]} at index {wrong[0]}; every probability must be a "
            "finite number of at least 0 (if these are logits, apply a softmax first)"
        )
    with np.errstate(over="ignore"):
        total = entries.sum()
    tolerance = tolerance_of_numbers(given, entries)
    if abs(total - 1) <= tolerance:
        return
    if total == 0:
        raise InvalidDistributionError(
            f"the {name} is zero everywhere; at least one token needs a positive probability"
        )
    raise InvalidDistributionError(
        f"the {name} sums to {float(total):.9g}; a distribution given as {given} must sum to one "
        f"within {tolerance:g}: apply a softmax if these are logits, or divide it by its sum if "
        "that is what you mean"
    )
