"""Whether tokens follow their distributions, merged into 16 classes: an e-value for every time.

Before a token y is seen, its distribution p splits the tokens into classes.  With d the indicator
of the class of y minus p of the classes, and D the sum of all d after T tokens,
exp(λ D(C) − λ² T / 8) is a supermartingale for every union C of classes (Hoeffding's lemma), and so
is the mean over all unions, e^(−λ² T / 8) Π_c (1 + e^(λ D_c)) / 2 (docs/theory/server-audit.md).
Pairs of tokens from two servers have d in [−1, 1]: λ² / 2 in place of λ² / 8.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

CLASSES = 16
"""Classes that the tokens of a place are merged into."""

FAMILIES = 2
"""Ways to merge them: by rank, and by what the token is."""

TILTS = 2.0 ** np.arange(-7, 2)
"""λ of the e-values."""

Group: TypeAlias = tuple[str, Hashable]
"""A kind of group, such as "prompt", and which one."""

EVERYWHERE: Group = ("everywhere", 0)


@dataclass(eq=False)
class Tally:
    """The tokens of a group: their number T and D by family and class."""

    count: int = 0
    excess: Floats = field(default_factory=lambda: np.zeros((FAMILIES, CLASSES)))

    @property
    def deviations(self) -> Floats:
        """The largest D(C) of a union of classes over T, for each family."""
        largest: Floats = np.maximum(self.excess, 0).sum(axis=1) / max(self.count, 1)
        return largest

    def log_e_value(self, width: float, drift: float) -> float:
        """Logarithm of the mean over families, unions and λ; d has a range of `width`."""
        # [F, L]: a probability may be wrong by `drift`, which costs λ drift for each token
        each = self.excess[:, None] * TILTS[:, None]
        # ln(1 + e^x), faster than logaddexp
        tilted = (np.maximum(each, 0) + np.log1p(np.exp(-np.abs(each)))).sum(axis=2)
        tilted -= CLASSES * math.log(2) + self.count * (TILTS**2 * width**2 / 8 + TILTS * drift)
        return float(np.logaddexp.reduce(tilted, axis=None) - math.log(tilted.size))


class Evidence:
    """The evidence of all tokens so far: everywhere, and in the groups of each kind.

    Half of the weight is on all tokens together, the rest is shared by the kinds of groups, and a
    kind's by as many groups as `sizes` says.
    """

    def __init__(self, sizes: dict[str, int], *, width: float = 1.0, drift: float = 0.0) -> None:
        self.width, self.drift = width, drift
        self._sizes = sizes
        self.tallies: dict[Group, Tally] = {EVERYWHERE: Tally()}
        self._logs: dict[Group, float] = {EVERYWHERE: 0.0}
        self.largest = 0.0  # logarithm of the largest e-value so far

    def add(self, rows: Iterable[tuple[Floats, Iterable[Group]]]) -> float:
        """Take the d [F, C] of some tokens and the groups of each; return the logarithm of E."""
        changed = set()
        for row, groups in rows:
            for group in (EVERYWHERE, *groups):
                tally = self.tallies.setdefault(group, Tally())
                tally.count += 1
                tally.excess += row
                changed.add(group)
        for group in changed:
            self._logs[group] = self.tallies[group].log_e_value(self.width, self.drift)
        self.largest = max(self.largest, self.log_e_value)
        return self.log_e_value

    @property
    def log_e_value(self) -> float:
        """Logarithm of the mean over everything and all groups; a group without tokens has 1."""
        logs = [self._logs[EVERYWHERE] - math.log(2)]
        share = -math.log(2 * len(self._sizes))
        for kind, size in self._sizes.items():
            within = [log for group, log in self._logs.items() if group[0] == kind]
            weights = [share - math.log(size)] * len(within)
            logs += [log + weight for log, weight in zip(within, weights, strict=True)]
            if size > len(within):  # those that have no tokens yet
                logs.append(share + math.log((size - len(within)) / size))
        return float(np.logaddexp.reduce(logs))

    def log_e_value_of(self, group: Group) -> float:
        """Logarithm of the e-value of a group alone."""
        return self._logs.get(group, 0.0)

    def bound(self, level: float) -> float:
        """Upper bound of the mean TV of the merged distributions, too low with `level` at most.

        Valid at all times together: for the true means in place of p, the same mixture in the
        other direction reaches 2^16 F L / level with this probability at most, and so no single
        union at any λ reaches it (docs/theory/server-audit.md).
        """
        tally = self.tallies[EVERYWHERE]
        if not tally.count:
            return 1.0
        needed = math.log(2**CLASSES * FAMILIES * TILTS.size / level)
        slack = needed / (tally.count * TILTS) + TILTS * self.width**2 / 8
        return min(float(tally.deviations.max() + slack.min()), 1.0)
