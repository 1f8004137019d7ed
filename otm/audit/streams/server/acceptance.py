"""How many drafts a server accepts, by its metrics, beside what two models allow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from otm.audit.streams.server.answers import Completion, Prompt
from otm.audit.streams.server.references import rows_of
from otm.decoding import SamplingParameters
from otm.models import LanguageModel

COUNTER = re.compile(
    r"^vllm:spec_decode_num_(drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)"
    r"(?:_total)?(?:\{([^}\n]{0,500})\})? ([0-9.eE+]{1,30})(?: \d+)?$",
    re.MULTILINE,
)
"""Prometheus lines of vLLM's counters."""

POSITION = re.compile(r'position="(\d{1,4})"')


@dataclass(frozen=True)
class Acceptance:
    """Drafts that a server verified meanwhile, those of other users among them."""

    steps: int  # verifications of a chain of drafts
    drafts: int  # draft tokens
    accepted: int  # accepted of those
    first: float | None  # acceptance rate of the first draft of a step
    possible: float | None  # mean of Σ min(target, draft), the best for one draft


def counters_of(metrics: str) -> dict[tuple[str, int], float]:
    """Sum the counters over engines: by name and position, −1 for those that have none."""
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
    """Say what was verified between two readings of the metrics; None if nothing was."""
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
    models: Sequence[LanguageModel],
    prompt: Prompt,
    answer: Completion,
    parameters: SamplingParameters,
) -> list[float]:
    """Σ min(target, draft) at each token of an answer: what one draft can reach at best."""
    target, draft = (parameters(rows_of(model, prompt, answer)) for model in models)
    sums: list[float] = np.minimum(target, draft).sum(axis=1).tolist()
    return sums
