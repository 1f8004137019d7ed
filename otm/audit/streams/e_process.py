"""Whether tokens follow their rows, by a test that holds at every time: a mixture of e-values.

For a token y with the distribution p given all before, and any other distribution r that is known
before, r(y)/p(y) has the mean Σ r(y) ≤ 1.  So products of such factors over all tokens, and their
mean over several r, are non-negative supermartingales that begin at 1: with probability at most
α they ever reach 1/α (Ville's inequality).  Here r is p with one class of tokens made likelier or
rarer, p ↦ p e^(λ [y in C]) / (1 − p(C) + p(C) e^λ), or a part of the way from p to what a known
mistake outputs (docs/theory/recorded-steps.md, Theorems 15.2 and 15.3).

Rounding: of the true row it is only taken that p'(y) ≤ (1 + η)² p(y), one factor for the recorded
probability and one for the sum of the row, and perhaps that tokens with p(y) = 0 have at most
`lost` together; so each factor is divided by (1 + η)² + lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from otm.audit.streams.recorded.steps import Floats

Bools: TypeAlias = npt.NDArray[np.bool_]

TILTS = np.concatenate([-(2.0 ** np.arange(2, -6, -1)), 2.0 ** np.arange(-5, 3)])
"""λ of the classes."""

PARTS = (1.0, 1 / 8, 1 / 64)
"""Parts of the way to a mistake: it may be made in some requests only."""

ODD = (1 / 2, 1 / 16, 1 / 256)
"""Shares of impossible tokens, where rounding may have made their probabilities 0."""

CLASSES = (
    "made likelier by the other model",
    "likeliest token",
    "likeliest token of the other model",
    "less than a tenth of the likeliest",
    "upper half of the ids",
    "same half of the ids as the token before",
    "the token before again",
)
"""Classes of tokens, which depend on nothing but rows and tokens before."""

PLACES = ("everywhere", "first position", "later positions", "behind all drafts")
"""Which tokens of a step count."""

MISSED = 1e-3
"""Probability with which a deviation of the stated size is missed."""


def classes_of(
    rows: Floats, others: Floats | None, places: Sequence[int], before: tuple[bool, int]
) -> Bools:
    """Say which tokens are in each class at consecutive tokens: bool array [n, K, U].

    `others` [h, U] are the rows of the other model at the first of them, `places` those of the
    tokens in the rows; `before` is the half of the ids that the token before these was in, and its
    place or −1.
    """
    members = np.zeros((len(rows), len(CLASSES), rows.shape[1]), dtype=np.bool_)
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


@dataclass(eq=False)
class Tokens:
    """Tokens that were seen, and what their rows say of them, under N hypotheses: p comes first.

    Lists of arrays, each about some consecutive tokens.
    """

    seen: list[Floats] = field(default_factory=list)  # [n, N]: logarithms of their probabilities
    mass: list[Floats] = field(default_factory=list)  # [n, N, K]: of each class
    hit: list[Bools] = field(default_factory=list)  # [n, K]: whether they are in the class
    place: list[Bools] = field(default_factory=list)  # [n, G]: whether they count at each place
    step: list[int] = field(default_factory=list)  # [T]: the step of each

    def add(
        self, rows: Floats, members: Bools, tokens: Sequence[int], place: Bools, step: int
    ) -> None:
        """Add tokens of a step, with rows [n, N, U] of all hypotheses."""
        each = np.arange(len(rows))
        with np.errstate(divide="ignore"):
            self.seen.append(np.log(rows[each, :, tokens]))
        self.mass.append(np.minimum(rows @ members.swapaxes(1, 2), 1))
        self.hit.append(members[each, :, tokens])
        self.place.append(place)
        self.step.extend([step] * len(rows))


class Evidence:
    """The e-value of all tokens so far against one hypothesis."""

    def __init__(self, hypotheses: int, null: int, rounding: float, lost: float) -> None:
        """Test hypothesis `null`; impossible tokens may have a probability of `lost` together."""
        self._null, self._lost = null, lost
        # an error of the row and one of its sum, by which it was divided
        self._slack = -math.log((1 + rounding) ** 2 + lost)
        self._others = [n for n in range(hypotheses) if n != null]
        self.by_class = np.zeros((len(PLACES), len(CLASSES), TILTS.size))  # logarithms
        self.by_other = np.zeros((len(self._others), len(PARTS)))
        self._odd = np.zeros(len(ODD))
        sizes = self.by_class.size, self.by_other.size + self._odd.size
        self._weights = -np.log(2 * np.repeat(sizes, sizes))
        self.largest, self.largest_at = 0.0, -1  # logarithm, and the step where it was reached
        self.crossed_at = -1  # the first step at which it reached the limit
        self.expected = np.zeros((len(PLACES), len(CLASSES)))
        self.hits = np.zeros((len(PLACES), len(CLASSES)))
        self.counts = np.zeros(len(PLACES), dtype=np.int64)

    def add(self, tokens: Tokens, limit: float) -> None:
        """Take some more tokens; `limit` is a logarithm."""
        if not tokens.seen:
            return
        seen = np.concatenate(tokens.seen)  # [T, N]
        mass = np.concatenate(tokens.mass)[:, self._null]  # [T, K]
        hit, place = np.concatenate(tokens.hit), np.concatenate(tokens.place)  # [T, K], [T, G]
        impossible = np.isneginf(seen[:, self._null])
        # [T, K, L]: a token that is impossible says nothing about classes
        tilted = hit[..., None] * TILTS - np.log1p(mass[..., None] * np.expm1(TILTS))
        tilted[impossible] = 0
        by_class = place[:, :, None, None] * tilted[:, None]
        own = np.where(impossible, 0, seen[:, self._null])
        ratios = np.exp(seen[:, self._others] - own[:, None])[..., None]  # [T, N − 1, 1]
        with np.errstate(divide="ignore"):
            by_other = np.log1p(np.array(PARTS) * (ratios - 1))
        # without rounding an impossible token decides by itself
        share = np.log(ODD) - math.log(self._lost) if self._lost else np.zeros(len(ODD))
        odd = np.where(impossible[:, None], share, np.log1p(-np.array(ODD)))
        by_other[impossible] = 0
        parts = [by_class, by_other, odd]
        logs = np.concatenate([part.reshape(len(seen), -1) for part in parts], axis=1)
        logs += self._slack
        states = [self.by_class, self.by_other, self._odd]
        before = np.concatenate([state.ravel() for state in states])
        logs = np.cumsum(logs, axis=0) + before
        sizes = np.cumsum([state.size for state in states])
        for state, end in zip(states, sizes, strict=True):
            state[...] = logs[-1, end - state.size : end].reshape(state.shape)
        mixed = np.logaddexp.reduce(logs + self._weights, axis=1)
        at = int(mixed.argmax())
        if mixed[at] > self.largest:
            self.largest, self.largest_at = float(mixed[at]), tokens.step[at]
        if self.crossed_at < 0 and (mixed >= limit).any():
            self.crossed_at = tokens.step[int((mixed >= limit).argmax())]
        self.expected += np.einsum("tg,tk->gk", place.astype(float), mass)
        self.hits += np.einsum("tg,tk->gk", place.astype(float), hit.astype(float))
        self.counts += place.sum(axis=0)

    def detected(self, limit: float) -> float:
        """Deviation of a class, on average over all tokens, that is missed with `MISSED` at most.

        With b in {0, 1} of conditional mean p(C) + δ the logarithm of the factor is at least
        λ(b − p(C)) − λ²/8 (Hoeffding), and Σ (b − p(C)) at least Tδ − √(T ln(1/MISSED)/2) but for
        that probability (Azuma).
        """
        count = int(self.counts[0])
        if not count:
            return 1.0
        needed = limit + math.log(2 * self.by_class.size)
        tilts = TILTS[TILTS > 0]
        smallest = (needed / count + tilts**2 / 8 - self._slack) / tilts
        return min(float(smallest.min()) + math.sqrt(-math.log(MISSED) / (2 * count)), 1.0)
