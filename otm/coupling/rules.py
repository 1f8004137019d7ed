"""The lossless rules of the literature, by name.

A rule that is listed here is compared by `otm.compare` and tested as a transport plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from otm._core.numbers import check_name
from otm._core.text import shown
from otm.coupling.greedy_drafts import GreedyRule
from otm.coupling.importance_selection import ImportanceSelection
from otm.coupling.k_seq import KSeq
from otm.coupling.list_coupling import ListCoupling
from otm.coupling.maximal import MaximalCoupling
from otm.coupling.naive_target_sampling import NaiveTargetSampling
from otm.coupling.non_iterative_rejection import NonIterativeRejection
from otm.coupling.optimal import OptimalPlan
from otm.coupling.plan import TransportPlan
from otm.coupling.recursive_rejection import RecursiveRejection
from otm.coupling.recursive_rejection_without_replacement import (
    RecursiveRejectionWithoutReplacement,
)
from otm.coupling.spec_hub import SpecHub
from otm.errors import InvalidParameterError
from otm.problem import Problem

__all__ = ["RULES", "Rule", "named_rules"]

_T = TypeVar("_T")

Rule = Callable[[Problem], TransportPlan]
"""From a problem to a plan: the classes of `otm.coupling`, or one's own function."""


def _one_draft(problem: Problem) -> TransportPlan:
    return MaximalCoupling(Problem(problem.draft, problem.target, 1))


def _two_drafts(problem: Problem) -> TransportPlan:
    return SpecHub(Problem(problem.draft, problem.target, 2))


RULES: dict[str, Rule] = {
    "optimal": OptimalPlan,
    "k-Seq": KSeq,
    "recursive rejection": RecursiveRejection,
    "recursive rejection without replacement": RecursiveRejectionWithoutReplacement,
    "greedy": GreedyRule,
    "SpecHub": _two_drafts,  # two drafts, whatever k is
    "importance selection": ImportanceSelection,
    "list coupling": ListCoupling,
    "naive target sampling": NaiveTargetSampling,
    "non-iterative rejection": NonIterativeRejection,
    "maximal coupling": _one_draft,  # one draft, whatever k is
}
"""The lossless rules of the literature, each by the name that the field uses."""


def named_rules(rules: Any, known: Mapping[str, _T]) -> dict[str, _T]:
    """Rules by name, from names or from a mapping.

    Parameters
    ----------
    rules : name, names, or mapping from names to rules
        What the user gave.
    known : mapping
        Rules by name, such as `RULES`.

    Returns
    -------
    dict
        In the order of what was given.

    Raises
    ------
    UnknownMethodError
        If a rule is asked for by a name that does not exist.
    InvalidParameterError
        If a rule of a mapping is no function, nor one of those known.
    """
    if isinstance(rules, Mapping):
        for name, rule in rules.items():
            if not callable(rule) and rule not in known.values():
                raise InvalidParameterError(
                    f"rule {shown(name)} is a {type(rule).__name__}; give a function from a "
                    "problem to a plan, such as otm.coupling.KSeq"
                )
        return {str(name): rule for name, rule in rules.items()}
    several = isinstance(rules, Iterable) and not isinstance(rules, str)
    names = list(rules) if several else [rules]
    for name in names:
        check_name("rule", name, known, advice="give others by a mapping from names to functions")
    return {name: known[name] for name in names}
