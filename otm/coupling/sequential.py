"""Rules that test the drafts one after another and accept the first that passes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Law, Number, power_slopes
from otm._core.checks import Drafts, Uniforms
from otm.coupling.residual import ResidualPlan

__all__ = ["SequentialPlan", "first_pass_factor"]


@dataclass(frozen=True, eq=False)
class SequentialPlan(ResidualPlan):
    """A rule that accepts the first draft whose own coin is below its acceptance probability."""

    @property
    def uniforms_per_selection(self) -> int:
        """One coin a draft and one uniform for the residual: k + 1."""
        return self.problem.k + 1

    @abstractmethod
    def _pass_probability(self, drafts: Drafts) -> Law:
        """Probability that each draft passes its test when it is reached: [B, k] → [B, k]."""

    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        passed = uniforms < self._pass_probability(drafts)
        return np.where(passed.any(axis=1), passed.argmax(axis=1), -1)

    def _acceptance_per_draft(self, drafts: Drafts) -> Law:
        passes = self._pass_probability(drafts)
        reached = np.ones_like(passes)
        reached[:, 1:] = np.cumprod(1 - passes[:, :-1], axis=1)
        law: Law = passes * reached
        return law


def first_pass_factor(one_draft: Number, k: int) -> Number:
    """Mass accepted among k drafts over that of one, when each passes with this probability.

    (1 − (1 − β)^k) / β as the slope of t^k between 1 − β and 1: it is k at β = 0, not 0/0.
    """
    factor: Number = power_slopes(np.array([1 - one_draft, 1 + 0 * one_draft]), k)[0]
    return factor
