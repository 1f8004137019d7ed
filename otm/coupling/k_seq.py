"""k-sequential selection (SpecTr Algorithm 2, Theorem 1, Lemma 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from otm._core.arithmetic import Law, Number, as_number, at_least_once, at_most_one, read_only
from otm._core.checks import Drafts
from otm._core.numbers import as_parameter
from otm.coupling.residual import acceptance_ratio
from otm.coupling.sequential import SequentialPlan, first_pass_factor
from otm.errors import InvalidParameterError
from otm.optimum.division_factor import excess, optimal_division_factor

__all__ = ["KSeq"]

VALIDITY_TOLERANCE = 1e-12
"""How far ρβ(ρ) may stay below p_acc in floats before a given ρ is refused."""


@dataclass(frozen=True, eq=False)
class KSeq(SequentialPlan):
    """k-Seq: accept the first draft x with u < q(x)/(ρ p(x)), one fresh uniform a draft.

    Valid for every division factor ρ ≥ ρ*; ρ* gives the largest acceptance probability by the
    rule's test, at least (1 − (1 − 1/k)^k) α_k ([sun2023]_, Algorithm 2 and Theorem 1; proved again
    in docs/theory/k-seq.md).

    Parameters
    ----------
    problem : Problem
        The draft law, the target law and the number of drafts.
    rho : float or Fraction, optional
        The division factor; ρ* rounded up (`optimal_division_factor`) if left out.

    Raises
    ------
    InvalidParameterError
        If ρ is not a number, or below ρ*: there the output law is in general not the target, and
        where it is, the accepted mass is no larger than at ρ*.

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
        if self.rho is None:
            object.__setattr__(self, "rho", optimal_division_factor(self.problem))
            return
        given = as_parameter(self.rho, "rho", exact=self.problem.exact)
        tolerance = 0 if self.problem.exact else VALIDITY_TOLERANCE
        if not (given >= 1 and excess(self.problem, given) <= tolerance):
            raise InvalidParameterError(
                f"ρ = {self.rho} is not a valid division factor for these laws and "
                f"k = {self.problem.k}; it must be at least "
                f"ρ* = {_rounded_up(optimal_division_factor(self.problem))!r}"
            )
        object.__setattr__(self, "rho", given)

    @cached_property
    def accept_probability(self) -> Law:
        """Probability min(1, q/(ρp)) of accepting each token when it is drafted: array [n]."""
        return read_only(acceptance_ratio(self.problem.target, self.rho * self.problem.draft))

    @cached_property
    def accepted_mass(self) -> Law:
        """Mass min(p, q/ρ) · p_acc/β of each token output as an accepted draft: array [n]."""
        one_draft = self.problem.draft * self.accept_probability
        return read_only(one_draft * first_pass_factor(self._beta, self.problem.k))

    @property
    def acceptance_by_test(self) -> Number:
        """Probability p_acc = 1 − (1 − β)^k that the rule's test accepts a draft."""
        return at_least_once(self._beta, self.problem.k)

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}).

        For ρ > ρ* this is in general above `acceptance_by_test`: the residual can hit a draft that
        was tested and rejected.  Given that all are rejected, the drafts are i.i.d. with law
        ∝ p − min(p, q/ρ).
        """
        rejected_draft = self.problem.draft * (1 - self.accept_probability)
        if self._beta >= 1 or not rejected_draft.any():
            return self.acceptance_by_test
        hit = at_least_once(rejected_draft / rejected_draft.sum(), self.problem.k)
        by_residual = as_number((self.residual.law(self.problem.n) * hit).sum())
        return at_most_one(self.acceptance_by_test + (1 - self.acceptance_by_test) * by_residual)

    @cached_property
    def _beta(self) -> Number:
        """Probability β(ρ) = Σ min(p, q/ρ) that one draft passes the test."""
        return at_most_one((self.problem.draft * self.accept_probability).sum())

    def _pass_probability(self, drafts: Drafts) -> Law:
        return self.accept_probability[drafts]


def _rounded_up(rho: Number) -> float:
    """Float that is at least ρ, so that the value which an error names is accepted."""
    nearest = float(rho)
    return nearest if nearest >= rho else math.nextafter(nearest, math.inf)
