"""Non-iterative rejection sampling (Leviathan et al., appendix A.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from otm._core.arithmetic import Number, Probs, as_number, read_only
from otm.coupling.k_seq import KSeq


@dataclass(frozen=True, eq=False)
class NonIterativeRejection(KSeq):
    """Accept a draft x with probability q(x)/(M p(x)), M = max q/p; if none passes, draw from q.

    This is classical rejection sampling, stopped after k drafts ([leviathan2023]_, appendix A.2,
    for k = 1).  The drafts are tested in turn, so one of them passes with probability
    1 − (1 − 1/M)^k.  An accepted draft has distribution q, and so does a token from the target.

    The rule is k-Seq at ρ = M, where the accepted mass is a multiple of q and the residual is q.
    Because ρ* ≤ M, the test accepts at most as often as k-Seq at ρ*.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Attributes
    ----------
    rho : float or Fraction
        M.  If a token with q > 0 has p = 0, or q/p overflows in floats, M is infinite and the test
        never accepts.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> from otm import Problem
    >>> plan = NonIterativeRejection(Problem([0.5, 0.5], [0.75, 0.25], k=1))
    >>> plan.rho, round(plan.acceptance_by_test, 12)
    (1.5, 0.666666666667)

    The token from the target can equal the rejected draft:

    >>> round(plan.acceptance, 12)
    0.75
    """

    rho: Number | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._check_problem()
        draft, target = self.problem.draft, self.problem.target
        drafted = draft > 0
        undraftable = target[~drafted].any()
        with np.errstate(over="ignore"):
            largest = np.inf if undraftable else (target[drafted] / draft[drafted]).max()
        object.__setattr__(self, "rho", as_number(largest))

    @cached_property
    def accept_probability(self) -> Probs:
        """Probability q/(M p) of accepting each token when it is drafted: array [n]."""
        if self.rho == np.inf:
            return read_only(0 * self.problem.draft)
        return super().accept_probability

    @property
    def _residual_weights(self) -> Probs:
        return self.problem.target
