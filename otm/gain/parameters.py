"""Numbers that the formulas take: rates, costs, numbers of drafts; floats or fractions."""

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
"""Most drafts in a block; beyond it float64 skips whole numbers."""

LARGEST_COST = 1e200
"""Costs beyond this are refused, before their products can exceed all floats."""


def in_unit_interval(values: Any, name: str = "α") -> Probs:
    """Return numbers in [0, 1], such as acceptance rates."""
    return _as_numbers(values, name, 1, "a number in [0, 1]")


def as_costs(values: Any, name: str = "c") -> Probs:
    """Return costs, relative to a call of the target model."""
    return _as_numbers(values, name, LARGEST_COST, f"a number from 0 to {LARGEST_COST:g}")


def _as_numbers(values: Any, name: str, most: float, allowed: str) -> Probs:
    """Return numbers in [0, most]: floats as float64, fractions and whole numbers as they are."""
    array = as_array(values, name, InvalidParameterError, f"it must be {allowed}, or an array")
    if array.dtype == object and all(map(is_real, array.flat)):
        if not all(isinstance(value, numbers.Rational) for value in array.flat):
            try:
                array = array.astype(np.float64)
            except OverflowError:
                raise InvalidParameterError(
                    f"{name} = {shown(values)} has a number beyond all floats; it must be {allowed}"
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


def as_draft_numbers(values: Any, name: str = "γ", *, single: bool = False) -> Probs:
    """Return numbers of drafts as int64."""
    allowed = f"an integer from 0 to {LARGEST_GAMMA}"
    array = _as_numbers(values, name, LARGEST_GAMMA, allowed)
    if array.dtype.kind not in "iu" or (single and array.ndim):
        raise InvalidParameterError(f"{name} = {shown(values)}; it must be {allowed}")
    return array.astype(np.int64)


def of_one_kind(*arrays: Probs) -> tuple[Probs, ...]:
    """Broadcast arrays, as fractions if one is so and none holds floats, otherwise as floats."""
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
    """Return an array in float64, or as fractions over Python's own integers."""
    return as_fractions(array) if exact else array.astype(np.float64)


def geometric_sum(alpha: Probs, terms: Probs) -> Probs:
    """Sum of α^i over i < terms (at least 1), both as from `of_one_kind`: [...], [...] → [...]."""
    certain = alpha == 1
    left = np.where(certain, 1, 1 - alpha)
    if is_exact(alpha):
        return np.where(certain, terms, (1 - alpha**terms) / left)
    with np.errstate(divide="ignore"):  # log(0) = −∞, whose exponential is 0
        return np.where(certain, terms, -np.expm1(terms * np.log(alpha)) / left)


def result(values: Any) -> Any:
    """Return an array of no axes as the number that it holds."""
    array = np.asarray(values)
    return array.item() if array.ndim == 0 else array
