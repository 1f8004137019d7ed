"""Speculative decoding: draft, verify, continue, without changing the target's distribution.

- `autoregressive`, `speculative` and `spectr` decode prompts, all three with the loop `stream`.
  `beam_search` and `speculative_beam_search` search for probable continuations.
- Drafters of chains and prefix trees: `ModelDrafter`, `AcceleratedDrafter`,
  `NonAutoregressiveDrafter` and `PromptLookup`.  Drafters of other trees: `DrawnTreeDrafter`,
  `BestFirstDrafter`, `StaticTreeDrafter` and `DynamicTreeDrafter`.  `StringDrafter` drafts for a
  target with another vocabulary.
- Lossless verifiers: `verify_chain`, `verify_traversal`, `verify_walk_and_keep`,
  `verify_branch_and_keep`, `verify_greedy_paths`, `verify_target_only`, `spectr_verifier`, and
  `GreedyBlockVerifier`, which keeps a state.  Lossy verifiers: `entropy_window_verifier` and
  `verify_hierarchical`.
- Policies choose the number of speculative tokens γ of each step.
- `SamplingParameters` turns logits into the distribution that tokens are sampled from.

Coupled decoding and watermarks are in `otm.coupled`, formulas of the gain in `otm.gain`, and
language models in `otm.models`.  The command `otm decode` shows a text step by step.
"""

from otm.decoding.beam import Beams, beam_search, speculative_beam_search
from otm.decoding.device.rounds import DeviceVerifier
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.accelerated import AcceleratedDrafter
from otm.decoding.drafters.base import Branching, Drafter
from otm.decoding.drafters.drawn_trees import DrawnTreeDrafter
from otm.decoding.drafters.dynamic_trees import DynamicTreeDrafter
from otm.decoding.drafters.heads import NonAutoregressiveDrafter, skip_gram_heads
from otm.decoding.drafters.model import ModelDrafter
from otm.decoding.drafters.prompt_lookup import PromptLookup
from otm.decoding.drafters.strings import StringDrafter
from otm.decoding.drafters.trees import BestFirstDrafter, Drawn, Shape, StaticTreeDrafter
from otm.decoding.generate import autoregressive, spectr, speculative
from otm.decoding.generation_config import read_generation_config
from otm.decoding.hypotheses import Hypothesis
from otm.decoding.loop import DecodingOptions, stream
from otm.decoding.policies import GammaPolicy, huggingface_heuristic
from otm.decoding.reading import LogitsProcessor
from otm.decoding.rendering import render_trace, trace_legend
from otm.decoding.sampling_parameters import SamplingParameters
from otm.decoding.text_probs import sampled_log_probs
from otm.decoding.trace import Generation, Seconds, Step
from otm.decoding.verifiers.base import TargetProbs, Verifier
from otm.decoding.verifiers.block_traversal import verify_traversal
from otm.decoding.verifiers.branch_and_keep import verify_branch_and_keep
from otm.decoding.verifiers.by_rule import tree_rules
from otm.decoding.verifiers.chain import verify_chain
from otm.decoding.verifiers.entropy_window import entropy_window_verifier
from otm.decoding.verifiers.greedy_block import GreedyBlockVerifier, verify_hierarchical
from otm.decoding.verifiers.greedy_paths import verify_greedy_paths
from otm.decoding.verifiers.recursion import spectr_verifier
from otm.decoding.verifiers.target_only import verify_target_only
from otm.decoding.verifiers.walk_and_keep import verify_walk_and_keep

__all__ = [
    "AcceleratedDrafter",
    "Beams",
    "BestFirstDrafter",
    "Branching",
    "DecodingOptions",
    "DeviceVerifier",
    "DraftNode",
    "Drafter",
    "Drawn",
    "DrawnTreeDrafter",
    "DynamicTreeDrafter",
    "GammaPolicy",
    "Generation",
    "GreedyBlockVerifier",
    "Hypothesis",
    "LogitsProcessor",
    "ModelDrafter",
    "NonAutoregressiveDrafter",
    "PromptLookup",
    "Randomness",
    "SamplingParameters",
    "Seconds",
    "Shape",
    "StaticTreeDrafter",
    "Step",
    "StringDrafter",
    "TargetProbs",
    "Verifier",
    "autoregressive",
    "beam_search",
    "entropy_window_verifier",
    "huggingface_heuristic",
    "read_generation_config",
    "render_trace",
    "sampled_log_probs",
    "skip_gram_heads",
    "spectr",
    "spectr_verifier",
    "speculative",
    "speculative_beam_search",
    "stream",
    "trace_legend",
    "tree_rules",
    "verify_branch_and_keep",
    "verify_chain",
    "verify_greedy_paths",
    "verify_hierarchical",
    "verify_target_only",
    "verify_traversal",
    "verify_walk_and_keep",
]
