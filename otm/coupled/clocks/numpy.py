"""Exponential clocks that drafts and output share: a number for each position, list and token.

The clock of a token rings at S/p for a model that gives it probability p.  The first to ring is a
token drawn from that model's distribution, and two models that read the same clocks often draw the
same token ([daliri2024]_; k lists: [rowan2025]_).

Clocks are computed, not stored: Philox 4x64-10 ([salmon2011]_, as in NumPy) at the key of the
sequence and the counter (token, list, position).  A clock comes from 64 bits, so that a token of
probability p is drawn with a relative error of about 2^−64/p.

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
"""Largest uniform: a clock at one would never ring."""

UNIT, HALF = 2.0**-64, 2.0**-65
"""A clock of 64 bits r is that of the uniform (r + 1/2) 2^−64."""

SLACK = 1 + 2.0**-40
"""More than what rounding can do to a time."""

# Of the logarithm: m in [√(1/2), √2) by its bits, ln 2 in two parts, and ln(1 + f) by
# s = f/(2 + f) with the coefficients of s², …, s¹⁴ from fdlibm (Sun Microsystems, 1993)
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
    """The clocks of one sequence.

    Parameters
    ----------
    key : int
        What tells sequences apart, from 0 to 2^64 − 1.
    lists : int
        Number of lists, one for each draft of a token.

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
        """Token whose clock in one list rings first."""
        return self._first(position, range(of_list, of_list + 1), probs)

    def output(self, position: int, probs: SparseProbs) -> int:
        """Token whose clock rings first in any list."""
        return self._first(position, range(self.lists), probs)

    def uniform(self, position: int, of_list: int, token: int) -> float:
        """Uniform u in (0, 1) of one clock, which is −ln(1 − u): small if it is early."""
        # a block of Philox has four tokens, and NumPy counts before it draws
        block, place = divmod(token, 4)
        counter = np.array([block, of_list, position, 0], dtype=np.uint64)
        bits = np.random.Philox(key=self.key, counter=counter).random_raw(place + 1)
        return float(_uniforms(bits[-1:])[0])

    def _first(self, position: int, lists: range, probs: SparseProbs) -> int:
        bits = clock_bits(self.key, position, lists, int(probs.tokens[-1]) + 1)
        return _first_ring(bits, probs.tokens, probs.probabilities)


def first_rings(probs: Any, keys: Any, positions: Any, lists: Any, count: int) -> Any:
    """Token that rings first in each row, in any of so many lists from one on.

    [B, L, V], key [B], position [B, L], first list [B, L] → int64 [B, L].  Entries that are not
    positive never ring; a row without any gives token 0.
    """
    tokens = np.zeros(probs.shape[:2], np.int64)
    for b, row in np.ndindex(tokens.shape):
        support = np.flatnonzero(probs[b, row] > 0)
        if support.size:
            first, size = int(lists[b, row]), int(support[-1]) + 1
            of_lists = range(first, first + count)
            bits = clock_bits(int(keys[b]), int(positions[b, row]), of_lists, size)
            tokens[b, row] = _first_ring(bits, support, probs[b, row][support])
    return tokens


def clock_bits(key: int, position: int, lists: range, size: int) -> npt.NDArray[np.uint64]:
    """64 bits for each token, the least of some lists: [V]."""
    least: Any = None
    for of_list in lists:
        counter = np.array([0, of_list, position, 0], dtype=np.uint64)
        bits = np.random.Philox(key=key % 2**64, counter=counter).random_raw(size)
        least = bits if least is None else np.minimum(least, bits, out=least)
    return np.asarray(least, np.uint64)


def _first_ring(bits: npt.NDArray[np.uint64], tokens: Any, probs: Any) -> int:
    """Token of least −ln(1 − u)/p, u being (bits + 1/2) 2^−64; of equal ones the first.

    As −ln(1 − u) ≥ u, no token rings first whose u/p is above the ring of the one with least u/p:
    few logarithms are needed.
    """
    rates = np.asarray(probs, dtype=np.float64)
    if tokens.size < bits.size:
        bits = bits[tokens]
    with np.errstate(over="ignore"):
        least = bits / rates
        near = int(least.argmin())
        latest = _rings(bits[near : near + 1], rates[near])
        seen = np.flatnonzero(least <= latest * (2.0**64 * SLACK))
        first = _rings(bits[seen], rates[seen]).argmin()
    return int(tokens[seen[first]])


def _rings(bits: npt.NDArray[np.uint64], rates: Any) -> Any:
    """When clocks of these bits and rates ring."""
    return times(np, _uniforms(bits)) / rates


def _uniforms(bits: npt.NDArray[np.uint64]) -> Any:
    """Uniforms in (0, 1) from 64 bits each."""
    return np.minimum(bits * UNIT + HALF, BELOW_ONE)


def times(xp: Any, uniforms: Any) -> Any:
    """−ln(1 − u) of float64, an array or a tensor: the same bits on every device.

    Logarithms of libraries differ in their last bit.  Here every product, quotient and sum is
    rounded on its own; the result is within 2^−52 of the exact one, relative to it.
    """
    rest = 1.0 - uniforms
    lost = (1.0 - rest) - uniforms  # 1 − u = rest + lost, exactly
    bits = rest.view(xp.int64) + TO_POWER
    power = xp.asarray((bits >> 52) - 1023, dtype=xp.float64)
    f = ((bits & OF_MANTISSA) + LEAST_MANTISSA).view(xp.float64) - 1.0  # rest = 2^power (1 + f)
    s, half = f / (f + 2.0), 0.5 * f * f
    square = s * s
    series = square * COEFFICIENTS[6]
    for coefficient in COEFFICIENTS[5::-1]:
        series = square * (series + coefficient)
    small = power * LN2_LOW + lost / rest
    return ((half - (s * (half + series) + small)) - f) - power * LN2_HIGH


def drawn_key(uniforms: Randomness) -> int:
    """Draw the key of a sequence, before anything else, whatever drafts for it."""
    return int(uniforms(1)[0] * 2**53)
