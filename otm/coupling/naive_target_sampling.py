"""Naive target sampling: draw the output from the target and see whether it was drafted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, at_least_once, at_most_one
from otm._core.checks import Drafts, Uniforms
from otm._core.sampling import InverseCdf
from otm.coupling.plan import TransportPlan


@dataclass(frozen=True, eq=False)
class NaiveTargetSampling(TransportPlan):
    """Draw Y from the target distribution without looking at the drafts: the product coupling.

    Its acceptance Σ q (1 − (1 − p)^k) is what the drafts are worth when nothing is done to couple
    them with the output.  In a tree of drafts this is the walk that samples a child from the
    target and goes on if the child is there (naive sampling in [miao2024]_).

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Raises
    ------
    InvalidInputError
        If it is given no problem, one with rows, or one about other drafts.

    References
    ----------
    .. [miao2024] Miao et al., "SpecInfer", ASPLOS 2024.

    Examples
    --------
    >>> from otm import Problem
    >>> plan = NaiveTargetSampling(Problem([0.5, 0.5], [0.75, 0.25], k=2))
    >>> plan.acceptance
    0.75
    >>> token, index = plan.select([1, 1], [0.7])
    >>> int(token), int(index)
    (0, -1)
    """

    uniforms_per_selection = 1
    """One uniform, for the draw from the target."""

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Σ q (1 − (1 − p)^k)."""
        drafted = at_least_once(self.problem.draft, self.problem.k)
        return at_most_one((self.output_distribution() * drafted).sum())

    def output_distribution(self) -> Probs:
        """Distribution of the output Y, from the table that it is drawn with."""
        return self._target.probs(self.problem.n)

    @cached_property
    def _target(self) -> InverseCdf:
        return InverseCdf.from_weights(self.problem.target)

    def _output_given(self, drafts: Drafts) -> Probs:
        return np.tile(self.output_distribution(), (len(drafts), 1))

    def _select(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        return self._target.locate(uniforms[:, 0])
