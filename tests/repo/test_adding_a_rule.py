"""The rule that docs/add-a-rule.md adds, put through the tests that every rule passes."""

from __future__ import annotations

import re
import sys
from fractions import Fraction
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from otm.coupling import MaximalCoupling, ResidualPlan, TransportPlan
from otm.coupling.build import PlanBuilder
from otm.problem import Problem
from tests.repo.pages import read, rule_tests, run_definitions

F = Fraction


@pytest.fixture(scope="module")
def rule() -> PlanBuilder:
    """Give the rule of the page where the tests of the protocol ask for a rule."""
    module = sys.modules["first_draft"] = ModuleType("first_draft")  # where pickle looks for it
    run_definitions(re.sub("(?m)^```.*$", "", read("docs/add-a-rule.md")), module)
    found: PlanBuilder = module.FirstDraft
    return found


OF_EVERY_RULE = rule_tests("tests/coupling/test_plan_protocol.py")
globals().update(OF_EVERY_RULE)


def test_the_tests_of_the_protocol_are_among_these() -> None:
    """Bug: tests that were renamed, or take the rule under another name, and are not found."""
    assert len(OF_EVERY_RULE) >= 15
    assert "test_the_code_that_decides_is_lossless" in OF_EVERY_RULE


@pytest.mark.parametrize("k", [1, 2, 3])
def test_acceptance_is_what_drafts_beside_the_first_add(rule: PlanBuilder, k: int) -> None:
    """The page's formula, against a sum over all drafts and both outcomes of the test."""
    p, q = [F(1, 2), F(1, 4), F(1, 4), F(0)], [F(1, 4), F(0), F(1, 2), F(1, 4)]
    overlap = [min(a, b) for a, b in zip(p, q, strict=True)]
    residual = [(b - v) / (1 - sum(overlap)) for b, v in zip(q, overlap, strict=True)]
    expected = F(0)
    for drafts in product(range(3), repeat=k):
        drawn = F(1)
        for x in drafts:
            drawn *= p[x]
        first = overlap[drafts[0]] / p[drafts[0]]
        expected += drawn * (first + (1 - first) * sum(residual[y] for y in {*drafts}))
    assert rule(Problem(p, q, k)).acceptance == expected


def test_authors_need_public_names_alone() -> None:
    """Bug: the page imported from `otm._core`, which nobody outside may rely on."""
    assert "otm._core" not in read("docs/add-a-rule.md")


def test_a_rule_that_says_only_its_output_given_the_drafts_selects_from_it() -> None:
    """Bug: an author must write sampling anew, or import it from the internals."""

    class Blind(TransportPlan):
        uniforms_per_selection = 1
        acceptance = F(0)

        def output_distribution(self) -> Any:
            return self.problem.target

        def _output_given(self, drafts: Any) -> Any:
            return np.broadcast_to(self.problem.target, (len(drafts), self.problem.n))

    plan = Blind(Problem([F(1), F(0)], [F(1, 4), F(3, 4)], 2))
    selected = plan.select([[0, 0]] * 3, [[F(0)], [F(1, 4)], [F(9, 10)]])
    assert selected.token.tolist() == [0, 1, 1]


def test_one_draft_is_coupled_maximally(rule: PlanBuilder) -> None:
    plan = rule(Problem([F(1, 2), F(1, 2)], [F(3, 4), F(1, 4)], 1))
    assert isinstance(plan, ResidualPlan)
    assert plan.acceptance == MaximalCoupling(plan.problem).acceptance
