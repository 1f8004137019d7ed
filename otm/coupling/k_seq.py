"""k-Seq: sequential selection from k drafts (SpecTr, Algorithm 2, Theorem 1 and Lemma 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from otm._core.arithmetic import Number, Probs, read_only, rounded
from otm._core.numbers import as_parameter
from otm.coupling.residual import TokenwisePlan, acceptance_ratio
from otm.errors import InvalidParameterError
from otm.optimum.division_factor import excess, optimal_division_factor

VALIDITY_TOLERANCE = 1e-12
"""Largest p_acc − ρβ(ρ) in floats for which the user's ρ is accepted as valid."""


@dataclass(frozen=True, eq=False)
class KSeq(TokenwisePlan):
    """k-Seq: accept the first draft x with u < q(x)/(ρ p(x)); each draft has its own uniform u.

    The rule is lossless for every division factor ρ ≥ ρ*.  At ρ*, the test accepts with the largest
    probability, which is at least (1 − (1 − 1/k)^k) α_k ([sun2023]_, Algorithm 2 and Theorem 1;
    also proved in docs/theory/k-seq.md).

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    rho : float or Fraction, optional
        The division factor; by default ρ* rounded up (`optimal_division_factor`).

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidParameterError
        If ρ is not a number, or is less than ρ*.  For ρ < ρ*, the rule is in general not lossless;
        where it is lossless, it does not accept more than at ρ*.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr", NeurIPS 2023, section 6 and appendix C.1.

    Examples
    --------
    >>> from otm import Problem
    >>> plan = KSeq(Problem([0.5, 0.5], [1, 0], k=2))
    >>> round(plan.acceptance, 12)
    0.75
    """

    rho: Number | None = None

    def __post_init__(self) -> None:
        self._check_problem()
        if self.rho is None:
            object.__setattr__(self, "rho", optimal_division_factor(self.problem))
            return
        rho = as_parameter(self.rho, "rho", exact=self.problem.exact)
        tolerance = 0 if self.problem.exact else VALIDITY_TOLERANCE
        if not (rho >= 1 and excess(self.problem, rho) <= tolerance):
            raise InvalidParameterError(
                f"ρ = {self.rho} is not a valid division factor for these distributions and "
                f"k = {self.problem.k}; it must be at least "
                f"ρ* = {rounded(optimal_division_factor(self.problem), math.inf)!r}"
            )
        object.__setattr__(self, "rho", rho)

    @cached_property
    def accept_probability(self) -> Probs:
        """Probability min(1, q/(ρp)) of accepting each token when it is drafted: array [n]."""
        return read_only(acceptance_ratio(self.problem.target, self.rho * self.problem.draft))
