"""Naive target sampling: draw the output from the target and see whether it was drafted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, read_only
from otm._core.checks import Drafts, Uniforms
from otm.coupling.residual import ResidualPlan


@dataclass(frozen=True, eq=False)
class NaiveTargetSampling(ResidualPlan):
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
        If `problem` is not a single `Problem`, or the rule does not support its drafts.

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

    @cached_property
    def accepted_mass(self) -> Probs:
        """Zero for each token, since no draft is tested: the residual is the target, array [n]."""
        return read_only(0 * self.problem.draft)

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Σ q (1 − (1 − p)^k)."""
        return self._acceptance_with_rejected(self.problem.draft)

    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        return np.full(len(drafts), -1)

    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        return np.zeros_like(drafts)
