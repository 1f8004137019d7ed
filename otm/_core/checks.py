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
"""Numbers of drafts, one for each row of distributions."""

Drafts: TypeAlias = npt.NDArray[np.int64]
"""Draft tokens, the drafts of one selection along the last axis."""

Uniforms: TypeAlias = npt.NDArray[Any]
"""Numbers in [0, 1): float64, or `fractions.Fraction` in an object array."""

LARGEST_DRAFT_COUNT = 2**63 - 1
"""Most drafts that a problem may have."""

FEW = 32
"""Numbers that are checked faster one by one than as an array."""


def as_draft_count(k: Any) -> int:
    """Check that k is a number of drafts: an integer from 1 to `LARGEST_DRAFT_COUNT`.

    Booleans and floats are refused even where they equal an integer.
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
            f"k is above {LARGEST_DRAFT_COUNT}, a 64-bit integer; long before that α_k is "
            "its limit, the target mass of the tokens that can be drafted"
        )
    return count


def as_draft_counts(k: Any) -> Counts:
    """Check that k is a number of drafts, or an array of such numbers; a refusal names the row."""
    try:
        # entries as they were given: NumPy makes 2**63 a float, and True beside 2 a number
        fault = masked_fault(k)
        given = k if isinstance(k, np.ndarray) else np.asarray(k, dtype=object)
    except Exception as error:  # whatever a foreign object raises when it is asked for its entries
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
    """Shape that rows of distributions of this leading shape and numbers of drafts broadcast to."""
    try:
        return np.broadcast_shapes(shape, tuple(counts.shape))
    except ValueError:
        raise InvalidDraftCountError(
            f"k of shape {tuple(counts.shape)} for distributions of leading shape {shape}; they "
            "must broadcast: for every k at every row give a column, k[:, None]"
        ) from None


def place_of_row(row: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Place of one row as non-negative indices, one for each axis; refuses what is none."""
    index = row if isinstance(row, tuple) else (row,)
    place = [i for i in map(whole, index) if i is not None]
    fits = len(place) == len(index) == len(shape)
    if fits and all(-size <= i < size for i, size in zip(place, shape, strict=True)):
        return tuple(i % size for i, size in zip(place, shape, strict=True))
    advice = "give a whole number for each axis" if shape else "there is only one: [()]"
    raise NoSuchRowError(f"there is no row {shown(row)} in rows of shape {shape}; {advice}")


def name_row(row: tuple[int, ...]) -> str:
    """Row in words, for the beginning of a message; empty where there are no rows."""
    if not row:
        return ""
    return f"row {row[0] if len(row) == 1 else tuple(row)}: "


def as_drafts(drafts: npt.ArrayLike, k: int, n: int | None) -> Drafts:
    """Return drafts [..., k] of tokens in [0, n), or of any ids without n, as an integer array."""
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
    # negative ones are the largest as unsigned
    if n is not None and np.count_nonzero(wrong := tokens.view(np.uint64) >= n):
        raise InvalidDraftsError(
            f"draft token {array[wrong].flat[0]}; draft tokens must be integers in [0, {shown(n)})"
        )
    return tokens


def check_generator(rng: Any) -> None:
    """Refuse what is no generator, such as a seed."""
    if not isinstance(rng, np.random.Generator):
        raise InvalidParameterError(
            f"rng = {shown(rng)} of type {type(rng).__name__}; give a NumPy Generator, such as "
            "np.random.default_rng(seed)"
        )


def leading_shape(uniforms: npt.ArrayLike, axes: int) -> tuple[int, ...]:
    """Shape of uniforms without their last axes."""
    return as_array(uniforms, "the uniforms", InvalidUniformsError).shape[:-axes]


def check_uniforms(
    uniforms: npt.ArrayLike, shape: tuple[int, ...], exact: bool, need: str
) -> Uniforms:
    """Return uniforms in [0, 1), of a given shape, as float64 or as fractions in exact mode.

    `need` says in a refusal why: "these drafts need uniforms of shape {shape}".
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
    except (TypeError, ArithmeticError):  # objects that are no numbers, NaN of decimals
        valid = False
    if not valid:
        raise InvalidUniformsError("every uniform must be a number in [0, 1); NaN and 1 are not")
    if not exact:
        return rounded_down(array)
    fractions = np.empty(array.size, dtype=object)
    # what compares as a number but is none of Python's stays: tests follow a choice by such objects
    fractions[:] = [
        as_fraction(u) if isinstance(u, float | int | Decimal | np.floating) else u
        for u in array.ravel().tolist()
    ]
    return fractions.reshape(shape)


def rounded_down(numbers: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the largest float64 that is not above each number: fractions, long doubles, floats.

    A number below 1 stays below 1, and on the same side of every float.  So a uniform that is
    compared with floats decides the same as without rounding.
    """
    nearest = numbers.astype(np.float64, copy=False)
    if numbers.dtype != object and numbers.dtype.itemsize <= 8:
        return nearest
    return np.where(nearest > numbers, np.nextafter(nearest, -np.inf), nearest)


def as_numbers(values: Any, shape: tuple[int, ...], exact: bool, name: str, need: str) -> Probs:
    """Return an array of a given shape, as float64 or as fractions in exact mode."""
    try:
        array = as_fractions(values) if exact else np.asarray(values).astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidParameterError(f"{name} is no array of numbers ({error}); {need}") from error
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
    """Return array-like values, or a tensor on any device, as an array; else raise `error`.

    Tensors are widened as by `to_host`.
    """
    try:
        array, fault = np.asarray(to_host(values, widen=widen)), masked_fault(values)
    except Exception as reason:  # whatever a foreign object raises when asked for its entries
        raise error(f"{name} are not array-like ({reason}); {advice}") from reason
    if fault:
        raise error(f"{name} are {fault}")
    return array
