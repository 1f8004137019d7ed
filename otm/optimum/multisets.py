"""Draft multisets: k drafts without their order, which is all that an i.i.d. selection needs.

The R = C(m + k − 1, k) multisets of size k over m tokens are rows x_0 ≤ x_1 ≤ … ≤ x_{k−1}, in
colexicographic order.  In this order the rank of a row is a sum of k binomial coefficients (the
combinatorial number system), so that drafts find their row without a search.
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
"""Rows of ascending numbers, one multiset a row: array [R, k]."""

MEMORY_LIMIT = 2 * 2**30
"""Bytes that a table of multisets, or a linear program over them, may take by default: 2 GiB."""


def multiset_count(m: int, k: int) -> int:
    """Count the multisets of size k over m tokens: C(m + k − 1, k)."""
    return math.comb(m + k - 1, k)


def multisets(m: int, k: int, memory_limit: int = MEMORY_LIMIT) -> Multisets:
    """All multisets of size k over the tokens 0, …, m − 1, in the order of `multiset_rank`.

    Ascending rows [R, k]; refused before anything is allocated if they would take more than
    `memory_limit` bytes.
    """
    rows = multiset_count(m, k)
    if 8 * k * rows > memory_limit:
        raise ProblemTooLargeError(
            f"the multisets of k = {k} out of {m:,} tokens are {scientific(rows)} rows of "
            f"{scientific(8 * k * rows)} bytes in all, above the limit of {memory_limit:,} bytes; "
            'method="closed-form" and its plan need no such table and work at any size'
        )
    # those of the reversed tokens come with their last entries first, in the opposite order
    backwards = combinations_with_replacement(range(m)[::-1], k)
    table = np.fromiter(chain.from_iterable(backwards), np.int64, k * rows).reshape(rows, k)
    return table[::-1, ::-1]


def multiset_rank(sorted_rows: Multisets) -> npt.NDArray[np.int64]:
    """Row of each multiset in `multisets(m, k)`, for any m that holds it: [..., k] → [...].

    It is Σ C(x_i + i, i + 1) over the places i, for x ascending along the last axis.
    """
    rank = np.zeros(sorted_rows.shape[:-1], dtype=np.int64)
    binomial = np.ones(sorted_rows.max(initial=0) + 1, dtype=np.int64)
    binomial[0] = 0
    for i in range(sorted_rows.shape[-1]):
        binomial = np.cumsum(binomial)  # C(x + i, i + 1), by the hockey-stick identity
        rank += binomial[sorted_rows[..., i]]
    return rank


def first_occurrences(sorted_rows: Multisets) -> npt.NDArray[np.bool_]:
    """Where a token stands for the first time in its row: array [..., k]."""
    first = np.ones(sorted_rows.shape, dtype=np.bool_)
    first[..., 1:] = sorted_rows[..., 1:] != sorted_rows[..., :-1]
    return first


def multiset_probabilities(draft: Probs, sets: Multisets) -> Probs:
    """Probability that k i.i.d. drafts are each multiset: multinomial coefficient times product.

    Floats have a relative error of about 3k · 2^−53, except for rows of negligible probability
    whose beginning underflows (above k = 1,000 these are not always negligible).
    """
    first = first_occurrences(sets)
    probability: Probs = 0 * draft[sets[:, 0]] + 1
    repeats = np.zeros(len(sets), dtype=np.int64)
    for i in range(sets.shape[1]):  # the probability of the first i of a row never overflows
        repeats = np.where(first[:, i], 1, repeats + 1)
        probability = probability * draft[sets[:, i]] * (i + 1) / repeats
    return probability


def scientific(number: int | Decimal) -> str:
    """Three digits of a number of any size, also one that no float can hold."""
    return f"{Decimal(number):.3g}".replace("e+", "e")
