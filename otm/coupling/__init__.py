"""Selection rules as transport plans: each rule is a file, all of them share one protocol.

The names below are loaded when they are first used: `import otm` needs two of these files.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otm.coupling.build import PLANS
    from otm.coupling.greedy_drafts import GreedyRule
    from otm.coupling.grid_k_seq import GridKSeq
    from otm.coupling.importance_selection import ImportanceSelection
    from otm.coupling.k_seq import KSeq
    from otm.coupling.lenient import ArgmaxLenientPlan, LenientPlan, distance_to_target
    from otm.coupling.levels import LevelsPlan
    from otm.coupling.list_coupling import ListCoupling
    from otm.coupling.maximal import MaximalCoupling
    from otm.coupling.naive_target_sampling import NaiveTargetSampling
    from otm.coupling.non_iterative_rejection import NonIterativeRejection
    from otm.coupling.optimal import OptimalPlan
    from otm.coupling.plan import Selection, TransportPlan
    from otm.coupling.recursive_rejection import RecursiveRejection
    from otm.coupling.recursive_rejection_without_replacement import (
        RecursiveRejectionWithoutReplacement,
    )
    from otm.coupling.residual import ResidualPlan
    from otm.coupling.spec_hub import SpecHub
    from otm.coupling.table import TablePlan
    from otm.coupling.typical_acceptance import TypicalAcceptance

__all__ = [
    "PLANS",
    "ArgmaxLenientPlan",
    "GreedyRule",
    "GridKSeq",
    "ImportanceSelection",
    "KSeq",
    "LenientPlan",
    "LevelsPlan",
    "ListCoupling",
    "MaximalCoupling",
    "NaiveTargetSampling",
    "NonIterativeRejection",
    "OptimalPlan",
    "RecursiveRejection",
    "RecursiveRejectionWithoutReplacement",
    "ResidualPlan",
    "Selection",
    "SpecHub",
    "TablePlan",
    "TransportPlan",
    "TypicalAcceptance",
    "distance_to_target",
]

_HOMES = {
    "ArgmaxLenientPlan": "lenient",
    "GreedyRule": "greedy_drafts",
    "GridKSeq": "grid_k_seq",
    "ImportanceSelection": "importance_selection",
    "KSeq": "k_seq",
    "LenientPlan": "lenient",
    "LevelsPlan": "levels",
    "ListCoupling": "list_coupling",
    "MaximalCoupling": "maximal",
    "NaiveTargetSampling": "naive_target_sampling",
    "NonIterativeRejection": "non_iterative_rejection",
    "OptimalPlan": "optimal",
    "PLANS": "build",
    "RecursiveRejection": "recursive_rejection",
    "RecursiveRejectionWithoutReplacement": "recursive_rejection_without_replacement",
    "ResidualPlan": "residual",
    "Selection": "plan",
    "SpecHub": "spec_hub",
    "TablePlan": "table",
    "TransportPlan": "plan",
    "TypicalAcceptance": "typical_acceptance",
    "distance_to_target": "lenient",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'otm.coupling' has no attribute {name!r}")
    return getattr(import_module(f"otm.coupling.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
