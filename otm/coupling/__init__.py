"""Selection rules as transport plans: each rule is a file, all of them share one protocol."""

from typing import TYPE_CHECKING

from otm._core.lazy import lazy

if TYPE_CHECKING:
    from otm._core.arithmetic import read_only
    from otm.coupling.build import PLANS, PlanBuilder
    from otm.coupling.lossy.cactus import Cactus
    from otm.coupling.greedy_drafts import GreedyRule
    from otm.coupling.grid_k_seq import GridKSeq
    from otm.coupling.grid_optimal import GridOptimal
    from otm.coupling.importance_selection import ImportanceSelection
    from otm.coupling.k_seq import KSeq
    from otm.coupling.lossy.lenient import ArgmaxLenientPlan, Distance, LenientPlan, distance_to_target
    from otm.coupled.list_coupling import ListCoupling
    from otm.coupling.maximal import MaximalCoupling
    from otm.coupling.naive_target_sampling import NaiveTargetSampling
    from otm.coupling.non_iterative_rejection import NonIterativeRejection
    from otm.coupling.optimal import OptimalPlan
    from otm.coupling.plan import Selection, TransportPlan
    from otm.coupling.recursive_rejection import RecursiveRejection
    from otm.coupling.recursive_rejection_without_replacement import (
        RecursiveRejectionWithoutReplacement,
    )
    from otm.coupling.lossy.relaxed import CascadePlan, EnsemblePlan, RelaxedPlan
    from otm.coupling.residual import ResidualPlan, acceptance_ratio
    from otm.coupling.spec_hub import SpecHub
    from otm.coupling.lossy.synthetic_acceptance import SyntheticAcceptance
    from otm.coupling.table import AcceptanceRule, TablePlan
    from otm.coupling.target_only import TargetOnly
    from otm.coupling.transport import Transport
    from otm.coupling.lossy.typical_acceptance import TypicalAcceptance
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "PLANS",
    "AcceptanceRule",
    "ArgmaxLenientPlan",
    "Cactus",
    "CascadePlan",
    "Distance",
    "EnsemblePlan",
    "GreedyRule",
    "GridKSeq",
    "GridOptimal",
    "ImportanceSelection",
    "KSeq",
    "LenientPlan",
    "ListCoupling",
    "MaximalCoupling",
    "NaiveTargetSampling",
    "NonIterativeRejection",
    "OptimalPlan",
    "PlanBuilder",
    "RecursiveRejection",
    "RecursiveRejectionWithoutReplacement",
    "RelaxedPlan",
    "ResidualPlan",
    "Selection",
    "SpecHub",
    "SyntheticAcceptance",
    "TablePlan",
    "TargetOnly",
    "Transport",
    "TransportPlan",
    "TypicalAcceptance",
    "acceptance_ratio",
    "distance_to_target",
    "read_only",
]
