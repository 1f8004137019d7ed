"""Checks of numbers of drafts, draft tokens, uniforms and generators."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs, as_fraction, as_fractions
from otm._core.display.text import shown
from otm._core.numbers import whole
from otm._core.tensors import masked_fault, to_host
from otm.errors import (
    InvalidDraftCountError,
    InvalidDraftsError,
    InvalidInputError,
    InvalidParameterError,
    InvalidUniformsError,
    NoSuchRowError,
)

Counts: TypeAlias = npt.NDArray[np.int64]
"""Array with the number of drafts of each row of distributions."""

Drafts: TypeAlias = npt.NDArray[np.int64]
"""Array of draft tokens; its last axis holds the drafts of one selection."""

Uniforms: TypeAlias = npt.NDArray[Any]
"""Array of numbers in [0, 1): float64, or `fractions.Fraction` in an object array."""

LARGEST_DRAFT_COUNT = 2**63 - 1
"""Largest number of drafts of a problem."""

FEW = 32
"""Largest number of values for which a Python loop is faster than array operations."""


def as_draft_count(k: Any) -> int:
    """Check that k is an integer from 1 to `LARGEST_DRAFT_COUNT`, and return it.

    Booleans raise an error, and so do floats, even if they equal an integer.
    """
    count = whole(k)
    if count is None:
        raise InvalidDraftCountError(
            f"k = {shown(k)} of type {type(k).__name__}; the number of drafts must be an integer"
        )
    if count < 1:
        raise InvalidDraftCountError(f"k = {Decimal(count):.6g}; at least one draft is needed")
    if count > LARGEST_DRAFT_COUNT:
        raise InvalidDraftCountError(
            f"k is above {LARGEST_DRAFT_COUNT}, the largest 64-bit integer; for far smaller k, "
            "α_k already equals its limit, the target mass of the tokens that can be drafted"
        )
    return count


def as_draft_counts(k: Any) -> Counts:
    """Check that k is a number of drafts or an array of such numbers; an error names the row."""
    try:
        # dtype=object keeps the entries: NumPy would turn 2**63 into a float and True into 1.
        fault = masked_fault(k)
        given = k if isinstance(k, np.ndarray) else np.asarray(k, dtype=object)
    # A foreign object may raise any exception when its entries are read.
    except Exception as error:
        raise InvalidDraftCountError(f"k is not a number or an array: {error}") from error
    if fault:
        raise InvalidDraftCountError(f"k is {fault}")
    if given.ndim == 0:
        return np.asarray(as_draft_count(k), dtype=np.int64)
    if given.dtype == np.int64 and given.size and given.min() >= 1:
        return given
    counts = np.empty(given.shape, dtype=np.int64)
    for row in np.ndindex(given.shape):
        try:
            counts[row] = as_draft_count(given[row])
        except InvalidDraftCountError as error:
            raise InvalidDraftCountError(f"{name_row(row)}{error}") from None
    return counts


def broadcast_counts(shape: tuple[int, ...], counts: Any) -> tuple[int, ...]:
    """Broadcast the leading shape of distributions with the shape of k."""
    try:
        return np.broadcast_shapes(shape, tuple(counts.shape))
    except ValueError:
        raise InvalidDraftCountError(
            f"k of shape {tuple(counts.shape)} for distributions of leading shape {shape}; they "
            "must broadcast.  To combine every k with every row, give a column: k[:, None]"
        ) from None


def normalize_row(row: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of one row as nonnegative integers, one per axis; raise if out of range."""
    index = row if isinstance(row, tuple) else (row,)
    place = [i for i in map(whole, index) if i is not None]
    fits = len(place) == len(index) == len(shape)
    if fits and all(-size <= i < size for i, size in zip(place, shape, strict=True)):
        return tuple(i % size for i, size in zip(place, shape, strict=True))
    advice = "give a whole number for each axis" if shape else "there is only one: [()]"
    raise NoSuchRowError(f"there is no row {shown(row)} in rows of shape {shape}; {advice}")


def name_row(row: tuple[int, ...]) -> str:
    """Return the words that name a row at the start of a message; empty if there are no rows."""
    if not row:
        return ""
    return f"row {row[0] if len(row) == 1 else tuple(row)}: "


