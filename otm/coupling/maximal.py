"""Maximal coupling of one draft with the target (Algorithm 1 of SpecTr and of Leviathan et al.)."""

from __future__ import annotations

from dataclasses import dataclass

from otm._core.arithmetic import as_number
from otm.coupling.k_seq import KSeq
from otm.errors import InvalidParameterError


@dataclass(frozen=True, eq=False)
class MaximalCoupling(KSeq):
    """Token-level maximal coupling: accept the draft x with probability min(1, q(x)/p(x)).

    This is the optimal rule for one draft, with acceptance Σ min(p, q) = 1 − TV(p, q) ([sun2023]_,
    Algorithm 1; [leviathan2023]_, section 2.3).  It equals k-Seq with k = 1 and ρ = 1.

    Parameters
    ----------
    problem : Problem
        A problem with k = 1.
    rho : int, optional
        The division factor; only 1 is allowed, which is the default.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidParameterError
        If the problem has more than one draft, or ρ is not 1.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr", NeurIPS 2023.
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> from otm import Problem
    >>> plan = MaximalCoupling(Problem([0.5, 0.5], [0.75, 0.25], k=1))
    >>> plan.acceptance
    0.75
    >>> token, index = plan.select([1], [0.6, 0.0])
    >>> int(token), int(index)   # rejected, as 0.6 ≥ q(1)/p(1) = 0.5; the residual is token 0
    (0, -1)
    """

    def __post_init__(self) -> None:
        self._check_problem()
        if self.problem.k != 1:
            raise InvalidParameterError(
                f"the maximal coupling supports one draft, but the problem has k = "
                f"{self.problem.k}; use KSeq, RecursiveRejection or OptimalPlan instead"
            )
        if self.rho not in (None, 1):
            raise InvalidParameterError(f"ρ = {self.rho}; the maximal coupling supports only ρ = 1")
        object.__setattr__(self, "rho", as_number(0 * self.problem.draft[0] + 1))
