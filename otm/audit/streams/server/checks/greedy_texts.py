"""Compare greedy texts of a server with a reference, and decide whether rounding explains them.

At the first different token, lists after the same text give the margin and the rounding, as in
`otm.audit.compare_greedy`.  These lists come from the request alone, beside other requests, and
with the text before the token as a prompt.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from otm._core.listed_tokens import IMPOSSIBLE
from otm.audit.greedy import (
    EXPLAINED,
    NOT_EXPLAINED,
    compare_greedy,
    margin_and_rounding,
    verdict_of,
)
from otm.audit.report import UNDECIDED
from otm.audit.streams.server.answers import MARGIN, Completion, Encoded, Prompt
from otm.audit.streams.server.blocks import GREEDY
from otm.audit.streams.server.checks.list_checks import unit_of
from otm.audit.streams.server.checks.prompt_reader import PromptReader
from otm.audit.streams.server.distributions.lists import CHANGED_MARGIN
from otm.audit.streams.server.distributions.references import (
    changed_logits,
    listed_changes,
    model_logits,
    token_ids,
)
from otm.audit.streams.server.request_parameters import NO_PARAMETERS, RequestParameters
from otm.audit.streams.server.settings import as_text
from otm.audit.streams.server.simultaneous import ask_in_threads
from otm.decoding import SamplingParameters
from otm.errors import EndpointError
from otm.models import LanguageModel

MOST_PROMPTS = 4
"""Number of prompts that are tried."""

BESIDE = 7
"""Number of other requests beside a repeated request."""

MOST_UNEVEN = 1.0
"""Rounding above which the lists must be wrong, so that they explain no difference."""


@dataclass(frozen=True)
class GreedyTexts:
    """Greedy texts and the reasons for their differences; they do not affect the verdict."""

    same: int
    texts: int
    # Description of the first difference, preferably of one that rounding does not explain.
    first: str = ""
    # Numbers of differences that rounding explains, and does not explain.
    explained: int = 0
    not_explained: int = 0

    def __str__(self) -> str:
        """Write the numbers on one line."""
        undecided = self.texts - self.same - self.explained - self.not_explained
        counts = (
            (self.explained, "explained by rounding"),
            (self.not_explained, "not explained by rounding"),
            (undecided, "undecided"),
        )
        parts = [f"{number} {what}" for number, what in counts if number]
        first = f"; {self.first}" if self.first else ""
        return ", ".join([f"{self.same} of {self.texts} the same", *parts]) + first


@dataclass(frozen=True)
class _Difference:
    """The first different token, with the verdict about it."""

    place: int
    verdict: str = UNDECIDED
    detail: str = ""


def first_difference(one: Completion, other: Completion) -> int | None:
    """Return the first position where two texts differ, or None if they are equal."""
    pairs = enumerate(zip_longest(one.tokens, other.tokens))
    return next((place for place, (x, y) in pairs if x != y), None)


def compare_greedy_texts(
    readers: Sequence[PromptReader],
    model: LanguageModel | None,
    tokens: int,
    request: RequestParameters = NO_PARAMETERS,
) -> GreedyTexts | None:
    """Compare greedy texts with the second server, the model or the server's own lists.

    `request` changes the logits of the model or of the lists; differences are then undecided.
    Return None if requests leave out the temperature, or the server rejects temperature 0.
    """
    prompts = readers[0].prompts
    if "temperature" in readers[0].client.access.leave_out:
        return None

    def compare(number: int) -> _Difference | None:
        answer = readers[0].client.sample(prompts[number], GREEDY, tokens)
        if model is not None:
            return _compare_with_model(model, prompts[number], answer, request)
        answers = [answer]
        if len(readers) > 1:
            answers.append(readers[1].client.sample(prompts[number], GREEDY, tokens))
        different = _from_server(*answers) if len(readers) > 1 else _from_lists(answer, request)
        if different is None:
            return None
        place, pair = different
        if pair is None or request.changes_logits:
            return _Difference(place)
        return _explain(readers, number, answers, place, pair)

    try:
        found = [compare(number) for number in range(min(len(prompts), MOST_PROMPTS))]
    except EndpointError:
        return None
    wrong = [(number, each) for number, each in enumerate(found) if each is not None]
    wrong.sort(key=lambda pair: pair[1].verdict != NOT_EXPLAINED)
    first = ""
    if wrong:
        number, worst = wrong[0]
        first = f"after {as_text(prompts[number])} token {worst.place} differs{worst.detail}"
    verdicts = [each.verdict for _, each in wrong]
    return GreedyTexts(
        len(found) - len(wrong),
        len(found),
        first,
        verdicts.count(EXPLAINED),
        verdicts.count(NOT_EXPLAINED),
    )


def _from_server(one: Completion, other: Completion) -> tuple[int, tuple[str, str] | None] | None:
    """Return the place of the first difference of two texts, and its tokens if both have one."""
    place = first_difference(one, other)
    if place is None:
        return None
    both = place < min(len(one.tokens), len(other.tokens))
    return place, (one.tokens[place], other.tokens[place]) if both else None


def _from_lists(
    answer: Completion, request: RequestParameters
) -> tuple[int, tuple[str, str] | None] | None:
    """Return the place of the first token that is not its list's most probable, and both."""
    changes = listed_changes(answer, request)
    places = enumerate(zip(answer.tokens, answer.lists, changes, strict=True))
    for place, (token, at, change) in places:
        entries = {name: log + change.get(name, 0.0) for name, log in at.items()}
        if entries and entries[token] < max(entries.values()) - CHANGED_MARGIN * bool(change):
            return place, (token, max(entries, key=entries.__getitem__))
    return None


