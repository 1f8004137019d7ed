"""Non-iterative rejection sampling (Leviathan et al., appendix A.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from otm._core.arithmetic import Number, Probs, as_number, read_only
from otm.coupling.k_seq import KSeq


@dataclass(frozen=True, eq=False)
class NonIterativeRejection(KSeq):
    """Accept a draft x with probability q(x)/(M p(x)), M = max q/p; otherwise draw from q itself.

    Classical rejection sampling, stopped after the drafts ([leviathan2023]_, appendix A.2, for one
    draft).  For k drafts they are tested in turn, so that the test accepts with probability
    1 − (1 − 1/M)^k.  What it accepts has distribution q, and so does the draw from the target after
    it.

    It is k-Seq at ρ = M: the accepted mass is a multiple of q there, and the residual of k-Seq is q
    itself.  As ρ* ≤ M, its test accepts no more often than that of k-Seq at ρ*.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Attributes
    ----------
    rho : float or Fraction
        M; infinite if some token of the target cannot be drafted (or in floats, if q/p overflows),
        and then the test never accepts.

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

    The draw from the target can be the draft that was rejected:

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
