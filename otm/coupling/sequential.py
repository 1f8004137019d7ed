"""Rules that test the drafts one after another and accept the first that passes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Law,
    Number,
    as_number,
    at_least_once,
    at_most_one,
    power_slopes,
    read_only,
)
from otm._core.checks import Drafts, Uniforms
from otm.coupling.residual import ResidualPlan


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
        return np.asarray(passes * reached)


@dataclass(frozen=True, eq=False)
class TokenwisePlan(SequentialPlan):
    """A rule that tests a draft by its token alone; subclasses give `accept_probability`."""

    @property
    @abstractmethod
    def accept_probability(self) -> Law:
        """Probability of accepting each token when it is drafted: array [n]."""

    @cached_property
    def accepted_mass(self) -> Law:
        """Mass of each token output as an accepted draft: array [n]."""
        one_draft = self.problem.draft * self.accept_probability
        return read_only(one_draft * first_pass_factor(self._beta, self.problem.k))

    @property
    def acceptance_by_test(self) -> Number:
        """Probability 1 − (1 − β)^k that the rule's test accepts a draft."""
        return at_least_once(self._beta, self.problem.k)

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}).

        In general above `acceptance_by_test`: the residual can hit a draft that was tested and
        rejected.  Given that all are rejected, the drafts are i.i.d. with the distribution of those
        that do not pass.
        """
        rejected_draft = self.problem.draft * (1 - self.accept_probability)
        if self._beta >= 1 or not rejected_draft.any():
            return self.acceptance_by_test
        hit = at_least_once(rejected_draft / rejected_draft.sum(), self.problem.k)
        by_residual = as_number((self.residual.law(self.problem.n) * hit).sum())
        return at_most_one(self.acceptance_by_test + (1 - self.acceptance_by_test) * by_residual)

    @cached_property
    def _beta(self) -> Number:
        """Probability β that one draft passes the test."""
        return at_most_one((self.problem.draft * self.accept_probability).sum())

    def _pass_probability(self, drafts: Drafts) -> Law:
        return self.accept_probability[drafts]


def first_pass_factor(one_draft: Number, k: int) -> Number:
    """Mass accepted among k drafts over that of one, when each passes with this probability.

    (1 − (1 − β)^k) / β as the slope of t^k between 1 − β and 1: it is k at β = 0, not 0/0.
    """
    factor: Number = power_slopes(np.array([1 - one_draft, 1 + 0 * one_draft]), k)[0]
    return factor
