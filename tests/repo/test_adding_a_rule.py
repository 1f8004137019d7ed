"""The rule that docs/add-a-rule.md adds, put through the tests that every rule passes."""

import math
import re
import sys
from fractions import Fraction
from itertools import product
from types import ModuleType

import pytest

from otm.coupling import MaximalCoupling, ResidualPlan
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


def test_the_tests_of_the_protocol_are_among_these_and_public_names_are_enough() -> None:
    """Bug: tests of the rule that are not found; a page that imports from `otm._core`."""
    assert "otm._core" not in read("docs/add-a-rule.md")
    assert len(OF_EVERY_RULE) >= 15
    assert "test_the_code_that_decides_is_lossless" in OF_EVERY_RULE


@pytest.mark.parametrize("k", [1, 2, 3])
def test_acceptance_is_what_drafts_beside_the_first_add(rule: PlanBuilder, k: int) -> None:
    """The page's formula, against a sum over all drafts and both outcomes of the test."""
    pair = Problem([F(1, 2), F(1, 2)], [F(3, 4), F(1, 4)], 1)  # one draft is coupled maximally
    assert rule(pair).acceptance == MaximalCoupling(pair).acceptance
    assert isinstance(rule(pair), ResidualPlan)
    p, q = [F(1, 2), F(1, 4), F(1, 4), F(0)], [F(1, 4), F(0), F(1, 2), F(1, 4)]
    overlap = [min(a, b) for a, b in zip(p, q, strict=True)]
    residual = [(b - v) / (1 - sum(overlap)) for b, v in zip(q, overlap, strict=True)]
    expected = F(0)
    for drafts in product(range(3), repeat=k):
        drawn = math.prod(p[x] for x in drafts)
        first = overlap[drafts[0]] / p[drafts[0]]
        expected += drawn * (first + (1 - first) * sum(residual[y] for y in {*drafts}))
    assert rule(Problem(p, q, k)).acceptance == expected
