"""Acceptance of drafts: from the server's metrics, and the largest that two models allow.

Metrics include the drafts of all users of a server.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from otm.audit.streams.server.answers import Prompt
from otm.audit.streams.server.checks.kept_answers import KeptAnswer
from otm.audit.streams.server.distributions.references import changed_logits, model_logits
from otm.audit.streams.server.request_parameters import NO_PARAMETERS, RequestParameters
from otm.models import LanguageModel

COUNTER = re.compile(
    r"^vllm:spec_decode_num_(drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)"
    r"(?:_total)?(?:\{([^}\n]{0,500})\})? ([0-9.eE+]{1,30})(?: \d+)?$",
    re.MULTILINE,
)
"""Pattern of vLLM's counters in Prometheus format."""

POSITION = re.compile(r'position="(\d{1,4})"')


@dataclass(frozen=True)
class Acceptance:
    """Drafts that a server verified during the audit, for all of its users."""

    # Number of verifications of a chain of drafts.
    steps: int
    # Number of draft tokens.
    drafts: int
    # Number of accepted draft tokens.
    accepted: int
    # Acceptance rate of the first draft of a step.
    first: float | None
    # Mean of Σ min(target, draft), the best acceptance rate of one draft.
    possible: float | None


def counters_of(metrics: str) -> dict[tuple[str, int], float]:
    """Sum the counters over engines, by name and position; −1 for counters without position."""
    found: dict[tuple[str, int], float] = {}
    for name, labels, value in COUNTER.findall(metrics):
        position = POSITION.search(labels)
        key = (name, int(position[1]) if position else -1)
        try:
            found[key] = found.get(key, 0.0) + float(value)
        except ValueError:
            continue
    return found


def acceptance_between(
    before: str | None, after: str | None, possible: float | None
) -> Acceptance | None:
    """Count the drafts verified between two readings of metrics; None if metrics show no drafts."""
    if before is None or after is None:
        return None
    first, last = counters_of(before), counters_of(after)
    grown = {key: value - first.get(key, 0.0) for key, value in last.items()}
    steps, drafts, accepted = (
        grown.get((name, -1), 0.0) for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    at_first = grown.get(("accepted_tokens_per_pos", 0))
    if not (0 < steps < 1e15 and 0 <= accepted <= drafts < 1e15):
        return None
    rate = None if at_first is None else at_first / steps
    return Acceptance(int(steps), int(drafts), int(accepted), rate, possible)


def possible_acceptance(
    models: tuple[LanguageModel | None, LanguageModel | None],
    prompts: Sequence[Prompt],
    answers: Sequence[KeptAnswer],
    request: RequestParameters = NO_PARAMETERS,
) -> float | None:
    """Return the mean of Σ min(target, draft), the best acceptance of one draft, over all tokens.

    Return None unless both models are given.
    """
    target, draft = models
    if target is None or draft is None:
        return None
    sums: list[float] = []
    for kept in answers:
        prompt, parameters = prompts[kept.request.prompt], kept.request.parameters
        logits = (model_logits(each, prompt, kept.answer) for each in (target, draft))
        changed = (changed_logits(rows, prompt, kept.answer, request) for rows in logits)
        sums += np.minimum(*map(parameters, changed)).sum(axis=1).tolist()
    return math.fsum(sums) / len(sums) if sums else None
