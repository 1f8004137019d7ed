"""From the name of a rule, or anybody's function, to its plan for a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pkgutil import resolve_name
from typing import Any, TypeVar

from otm._core.numbers import check_name
from otm._core.text import shown
from otm.coupling.plan import TransportPlan
from otm.errors import InvalidParameterError, ProblemTooLargeError
from otm.problem import Problem
from otm.rules import RULES, Rule, named, names

_T = TypeVar("_T")

PlanBuilder = Callable[[Problem], TransportPlan]
"""From a problem to a plan: the classes of `otm.coupling`, or one's own function."""


def plan_class(rule: Rule) -> type[TransportPlan]:
    """Class of the plan of a rule of the list, imported on use."""
    found: type[TransportPlan] = resolve_name(f"otm.coupling.{rule.plan}")
    return found


def _builder(rule: Rule) -> PlanBuilder:
    """Class of a rule; a function where its number of drafts is set or limited."""
    cls, k, limit = plan_class(rule), rule.k, rule.max_k
    if k is not None:
        return lambda problem: cls(problem.with_k(k))
    if limit is None:
        return cls

    def limited(problem: Problem) -> TransportPlan:
        plan = cls(problem)  # which refuses rows
        if problem.k > limit:
            raise ProblemTooLargeError(
                f"the rule {rule.name} takes at most {limit} drafts, not k = {problem.k}"
            )
        return plan

    return limited


PLANS: dict[str, PlanBuilder] = {name: _builder(RULES[name]) for name in names("plan")}
"""The lossless rules of `otm.rules` that have a plan, as functions from a problem to it."""


def build_plan(rule: PlanBuilder, problem: Problem, name: object = None) -> TransportPlan:
    """Plan of a rule, which may be anybody's, for a problem; refuses what is no plan."""
    plan: object = rule(problem)
    if not isinstance(plan, TransportPlan):
        raise InvalidParameterError(
            f"the rule {shown(name or rule)} returned {shown(plan)}; it must return a "
            "TransportPlan, as KSeq does for a problem"
        )
    return plan


def named_rules(rules: Any, known: Mapping[str, _T]) -> dict[str, _T]:
    """Rules by name, from a name, several names out of `known`, or a mapping from names to rules.

    In the order of what was given; names that are not known, and what is no rule, are refused.
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
    given = list(rules) if several else [rules]
    for name in given:
        if name not in RULES or name in known:
            check_name(
                "rule", name, known, advice="give others by a mapping from names to functions"
            )
        else:  # says what it is and why it is none for this place
            named(name, "plan")
    return {name: known[name] for name in given}
