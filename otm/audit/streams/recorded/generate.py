"""Record the steps of transformers' assisted generation for `otm.audit.recorded`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from otm._core.numbers import as_positive
from otm._core.optional import require
from otm.errors import InvalidInputError

NAME = "_speculative_sampling"
"""Function of transformers that verifies the drafts of a step."""


@contextmanager
def record_generate(max_steps: int = 100) -> Iterator[list[dict[str, Any]]]:
    """Record the steps of `generate(assistant_model=…, do_sample=True)` of transformers.

    Inside the context, each call of transformers' rule adds a step to the list: the distributions
    of both models that the rule used, the drafts, and the output.  `otm.audit.recorded` audits
    these steps, with your models, tokenizers and sampling parameters.  Texts do not change.

    Parameters
    ----------
    max_steps : int, optional
        Largest number of steps that are kept; later steps are not recorded.  A step with γ drafts
        needs 4 (2γ + 1) V bytes.

    Yields
    ------
    list of dict
        Steps with `target_probs` [γ + 1, V], `draft_probs` [γ, V], `drafts` [γ] and `output`.

    Raises
    ------
    InvalidInputError
        If the list is empty at the end: `generate` did not sample, had no assistant model, or
        verified without probabilities, as it does for n-grams and for drafts that are translated as
        strings.
    InvalidParameterError
        If `max_steps` is not a positive integer.
    MissingDependencyError
        If transformers is not installed, or has no such function.

    Notes
    -----
    The rows show what the rule verified.  The audit cannot find an earlier error, such as a wrong
    attention mask of the target.

    Examples
    --------
    >>> import torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from otm.audit import record_generate, recorded
    >>> torch.manual_seed(0)
    <torch._C.Generator object at ...>
    >>> sizes = dict(hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
    >>> target, draft = (LlamaForCausalLM(LlamaConfig(vocab_size=16, **sizes)) for _ in range(2))
    >>> prompt = torch.tensor([[1, 2]])
    >>> with record_generate() as steps:
    ...     text = target.generate(
    ...         prompt, assistant_model=draft, do_sample=True, max_new_tokens=20, eos_token_id=None
    ...     )
    >>> recorded(steps, delta=0.9).verdict != "not lossless"
    True
    """
    limit = as_positive(max_steps, "max_steps")
    rule = require("transformers.generation.utils", NAME)
    module = sys.modules["transformers.generation.utils"]
    steps: list[dict[str, Any]] = []

    def recording(
        candidate_input_ids: Any,
        candidate_logits: Any,
        candidate_length: int,
        new_logits: Any,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        given = candidate_input_ids, candidate_logits, candidate_length, new_logits
        # The rule may write into its arguments, so the rows are copied before the call.
        step = None if len(steps) >= limit or not candidate_length else {
            "target_probs": _rows(new_logits),
            "draft_probs": _rows(candidate_logits),
            "drafts": candidate_input_ids[0, -candidate_length:].tolist(),
        }  # fmt: skip
        result = rule(*given, *arguments, **options)
        if step is not None:
            steps.append(step | {"output": result[0][0].tolist()})
        return result

    setattr(module, NAME, recording)
    try:
        yield steps
    finally:
        setattr(module, NAME, rule)
    if not steps:
        raise InvalidInputError(
            "no step was recorded; call `generate` inside the context, with do_sample=True and an "
            "assistant model that gives probabilities"
        )


def _rows(logits: Any) -> Any:
    """Return probabilities [n, V] in float32, as the rule computes them from logits [1, n, V]."""
    return logits[0].softmax(dim=-1).float().cpu().numpy()
