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
    """How positions belong to prompts.

    Parameters
    ----------
    of_position : int array [N]
        The prompt of each position.
    level : float, optional
        Probability that an interval covers its mean, nearly.
    """

    of_position: npt.NDArray[np.int64]
    level: float = 0.95

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
        """Mean over all positions of what has these sums [P], with its interval.

        Equivalent to `otm.gain.paired_means.clustered_mean` of the values themselves:
        only prompts are taken to be independent.

        Examples
        --------
        >>> prompts = Prompts(np.array([0, 0, 1, 1, 2, 2]))
        >>> print(prompts.mean(prompts.sums(np.array([1.0, 1, 2, 2, 4, 4]))))
        2.333 ± 3.795
        """
        return ratio_of_totals(sums, self.sizes, level=self.level)

    def per(self, counts: Floats) -> Floats:
        """Return sums whose mean is the number of positions per count, linear in the counts.

        For ratios such as tokens per step: their intervals and differences are then those of means
        ("linearisation"; Cochran, "Sampling Techniques", 1977, section 6.4).

        Parameters
        ----------
        counts : array [P]
            Counts of each prompt, such as steps.

        Examples
        --------
        >>> prompts = Prompts(np.array([0, 0, 0, 1]))
        >>> prompts.mean(prompts.per(np.array([1.0, 1.0]))).mean  # 4 positions in 2 steps
        2.0
        """
        ratio = self.sizes.sum() / counts.sum()
        sums: Floats = ratio * (2 * self.sizes - ratio * counts)
        return sums
