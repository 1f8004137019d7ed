"""Check arguments of the formulas: rates, costs and numbers of drafts, as floats or fractions."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from otm._core.arithmetic import Probs, as_fractions, is_exact
from otm._core.checks import as_array
from otm._core.display.text import shown
from otm._core.numbers import is_real
from otm.errors import InvalidParameterError

LARGEST_GAMMA = 2**53
"""Largest number of drafts in a block; float64 skips integers beyond it."""

LARGEST_COST = 1e200
"""Largest allowed cost, so that products of costs stay below the largest float."""


def in_unit_interval(values: Any, name: str = "α") -> Probs:
    """Return numbers in [0, 1], such as acceptance rates; raise on other values."""
    return _as_numbers(values, name, 1, "a number in [0, 1]")


def as_costs(values: Any, name: str = "c") -> Probs:
    """Return costs relative to a call of the target model; raise on other values."""
    return _as_numbers(values, name, LARGEST_COST, f"a number from 0 to {LARGEST_COST:g}")


def _as_numbers(values: Any, name: str, most: float, allowed: str) -> Probs:
    """Return numbers in [0, most]: floats as float64, fractions and integers unchanged."""
    array = as_array(values, name, InvalidParameterError, f"it must be {allowed}, or an array")
    if array.dtype == object and all(map(is_real, array.flat)):
        if not all(isinstance(value, numbers.Rational) for value in array.flat):
            try:
                array = array.astype(np.float64)
            except OverflowError:
                raise InvalidParameterError(
                    f"{name} = {shown(values)} exceeds the largest float; it must be {allowed}"
                ) from None
    elif array.dtype.kind not in "iuf":
        raise InvalidParameterError(f"{name} = {shown(values)}; it must be {allowed}")
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
    wrong = ~np.asarray((array >= 0) & (array <= most), dtype=np.bool_)
    if wrong.any():
        raise InvalidParameterError(
            f"{name} = {shown(array[wrong].tolist()[0])}; it must be {allowed}"
        )
    return array


def as_draft_numbers(
    values: Any, name: str = "γ", *, single: bool = False, least: int = 0
) -> Probs:
    """Return numbers of drafts as int64; raise on other values."""
    allowed = f"an integer from {least} to {LARGEST_GAMMA}"
    array = _as_numbers(values, name, LARGEST_GAMMA, allowed)
    wrong = array.dtype.kind not in "iu" or (single and array.ndim)
    if wrong or (array.size and array.min() < least):
        raise InvalidParameterError(f"{name} = {shown(values)}; it must be {allowed}")
    return array.astype(np.int64)


def as_one_type(*arrays: Probs) -> tuple[Probs, ...]:
    """Broadcast arrays; convert them to fractions if one has fractions and none has floats."""
    exact = any(map(is_exact, arrays)) and all(array.dtype.kind != "f" for array in arrays)
    try:
        together = np.broadcast_arrays(*arrays)
    except ValueError:
        shapes = " and ".join(str(array.shape) for array in arrays)
        raise InvalidParameterError(
            f"arguments of shapes {shapes}; they must broadcast together"
        ) from None
    return tuple(as_kind(array, exact=exact) for array in together)


def as_kind(array: Probs, *, exact: bool) -> Probs:
    """Convert an array to float64, or to fractions of Python integers."""
    return as_fractions(array) if exact else array.astype(np.float64)


def geometric_sum(alpha: Probs, terms: Probs) -> Probs:
    """Return the sum of α^i over 0 ≤ i < terms, elementwise; `terms` must be at least 1."""
    is_one = alpha == 1
    denominator = np.where(is_one, 1, 1 - alpha)
    if is_exact(alpha):
        return np.where(is_one, terms, (1 - alpha**terms) / denominator)
    # log(0) = −∞ is intended, because its exponential is 0
    with np.errstate(divide="ignore"):
        return np.where(is_one, terms, -np.expm1(terms * np.log(alpha)) / denominator)


def result(values: Any) -> Any:
    """Return an array without axes as a number, and any other array unchanged."""
    array = np.asarray(values)
    return array.item() if array.ndim == 0 else array
