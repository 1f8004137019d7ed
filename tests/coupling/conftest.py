"""All selection rules, for the tests of what every rule must do.

A rule that is named in `otm.rules.RULES` is among them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from otm.coupling import PLANS, GridOptimal, KSeq, TablePlan
from otm.coupling.lossy import LenientPlan
from otm.problem import Problem


def k_seq_above(problem: Problem) -> KSeq:
    """k-Seq with a division factor above ρ*, so that its residual can hit a draft."""
    return KSeq(problem, rho=problem.k + (Fraction(1, 2) if problem.exact else 0.5))


def careless_table(problem: Problem) -> TablePlan:
    """Accept every token among the drafts alike, by a table, and often none."""
    each = Fraction(1, problem.k + 1) if problem.exact else 1 / (problem.k + 1)
    return TablePlan.from_rule(problem, lambda drafts: dict.fromkeys(drafts, each))


def strictest_lenience(problem: Problem) -> LenientPlan:
    """Lenience that allows nothing: lossless by another way."""
    return LenientPlan(problem, 1)


def few_bins(problem: Problem) -> GridOptimal:
    """Bins, but few of them: a finer grid is the same code and takes minutes in fractions."""
    return GridOptimal(problem, steps=3)


TESTED = {
    **PLANS,
    "grid optimal": few_bins,
    "k-Seq above rho*": k_seq_above,
    "table": careless_table,
    "lenient, l = 1": strictest_lenience,
}


@pytest.fixture(scope="session", params=TESTED.values(), ids=TESTED.keys())
def rule(request: pytest.FixtureRequest) -> Any:
    """Give a selection rule: a function from a problem to a plan."""
    return request.param
