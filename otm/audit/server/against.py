"""What the tokens of a server are compared with: its own lists, a model, or another server.

Each takes the answers to a block of requests (same prompt and setting) and returns the rows of the
evidence.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from otm._core.tensors import to_host
from otm.audit.server.client import TOKEN_ID, Completion, Prompt
from otm.audit.server.evidence import CLASSES, FAMILIES, Floats
from otm.audit.server.laws import (
    Law,
    bucket,
    law_from_list,
    law_from_logits,
    merged_classes,
)
from otm.decoding import SamplingParameters
from otm.errors import EndpointError, InvalidInputError
from otm.models import LanguageModel

SHOWN = 20
"""Likeliest tokens of a place that are counted one by one, for the report."""

OTHERS = "(others)"


@dataclass(eq=False)
class Row:
    """A token that counts: its place, d [F, C], and how often tokens came and should have."""

    place: int
    deviation: Floats
    seen: dict[str, float] = field(default_factory=dict)
    expected: dict[str, float] = field(default_factory=dict)


LawsOf: TypeAlias = Callable[[Prompt, Completion, SamplingParameters], list[Law | None]]
"""The distribution of each token of an answer."""


def own_lists(listed: int, *, processed: bool) -> LawsOf:
    """Compare with the log-probabilities that the server lists."""

    def laws(
        prompt: Prompt, answer: Completion, parameters: SamplingParameters
    ) -> list[Law | None]:
        return [
            law_from_list(entries, listed, parameters, processed=processed)
            for entries in answer.lists
        ]

    return laws


def of_model(model: LanguageModel) -> LawsOf:
    """Compare with a local model, which reads the same tokens."""

    def laws(
        prompt: Prompt, answer: Completion, parameters: SamplingParameters
    ) -> list[Law | None]:
        rows = rows_of(model, prompt, answer)
        return [law_from_logits(row, parameters) for row in rows]

    return laws


def ids_of(answer: Completion) -> list[int]:
    """Token ids of an answer."""
    ids = [token.removeprefix(TOKEN_ID) for token in answer.tokens]
    if not all(token.startswith(TOKEN_ID) for token in answer.tokens) or not all(
        text.isdecimal() and len(text) < 10 for text in ids
    ):
        raise EndpointError(
            "the server does not return token ids (`return_tokens_as_token_ids`), without which "
            "its tokens cannot be compared with a model's"
        )
    return [int(text) for text in ids]


def rows_of(model: LanguageModel, prompt: Prompt, answer: Completion) -> Floats:
    """Logits of a model at the tokens of an answer: [n, V]."""
    if not answer.tokens:
        return np.zeros((0, model.vocabulary))
    tokens = [*(int(token) for token in prompt), *ids_of(answer)[:-1]]
    if max(*tokens, *ids_of(answer)) >= model.vocabulary:
        raise InvalidInputError(
            f"token {max(tokens)} of a prompt or an answer is none of the model's, which has "
            f"{model.vocabulary}; give the model that the server runs"
        )
    scores = to_host(model.start(1).append(np.array([tokens], dtype=np.int64)))
    rows: Floats = np.asarray(scores[0, len(prompt) - 1 :], dtype=np.float64)
    if model.returns_probs:
        with np.errstate(divide="ignore"):
            rows = np.log(rows)
    return rows


def rows_from_laws(answer: Completion, laws: Sequence[Law | None]) -> list[Row]:
    """Compare each token of an answer with its distribution, where it counts."""
    rows = []
    for place, (token, law) in enumerate(zip(answer.tokens, laws, strict=True)):
        if law is None or law.of(token) is None:
            continue
        shown, likely = law.tokens[:SHOWN], law.probs[:SHOWN].tolist()
        expected = dict(zip(shown, likely, strict=True)) | {OTHERS: 1 - math.fsum(likely)}
        seen = {token if token in shown else OTHERS: 1.0}
        rows.append(Row(place, law.merged(token), seen, expected))
    return rows


def rows_from_pairs(
    answers: Sequence[Completion],
    others: Sequence[Completion],
    parameters: SamplingParameters,
    listed: int,
) -> list[Row]:
    """Pair the tokens of two servers after the same text, in the order in which they came.

    Only within a block: what was left over from before would be known when it is paired.
    """
    nodes: dict[tuple[str, ...], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    for which, texts in enumerate((others, answers)):
        for text in texts:
            for place, token in enumerate(text.tokens):
                node = text.tokens[:place]
                nodes[node][which].append(token)
                if node not in known:
                    law = law_from_list(text.lists[place], listed, parameters)
                    known[node] = () if law is None else law.tokens
    rows = []
    for node in sorted(nodes, key=lambda node: (len(node), node)):
        ranks = dict(zip(known[node], merged_classes(known[node])[0], strict=True))
        for theirs, own in zip(*nodes[node], strict=False):
            deviation = np.zeros((FAMILIES, CLASSES))
            for token, sign in (own, 1), (theirs, -1):
                deviation[0, ranks.get(token, CLASSES - 1)] += sign
                deviation[1, bucket(token)] += sign
            rows.append(Row(len(node), deviation, {own: 1.0}, {theirs: 1.0}))
    return rows
