"""Lossless selection rules as transport plans: one file for each, a folder for the optimal plan.

`plan` is the base class of all rules, and `build` builds the plan of a rule by its name.  `table`
and `transport` represent plans as tables.

The subpackage `lossy` has lossy rules, and `compare` compares rules.  `otm.coupled` has list
coupling, where drafts and output share a random seed.
"""

from typing import TYPE_CHECKING

from otm._core.lazy import lazy

if TYPE_CHECKING:
    from otm._core.arithmetic import read_only
    from otm.coupling.build import PLANS, PlanBuilder
    from otm.coupling.greedy_drafts import GreedyRule
    from otm.coupling.grid_k_seq import GridKSeq
    from otm.coupling.grid_optimal import GridOptimal
    from otm.coupling.importance_selection import ImportanceSelection
    from otm.coupling.k_seq import KSeq
    from otm.coupling.maximal import MaximalCoupling
    from otm.coupling.naive_target_sampling import NaiveTargetSampling
    from otm.coupling.non_iterative_rejection import NonIterativeRejection
    from otm.coupling.optimal.plan import OptimalPlan
    from otm.coupling.plan import Selection, TransportPlan
    from otm.coupling.recursive_rejection import RecursiveRejection
    from otm.coupling.recursive_rejection_without_replacement import (
        RecursiveRejectionWithoutReplacement,
    )
    from otm.coupling.residual import ResidualPlan, acceptance_ratio
    from otm.coupling.spec_hub import SpecHub
    from otm.coupling.table import AcceptanceRule, TablePlan
    from otm.coupling.target_only import TargetOnly
    from otm.coupling.transport import Transport
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "PLANS",
    "AcceptanceRule",
    "GreedyRule",
    "GridKSeq",
    "GridOptimal",
    "ImportanceSelection",
    "KSeq",
    "MaximalCoupling",
    "NaiveTargetSampling",
    "NonIterativeRejection",
    "OptimalPlan",
    "PlanBuilder",
    "RecursiveRejection",
    "RecursiveRejectionWithoutReplacement",
    "ResidualPlan",
    "Selection",
    "SpecHub",
    "TablePlan",
    "TargetOnly",
    "Transport",
    "TransportPlan",
    "acceptance_ratio",
    "read_only",
]
