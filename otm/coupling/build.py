"""Build the plan of a rule for a problem; the rule is a name or a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from otm._core.display.text import shown
from otm._core.numbers import check_name
from otm.coupling.plan import TransportPlan
from otm.errors import InvalidParameterError, ProblemTooLargeError
from otm.problem import Problem
from otm.rules import RULES, Rule, named, names

_T = TypeVar("_T")

PlanBuilder = Callable[[Problem], TransportPlan]
"""Function from a problem to a plan: a class of `otm.coupling`, or your own function."""


@dataclass(frozen=True)
class PlanOfRule:
    """A rule as a function from a problem to a plan; the first call imports the plan's class."""

    rule: Rule

    def __repr__(self) -> str:
        return self.rule.name

    def __call__(self, problem: Problem) -> TransportPlan:
        """Build the plan; if the rule has a fixed number of drafts, this number replaces k."""
        rule = self.rule
        plan: TransportPlan = rule.load_plan()(problem.with_k(rule.k) if rule.k else problem)
        if rule.max_k is not None and problem.k > rule.max_k:
            raise ProblemTooLargeError(
                f"the rule {rule.name} supports at most {rule.max_k} drafts, not k = {problem.k}"
            )
        return plan


PLANS: dict[str, PlanBuilder] = {name: PlanOfRule(RULES[name]) for name in names("plan")}
"""The lossless rules of `otm.rules` that have a plan, as functions from a problem to a plan."""


def build_plan(rule: PlanBuilder, problem: Problem, name: object = None) -> TransportPlan:
    """Build the plan of a rule; raise unless the result is a `TransportPlan`."""
    plan: object = rule(problem)
    if not isinstance(plan, TransportPlan):
        raise InvalidParameterError(
            f"the rule {shown(name or rule)} returned {shown(plan)}; it must return a "
            "TransportPlan for a problem, as KSeq does"
        )
    return plan


def named_rules(rules: Any, known: Mapping[str, _T]) -> dict[str, _T | PlanBuilder]:
    """Look up rules by a name, by several names, or by a mapping from names to rules.

    A name is a key of `known` or the "module:name" of the user's own rule.  Keep the order.  Raise
    if a name is unknown or a value is not a rule.
    """
    if isinstance(rules, Mapping):
        for name, rule in rules.items():
            if not callable(rule) and (name not in known or rule is not known[name]):
                raise InvalidParameterError(
                    f"rule {shown(name)} is a {type(rule).__name__}; give a function from a "
                    "problem to a plan, such as otm.coupling.KSeq"
                )
        return {str(name): rule for name, rule in rules.items()}
    several = isinstance(rules, Iterable) and not isinstance(rules, str)
    chosen: dict[str, _T | PlanBuilder] = {}
    for name in list(rules) if several else [rules]:
        listed = isinstance(name, str) and (":" in name or name in RULES)
        if listed and name not in known:
            # For a rule of the list, this raises an error that says which drafts the rule needs.
            chosen[name] = PlanOfRule(named(name, "plan"))
            continue
        check_name(
            "rule",
            name,
            known,
            advice='for your own rule, give "module:name" or a mapping to a function',
        )
        chosen[name] = known[name]
    return chosen
