"""Probability laws on a vocabulary: checked, normalised, compared.

A law comes in as anything array-like and is held as a read-only float64 array, or as an object
array of `fractions.Fraction` when it was given in fractions (exact mode).
"""

from __future__ import annotations

import numbers
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Law,
    Number,
    as_fraction,
    as_number,
    is_exact,
    read_only,
    running_sum,
    zeros,
)
from otm._core.numbers import is_real
from otm._core.tensors import is_tensor, to_host
from otm._core.text import shown
from otm.errors import InvalidDistributionError

SUM_TOLERANCE = {"float16": 1e-2, "bfloat16": 1e-2, "float32": 1e-4}
"""How far a law may sum from one before it is refused, by the type that it was given in."""

DEFAULT_SUM_TOLERANCE = 1e-6

LARGEST_ENTRY = 1e200
"""Whole numbers and fractions beyond this are refused, before their sum can exceed all floats."""

ROUNDING = 2.0**-50
"""A float law that sums to one within this is left as it is: normalising twice changes nothing."""


def as_law_pair(draft: Any, target: Any) -> tuple[Law, Law]:
    """Check and normalise a draft and a target law of one length; both come back read-only.

    Fractions, and whole numbers among or beside them, are made to sum to one exactly, floats up to
    rounding.  If one of the two laws holds floats, both become float64.
    """
    raw_draft, draft_type = _as_array(draft, "draft")
    raw_target, target_type = _as_array(target, "target")
    raw_draft, raw_target = _of_one_kind(raw_draft, draft_type, raw_target, target_type)
    return _normalise(raw_draft, draft_type, "draft"), _normalise(raw_target, target_type, "target")


def as_law_rows(draft: Any, target: Any) -> tuple[Law, Law]:
    """Check and normalise many draft and target laws; equivalent to `as_law_pair` row by row.

    Laws stand along the last axis; the leading axes must broadcast, but each array keeps its shape.
    Every row comes out bit for bit as from `as_law_pair`; a refusal names the row and the token.
    """
    raw_draft, draft_type = _as_array(draft, "draft", rows=True)
    raw_target, target_type = _as_array(target, "target", rows=True)
    raw_draft, raw_target = _of_one_kind(raw_draft, draft_type, raw_target, target_type)
    try:
        np.broadcast_shapes(raw_draft.shape[:-1], raw_target.shape[:-1])
    except ValueError:
        raise InvalidDistributionError(
            f"draft laws of shape {raw_draft.shape} and target laws of shape {raw_target.shape}; "
            "all axes but the last must broadcast"
        ) from None
    return (
        _normalise_rows(raw_draft, draft_type, "draft"),
        _normalise_rows(raw_target, target_type, "target"),
    )


def as_law(values: Any, name: str) -> Law:
    """Check and normalise one law as `as_law_pair` does a pair; messages call it by the name."""
    return _normalise(*_as_array(values, name), name)


def to_exact(law: Law) -> Law:
    """Return a float law as fractions, divided by their exact sum (what exact mode works on)."""
    if is_exact(law):
        return law
    exact = _fractions(law)
    normalised: Law = exact / exact.sum()
    return normalised


def total_variation(a: Law, b: Law) -> Number:
    """Total variation distance Σ |a − b| / 2 of two laws."""
    return as_number(np.abs(a - b).sum() / 2)


def mass_beyond(law: Law, order: npt.NDArray[np.int64]) -> Law:
    """Mass of all tokens but the first j of an order, for each j: array [m + 1].

    The order holds m different tokens.  No mass is above one by rounding.
    """
    outside = np.ones(law.size, dtype=np.bool_)
    outside[order] = False
    masses = np.append(law[order], law[outside].sum() + zeros(1, law))
    # summed from the end, so that small masses keep their digits
    beyond: Law = np.minimum(running_sum(masses[::-1])[::-1], 1 + zeros(1, law))
    return beyond


def residual_weights(target: Law, accepted: Law) -> Law:
    """Weights max(target − accepted, 0) of the token drawn when every draft is rejected.

    `accepted` has the probability of each token to be output as an accepted draft.  The weights are
    not normalised; where no token has any, they are the target law.
    """
    left: Law = target - accepted
    np.maximum(left, zeros(1, target), out=left)
    # a rejection then has probability zero up to rounding: any law of the target's support serves
    return left if left.any() else target


def _as_array(values: Any, name: str, *, rows: bool = False) -> tuple[Law, str]:
    """Turn a law, or rows of laws, into float64 or Fraction arrays; also name the type given."""
    try:
        array: Law = np.asarray(to_host(values))
        given = str(values.dtype).removeprefix("torch.") if is_tensor(values) else array.dtype.name
    except Exception as error:  # whatever a foreign object raises when it is asked for its entries
        raise InvalidDistributionError(
            f"the {name} law is not array-like ({error}); give a flat sequence of numbers"
        ) from error
    if rows and (array.ndim == 0 or array.shape[-1] == 0):
        raise InvalidDistributionError(
            f"the {name} laws have shape {array.shape}; the last axis must hold one probability a "
            "token"
        )
    if not rows and (array.ndim != 1 or array.size == 0):
        raise InvalidDistributionError(
            f"the {name} law has shape {array.shape}; give one law as a flat, non-empty sequence "
            "with one probability a token"
        )
    if array.dtype == object:
        return _from_objects(array, name)
    if array.dtype.kind not in "fiu":
        raise InvalidDistributionError(
            f"the {name} law has entries of type {given}; allowed are real numbers and fractions"
        )
    with np.errstate(over="ignore"):  # to infinity, which is refused below
        return array.astype(np.float64, copy=False), given


