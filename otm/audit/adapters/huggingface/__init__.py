"""Adapters of transformers, and models of transformers for loops."""

from otm.audit.adapters.huggingface.generation import (
    generate,
    logits_processor,
    speculative_sampling,
)
from otm.audit.adapters.huggingface.table_model import causal_lm

__all__ = ["causal_lm", "generate", "logits_processor", "speculative_sampling"]