def _compare_with_model(
    model: LanguageModel, prompt: Prompt, answer: Completion, request: RequestParameters
) -> _Difference | None:
    """Compare a greedy text with the most probable tokens of a local model."""
    logits = changed_logits(model_logits(model, prompt, answer), prompt, answer, request)
    most_probable = logits.argmax(axis=1)
    own = token_ids(answer)
    wrong = np.flatnonzero(most_probable != np.array(own))
    if not wrong.size:
        return None
    place = int(wrong[0])
    if request.changes_logits:
        return _Difference(place)
    other = [*own[:place], int(most_probable[place])]
    start = [int(token) for token in prompt]
    found = compare_greedy(model, start, other, own[: place + 1])
    detail = f": margin {found.margin:.2g}, rounding {found.rounding:.2g}"
    return _Difference(place, found.verdict, detail)


def _explain(
    readers: Sequence[PromptReader],
    number: int,
    answers: Sequence[Completion],
    place: int,
    tokens: tuple[str, str],
) -> _Difference:
    """Compare the margin of two tokens with the rounding of repeated requests."""
    before = answers[0].tokens[:place]
    margins, rounding, passes = [], MARGIN, 0
    for reader, answer in zip(readers, answers, strict=True):
        repeated = [answer, *_repeat(reader, number, place + 1)]
        lists = [
            each.lists[place]
            for each in repeated
            if len(each.tokens) > place and each.tokens[:place] == before and each.lists[place]
        ]
        text = reader.text(number, before)
        if isinstance(text, tuple) and not isinstance(reader.prompts[number], Encoded):
            lists += reader.client.sample(text, GREEDY, 1).lists[:1]
        lists = [each for each in lists if each]
        if not lists:
            continue
        margin, apart = margin_and_rounding(*_as_logits(lists, tokens))
        margins.append(margin)
        rounding = max(rounding, apart, *map(unit_of, lists))
        passes += len(lists)
    if not margins:
        return _Difference(place)
    margin = min(margins)
    verdict = UNDECIDED if rounding > MOST_UNEVEN else verdict_of(margin, rounding)
    detail = f": margin {margin:.2g}, rounding {rounding:.2g} in {passes} requests"
    return _Difference(place, verdict, detail)


def _repeat(reader: PromptReader, number: int, tokens: int) -> list[Completion]:
    """Send a greedy request again alone, and beside other requests."""
    sample, prompts = reader.client.sample, reader.prompts
    ask = functools.partial(sample, prompts[number], GREEDY, tokens)
    asks = [ask] * (BESIDE + 1)
    for i in range(1, BESIDE + 1):
        beside = GREEDY if i % 2 else SamplingParameters()
        asks[i] = functools.partial(
            sample, prompts[(number + i) % len(prompts)], beside, tokens + i
        )
    # The repeated request is neither the first nor the last.
    together, error = ask_in_threads([*asks[1:4], ask, *asks[4:]])
    if error is not None:
        raise error
    return [ask(), together[3]]


def _as_logits(
    lists: Sequence[Mapping[str, float]], tokens: tuple[str, str]
) -> tuple[np.ndarray, list[int]]:
    """Return the common log-probabilities [W, n], and the numbers of two tokens there.

    A token that is not on a list is at most as probable as the lowest of the list.
    """
    common = set.intersection(*({*entries} for entries in lists)) - {*tokens}
    names = [*tokens, *sorted(common, key=lambda token: -lists[0][token])]
    rows = [[entries.get(name, min(entries.values())) for name in names] for entries in lists]
    logits = np.array(rows)
    logits[logits <= IMPOSSIBLE] = -np.inf
    return logits, [0, 1]
