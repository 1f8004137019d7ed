"""The optimal acceptance probability of OTM-k, and bounds on it.

For i.i.d. drafts the optimum has a closed form.  For other drafts, `non_iid_drafts` computes the
optimum from prefixes or a maximum flow, or bounds the optimum by an interval.  `solvers` has linear
programs, Sinkhorn's algorithm and a maximum flow, as independent checks.

Plans that attain the optimum are in `otm.coupling`; the optimum for whole blocks is in
`otm.block_optimum`.
"""

from typing import TYPE_CHECKING

from otm._core.lazy import lazy

if TYPE_CHECKING:
    from otm.optimum.bounds import Bound, guarantee, lemma_3_by_definition, spectr_bounds
    from otm.optimum.cut import Cut, minimum_cut, optimal_cap, optimal_value
    from otm.optimum.division_factor import bisection_steps, excess, optimal_division_factor
    from otm.optimum.lenience import (
        acceptance_at_distance,
        closest_ratio,
        lenient_cap,
        lenient_value,
    )
    from otm.optimum.non_iid_drafts import (
        BoundedOptimum,
        Optimum,
        bounds_by_random_order,
        optimum_of,
    )
    from otm.optimum.prepared import Outcome, most_hits, prepared_corners, replacements
    from otm.optimum.top_logprobs import alpha_interval, alpha_interval_from_logprobs
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "Bound",
    "BoundedOptimum",
    "Cut",
    "Optimum",
    "Outcome",
    "acceptance_at_distance",
    "alpha_interval",
    "alpha_interval_from_logprobs",
    "bisection_steps",
    "bounds_by_random_order",
    "closest_ratio",
    "excess",
    "guarantee",
    "lemma_3_by_definition",
    "lenient_cap",
    "lenient_value",
    "minimum_cut",
    "most_hits",
    "optimal_cap",
    "optimal_division_factor",
    "optimal_value",
    "optimum_of",
    "prepared_corners",
    "replacements",
    "spectr_bounds",
]
