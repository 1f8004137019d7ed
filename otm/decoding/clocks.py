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

from otm._core.sparse import SparseProbs

BELOW_ONE = 1 - 2.0**-53
"""Largest uniform: a clock at one would never ring."""


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
        return _first_ring(self._bits(position, of_list, probs), probs)

    def output(self, position: int, probs: SparseProbs) -> int:
        """Token whose clock rings first in any list."""
        least = self._bits(position, 0, probs)
        for of_list in range(1, self.lists):
            np.minimum(least, self._bits(position, of_list, probs), out=least)
        return _first_ring(least, probs)

    def uniform(self, position: int, of_list: int, token: int) -> float:
        """Uniform u in (0, 1) of one clock, which is −ln(1 − u): small if it is early."""
        # a block of Philox has four tokens, and NumPy counts before it draws
        block, place = divmod(token, 4)
        counter = np.array([block, of_list, position, 0], dtype=np.uint64)
        bits = np.random.Philox(key=self.key, counter=counter).random_raw(place + 1)
        return float(_uniforms(bits[-1]))

    def _bits(self, position: int, of_list: int, probs: SparseProbs) -> npt.NDArray[np.uint64]:
        """64 bits for each token up to the last that the distribution can give."""
        counter = np.array([0, of_list, position, 0], dtype=np.uint64)
        generator = np.random.Philox(key=self.key, counter=counter)
        return np.asarray(generator.random_raw(int(probs.tokens[-1]) + 1), np.uint64)


def _first_ring(bits: npt.NDArray[np.uint64], probs: SparseProbs) -> int:
    """Token of least −ln(1 − u)/p, u being (bits + 1/2) 2^−64; of equal ones the first.

    As −ln(1 − u) ≥ u, no token rings first whose u/p is above the ring of the one with least u/p:
    few logarithms are needed.
    """
    tokens = probs.tokens
    rates = np.asarray(probs.probabilities, dtype=np.float64)
    if tokens.size < bits.size:
        bits = bits[tokens]
    with np.errstate(over="ignore"):
        least = bits / rates
        near = int(least.argmin())
        latest = _rings(bits[near], rates[near])
        seen = np.flatnonzero(least <= latest * 2.0**64)
        first = _rings(bits[seen], rates[seen]).argmin()
    return int(tokens[seen[first]])


def _rings(bits: Any, rates: Any) -> Any:
    """When clocks of these bits and rates ring."""
    return -np.log1p(-_uniforms(bits)) / rates


def _uniforms(bits: Any) -> Any:
    """Uniforms in (0, 1) from 64 bits each."""
    return np.minimum(bits * 2.0**-64 + 2.0**-65, BELOW_ONE)
