"""Synthetic acceptance: accept drafts at random, as engines do to measure their speed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from otm._core.arithmetic import Number, Probs, read_only
from otm._core.numbers import as_parameter
from otm._core.probs.distribution import residual_weights
from otm.coupling.residual import TokenwisePlan


@dataclass(frozen=True, eq=False)
class SyntheticAcceptance(TokenwisePlan):
    """Accept each draft with the same probability, for every token; not lossless.

    If all drafts are rejected, the output is drawn from the usual residual ∝ max(q − p, 0).  For
    one draft, this is the option `rejection_sample_method="synthetic"` of vLLM, for measuring the
    speed of vLLM at a chosen acceptance.  The generated text has no meaning.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    rate : float or Fraction
        The acceptance probability of each draft, in [0, 1].

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidParameterError
        If the rate is not in [0, 1].

    Examples
    --------
    >>> from otm import Problem
    >>> plan = SyntheticAcceptance(Problem([0.75, 0.25], [0.25, 0.75], k=1), 0.5)
    >>> plan.acceptance_by_test, plan.output_distribution()  # token 1 can be drawn again
    (0.5, array([0.375, 0.625]))
    """

    rate: Number

    def __post_init__(self) -> None:
        self._check_problem()
        rate = as_parameter(self.rate, "rate", least=0, most=1, exact=self.problem.exact)
        object.__setattr__(self, "rate", rate)

    lossless = False
    """False, because the test ignores the draft and the target distribution."""

    @cached_property
    def accept_probability(self) -> Probs:
        """The rate as the acceptance probability of each token: array [n]."""
        return read_only(np.asarray(0 * self.problem.draft + self.rate))

    @property
    def _residual_weights(self) -> Probs:
        return residual_weights(self.problem.target, self.problem.draft)
