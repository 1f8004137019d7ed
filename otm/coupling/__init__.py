"""Lossless selection rules as transport plans: one rule a file (the optimal plan a folder).

`plan` is the protocol of all rules, `build` finds the plan of a rule, `table` and `transport` write
plans out.

Not here: lossy rules (`lossy`), comparisons of rules (`compare`), and list coupling
(`otm.coupled`), where a seed that is shared with the drafts decides.
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
