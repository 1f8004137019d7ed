"""Speculative decoding: draft, verify, go on, without changing the law of the target model.

- `autoregressive`, `speculative` and `spectr` decode prompts; `stream` is the loop that they share;
  `beam_search` and `speculative_beam_search` search.
- `models` holds language models, those of Hugging Face among them; `ModelDrafter` and `drafters`
  draft; the verifiers judge drafts; policies say how many drafts a step asks for.
- `SamplingParameters` turns logits into the law that is sampled from.
- `planning` says what decoding with drafts would gain, from recorded laws and measured times.
- `analysis` has the formulas of Leviathan et al. (2023).
- `huggingface` runs a user's own `generate` call with these drafts and verifiers.

`python -m otm.decoding` shows it at work.
"""

from otm.decoding.analysis import (
    acceptance_from_divergence,
    best_gamma,
    expected_tokens,
    lk_divergence,
    memory_accesses_factor,
    operations_factor,
    oracle_speedup,
    single_draft_improvement,
    walltime_improvement,
)
from otm.decoding.beam import Beams, beam_search, speculative_beam_search
from otm.decoding.drafters import (
    AcceleratedDrafter,
    NonAutoregressiveDrafter,
    PromptLookup,
)
from otm.decoding.drafting import Drafter, DraftNode, ModelDrafter
from otm.decoding.generate import autoregressive, spectr, speculative
from otm.decoding.hypotheses import Hypothesis
from otm.decoding.loop import DecodingOptions, stream
from otm.decoding.policies import OnlineGamma, best_gamma_policy, huggingface_heuristic
from otm.decoding.sampling_parameters import SamplingParameters
from otm.decoding.trace import Generation, Seconds, Step
from otm.decoding.traversal import verify_traversal
from otm.decoding.verification import spectr_verifier, verify_chain
from otm.decoding.verifiers import tree_rules

__all__ = [
    "AcceleratedDrafter",
    "Beams",
    "DecodingOptions",
    "DraftNode",
    "Drafter",
    "Generation",
    "Hypothesis",
    "ModelDrafter",
    "NonAutoregressiveDrafter",
    "OnlineGamma",
    "PromptLookup",
    "SamplingParameters",
    "Seconds",
    "Step",
    "acceptance_from_divergence",
    "autoregressive",
    "beam_search",
    "best_gamma",
    "best_gamma_policy",
    "expected_tokens",
    "huggingface_heuristic",
    "lk_divergence",
    "memory_accesses_factor",
    "operations_factor",
    "oracle_speedup",
    "single_draft_improvement",
    "spectr",
    "spectr_verifier",
    "speculative",
    "speculative_beam_search",
    "stream",
    "tree_rules",
    "verify_chain",
    "verify_traversal",
    "walltime_improvement",
]
