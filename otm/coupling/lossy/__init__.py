"""Lossy rules, for comparison: their acceptance and their distance from the target distribution.

The lossless rules are in `otm.coupling`, each in one file.
"""

from otm.coupling.lossy.cactus import Cactus
from otm.coupling.lossy.lenient import (
    ArgmaxLenientPlan,
    Distance,
    LenientPlan,
    distance_to_target,
)
from otm.coupling.lossy.relaxed import CascadePlan, EnsemblePlan, RelaxedPlan
from otm.coupling.lossy.synthetic_acceptance import SyntheticAcceptance
from otm.coupling.lossy.typical_acceptance import TypicalAcceptance

__all__ = [
    "ArgmaxLenientPlan",
    "Cactus",
    "CascadePlan",
    "Distance",
    "EnsemblePlan",
    "LenientPlan",
    "RelaxedPlan",
    "SyntheticAcceptance",
    "TypicalAcceptance",
    "distance_to_target",
]
