"""Speculative decoding: from logits to laws, and what a loop over two models can gain.

`Standardization` turns logits into the law that is sampled from; the other names are the analysis
of Leviathan et al. (2023).  The draft–verify loops of Leviathan et al. and of SpecTr (Sun et al.,
2023) are not in this version.
"""

from otm.decoding.analysis import (
    acceptance_from_divergence,
    best_gamma,
    corollary_3_9,
    divergence_lk,
    expected_tokens,
    memory_accesses_factor,
    operations_factor,
    oracle_speedup,
    walltime_improvement,
)
from otm.decoding.standardize import Standardization

__all__ = [
    "Standardization",
    "acceptance_from_divergence",
    "best_gamma",
    "corollary_3_9",
    "divergence_lk",
    "expected_tokens",
    "memory_accesses_factor",
    "operations_factor",
    "oracle_speedup",
    "walltime_improvement",
]
