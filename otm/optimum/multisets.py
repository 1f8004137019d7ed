"""Draft multisets: k drafts without their order, which selection among i.i.d. drafts can ignore.

The R = C(m + k − 1, k) multisets of size k over m tokens are rows x_0 ≤ x_1 ≤ … ≤ x_{k−1}, in
colexicographic order.  In this order the rank of a row is a sum of k binomial coefficients (the
combinatorial number system), so no search is needed to find the row of given drafts.
"""

from __future__ import annotations

import math
from decimal import Decimal
from itertools import chain, combinations_with_replacement

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs
from otm.errors import ProblemTooLargeError

Multisets = npt.NDArray[np.int64]
"""Array [R, k]: each row is a multiset, in ascending order."""

MEMORY_LIMIT = 2 * 2**30
"""Default memory limit of a table of multisets, or of a linear program over them: 2 GiB."""


def multiset_count(m: int, k: int) -> int:
    """Count the multisets of size k over m tokens: C(m + k − 1, k)."""
    return math.comb(m + k - 1, k)


def multisets(m: int, k: int, memory_limit: int = MEMORY_LIMIT) -> Multisets:
    """Return all multisets of size k over the tokens 0, …, m − 1, in the order of `multiset_rank`.

    Each row of the array [R, k] is ascending.  If the array would exceed `memory_limit` bytes,
    the function raises before it allocates memory.
    """
    rows = multiset_count(m, k)
    if 8 * k * rows > memory_limit:
        raise ProblemTooLargeError(
            f"the multisets of k = {k} out of {m:,} tokens are {scientific(rows)} rows of "
            f"{scientific(8 * k * rows)} bytes in all, above the limit of {memory_limit:,} bytes; "
            'method="closed-form" and its plan need no such table and work at any size'
        )
    # For reversed tokens, itertools yields the rows backwards and each row from its last entry.
    backwards = combinations_with_replacement(range(m)[::-1], k)
    table = np.fromiter(chain.from_iterable(backwards), np.int64, k * rows).reshape(rows, k)
    return table[::-1, ::-1]


def multiset_rank(sorted_rows: Multisets) -> npt.NDArray[np.int64]:
    """Return the row of each multiset in `multisets(m, k)`, for large enough m: [..., k] → [...].

    The row is Σ C(x_i + i, i + 1) over the positions i, for x ascending along the last axis.
    """
    rank = np.zeros(sorted_rows.shape[:-1], dtype=np.int64)
    binomial = np.ones(sorted_rows.max(initial=0) + 1, dtype=np.int64)
    binomial[0] = 0
    for i in range(sorted_rows.shape[-1]):
        binomial = np.cumsum(binomial)  # C(x + i, i + 1), by the hockey-stick identity
        rank += binomial[sorted_rows[..., i]]
    return rank


def first_occurrences(sorted_rows: Multisets) -> npt.NDArray[np.bool_]:
    """Mark the first occurrence of each token in its row: boolean array [..., k]."""
    first = np.ones(sorted_rows.shape, dtype=np.bool_)
    first[..., 1:] = sorted_rows[..., 1:] != sorted_rows[..., :-1]
    return first


def multiset_probabilities(draft: Probs, sets: Multisets) -> Probs:
    """Compute the probability of each multiset for k i.i.d. drafts.

    The probability is the multinomial coefficient times the product of the token probabilities.
    Floats have a relative error of about 3k · 2^−53.  The error is larger in rows whose
    partial product underflows; their probability is negligible for k ≤ 1,000, but not always for
    larger k.
    """
    first = first_occurrences(sets)
    probability: Probs = 0 * draft[sets[:, 0]] + 1
    repeats = np.zeros(len(sets), dtype=np.int64)
    # The probability of the first i tokens of a row is at most 1, so it cannot overflow.
    for i in range(sets.shape[1]):
        repeats = np.where(first[:, i], 1, repeats + 1)
        probability = probability * draft[sets[:, i]] * (i + 1) / repeats
    return probability


def scientific(number: int | Decimal) -> str:
    """Format a number of any size with three digits, even if it is too large for a float."""
    return f"{Decimal(number):.3g}".replace("e+", "e")
