"""Greedy texts and repeated seeds: reported, without a verdict.

Greedy texts may differ where two tokens are nearly as likely, and few servers promise that a seed
gives the same text in another batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from otm.audit.streams.server.answers import Completion, Prompt
from otm.audit.streams.server.client import Client
from otm.audit.streams.server.references import ids_of, rows_of
from otm.audit.streams.server.report import Agreement
from otm.audit.streams.server.settings import as_text
from otm.decoding import SamplingParameters
from otm.errors import EndpointError
from otm.models import LanguageModel

SEED = 20_231_115
"""Of the texts that are asked for twice."""

MOST = 4
"""Prompts that are tried."""


def greedy(
    clients: Sequence[Client], model: LanguageModel | None, prompts: Sequence[Prompt], tokens: int
) -> Agreement | None:
    """Compare greedy texts with those of the second server, the model or the server's own lists."""
    parameters = SamplingParameters(temperature=0)

    def differs(prompt: Prompt) -> int | None:
        answer = clients[0].sample(prompt, parameters, tokens)
        if len(clients) > 1:
            return _first(answer, clients[1].sample(prompt, parameters, tokens))
        if model is not None:
            likeliest = rows_of(model, prompt, answer).argmax(axis=1)
            wrong = np.flatnonzero(likeliest != np.array(ids_of(answer)))
            return int(wrong[0]) if wrong.size else None
        pairs = enumerate(zip(answer.tokens, answer.lists, strict=True))
        below = (i for i, (x, at) in pairs if at.get(x, -np.inf) < max(at.values(), default=0))
        return next(below, None)

    return _agreement(prompts, differs)


def seeds(client: Client, prompts: Sequence[Prompt], tokens: int) -> Agreement | None:
    """Ask for the same texts twice with the same seed."""
    parameters = SamplingParameters()

    def differs(prompt: Prompt) -> int | None:
        texts = [client.sample(prompt, parameters, tokens, SEED) for _ in range(2)]
        return _first(*texts)

    return _agreement(prompts, differs)


def _first(one: Completion, other: Completion) -> int | None:
    """Place at which two texts differ first."""
    if one.tokens == other.tokens:
        return None
    pairs = enumerate(zip(one.tokens, other.tokens, strict=False))
    shorter = min(len(one.tokens), len(other.tokens))
    return next((place for place, (x, y) in pairs if x != y), shorter)


def _agreement(
    prompts: Sequence[Prompt], differs: Callable[[Prompt], int | None]
) -> Agreement | None:
    tried = prompts[:MOST]
    try:
        places = [differs(prompt) for prompt in tried]
    except EndpointError:  # a server need not take a seed, nor temperature 0
        return None
    wrong = [
        (prompt, place) for prompt, place in zip(tried, places, strict=True) if place is not None
    ]
    first = f"after {as_text(wrong[0][0])} token {wrong[0][1]} differs" if wrong else ""
    return Agreement(len(tried) - len(wrong), len(tried), first)
