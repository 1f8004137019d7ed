"""Naive target sampling: draw the output from the target, independently of the drafts."""

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
    """Draw Y from the target distribution independently of the drafts: the product coupling.

    The acceptance Σ q (1 − (1 − p)^k) is the baseline without any coupling of drafts and output.
    In a draft tree, the rule samples a token from the target at each node; if a child has this
    token, the walk continues at this child (naive sampling in [miao2024]_).

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
    """One uniform, which draws the token from the target."""

    @cached_property
    def accepted_mass(self) -> Probs:
        """Zeros, because no draft is tested; so the residual is the target: array [n]."""
        return read_only(0 * self.problem.draft)

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Σ q (1 − (1 − p)^k)."""
        return self._acceptance_with_rejected(self.problem.draft)

    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        return np.full(len(drafts), -1)

    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        return np.zeros_like(drafts)
