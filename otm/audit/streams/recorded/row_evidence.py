"""Classes of recorded tokens, and the evidence that tokens do not follow their rows.

The audit bets on three hypotheses: a class of tokens is more or less probable than its row says;
the output of some requests has a known mistake; impossible tokens occur.

Rounding: a true probability is at most (1 + η)² times the recorded one, with one factor for the
recorded probability and one for the sum of its row.  Tokens of recorded probability 0 may have a
total probability of `lost`.  Therefore each factor is divided by (1 + η)² + lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otm.audit.streams.e_process import MISSED, Bools, EProcess, Floats

LAMBDAS = np.concatenate([-(2.0 ** np.arange(2, -6, -1)), 2.0 ** np.arange(-5, 3)])
"""Values of λ for the bets on classes: class C becomes e^λ times as probable as other tokens."""

MISTAKE_PARTS = (1.0, 1 / 8, 1 / 64)
"""Weights of a mistake in a mixture with correct decoding: it may occur only in some requests."""

IMPOSSIBLE_SHARES = (1 / 2, 1 / 16, 1 / 256)
"""Shares of impossible tokens, in case rounding made their probabilities 0."""

TOKEN_CLASSES = (
    "more probable under the other model",
    "most probable token",
    "most probable token of the other model",
    "below a tenth of the maximum",
    "upper half of the ids",
    "same half of the ids as the previous token",
    "same as the previous token",
)
"""Classes of tokens, determined by the rows and the earlier tokens."""

POSITIONS = ("everywhere", "first position", "later positions", "after all drafts")
"""Groups of positions in a step."""


def mark_classes(
    rows: Floats, others: Floats | None, places: Sequence[int], before: tuple[bool, int]
) -> Bools:
    """Mark the tokens of each class for n consecutive tokens: bool array [n, K, U].

    `others` [h, U] are the rows of the other model for the first h tokens, and `places` the indices
    of the tokens in the rows.  `before` describes the previous token: whether it is in the upper
    half of the ids, and its index or −1.
    """
    members = np.zeros((len(rows), len(TOKEN_CLASSES), rows.shape[1]), dtype=np.bool_)
    each = np.arange(len(rows))
    if others is not None:
        members[: len(others), 0] = others > rows[: len(others)]
        members[each[: len(others)], 2, others.argmax(axis=1)] = True
    members[each, 1, rows.argmax(axis=1)] = True
    members[:, 3] = rows < rows.max(axis=1, keepdims=True) / 10
    members[:, 4] = rows.cumsum(axis=1) > 0.5
    halves = [before[0], *members[each, 4, places].tolist()]
    members[:, 5] = members[:, 4] == np.array(halves[:-1])[:, None]
    members[each[1:], 6, places[:-1]] = True
    if before[1] >= 0:
        members[0, 6, before[1]] = True
    return members


class TokenBatch(NamedTuple):
    """Consecutive tokens, with their probabilities and classes under N hypotheses."""

    # Log-probabilities of the tokens [T, N].
    log_probs: Floats
    # Probabilities of the classes [T, N, K].
    mass: Floats
    # Whether a token is in a class [T, K].
    hit: Bools
    # Whether a token belongs to a group of positions [T, G].
    position: Bools
    # Number of the step of each token [T].
    steps: npt.NDArray[np.int64]

    @classmethod
    def of_step(
        cls, rows: Floats, members: Bools, tokens: Sequence[int], position: Bools, step: int
    ) -> TokenBatch:
        """Describe tokens of a step, with rows [T, N, U] of all hypotheses."""
        each = np.arange(len(rows))
        with np.errstate(divide="ignore"):
            log_probs = np.log(rows[each, :, tokens])
        mass = np.minimum(rows @ members.swapaxes(1, 2), 1)
        steps = np.full(len(rows), step, dtype=np.int64)
        return cls(log_probs, mass, members[each, :, tokens], position, steps)

    @classmethod
    def joined(cls, batches: Iterable[TokenBatch]) -> TokenBatch:
        """Concatenate batches."""
        return cls(*map(np.concatenate, zip(*batches, strict=True)))


class RowEvidence(EProcess):
    """Evidence from all tokens against the hypothesis that they follow their rows."""

    def __init__(
        self, hypotheses: int, null: int, rounding: float, lost: float, limit: float = math.inf
    ) -> None:
        """Test hypothesis `null`; impossible tokens may have a total probability of `lost`."""
        self._null, self._lost = null, lost
        self._slack = math.log((1 + rounding) ** 2 + lost)
        self._others = [n for n in range(hypotheses) if n != null]
        self._shape = (len(POSITIONS), len(TOKEN_CLASSES), LAMBDAS.size)
        rest = len(self._others) * len(MISTAKE_PARTS) + len(IMPOSSIBLE_SHARES)
        sizes = math.prod(self._shape), rest
        super().__init__(1 / (2 * np.repeat(sizes, sizes)), limit)
        self.expected, self.hits = np.zeros((2, len(POSITIONS), len(TOKEN_CLASSES)))
        self.counts = np.zeros(len(POSITIONS), dtype=np.int64)

    @property
    def by_class(self) -> Floats:
        """Logarithms of the bets on classes [G, K, λ]."""
        return self.logs[: math.prod(self._shape)].reshape(self._shape)

    @property
    def by_other(self) -> Floats:
        """Logarithms of the bets on other hypotheses [N − 1, parts]."""
        both = self.logs[math.prod(self._shape) : -len(IMPOSSIBLE_SHARES)]
        return both.reshape(-1, len(MISTAKE_PARTS))

    def add(self, batch: TokenBatch) -> None:
        """Bet on the tokens of a batch."""
        own, mass = batch.log_probs[:, self._null], batch.mass[:, self._null]
        impossible = np.isneginf(own)
        tilted = batch.hit[..., None] * LAMBDAS - np.log1p(mass[..., None] * np.expm1(LAMBDAS))
        own = np.where(impossible, 0, own)
        ratios = np.exp(batch.log_probs[:, self._others] - own[:, None])[..., None]
        with np.errstate(divide="ignore"):
            by_other = np.log1p(np.array(MISTAKE_PARTS) * (ratios - 1))
        # An impossible token says nothing about classes; without rounding it decides by itself.
        tilted[impossible] = by_other[impossible] = 0
        shares = np.array(IMPOSSIBLE_SHARES)
        came = np.log(shares) - math.log(self._lost) if self._lost else np.zeros(len(shares))
        odd = np.where(impossible[:, None], came, np.log1p(-shares))
        by_class = batch.position[:, :, None, None] * tilted[:, None]
        logs = [part.reshape(len(own), -1) for part in (by_class, by_other, odd)]
        self.bet(np.concatenate(logs, axis=1) - self._slack, batch.steps.tolist())
        position = batch.position.astype(float).T
        self.expected += position @ mass
        self.hits += position @ batch.hit
        self.counts += batch.position.sum(axis=0)

    def detectable(self) -> float:
        """Return the class deviation that is missed with probability `MISSED` (Theorem 15.3)."""
        count, positive = int(self.counts[0]), LAMBDAS[LAMBDAS > 0]
        if not count:
            return 1.0
        needed = self.limit + math.log(2 * math.prod(self._shape))
        smallest = (needed / count + positive**2 / 8 + self._slack) / positive
        return min(float(smallest.min()) + math.sqrt(-math.log(MISSED) / (2 * count)), 1.0)
