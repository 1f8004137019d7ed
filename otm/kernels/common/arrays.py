"""Array operations that work on floats, fractions and tensors alike.

Formulas for one node use these operations in NumPy and torch.  The operations work along the last
axis: arrays have shape [n] for one node, and tensors have shape [B, n] for B nodes.  Object arrays
of `fractions.Fraction` stay exact.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from otm._core.tensors import is_tensor


def array_module(values: Any) -> Any:
    """Return the library of an array: torch for tensors, otherwise NumPy."""
    return sys.modules["torch"] if is_tensor(values) else np


def to_float64(values: Any) -> Any:
    """Convert to float64; fractions stay fractions."""
    xp = array_module(values)
    return values if values.dtype == object else xp.asarray(values, dtype=xp.float64)


def to_int64(values: Any) -> Any:
    """Round toward zero to int64; fractions stay unchanged."""
    xp = array_module(values)
    return values if values.dtype == object else xp.asarray(values, dtype=xp.int64)


def nonzero_or_one(values: Any) -> Any:
    """Replace 0 by 1, so that the numbers can be divisors."""
    return values + (values == 0)


def prepend_zero(values: Any) -> Any:
    """Insert 0 before cumulative sums: [..., n] → [..., n + 1]."""
    return array_module(values).concatenate((0 * values[..., :1], values), axis=-1)


def take(values: Any, index: Any) -> Any:
    """Return entries of a row [n] at any indices, or of rows [B, n] at indices [B, m]."""
    return values[index] if values.ndim == 1 else values.gather(-1, index)
