"""Exponential clocks that drafts and output share: one number S per position, list and token.

The time of a token with probability p under a model is S/p.  The token with the smallest time is a
sample from the model's distribution, and two models that read the same clocks often draw the same
token ([daliri2024]_; k lists: [rowan2025]_).

Clocks are computed, not stored, by Philox 4x64-10 ([salmon2011]_, as in NumPy).  The key of the
sequence is the Philox key, and (token, list, position) is the Philox counter.  A clock uses 64
bits, so the probability p of a token has a relative error of about 2^−64/p.

References
----------
.. [daliri2024] Daliri, Musco and Suresh, "Coupling without Communication and Drafter-Invariant
   Speculative Decoding", arXiv 2408.07978.
.. [rowan2025] Rowan, Phan and Khisti, "List-Level Distribution Coupling with Applications to
   Speculative Decoding and Lossy Compression", NeurIPS 2025.
.. [salmon2011] Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.probs.sparse import SparseProbs
from otm.decoding.draft_tree import Randomness

BELOW_ONE = 1 - 2.0**-53
"""Largest uniform; a uniform of one would give an infinite clock."""

UNIT, HALF = 2.0**-64, 2.0**-65
"""A clock with 64 bits r has the uniform (r + 1/2) 2^−64."""

SLACK = 1 + 2.0**-40
"""Factor that exceeds every relative rounding error of a time."""

# Constants of the logarithm.  The bits of a float give a mantissa in [√(1/2), √2); ln 2 is the sum
# of two parts; ln(1 + f) is a series in s = f/(2 + f).  The coefficients of s², …, s¹⁴ are those of
# fdlibm (Sun Microsystems, 1993).
LEAST_MANTISSA = 0x3FE6A09E00000000
TO_POWER = 0x3FF0000000000000 - LEAST_MANTISSA
OF_MANTISSA = 2**52 - 1
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
COEFFICIENTS = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)


@dataclass(frozen=True)
class SharedClocks:
    """The exponential clocks of one sequence.

    Parameters
    ----------
    key : int
        Key of the sequence, from 0 to 2^64 − 1.
    lists : int
        Number of lists; each draft of a token has its own list.

    Examples
    --------
    >>> clocks = SharedClocks(key=7, lists=2)
    >>> draft, target = SparseProbs([0, 1], [0.5, 0.5]), SparseProbs([0, 1], [0.25, 0.75])
    >>> [[clocks.draft(position, m, draft) for m in range(2)] for position in range(4)]
    [[1, 1], [0, 0], [0, 1], [0, 0]]
    >>> [clocks.output(position, target) for position in range(4)]
    [1, 0, 1, 1]
    """

    key: int
    lists: int = 1

    def draft(self, position: int, of_list: int, probs: SparseProbs) -> int:
        """Return the token with the smallest time in one list."""
        return self._first(position, range(of_list, of_list + 1), probs)

    def output(self, position: int, probs: SparseProbs) -> int:
        """Return the token with the smallest time over all lists."""
        return self._first(position, range(self.lists), probs)

    def uniform(self, position: int, of_list: int, token: int) -> float:
        """Return the uniform u in (0, 1) of one clock −ln(1 − u); small clocks have small u."""
        # A Philox block serves four tokens.  NumPy increments the counter before it draws.
        block, place = divmod(token, 4)
        counter = np.array([block, of_list, position, 0], dtype=np.uint64)
        bits = np.random.Philox(key=self.key, counter=counter).random_raw(place + 1)
        return float(_uniforms(bits[-1:])[0])

    def _first(self, position: int, lists: range, probs: SparseProbs) -> int:
        bits = clock_bits(self.key, position, lists, int(probs.tokens[-1]) + 1)
        return _first_to_ring(bits, probs.tokens, probs.probabilities)


def first_rings(probs: Any, keys: Any, positions: Any, lists: Any, count: int) -> Any:
    """Return the token with the smallest time in each row, over `count` lists: int64 [B, L].

    `probs` is [B, L, V], `keys` [B], `positions` [B, L]; `lists` [B, L] is the first list of a row.
    Tokens need a positive probability; a row without positive probabilities gives token 0.
    """
    tokens = np.zeros(probs.shape[:2], np.int64)
    for b, row in np.ndindex(tokens.shape):
        support = np.flatnonzero(probs[b, row] > 0)
        if support.size:
            first, size = int(lists[b, row]), int(support[-1]) + 1
            row_lists = range(first, first + count)
            bits = clock_bits(int(keys[b]), int(positions[b, row]), row_lists, size)
            tokens[b, row] = _first_to_ring(bits, support, probs[b, row][support])
    return tokens


def clock_bits(key: int, position: int, lists: range, size: int) -> npt.NDArray[np.uint64]:
    """Return each token's smallest 64-bit number over `lists`: [V]."""
    least: Any = None
    for of_list in lists:
        counter = np.array([0, of_list, position, 0], dtype=np.uint64)
        bits = np.random.Philox(key=key % 2**64, counter=counter).random_raw(size)
        least = bits if least is None else np.minimum(least, bits, out=least)
    return np.asarray(least, np.uint64)


def _first_to_ring(bits: npt.NDArray[np.uint64], tokens: Any, probs: Any) -> int:
    """Return the token of smallest time −ln(1 − u)/p, with u = (bits + 1/2) 2^−64.

    Ties go to the first token.  Let T be the time of the token with the smallest u/p.  Since
    −ln(1 − u) ≥ u, a token with u/p > T has a larger time, and needs no logarithm.
    """
    rates = np.asarray(probs, dtype=np.float64)
    if tokens.size < bits.size:
        bits = bits[tokens]
    with np.errstate(over="ignore"):
        least = bits / rates
        near = int(least.argmin())
        bound = _ring_times(bits[near : near + 1], rates[near])
        candidates = np.flatnonzero(least <= bound * (2.0**64 * SLACK))
        first = _ring_times(bits[candidates], rates[candidates]).argmin()
    return int(tokens[candidates[first]])


def _ring_times(bits: npt.NDArray[np.uint64], rates: Any) -> Any:
    """Return the times of clocks with these bits and rates."""
    return times(np, _uniforms(bits)) / rates


def _uniforms(bits: npt.NDArray[np.uint64]) -> Any:
    """Return uniforms in (0, 1) from 64 bits each."""
    return np.minimum(bits * UNIT + HALF, BELOW_ONE)


def times(xp: Any, uniforms: Any) -> Any:
    """Return −ln(1 − u) of a float64 array or tensor, with the same bits on every device.

    Logarithms of different libraries differ in their last bit.  This function rounds every
    product, quotient and sum separately; its relative error is at most 2^−52.
    """
    rest = 1.0 - uniforms
    # Exactly 1 − u = rest + lost.
    lost = (1.0 - rest) - uniforms
    bits = rest.view(xp.int64) + TO_POWER
    power = xp.asarray((bits >> 52) - 1023, dtype=xp.float64)
    # Here rest = 2^power (1 + f).
    f = ((bits & OF_MANTISSA) + LEAST_MANTISSA).view(xp.float64) - 1.0
    s, half = f / (f + 2.0), 0.5 * f * f
    square = s * s
    series = square * COEFFICIENTS[6]
    for coefficient in COEFFICIENTS[5::-1]:
        series = square * (series + coefficient)
    small = power * LN2_LOW + lost / rest
    return ((half - (s * (half + series) + small)) - f) - power * LN2_HIGH


def draw_key(uniforms: Randomness) -> int:
    """Draw the key of a sequence from its first uniform, before any drafter draws."""
    return int(uniforms(1)[0] * 2**53)
