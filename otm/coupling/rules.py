"""The lossless rules of the literature, by name.

A rule that is listed here is compared by `otm.compare` and tested as a transport plan.
"""

from __future__ import annotations

from collections.abc import Callable

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
from otm.problem import MembershipProblem

__all__ = ["RULES", "Rule"]

Rule = Callable[[MembershipProblem], TransportPlan]
"""From a problem to a plan: the classes of `otm.coupling`, or one's own function."""


def _one_draft(problem: MembershipProblem) -> TransportPlan:
    return MaximalCoupling(MembershipProblem(problem.draft, problem.target, 1))


def _two_drafts(problem: MembershipProblem) -> TransportPlan:
    return SpecHub(MembershipProblem(problem.draft, problem.target, 2))


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
