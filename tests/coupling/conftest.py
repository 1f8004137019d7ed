"""All selection rules, for the tests of what every rule must do. A new rule is one line here."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from otm.coupling.k_seq import KSeq
from otm.coupling.maximal import MaximalCoupling
from otm.coupling.optimal import OptimalPlan
from otm.coupling.plan import TransportPlan
from otm.coupling.recursive_rejection import RecursiveRejection
from otm.coupling.table import TablePlan
from otm.problem import MembershipProblem

Rule = Callable[[MembershipProblem], TransportPlan]


def maximal(problem: MembershipProblem) -> MaximalCoupling:
    """Couple one draft with the target, whatever k is."""
    return MaximalCoupling(MembershipProblem(problem.draft, problem.target, 1))


def k_seq_above(problem: MembershipProblem) -> KSeq:
    """k-Seq with a division factor above ρ*, so that its residual can hit a draft."""
    return KSeq(problem, rho=problem.k + (Fraction(1, 2) if problem.exact else 0.5))


def careless_table(problem: MembershipProblem) -> TablePlan:
    """Accept every token among the drafts alike, by a table, and often none."""
    each = Fraction(1, problem.k + 1) if problem.exact else 1 / (problem.k + 1)
    return TablePlan.from_rule(problem, lambda drafts: dict.fromkeys(drafts, each))


RULES = {
    "maximal": maximal,
    "k-Seq": KSeq,
    "k-Seq above rho*": k_seq_above,
    "recursive rejection": RecursiveRejection,
    "optimal": OptimalPlan,
    "table": careless_table,
}


@pytest.fixture(scope="session", params=RULES.values(), ids=RULES.keys())
def rule(request: pytest.FixtureRequest) -> Any:
    """Give a selection rule: a function from a problem to a plan."""
    return request.param
