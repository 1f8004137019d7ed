"""Typical acceptance (Medusa), a lossy rule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Number,
    Probs,
    power_slopes,
    read_only,
    running_sum,
    scatter_sum,
    zeros,
)
from otm._core.checks import Drafts, Uniforms
from otm._core.numbers import as_parameter, check_name
from otm.coupling.residual import ResidualPlan, argmax_weights


@dataclass(frozen=True, eq=False)
class TypicalAcceptance(ResidualPlan):
    """Accept a draft if its target probability exceeds a threshold; not lossless.

    The draft x of largest target probability (in a tie, the first) is accepted if ::

        q(x) > min(ε, δ e^(−H(q))),   H(q) = −Σ q ln q

    Otherwise the output is the most probable token of the target (in a tie, the first), as in
    Medusa ([cai2024]_, section 2.3.1, here for one token).  With the option "target", the output is
    drawn from the target instead.  The test does not use the draft distribution.
    `distance_to_target` computes the distance of the output distribution from the target.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    epsilon, delta : float or Fraction, optional
        The threshold ε and the factor δ of e^(−H), with H in nats; finite and at least 0.  The
        defaults 0.09 and 0.3 are those of Medusa.
    otherwise : {"argmax", "target"}, optional
        The output if no draft is accepted: the most probable token, or a token from the target.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidParameterError
        If ε or δ is not a finite number of at least 0.
    UnknownMethodError
        If `otherwise` is not "argmax" or "target".

    References
    ----------
    .. [cai2024] Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple
       Decoding Heads", ICML 2024.

    Examples
    --------
    >>> from otm import Problem
    >>> plan = TypicalAcceptance(Problem([0.5, 0.5], [0.75, 0.25], k=1))
    >>> plan.lossless, plan.acceptance, plan.output_distribution()
    (False, 1.0, array([0.5, 0.5]))
    """

    epsilon: Number = 0.09
    delta: Number = 0.3
    otherwise: Literal["argmax", "target"] = "argmax"

    def __post_init__(self) -> None:
        self._check_problem()
        for name in ("epsilon", "delta"):
            value = as_parameter(getattr(self, name), name, least=0, exact=self.problem.exact)
            object.__setattr__(self, name, value)
        check_name("fallback", self.otherwise, ("argmax", "target"))

    lossless = False
    """False, because probable tokens are output more often than under the target distribution."""

    uniforms_per_selection = 1
    """One uniform, which draws from the target; the test is deterministic."""

    @cached_property
    def threshold(self) -> Number:
        """Target probability min(ε, δ e^(−H)) that a draft must exceed.

        For fractions, e^(−H) is computed as a float and converted to a fraction.
        """
        target = self.problem.target.astype(np.float64)
        # A small fraction can be 0 as a float, so zeros are removed after the conversion.
        target = target[target > 0]
        perplexity: Number = math.exp(float((target * np.log(target)).sum()))
        if self.problem.exact:
            perplexity = Fraction(perplexity)
        return min(self.epsilon, self.delta * perplexity)

    @cached_property
    def accepted_mass(self) -> Probs:
        """Probability that each token is output as an accepted draft: array [n]."""
        draft, target = self.problem.draft, self.problem.target
        levels, level = np.unique(target, return_inverse=True)
        masses = running_sum(scatter_sum(level, draft, levels.size), from_zero=True)
        # The winner is the first draft on the highest level of target probability.
        best = draft * power_slopes(masses, self.problem.k)[level]
        return read_only(np.where(self._likely, best, zeros(1, draft)))

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}); an output can be a rejected draft."""
        rejected = np.where(self._likely, zeros(1, self.problem.draft), self.problem.draft)
        return self._acceptance_with_rejected(rejected)

    @property
    def _residual_weights(self) -> Probs:
        target = self.problem.target
        return argmax_weights(target) if self.otherwise == "argmax" else target

    @cached_property
    def _likely(self) -> npt.NDArray[np.bool_]:
        return read_only(np.asarray(self.problem.target > self.threshold, np.bool_))

    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        best = self.problem.target[drafts].argmax(axis=1)
        token = np.take_along_axis(drafts, best[:, None], axis=1)[:, 0]
        return np.where(self._likely[token], best, -1)

    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        accepted = self._accept(drafts, np.empty((len(drafts), 0)))
        return np.asarray(np.arange(drafts.shape[1]) == accepted[:, None])
