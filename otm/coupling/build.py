"""From the name of a rule, or anybody's function, to its plan for a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pkgutil import resolve_name
from typing import Any, TypeVar

from otm._core.display.text import shown
from otm._core.numbers import check_name
from otm.coupling.plan import TransportPlan
from otm.errors import InvalidParameterError, ProblemTooLargeError, UnknownMethodError
from otm.problem import Problem
from otm.rules import RULES, Rule, named, names

_T = TypeVar("_T")

PlanBuilder = Callable[[Problem], TransportPlan]
"""From a problem to a plan: the classes of `otm.coupling`, or one's own function."""


def plan_class(rule: Rule) -> type[TransportPlan]:
    """Class of the plan of a rule of the list, imported on use."""
    found: type[TransportPlan] = resolve_name(rule.plan)
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


def plan_builder(name: str) -> PlanBuilder:
    """Return the rule of a name, or of the "module:name" of one's own."""
    rule = named(name, "plan")
    if rule.name in PLANS:
        return PLANS[rule.name]
    try:
        builder = resolve_name(rule.plan)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownMethodError(
            f'rule {shown(name)} cannot be imported: {error!s:.120}; give "module:name" of a '
            "function from a problem to a plan, in a module that Python can import"
        ) from None
    if not callable(builder):
        raise InvalidParameterError(
            f'rule {shown(name)} is a {type(builder).__name__}; give "module:name" of a function '
            "from a problem to a plan, such as otm.coupling:KSeq"
        )
    own: PlanBuilder = builder
    return own


def build_plan(rule: PlanBuilder, problem: Problem, name: object = None) -> TransportPlan:
    """Plan of a rule, which may be anybody's, for a problem; refuses what is no plan."""
    plan: object = rule(problem)
    if not isinstance(plan, TransportPlan):
        raise InvalidParameterError(
            f"the rule {shown(name or rule)} returned {shown(plan)}; it must return a "
            "TransportPlan, as KSeq does for a problem"
        )
    return plan


def named_rules(rules: Any, known: Mapping[str, _T]) -> dict[str, _T | PlanBuilder]:
    """Rules by name, from a name, several names, or a mapping from names to rules.

    Names are those of `known`, or "module:name" of one's own.  In the order of what was given;
    other names, and what is no rule, are refused.
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
    own = {name: plan_builder(name) for name in given if isinstance(name, str) and ":" in name}
    for name in given:
        if name in own:
            continue
        if name not in RULES or name in known:
            check_name(
                "rule",
                name,
                known,
                advice='give others as "module:name", or by a mapping to functions',
            )
        else:  # says what it is and why it is none for this place
            named(name, "plan")
    return {name: own[name] if name in own else known[name] for name in given}