def check_sizes(draft: Any, target: Any) -> None:
    """Check that two laws, arrays or tensors [..., n], have equally many tokens."""
    if draft.shape[-1] != target.shape[-1]:
        raise InvalidDistributionError(
            f"the draft law has {draft.shape[-1]} tokens and the target law {target.shape[-1]}; "
            "both must be laws on the same vocabulary: give absent tokens probability 0"
        )


def _of_one_kind(draft: Law, draft_type: str, target: Law, target_type: str) -> tuple[Law, Law]:
    """Check that the vocabularies agree, and make both laws floats or both fractions."""
    check_sizes(draft, target)
    if is_exact(draft) == is_exact(target):
        return draft, target
    other = draft_type if is_exact(target) else target_type
    to_kind = _fractions if other.startswith(("int", "uint")) else _floats
    return to_kind(draft), to_kind(target)


def _fractions(array: Law) -> Law:
    entries = np.array([Fraction(value) for value in array.ravel().tolist()], dtype=object)
    return entries.reshape(array.shape)


def _floats(array: Law) -> Law:
    return array.astype(np.float64)


def _from_objects(array: Law, name: str) -> tuple[Law, str]:
    """Take an object array as fractions if all entries are rational, otherwise as floats."""
    entries: list[Any] = []
    for position, value in enumerate(array.flat):
        if not is_real(value):
            row, index = _place(array, position)
            kind = type(value).__name__
            raise InvalidDistributionError(
                f"the {name} law{row} has {shown(value)} of type {kind} at index {index}; allowed "
                "are real numbers and fractions"
            )
        if not isinstance(value, numbers.Rational):
            entries.append(value)
            continue
        entries.append(as_fraction(value))
        if abs(entries[-1]) > LARGEST_ENTRY:
            row, index = _place(array, position)
            raise InvalidDistributionError(
                f"the {name} law{row} has a number beyond {LARGEST_ENTRY:g} at index {index}; "
                "every probability must be at least 0 and at most 1"
            )
    if all(isinstance(entry, Fraction) for entry in entries):
        return np.array(entries, dtype=object).reshape(array.shape), "Fraction"
    return np.array(entries, dtype=np.float64).reshape(array.shape), "float64"


def _place(array: Law, position: int) -> tuple[str, int]:
    """Row of a flat position in words, empty for a single law, and the index in the row."""
    *row, index = (int(i) for i in np.unravel_index(position, array.shape))
    if not row:
        return "", index
    return f" of row {row[0] if len(row) == 1 else tuple(row)}", index


def _normalise_rows(array: Law, given: str, name: str) -> Law:
    """Check every row, and divide it by its sum."""
    array = np.ascontiguousarray(array)  # NumPy then adds each row as it does a single law
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum(axis=-1, keepdims=True)
        wrong = abs(total - 1) > SUM_TOLERANCE.get(given, DEFAULT_SUM_TOLERANCE)
    valid = ~wrong & (array.min(axis=-1, keepdims=True) >= 0) & (total < np.inf)
    if not valid.all():
        first = int(valid.argmin())
        row, _ = _place(array, first * array.shape[-1])
        _normalise(array.reshape(-1, array.shape[-1])[first], given, name, row)  # says why
    settled = np.zeros_like(valid) if is_exact(array) else abs(total - 1) <= ROUNDING
    law: Law = array.copy() if settled.all() else array / np.where(settled, 1, total)
    return read_only(law)


def _normalise(array: Law, given: str, name: str, row: str = "") -> Law:
    """Check the entries and the sum, and divide by the sum."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum()
    # one comparison each settles the usual case: NaN and infinity show in the sum
    wrong = () if array.min() >= 0 and total < np.inf else ~((array >= 0) & (array < np.inf))
    if np.any(wrong):  # not so where finite entries sum to infinity
        index = int(np.flatnonzero(wrong)[0])
        raise InvalidDistributionError(
            f"the {name} law{row} has {array[index]} at index {index}; every probability must be a "
            "finite number of at least 0 (if these are logits, apply a softmax first)"
        )
    tolerance = SUM_TOLERANCE.get(given, DEFAULT_SUM_TOLERANCE)
    if total == 0:
        raise InvalidDistributionError(
            f"the {name} law{row} is zero everywhere; at least one token needs a positive "
            "probability"
        )
    if abs(total - 1) > tolerance:
        raise InvalidDistributionError(
            f"the {name} law{row} sums to {float(total):.9g}; a law given as {given} must sum to "
            f"one within {tolerance:g}: apply a softmax if these are logits, or divide it by its "
            "sum if that is what you mean"
        )
    settled = not is_exact(array) and abs(total - 1) <= ROUNDING
    law: Law = array / (1 if settled else total)
    return read_only(law)
