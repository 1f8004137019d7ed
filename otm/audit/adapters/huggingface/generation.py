"""Adapters of Hugging Face transformers: its rule for one chain, and its assisted generation."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from otm._core.optional import require
from otm.audit.adapters.base import Adapter, Instance
from otm.audit.adapters.functions import chain
from otm.audit.adapters.huggingface.table_model import causal_lm
from otm.audit.adapters.processed import Processing, raw
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path


def speculative_sampling() -> Adapter:
    """Audit `transformers.generation.utils._speculative_sampling`, the rule of assisted generation.

    The adapter passes the same arguments as `generate`: float32 logits, and drafts sampled from
    these logits.  The rule draws from torch's global generator; the audit replaces these draws by
    its own.

    Returns
    -------
    Adapter
        Adapter for one chain.

    Raises
    ------
    MissingDependencyError
        If transformers is not installed, or has no such function.

    Notes
    -----
    The rule accepts a draft if u ≤ ratio, where u has 24 bits.  A draft token that is impossible
    under the target is therefore accepted with probability 2^−24 (`otm.audit.diagnose.known_bugs`,
    "u ≤ ratio").  The audit detects such impossible tokens by breakpoints; Monte Carlo would need
    too many runs.
    """
    import torch

    rule = require("transformers.generation.utils", "_speculative_sampling")
    # Versions up to 4 need a flag for a last draft that ends the sequence; it never does here.
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

    Target and draft are transformers models with caches; their logits come from the tables of the
    instance (`causal_lm`).  The audit replaces the random draws by its own, and finds the
    breakpoints on a dozen pairs of models in a minute.

    Parameters
    ----------
    **options
        Options for `generate`, which makes γ drafts in a step and γ + 1 tokens in all.  The audit
        reports a text of fewer tokens as a mistake, unless an option may end the text early.  With
        `eos_token_id` (0 or 1), a text of fewer than γ + 1 tokens must end with this token.  The
        expected distribution includes `logits_processor` (a list of processors) and
        `repetition_penalty`, but no other option that changes logits.

    Returns
    -------
    Adapter
        Adapter for one chain.

    Raises
    ------
    MissingDependencyError
        If transformers is not installed.
    """
    require("transformers.generation")
    end = options.get("eos_token_id")
    processors = list(options.get("logits_processor") or ())
    if (penalty := options.get("repetition_penalty")) is not None:
        processors.insert(0, require("transformers", "RepetitionPenaltyLogitsProcessor")(penalty))
    end = end if isinstance(end, int) else None
    may_end = ENDING - ({"eos_token_id"} if end is not None else set())
    processor = Processing(logits_processor(*processors)) if processors else None
    return _Generate(options, whole=not may_end & options.keys(), end=end, processor=processor)


def logits_processor(*processors: Any) -> Callable[[Path, Any], Any]:
    """Turn processors of transformers into one processor for `otm.audit.loop`.

    Parameters
    ----------
    *processors : callable
        Functions of token ids [1, n] and logits [1, V], both tensors, that return logits [1, V];
        such as `transformers.RepetitionPenaltyLogitsProcessor(2.0)`.  The first one acts first.

    Returns
    -------
    callable
        Function of tokens (n integers) and logits [V] that returns logits [V], a tensor.

    Examples
    --------
    >>> from transformers import RepetitionPenaltyLogitsProcessor
    >>> processor = logits_processor(RepetitionPenaltyLogitsProcessor(2.0))
    >>> processor((1,), [-1.0, -1.0]).tolist()
    [-1.0, -2.0]
    """
    import torch

    def process(tokens: Path, logits: Any) -> Any:
        ids = torch.tensor([list(tokens)], dtype=torch.int64)
        scores = torch.as_tensor(np.array(logits, dtype=np.float64))[None]
        for processor in processors:
            scores = processor(ids, scores)
        return scores[0]

    return process


ENDING = frozenset((
    "eos_token_id", "generation_config", "max_length", "max_new_tokens", "max_time",
    "stop_strings", "stopping_criteria",
))  # fmt: skip
"""Options of `generate` that may end a text early."""


@dataclass(frozen=True, eq=False)
class _Generate(Adapter):
    options: dict[str, Any]
    whole: bool
    end: int | None
    processor: Processing | None
    name = "transformers, generate with an assistant"
    repeatable = False
    exact = False
    uses_global_rng = True

    def output(self, instance: Instance, source: Randomness) -> Path:
        import torch

        target, draft = causal_lm(raw(instance.target)), causal_lm(instance.draft)
        settings = draft.generation_config
        settings.num_assistant_tokens = instance.gamma
        settings.num_assistant_tokens_schedule = "constant"
        settings.assistant_confidence_threshold = 0.0
        prompt = torch.tensor([instance.prompt])
        # If the padding token is not the end token, the assistant masks it in the prompt.
        pad = self.end or 0
        options = {
            "do_sample": True, "top_k": 0, "max_new_tokens": instance.gamma + 1,
            "eos_token_id": None, "pad_token_id": pad, **self.options,
        }  # fmt: skip
        tokens = target.generate(
            prompt, attention_mask=torch.ones_like(prompt), assistant_model=draft, **options
        )
        return tuple(tokens[0, prompt.shape[1] :].tolist())
