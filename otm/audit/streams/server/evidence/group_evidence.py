"""Evidence from all tokens and from groups of tokens; the vocabulary is merged into 16 classes.

Before a token is known, its distribution splits the vocabulary into classes.  For each family of
classes, the deviation d of a token is the indicator of its class minus the probabilities of the
classes.  Let D be the sum of d over T tokens.  Then exp(λ D(C) − λ² T / 8) is a supermartingale for
every union C of classes, and so is its mean over all unions, e^(−λ² T / 8) Π_c (1 + e^(λ D_c)) / 2
(Theorem 16.1 of docs/theory/server-audit.md).  For pairs of tokens from two servers, λ² / 8 becomes
λ² / 2.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from otm.audit.streams.e_process import EProcess, Floats

CLASS_COUNT = 16
"""Number of classes that tokens are merged into."""

FAMILY_COUNT = 2
"""Number of ways to merge tokens: by rank, and by a hash of the token."""

LAMBDAS = 2.0 ** np.arange(-7, 2)
"""Values of λ, with one e-value for each."""

Group: TypeAlias = tuple[str, Hashable]
"""A group of tokens: its kind, such as "prompt", and its key."""

EVERYWHERE: Group = ("everywhere", 0)


@dataclass(eq=False)
class Tally:
    """The tokens of a group: their number, and the sum of their deviations [F, C]."""

    count: int = 0
    excess: Floats = field(default_factory=lambda: np.zeros((FAMILY_COUNT, CLASS_COUNT)))

    @property
    def deviations(self) -> Floats:
        """Largest mean deviation of a union of classes, for each family."""
        largest: Floats = np.maximum(self.excess, 0).sum(axis=1) / max(self.count, 1)
        return largest

    def log_e_value(self, width: float, drift: float) -> float:
        """Return the log of the mean e-value of families, unions and λ, for d of range `width`."""
        # Shape [F, L].  A probability may be wrong by `drift`, which costs λ drift for each token.
        tilted = self.excess[:, None] * LAMBDAS[:, None]
        # This computes ln(1 + e^x) faster than logaddexp.
        logs = (np.maximum(tilted, 0) + np.log1p(np.exp(-np.abs(tilted)))).sum(axis=2)
        cost = LAMBDAS**2 * width**2 / 8 + LAMBDAS * drift
        logs -= CLASS_COUNT * math.log(2) + self.count * cost
        return float(np.logaddexp.reduce(logs, axis=None) - math.log(logs.size))


class GroupEvidence(EProcess):
    """The evidence from all tokens so far: everywhere, and in the groups of each kind.

    The e-value of all tokens has half of the weight, the kinds of groups share the other half.
    Each kind divides its weight by its number of groups in `sizes`.  Groups without tokens keep
    their weight; groups beyond the number in `sizes` have no weight.
    """

    def __init__(self, sizes: dict[str, int], *, width: float = 1.0, drift: float = 0.0) -> None:
        self.width, self.drift = width, drift
        self.tallies: dict[Group, Tally] = {EVERYWHERE: Tally()}
        self._places: dict[Group, int | None] = {EVERYWHERE: 0}
        self._free: dict[str, Iterator[int]] = {}
        shares = [0.5]
        for kind, size in sizes.items():
            self._free[kind] = iter(range(len(shares), len(shares) + size))
            shares += [0.5 / (len(sizes) * size)] * size
        super().__init__(shares)

    def add(self, tokens: Iterable[tuple[Floats, Iterable[Group]]]) -> None:
        """Add the deviations [F, C] of some tokens to their groups."""
        changed: dict[Group, Tally] = {}
        for deviation, groups in tokens:
            for group in (EVERYWHERE, *groups):
                tally = self.tallies.setdefault(group, Tally())
                tally.count += 1
                tally.excess += deviation
                changed[group] = tally
        logs = self.logs.copy()
        for group, tally in changed.items():
            if group not in self._places:
                self._places[group] = next(self._free.get(group[0], iter(())), None)
            place = self._places[group]
            if place is not None:
                logs[place] = tally.log_e_value(self.width, self.drift)
        self.update(logs)

    def log_e_value_of(self, group: Group) -> float:
        """Return the logarithm of the e-value of one group."""
        place = self._places.get(group)
        return 0.0 if place is None else float(self.logs[place])

    def bound(self, level: float) -> float:
        """Return an upper bound on the mean TV of the merged classes.

        The bound is too low with probability at most `level`.  The bound holds simultaneously at
        all times, for every union of classes and every λ (Theorem 16.2).
        """
        tally = self.tallies[EVERYWHERE]
        if not tally.count:
            return 1.0
        needed = math.log(2**CLASS_COUNT * FAMILY_COUNT * LAMBDAS.size / level)
        slack = needed / (tally.count * LAMBDAS) + LAMBDAS * self.width**2 / 8
        return min(float(tally.deviations.max() + slack.min()), 1.0)
