"""Reference of a server's tokens: the server's own lists, a model, or another server.

The answers to a block of requests, all with one prompt and one setting, are converted to counted
tokens, and each token has its deviation from the reference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from otm._core.listed_tokens import IMPOSSIBLE, TOKEN_ID, is_unclear, token_name
from otm._core.tensors import to_host
from otm.audit.streams.e_process import Floats
from otm.audit.streams.server.answers import Completion, Prompt
from otm.audit.streams.server.distributions.lists import probs_from_list, probs_from_logits
from otm.audit.streams.server.distributions.token_probs import TokenProbs, bucket, merged_classes
from otm.audit.streams.server.evidence.group_evidence import CLASS_COUNT, FAMILY_COUNT
from otm.audit.streams.server.evidence.suspects import SampledToken
from otm.audit.streams.server.request_parameters import (
    LARGEST_ID,
    NO_PARAMETERS,
    RequestParameters,
    logit_changes,
)
from otm.decoding import SamplingParameters
from otm.errors import EndpointError, InvalidInputError
from otm.models import LanguageModel

COUNTED_SINGLY = 20
"""Number of the most probable tokens of a position that the report counts one by one."""

OTHERS = "(others)"

MOST_DIGITS = len(str(LARGEST_ID))
"""Largest number of digits of a token id."""

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
    # Number of the prompt.
    prompt: int = 0


class ProbsOf(Protocol):
    """The distribution of each token of an answer; None for a token that does not count."""

    def __call__(
        self,
        prompt: Prompt,
        answer: Completion,
        parameters: SamplingParameters,
        request: RequestParameters | None = None,
        lag: int = 0,
    ) -> list[TokenProbs | None]:
        """Return the distributions.

        By default `request` has the request parameters of the audit.  Penalties do not see the last
        `lag` tokens before each token.
        """
        ...


MOST_KEPT_LISTS = 2**11
"""Number of lists whose distributions are cached for equal lists of other answers."""


class OwnLists:
    """Distributions from the lists of the server, and the rounding of these lists."""

    def __init__(
        self,
        listed: int,
        *,
        processed: bool,
        chat: bool,
        request: RequestParameters = NO_PARAMETERS,
    ) -> None:
        self.listed, self.processed, self._chat = listed, processed, chat
        self.request = request
        self._cache: dict[Hashable, TokenProbs | None] = {}
        # Decimals of all numbers so far; None if the numbers are not rounded.
        self.decimals: int | None = 0
        self._numbers = 0

    def __call__(
        self,
        prompt: Prompt,
        answer: Completion,
        parameters: SamplingParameters,
        request: RequestParameters | None = None,
        lag: int = 0,
    ) -> list[TokenProbs | None]:
        """Return the distribution of each token of an answer; None if the token does not count."""
        if self.decimals is not None:
            self._count_decimals(answer)
        request = self.request if request is None else request
        # Processed lists contain the changes already.
        changes = listed_changes(answer, NO_PARAMETERS if self.processed else request, lag)
        places = zip(answer.tokens, answer.lists, changes, strict=True)
        return [self._probs(at, token, parameters, change) for token, at, change in places]

    @property
    def rounded_to(self) -> int | None:
        """Decimals of rounded log-probabilities; None if they are not rounded."""
        return self.decimals if self._numbers >= FEWEST_NUMBERS else None

    @property
    def error(self) -> float:
        """Largest rounding error of a log-probability, from the decimals of all earlier ones."""
        return 0.0 if self.decimals is None else 0.5 * 10.0**-self.decimals

    def _probs(
        self,
        entries: dict[str, float],
        token: str,
        parameters: SamplingParameters,
        changes: dict[str, float],
    ) -> TokenProbs | None:
        # The sampled string decides whether a position counts.
        by_id = token.startswith(TOKEN_ID) or token
        key = (frozenset(entries.items()), parameters, by_id, frozenset(changes.items()))
        if key not in self._cache:
            if len(self._cache) >= MOST_KEPT_LISTS:
                self._cache.clear()
            self._cache[key] = probs_from_list(
                entries,
                self.listed,
                parameters,
                token,
                processed=self.processed,
                chat=self._chat,
                error=self.error,
                changes=changes,
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


def listed_changes(
    answer: Completion, request: RequestParameters, lag: int = 0
) -> list[dict[str, float]]:
    """Return the numbers that the server adds to the logits of tokens, at each token."""
    if not request.changes_logits:
        return [{}] * len(answer.tokens)
    ids = token_ids(answer)
    outputs = (ids[: max(place - lag, 0)] for place in range(len(ids)))
    return [
        {token_name(token): value for token, value in logit_changes(request, output).items()}
        for output in outputs
    ]


class ModelProbs:
    """Distributions that a local model computes after the same tokens."""

    def __init__(self, model: LanguageModel, request: RequestParameters = NO_PARAMETERS) -> None:
        self.model, self.request = model, request
        # The logits of the last answer, which bets on several mistakes need.
        self._last: tuple[Hashable, Floats] | None = None

    def __call__(
        self,
        prompt: Prompt,
        answer: Completion,
        parameters: SamplingParameters,
        request: RequestParameters | None = None,
        lag: int = 0,
    ) -> list[TokenProbs | None]:
        """Return the distribution of each token of an answer."""
        key = prompt, answer.tokens
        if self._last is None or self._last[0] != key:
            self._last = key, model_logits(self.model, prompt, answer)
        raw = self._last[1]
        rows = changed_logits(
            raw, prompt, answer, self.request if request is None else request, lag
        )
        pairs = zip(rows, raw, strict=True)
        return [
            probs_from_logits(row, parameters, np.flatnonzero(row != before).tolist())
            for row, before in pairs
        ]


def changed_logits(
    rows: Floats, prompt: Prompt, answer: Completion, request: RequestParameters, lag: int = 0
) -> Floats:
    """Apply the request parameters to the logits of a model at the tokens of an answer: [n, V]."""
    if not request.changes_logits:
        return rows
    ids = [*(int(token) for token in prompt), *token_ids(answer)]
    ends = (max(len(prompt), len(prompt) + place - lag) for place in range(len(rows)))
    changed = [
        request.processor(ids[:end], row, len(prompt)) for end, row in zip(ends, rows, strict=True)
    ]
    return np.array(changed).reshape(rows.shape)


def token_ids(answer: Completion) -> list[int]:
    """Return the token ids of an answer."""
    return list(_parsed_ids(answer.tokens))


@lru_cache(maxsize=2**8)
def _parsed_ids(tokens: tuple[str, ...]) -> tuple[int, ...]:
    """Parse token ids; several parts of an audit need those of the same answers."""
    ids = [token.removeprefix(TOKEN_ID) for token in tokens]
    if not all(token.startswith(TOKEN_ID) for token in tokens) or not all(
        text.isdecimal() and len(text) <= MOST_DIGITS for text in ids
    ):
        raise EndpointError(
            "the server does not return token ids (`return_tokens_as_token_ids`), which "
            "penalties, biases, end tokens and a comparison with a model need"
        )
    return tuple(map(int, ids))


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


def count_tokens(prompt: Prompt, answer: Completion, number: int = 0) -> list[CountedToken]:
    """Compare each counted token of an answer to prompt `number` with its distribution."""
    counted = []
    for place, (token, row) in enumerate(zip(answer.tokens, answer.rows, strict=True)):
        if row is None or row.of(token) is None:
            continue
        sampled = SampledToken(row, token, prompt, answer, place)
        shown = token if row.places.get(token, COUNTED_SINGLY) < COUNTED_SINGLY else OTHERS
        counted.append(
            CountedToken(
                place,
                row.deviation(token),
                row.greedy_distance,
                shown,
                sampled=sampled,
                prompt=number,
            )
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
    *,
    dropped: Collection[str] = (),
) -> list[CountedToken]:
    """Pair the tokens of two servers after the same text, in order of arrival.

    Tokens in `dropped` have no partner, because one of the servers may omit them.

    Pairs never cross blocks: a token that an earlier block left unpaired is known already, and a
    pair with this token would bias the test.
    """
    nodes: dict[tuple[str, ...], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    for which, texts in enumerate((others, answers)):
        for text in texts:
            for place, token in enumerate(text.tokens):
                node = text.tokens[:place]
                if token in dropped:
                    continue
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