def as_drafts(drafts: npt.ArrayLike, k: int, n: int | None) -> Drafts:
    """Return drafts [..., k] as an integer array; with n, raise unless tokens are in [0, n)."""
    array = as_array(drafts, "the drafts", InvalidDraftsError)
    if array.ndim == 0 or array.shape[-1] != k:
        raise InvalidDraftsError(
            f"drafts of shape {array.shape}; the last axis must hold the k = {k} drafts of "
            "one selection"
        )
    if array.dtype.kind not in "iu":
        which = "the ids of tokens" if n is None else f"in [0, {shown(n)})"
        raise InvalidDraftsError(
            f"drafts of type {array.dtype}; draft tokens must be integers {which}"
        )
    tokens = array.astype(np.int64, copy=False)
    # As unsigned integers, negative tokens are larger than all others.
    if n is not None and np.count_nonzero(wrong := tokens.view(np.uint64) >= n):
        raise InvalidDraftsError(
            f"draft token {array[wrong].flat[0]}; draft tokens must be integers in [0, {shown(n)})"
        )
    return tokens


def check_generator(rng: Any) -> None:
    """Raise unless `rng` is a NumPy Generator."""
    if not isinstance(rng, np.random.Generator):
        raise InvalidParameterError(
            f"rng = {shown(rng)} of type {type(rng).__name__}; give a NumPy Generator, such as "
            "np.random.default_rng(seed)"
        )


def leading_shape(uniforms: npt.ArrayLike, axes: int) -> tuple[int, ...]:
    """Return the shape of uniforms without their last axes."""
    return as_array(uniforms, "the uniforms", InvalidUniformsError).shape[:-axes]


def check_uniforms(
    uniforms: npt.ArrayLike, shape: tuple[int, ...], exact: bool, need: str
) -> Uniforms:
    """Check uniforms in [0, 1) of a required shape; return float64, or fractions in exact mode.

    An error message ends with `need`, such as "these drafts need uniforms of shape {shape}".
    """
    array = as_array(uniforms, "the uniforms", InvalidUniformsError)
    if array.shape != shape:
        raise InvalidUniformsError(f"uniforms of shape {array.shape}; {need.format(shape=shape)}")
    try:
        if array.size <= FEW and array.dtype == np.float64:
            valid = all(0 <= u < 1 for u in array.ravel().tolist())
        else:
            valid = array.dtype.kind in "fiuO"
            valid = valid and np.count_nonzero((array >= 0) & (array < 1)) == array.size
    except (TypeError, ArithmeticError):  # Objects that are not numbers, or a decimal NaN.
        valid = False
    if not valid:
        raise InvalidUniformsError(
            "every uniform must be a number in [0, 1), which excludes NaN and 1"
        )
    if not exact:
        return rounded_down(array)
    fractions = np.empty(array.size, dtype=object)
    # Objects that only compare like numbers are kept: tests trace decisions with such objects.
    fractions[:] = [
        as_fraction(u) if isinstance(u, float | int | Decimal | np.floating) else u
        for u in array.ravel().tolist()
    ]
    return fractions.reshape(shape)


def rounded_down(numbers: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Round numbers (fractions, long doubles, floats) down to float64.

    A number below 1 stays below 1, and every comparison u < x with a float x keeps its result.
    Rounding a uniform therefore changes no decision.
    """
    nearest = numbers.astype(np.float64, copy=False)
    if numbers.dtype != object and numbers.dtype.itemsize <= 8:
        return nearest
    return np.where(nearest > numbers, np.nextafter(nearest, -np.inf), nearest)


def as_numbers(values: Any, shape: tuple[int, ...], exact: bool, name: str, need: str) -> Probs:
    """Check numbers of a required shape; return float64, or fractions in exact mode."""
    try:
        array = as_fractions(values) if exact else np.asarray(values).astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidParameterError(
            f"{name} is not an array of numbers ({error}); {need}"
        ) from error
    if array.shape != shape:
        raise InvalidParameterError(f"{name} of shape {array.shape}; {need}")
    if fault := masked_fault(values):
        raise InvalidParameterError(f"{name} is {fault}")
    return array


def as_array(
    values: Any,
    name: str,
    error: type[InvalidInputError],
    advice: str = "give an array",
    *,
    widen: bool = True,
) -> npt.NDArray[Any]:
    """Convert array-like values, or a tensor on any device, to an array; otherwise raise `error`.

    Tensors are converted by `to_host`.
    """
    try:
        array, fault = np.asarray(to_host(values, widen=widen)), masked_fault(values)
    except Exception as reason:  # A foreign object may raise anything when its entries are read.
        raise error(f"{name} are not array-like ({reason}); {advice}") from reason
    if fault:
        raise error(f"{name} are {fault}")
    return array
