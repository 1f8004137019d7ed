"""Hugging Face transformers as verifiers: its rule for one chain, and its assisted generation."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from otm._core.optional import require
from otm.audit.adapters.base import Adapter, Instance
from otm.audit.adapters.causal_lm import causal_lm
from otm.audit.adapters.functions import chain
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path

__all__ = ["causal_lm", "generate", "speculative_sampling"]


def speculative_sampling() -> Adapter:
    """Audit `transformers.generation.utils._speculative_sampling`, the rule of assisted generation.

    It gets what `generate` passes: drafts sampled from the very logits that it sees, in
    float32.  It draws from torch's global generator, whose draws the audit makes itself.

    Returns
    -------
    Adapter
        For one chain.

    Raises
    ------
    MissingDependencyError
        If transformers is not installed, or has no such function.

    Notes
    -----
    It accepts a draft if u ≤ ratio, with u of 24 bits: a token that the target cannot produce comes
    out with probability 2^−24 for each draft of it (`otm.audit.diagnose.known_bugs`, "u ≤ ratio").
    The audit sees that by breakpoints; no Monte Carlo of this size does.
    """
    import torch

    rule = require("transformers.generation.utils", "_speculative_sampling")
    # versions up to 4 asked whether the last draft ends the sequence; these drafts never do
    more = {"is_done_candidate": False}
    options = {k: v for k, v in more.items() if k in inspect.signature(rule).parameters}

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any) -> list[int]:
        draft_logits, target_logits = (
            torch.from_numpy(probs[None]).float().log() for probs in (draft_probs, target_probs)
        )
        drafts = torch.from_numpy(draft_tokens[None])
        valid, _ = rule(drafts, draft_logits, len(draft_tokens), target_logits, **options)
        return list(valid[0].tolist())

    adapter = chain(verify, name="transformers, _speculative_sampling")
    adapter.exact = False
    return adapter


def generate(**options: Any) -> Adapter:
    """Audit assisted generation, `target.generate(assistant_model=draft, do_sample=True)`.

    Target and draft are models of transformers that look their logits up in the tables of the
    instance, caches and all (`causal_lm`).  The audit makes its draws, and finds its breakpoints on
    a dozen pairs of models in a minute.

    Parameters
    ----------
    **options
        Passed on to `generate`, which makes γ drafts a step and γ + 1 tokens in all.  A shorter
        text is a finding, unless an option may end it.  With `eos_token_id` (0 or 1) a shorter
        text must end with this token.

    Returns
    -------
    Adapter
        For one chain.

    Raises
    ------
    MissingDependencyError
        If transformers is not installed.
    """
    require("transformers.generation")
    end = options.get("eos_token_id")
    end = end if isinstance(end, int) else None
    may_end = ENDING - ({"eos_token_id"} if end is not None else set())
    return _Generate(options, whole=not may_end & options.keys(), end=end)


ENDING = frozenset((
    "eos_token_id", "generation_config", "max_length", "max_new_tokens", "max_time",
    "stop_strings", "stopping_criteria",
))  # fmt: skip
"""Options of `generate` that may end a text."""


@dataclass(frozen=True, eq=False)
class _Generate(Adapter):
    options: dict[str, Any]
    whole: bool
    end: int | None
    name = "transformers, generate with an assistant"
    repeatable = False
    exact = False
    own_draws = True

    def output(self, instance: Instance, source: Randomness) -> Path:
        import torch

        target, draft = causal_lm(instance.target), causal_lm(instance.draft)
        settings = draft.generation_config
        settings.num_assistant_tokens = instance.gamma
        settings.num_assistant_tokens_schedule = "constant"
        settings.assistant_confidence_threshold = 0.0
        prompt = torch.tensor([instance.prompt])
        options = {
            "do_sample": True, "top_k": 0, "max_new_tokens": instance.gamma + 1,
            "eos_token_id": None, "pad_token_id": 0, **self.options,
        }  # fmt: skip
        tokens = target.generate(
            prompt, attention_mask=torch.ones_like(prompt), assistant_model=draft, **options
        )
        return tuple(tokens[0, prompt.shape[1] :].tolist())
