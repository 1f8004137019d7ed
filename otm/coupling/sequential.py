"""Rules that test the drafts one after another and accept the first that passes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otm.arithmetic import Law
from otm.coupling.plan import Drafts, TransportPlan, Uniforms

__all__ = ["SequentialPlan"]


@dataclass(frozen=True, eq=False)
class SequentialPlan(TransportPlan):
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
