"""Means over positions, from sums over the positions of each prompt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import read_only
from otm.gain.paired_means import Estimate, ratio_of_totals

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Prompts:
    """How N positions belong to P prompts."""

    of_position: npt.NDArray[np.int64]  # [N]: the prompt of each position
    level: float = 0.95  # probability that an interval covers its mean, nearly

    @cached_property
    def index(self) -> npt.NDArray[np.int64]:
        """Prompts numbered from 0, in the order of their numbers: array [N]."""
        return read_only(np.unique(self.of_position, return_inverse=True)[1].astype(np.int64))

    @cached_property
    def sizes(self) -> Floats:
        """Number of positions of each prompt: array [P]."""
        return read_only(np.bincount(self.index).astype(np.float64))

    def sums(self, values: Floats) -> Floats:
        """Add over the positions of each prompt: [N, ...] → [P, ...]."""
        order = np.argsort(self.index, kind="stable")
        starts = np.append(0, np.cumsum(self.sizes)[:-1]).astype(np.int64)
        ordered = values if (np.diff(order) == 1).all() else values[order]
        found: Floats = np.add.reduceat(ordered, starts, axis=0)
        return found

    def mean(self, sums: Floats) -> Estimate:
        """Mean over all positions of the values with these sums [P], with its interval.

        Equivalent to `otm.gain.clustered_mean` of the values: only prompts are taken to be
        independent.
        """
        return ratio_of_totals(sums, self.sizes, level=self.level)

    def per(self, counts: Floats) -> Floats:
        """Return sums whose mean is positions per count, linear in the counts: [P] → [P].

        For ratios such as tokens per step, whose intervals and differences are then those of means
        (linearisation; Cochran, "Sampling Techniques", 1977, section 6.4).
        """
        ratio = self.sizes.sum() / counts.sum()
        sums: Floats = ratio * (2 * self.sizes - ratio * counts)
        return sums
