"""Checks that are reported without a verdict: greedy texts, seeds, and accepted drafts.

Greedy texts may differ if two tokens are almost equally probable, and few servers promise that a
seed gives the same text in another batch.  Metrics include the drafts of all users of a server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from otm.audit.streams.server.answers import Completion, Prompt
from otm.audit.streams.server.client import Client
from otm.audit.streams.server.references import model_logits, token_ids
from otm.audit.streams.server.settings import as_text
from otm.decoding import SamplingParameters
from otm.errors import EndpointError
from otm.models import LanguageModel

SEED = 20_231_115
"""Seed of the texts that are requested twice."""

MOST_PROMPTS = 4
"""Number of prompts that are tried."""


COUNTER = re.compile(
    r"^vllm:spec_decode_num_(drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)"
    r"(?:_total)?(?:\{([^}\n]{0,500})\})? ([0-9.eE+]{1,30})(?: \d+)?$",
    re.MULTILINE,
)
"""Pattern of vLLM's counters in Prometheus format."""

POSITION = re.compile(r'position="(\d{1,4})"')


@dataclass(frozen=True)
class Agreement:
    """Number of texts that agree as expected; it does not affect the verdict."""

    same: int
    texts: int
    # Description of the first difference.
    first: str = ""


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
    models: Sequence[LanguageModel],
    prompt: Prompt,
    answer: Completion,
    parameters: SamplingParameters,
) -> list[float]:
    """Compute Σ min(target, draft), the best acceptance of one draft, at each token."""
    target, draft = (parameters(model_logits(model, prompt, answer)) for model in models)
    sums: list[float] = np.minimum(target, draft).sum(axis=1).tolist()
    return sums


def compare_greedy_texts(
    clients: Sequence[Client], model: LanguageModel | None, prompts: Sequence[Prompt], tokens: int
) -> Agreement | None:
    """Compare greedy texts with the second server, the model or the server's own lists."""
    parameters = SamplingParameters(temperature=0)

    def differs(prompt: Prompt) -> int | None:
        answer = clients[0].sample(prompt, parameters, tokens)
        if len(clients) > 1:
            return _first_difference(answer, clients[1].sample(prompt, parameters, tokens))
        if model is not None:
            most_probable = model_logits(model, prompt, answer).argmax(axis=1)
            wrong = np.flatnonzero(most_probable != np.array(token_ids(answer)))
            return int(wrong[0]) if wrong.size else None
        pairs = enumerate(zip(answer.tokens, answer.lists, strict=True))
        below = (i for i, (x, at) in pairs if at.get(x, -np.inf) < max(at.values(), default=0))
        return next(below, None)

    return _agreement(prompts, differs)


def repeat_seeds(client: Client, prompts: Sequence[Prompt], tokens: int) -> Agreement | None:
    """Request each text twice with the same seed, and compare the two answers."""
    parameters = SamplingParameters()

    def differs(prompt: Prompt) -> int | None:
        texts = [client.sample(prompt, parameters, tokens, SEED) for _ in range(2)]
        return _first_difference(*texts)

    return _agreement(prompts, differs)


def _first_difference(one: Completion, other: Completion) -> int | None:
    """Return the first position where two texts differ, or None if they are equal."""
    pairs = enumerate(zip_longest(one.tokens, other.tokens))
    return next((place for place, (x, y) in pairs if x != y), None)


def _agreement(
    prompts: Sequence[Prompt], differs: Callable[[Prompt], int | None]
) -> Agreement | None:
    tried = prompts[:MOST_PROMPTS]
    try:
        places = [differs(prompt) for prompt in tried]
    except EndpointError:
        # A server may reject a seed or temperature 0.
        return None
    wrong = [
        (prompt, place) for prompt, place in zip(tried, places, strict=True) if place is not None
    ]
    first = f"after {as_text(wrong[0][0])} token {wrong[0][1]} differs" if wrong else ""
    return Agreement(len(tried) - len(wrong), len(tried), first)
