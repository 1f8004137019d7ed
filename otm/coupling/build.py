"""From rules, by name or as functions, to their plans for a problem."""

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
"""From a problem to a plan: a class of `otm.coupling`, or one's own function."""


@dataclass(frozen=True)
class PlanOfRule:
    """A rule as a function from a problem to its plan, which is imported on use."""

    rule: Rule

    def __repr__(self) -> str:
        return self.rule.name

    def __call__(self, problem: Problem) -> TransportPlan:
        """Build the plan, with the number of drafts of the rule if it has one."""
        rule = self.rule
        plan: TransportPlan = rule.load_plan()(problem.with_k(rule.k) if rule.k else problem)
        if rule.max_k is not None and problem.k > rule.max_k:
            raise ProblemTooLargeError(
                f"the rule {rule.name} takes at most {rule.max_k} drafts, not k = {problem.k}"
            )
        return plan


PLANS: dict[str, PlanBuilder] = {name: PlanOfRule(RULES[name]) for name in names("plan")}
"""The lossless rules of `otm.rules` that have a plan, as functions from a problem to it."""


def build_plan(rule: PlanBuilder, problem: Problem, name: object = None) -> TransportPlan:
    """Build the plan of a rule, which may be one's own; raise if it returns no TransportPlan."""
    plan: object = rule(problem)
    if not isinstance(plan, TransportPlan):
        raise InvalidParameterError(
            f"the rule {shown(name or rule)} returned {shown(plan)}; it must return a "
            "TransportPlan, as KSeq does for a problem"
        )
    return plan


def named_rules(rules: Any, known: Mapping[str, _T]) -> dict[str, _T | PlanBuilder]:
    """Look rules up, given as a name, several names, or a mapping from names to rules.

    Names are those of `known`, or "module:name" of one's own.  The order stays as given.  Raise for
    other names, and for values that are not rules.
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
            # raises for a rule of the list, and says what it is for
            chosen[name] = PlanOfRule(named(name, "plan"))
            continue
        check_name(
            "rule", name, known, advice='give others as "module:name", or by a mapping to functions'
        )
        chosen[name] = known[name]
    return chosen
