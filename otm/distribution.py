"""Probability laws on a vocabulary: checked, normalised, compared.

A law comes in as anything array-like and is held as a read-only float64 array, or as an object
array of `fractions.Fraction` when it was given in fractions (exact mode).
"""

from __future__ import annotations

import numbers
import sys
from fractions import Fraction
from typing import Any

import numpy as np

from otm.arithmetic import Law, Number, as_number, is_exact, read_only, zeros
from otm.errors import InvalidLawError

__all__ = ["as_law_pair", "residual_weights", "to_exact", "total_variation"]

SUM_TOLERANCE = {"float16": 1e-2, "bfloat16": 1e-2, "float32": 1e-4}
"""How far a law may sum from one before it is refused, by the type that it was given in."""

DEFAULT_SUM_TOLERANCE = 1e-6

LARGEST_ENTRY = 1e200
"""Whole numbers and fractions beyond this are refused, before their sum can exceed all floats."""

ROUNDING = 2.0**-50
"""A float law that sums to one within this is left as it is: normalising twice changes nothing."""


def as_law_pair(draft: Any, target: Any) -> tuple[Law, Law]:
    """Check and normalise a draft and a target law.

    Parameters
    ----------
    draft, target : array-like [n]
        Lists, NumPy arrays, torch tensors on any device, or sequences of `fractions.Fraction`
        (whole numbers may stand among the fractions, or for a law beside them).  If one of the two
        holds floats, both are taken as floats.

    Returns
    -------
    tuple of arrays [n]
        Read-only, each summing to one: float64 up to rounding, fractions exactly.

    Raises
    ------
    InvalidLawError
        If a law is not one-dimensional, is empty, holds anything but finite numbers of at least
        zero, does not sum to one within the tolerance of its type, or the lengths differ.
    """
    raw_draft, draft_type = _as_array(draft, "draft")
    raw_target, target_type = _as_array(target, "target")
    if raw_draft.size != raw_target.size:
        raise InvalidLawError(
            f"the draft law has {raw_draft.size} tokens and the target law {raw_target.size}; "
            "both must be laws on the same vocabulary: give absent tokens probability 0"
        )
    if is_exact(raw_draft) != is_exact(raw_target):
        other = draft_type if is_exact(raw_target) else target_type
        to_kind = _fractions if other.startswith(("int", "uint")) else _floats
        raw_draft, raw_target = to_kind(raw_draft), to_kind(raw_target)
    return _normalise(raw_draft, draft_type, "draft"), _normalise(raw_target, target_type, "target")


def to_exact(law: Law) -> Law:
    """Return a float law as fractions, divided by their exact sum (what exact mode works on)."""
    if is_exact(law):
        return law
    exact = _fractions(law)
    normalised: Law = exact / exact.sum()
    return normalised


def total_variation(a: Law, b: Law) -> Number:
    """Total variation distance Σ |a − b| / 2 of two laws.

    Examples
    --------
    >>> total_variation(np.array([0.5, 0.5]), np.array([0.25, 0.75]))
    0.25
    """
    return as_number(np.abs(a - b).sum() / 2)


def residual_weights(target: Law, accepted: Law) -> Law:
    """Weights max(target − accepted, 0) of the token drawn when every draft is rejected.

    Parameters
    ----------
    target, accepted : array [n]
        The target law, and for each token the probability that it is output as an accepted draft.

    Returns
    -------
    array [n]
        Weights, not normalised; the target law itself where nothing is left to draw (then a
        rejection has probability zero up to rounding, and any law of the target's support serves).
    """
    left: Law = target - accepted
    np.maximum(left, zeros(1, target), out=left)
    return left if left.any() else target


def _as_array(values: Any, name: str) -> tuple[Law, str]:
    """Turn anything array-like into a float64 or Fraction vector; also name the type given."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(values, torch.Tensor):
            given = str(values.dtype).removeprefix("torch.")
            tensor = values.detach().cpu()
            array: Law = (tensor.double() if tensor.is_floating_point() else tensor).numpy()
        else:
            array = np.asarray(values)
            given = array.dtype.name
    except Exception as error:  # whatever a foreign object raises when it is asked for its entries
        raise InvalidLawError(
            f"the {name} law is not array-like ({error}); give a flat sequence of numbers"
        ) from error
    if array.ndim != 1 or array.size == 0:
        raise InvalidLawError(
            f"the {name} law has shape {array.shape}; give one law as a flat, non-empty sequence "
            "with one probability a token"
        )
    if array.dtype == object:
        return _from_objects(array, name)
    if array.dtype.kind not in "fiu":
        raise InvalidLawError(
            f"the {name} law has entries of type {given}; allowed are real numbers and fractions"
        )
    with np.errstate(over="ignore"):  # to infinity, which is refused below
        return array.astype(np.float64, copy=False), given


def _fractions(array: Law) -> Law:
    return np.array([Fraction(value) for value in array.tolist()], dtype=object)


def _floats(array: Law) -> Law:
    return array.astype(np.float64)


def _from_objects(array: Law, name: str) -> tuple[Law, str]:
    """Take an object array as fractions if all entries are rational, otherwise as floats."""
    entries: list[Any] = []
    for index, value in enumerate(array):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            kind = type(value).__name__
            raise InvalidLawError(
                f"the {name} law has {value!r:.60} of type {kind} at index {index}; allowed are "
                "real numbers and fractions"
            )
        if not isinstance(value, numbers.Rational):
            entries.append(value)
            continue
        # over Python's own integers: those of NumPy would overflow
        entries.append(Fraction(int(value.numerator), int(value.denominator)))
        if abs(entries[-1]) > LARGEST_ENTRY:
            raise InvalidLawError(
                f"the {name} law has a number beyond {LARGEST_ENTRY:g} at index {index}; every "
                "probability must be at least 0 and at most 1"
            )
    if all(isinstance(entry, Fraction) for entry in entries):
        return np.array(entries, dtype=object), "Fraction"
    return np.array(entries, dtype=np.float64), "float64"


def _normalise(array: Law, given: str, name: str) -> Law:
    """Check the entries and the sum, and divide by the sum."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum()
    # one comparison each settles the usual case: NaN and infinity show in the sum
    wrong = () if array.min() >= 0 and total < np.inf else ~((array >= 0) & (array < np.inf))
    if np.any(wrong):  # not so where finite entries sum to infinity
        index = int(np.flatnonzero(wrong)[0])
        raise InvalidLawError(
            f"the {name} law has {array[index]} at index {index}; every probability must be a "
            "finite number of at least 0 (if these are logits, apply a softmax first)"
        )
    tolerance = SUM_TOLERANCE.get(given, DEFAULT_SUM_TOLERANCE)
    if total == 0:
        raise InvalidLawError(
            f"the {name} law is zero everywhere; at least one token needs a positive probability"
        )
    if abs(total - 1) > tolerance:
        raise InvalidLawError(
            f"the {name} law sums to {float(total):.9g}; a law given as {given} must sum to one "
            f"within {tolerance:g}: apply a softmax if these are logits, or divide it by its "
            "sum if that is what you mean"
        )
    settled = not is_exact(array) and abs(total - 1) <= ROUNDING
    law: Law = array / (1 if settled else total)
    return read_only(law)
