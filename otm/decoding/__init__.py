"""Speculative decoding: draft, verify, go on, without changing the law of the target model.

- `autoregressive`, `speculative`, `spectr` decode prompts; `stream` is the loop that they share.
- `Standardization` turns logits into the law that is sampled from.
- `models` holds the language models, `ModelDrafter` and other drafters draft with them, and
  `verification` says how drafts are judged.
- `analysis` has the formulas of Leviathan et al. (2023) for what drafting gains.
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
from otm.decoding.drafting import Drafter, DraftNode, ModelDrafter
from otm.decoding.generate import autoregressive, spectr, speculative
from otm.decoding.loop import Options, stream
from otm.decoding.standardize import Standardization
from otm.decoding.trace import Generation, Seconds, Step
from otm.decoding.verification import spectr_verifier, verify_chain, verify_traversal

__all__ = [
    "DraftNode",
    "Drafter",
    "Generation",
    "ModelDrafter",
    "Options",
    "Seconds",
    "Standardization",
    "Step",
    "acceptance_from_divergence",
    "autoregressive",
    "best_gamma",
    "corollary_3_9",
    "divergence_lk",
    "expected_tokens",
    "memory_accesses_factor",
    "operations_factor",
    "oracle_speedup",
    "spectr",
    "spectr_verifier",
    "speculative",
    "stream",
    "verify_chain",
    "verify_traversal",
    "walltime_improvement",
]
