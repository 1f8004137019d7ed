"""What `otm.solve` returns: an optimal acceptance probability that can prove itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from otm._core.arithmetic import Number
from otm.coupling.optimal import OptimalPlan
from otm.coupling.plan import TransportPlan
from otm.optimum.bounds import Bound, bounds
from otm.optimum.cut import Cut
from otm.problem import Problem

if TYPE_CHECKING:
    from otm.proof import Certificate

__all__ = ["Solution"]


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """Solution of OTM-k.

    Attributes
    ----------
    problem : Problem
        What was solved: the normalised laws and k.
    alpha : float or Fraction
        Optimal acceptance probability α_k(p, q).
    cut : Cut
        A minimum cut, which bounds α_k from above (Theorem 2.1 of docs/theory/minimum-cut.md).
    method : str
        "closed-form", "lp-highs" or "lp-cvxpy".
    why : str
        One sentence on the choice of the method.
    solver_plan : TransportPlan or None
        The plan that a linear program found; None for the closed form, which builds `plan` on use.

    Examples
    --------
    >>> from otm import solve
    >>> solution = solve([0.75, 0.25], [0.25, 0.75], k=2)
    >>> round(solution.alpha, 12), solution.cut.tokens.tolist(), solution.method
    (0.6875, [0], 'closed-form')
    >>> solution.plan.output_distribution().round(12).tolist()
    [0.25, 0.75]
    """

    problem: Problem
    alpha: Number
    cut: Cut
    method: str
    why: str
    solver_plan: TransportPlan | None = field(default=None)

    @cached_property
    def plan(self) -> TransportPlan:
        """An optimal transport plan from p^k to q, built when it is first asked for."""
        return self.solver_plan or OptimalPlan(self.problem)

    @cached_property
    def certificate(self) -> Certificate:
        """Proof of optimality that trusts no solver: `check()`, `lower`, `upper`, `gap`."""
        from otm.proof import Certificate  # on use, with the modules that write JSON

        return Certificate.build(self.problem, self.alpha, self.cut, self.method)

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """The bounds of the SpecTr paper on α_k, each with its theorem."""
        return bounds(self.problem)

    def _rows(self) -> list[tuple[str, str]]:
        problem = self.problem
        short = isinstance(self.alpha, Fraction) and 1 < self.alpha.denominator < 10**20
        exact = f" = {self.alpha}" if short else ""
        return [
            ("problem", f"n = {problem.n:,} tokens, k = {problem.k} drafts"),
            ("numbers", "exact fractions" if problem.exact else "float64"),
            ("α", f"{float(self.alpha):.12g}{exact}"),
            ("gap", f"{float(self.certificate.gap):.0g} (certificate)"),
            ("method", f"{self.method}: {self.why}"),
        ]

    def __repr__(self) -> str:
        lines = [f"  {name:<8} {text}" for name, text in self._rows()]
        return "\n".join(["OTM-k solution", *lines])

    def _repr_html_(self) -> str:
        import html

        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for name, text in self._rows()
        )
        ranked = sorted(self.bounds, key=lambda bound: bound.value)
        proved = "".join(
            f"<tr><td style='text-align:left'>{bound.kind}</td><td>{float(bound.value):.6f}</td>"
            f"<td style='text-align:left'>{html.escape(bound.formula)}</td>"
            f"<td style='text-align:left'>{html.escape(bound.source)}</td></tr>"
            for bound in ranked
        )
        return (
            f"<table><caption>OTM-k solution</caption>{rows}</table>"
            f"<details><summary>Bounds on α (SpecTr)</summary><table>{proved}</table></details>"
        )
