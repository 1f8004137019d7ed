"""Selection rules as transport plans: each rule is a file, all of them share one protocol."""

from otm.coupling.k_seq import KSeq
from otm.coupling.lenient import ArgmaxLenientPlan, LenientPlan, distance_to_target
from otm.coupling.maximal import MaximalCoupling
from otm.coupling.optimal import OptimalPlan
from otm.coupling.plan import Selection, TransportPlan
from otm.coupling.recursive_rejection import RecursiveRejection
from otm.coupling.table import TablePlan

__all__ = [
    "ArgmaxLenientPlan",
    "KSeq",
    "LenientPlan",
    "MaximalCoupling",
    "OptimalPlan",
    "RecursiveRejection",
    "Selection",
    "TablePlan",
    "TransportPlan",
    "distance_to_target",
]
