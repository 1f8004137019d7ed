"""From rules, by name or as functions, to their plans for a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from otm._core.display.text import shown
from otm._core.numbers import check_name
from otm.coupling.plan import TransportPlan
from otm.errors import InvalidParameterError
from otm.problem import Problem
from otm.rules import RULES, named, names

_T = TypeVar("_T")

PlanBuilder = Callable[[Problem], TransportPlan]
"""From a problem to a plan: a `Rule`, a class of `otm.coupling`, or one's own function."""

PLANS: dict[str, PlanBuilder] = {name: RULES[name] for name in names("plan")}
"""The lossless rules of `otm.rules` that have a plan, which are functions from a problem to it."""


def build_plan(rule: PlanBuilder, problem: Problem, name: object = None) -> TransportPlan:
    """Build the plan of a rule, which may be one's own; raise if it returns no TransportPlan."""
    plan: object = rule(problem)
    if not isinstance(plan, TransportPlan):
        raise InvalidParameterError(
            f"the rule {shown(name or getattr(rule, 'name', rule))} returned {shown(plan)}; it "
            "must return a TransportPlan, as KSeq does for a problem"
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
            chosen[name] = named(name, "plan")
            continue
        check_name(
            "rule", name, known, advice='give others as "module:name", or by a mapping to functions'
        )
        chosen[name] = known[name]
    return chosen
