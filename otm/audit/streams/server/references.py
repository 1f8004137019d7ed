"""Reference of a server's tokens: the server's own lists, a model, or another server.

The answers to a block of requests, all with one prompt and one setting, are converted to counted
tokens, and each token has its deviation from the reference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from otm._core.listed_tokens import IMPOSSIBLE, TOKEN_ID, is_unclear
from otm._core.tensors import to_host
from otm.audit.streams.e_process import Floats
from otm.audit.streams.server.answers import Completion, Prompt
from otm.audit.streams.server.group_evidence import CLASS_COUNT, FAMILY_COUNT
from otm.audit.streams.server.lists import probs_from_list, probs_from_logits
from otm.audit.streams.server.suspects import SampledToken
from otm.audit.streams.server.token_probs import TokenProbs, bucket, merged_classes
from otm.decoding import SamplingParameters
from otm.errors import EndpointError, InvalidInputError
from otm.models import LanguageModel

COUNTED_SINGLY = 20
"""Number of the most probable tokens of a position that the report counts one by one."""

OTHERS = "(others)"

FEWEST_NUMBERS = 20
"""Smallest number of log-probabilities that determines the rounding."""

MOST_DECIMALS = 4
"""Largest number of decimals of rounded numbers; numbers with more decimals are not rounded."""


@dataclass(eq=False)
class CountedToken:
    """A token that counts, and its deviation from a distribution or another token."""

    place: int
    # Deviation d [F, C].
    deviation: Floats
    # TV between greedy decoding and the distribution of the token.
    greedy_distance: float
    token: str
    # For pairs, the token of the other server.
    other: str = ""
    # None for pairs.
    sampled: SampledToken | None = None


ProbsOf: TypeAlias = Callable[[Prompt, Completion, SamplingParameters], list[TokenProbs | None]]
"""Function that returns the distribution of each token of an answer."""

MOST_KEPT_LISTS = 2**11
"""Number of lists whose distributions are cached for equal lists of other answers."""


class OwnLists:
    """Distributions from the lists of the server, and the rounding of these lists."""

    def __init__(self, listed: int, *, processed: bool, chat: bool) -> None:
        self.listed, self._processed, self._chat = listed, processed, chat
        self._cache: dict[Hashable, TokenProbs | None] = {}
        # Decimals of all numbers so far; None if the numbers are not rounded.
        self.decimals: int | None = 0
        self._numbers = 0

    def __call__(
        self, prompt: Prompt, answer: Completion, parameters: SamplingParameters
    ) -> list[TokenProbs | None]:
        """Return the distribution of each token of an answer; None if the token does not count."""
        if self.decimals is not None:
            self._count_decimals(answer)
        return [
            self._probs(entries, token, parameters)
            for token, entries in zip(answer.tokens, answer.lists, strict=True)
        ]

    @property
    def rounded_to(self) -> int | None:
        """Decimals of rounded log-probabilities; None if they are not rounded."""
        return self.decimals if self._numbers >= FEWEST_NUMBERS else None

    @property
    def error(self) -> float:
        """Largest rounding error of a log-probability, from the decimals of all earlier ones."""
        return 0.0 if self.decimals is None else 0.5 * 10.0**-self.decimals

    def _probs(
        self, entries: dict[str, float], token: str, parameters: SamplingParameters
    ) -> TokenProbs | None:
        # The sampled string decides whether a position counts.
        key = (frozenset(entries.items()), parameters, token.startswith(TOKEN_ID) or token)
        if key not in self._cache:
            if len(self._cache) >= MOST_KEPT_LISTS:
                self._cache.clear()
            self._cache[key] = probs_from_list(
                entries,
                self.listed,
                parameters,
                token,
                processed=self._processed,
                chat=self._chat,
                error=self.error,
            )
        return self._cache[key]

    def _count_decimals(self, answer: Completion) -> None:
        """Find the number of decimals to which all listed numbers so far are rounded."""
        numbers = np.array(
            [
                log
                for at in answer.lists
                for token, log in at.items()
                # The number of an incomplete character may be a sum over several tokens.
                if IMPOSSIBLE < log < 0 and not is_unclear(token)
            ]
        )
        self._numbers += numbers.size
        # Tolerance for floats in single precision.
        close = 1e-6 * np.maximum(np.abs(numbers), 1)
        while self.decimals is not None:
            if (np.abs(numbers - numbers.round(self.decimals)) <= close).all():
                return
            self.decimals = self.decimals + 1 if self.decimals < MOST_DECIMALS else None


def probs_from_model(model: LanguageModel) -> ProbsOf:
    """Return a reference that computes distributions by a local model on the same tokens."""

    def probs(
        prompt: Prompt, answer: Completion, parameters: SamplingParameters
    ) -> list[TokenProbs | None]:
        return [probs_from_logits(row, parameters) for row in model_logits(model, prompt, answer)]

    return probs


def token_ids(answer: Completion) -> list[int]:
    """Parse the token ids of an answer."""
    ids = [token.removeprefix(TOKEN_ID) for token in answer.tokens]
    if not all(token.startswith(TOKEN_ID) for token in answer.tokens) or not all(
        text.isdecimal() and len(text) < 10 for text in ids
    ):
        raise EndpointError(
            "the server does not return token ids (`return_tokens_as_token_ids`), which a "
            "comparison with a model needs"
        )
    return [int(text) for text in ids]


def model_logits(model: LanguageModel, prompt: Prompt, answer: Completion) -> Floats:
    """Compute the logits of a model at the tokens of an answer: [n, V]."""
    if not answer.tokens:
        return np.zeros((0, model.vocabulary))
    tokens = [*(int(token) for token in prompt), *token_ids(answer)[:-1]]
    if max(*tokens, *token_ids(answer)) >= model.vocabulary:
        raise InvalidInputError(
            f"token {max(tokens)} of a prompt or an answer is unknown to the model, which has "
            f"{model.vocabulary} tokens; give the model that the server runs"
        )
    scores = to_host(model.start(1).append(np.array([tokens], dtype=np.int64)))
    rows: Floats = np.asarray(scores[0, len(prompt) - 1 :], dtype=np.float64)
    if model.returns_probs:
        with np.errstate(divide="ignore"):
            rows = np.log(rows)
    return rows


def count_tokens(prompt: Prompt, answer: Completion) -> list[CountedToken]:
    """Compare each counted token of an answer with its distribution."""
    counted = []
    for place, (token, row) in enumerate(zip(answer.tokens, answer.rows, strict=True)):
        if row is None or row.of(token) is None:
            continue
        sampled = SampledToken(row, token, prompt, answer.tokens[:place])
        shown = token if row.places.get(token, COUNTED_SINGLY) < COUNTED_SINGLY else OTHERS
        counted.append(
            CountedToken(place, row.deviation(token), row.greedy_distance, shown, sampled=sampled)
        )
    return counted


def _ranked(
    entries: dict[str, float], listed: int, parameters: SamplingParameters, token: str
) -> tuple[str, ...]:
    """Rank the tokens of a list to form classes; return no ranks for an unusable list."""
    try:
        row = probs_from_list(entries, listed, parameters, token)
    except EndpointError:
        return ()
    return () if row is None else row.tokens


def count_pairs(
    answers: Sequence[Completion],
    others: Sequence[Completion],
    parameters: SamplingParameters,
    listed: int,
) -> list[CountedToken]:
    """Pair the tokens of two servers after the same text, in order of arrival.

    Pairs never cross blocks: a token that an earlier block left unpaired is known already, and a
    pair with this token would bias the test.
    """
    nodes: dict[tuple[str, ...], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    for which, texts in enumerate((others, answers)):
        for text in texts:
            for place, token in enumerate(text.tokens):
                node = text.tokens[:place]
                nodes[node][which].append(token)
                if node not in known:
                    known[node] = _ranked(text.lists[place], listed, parameters, token)
    counted = []
    for node in sorted(nodes, key=lambda node: (len(node), node)):
        ranks = dict(zip(known[node], merged_classes(known[node])[0], strict=True))
        for theirs, own in zip(*nodes[node], strict=False):
            deviation = np.zeros((FAMILY_COUNT, CLASS_COUNT))
            for token, sign in (own, 1), (theirs, -1):
                deviation[0, ranks.get(token, CLASS_COUNT - 1)] += sign
                deviation[1, bucket(token)] += sign
            # Two tokens of a distribution differ at most twice as often as a token and the greedy
            # token.
            apart = (own != theirs) / 2
            counted.append(CountedToken(len(node), deviation, apart, own, theirs))
    return counted
