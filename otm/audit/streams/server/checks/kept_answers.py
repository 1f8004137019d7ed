"""A sample of answers for checks of their lists, and the difference between two lists."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from otm._core.listed_tokens import is_unclear
from otm.audit.streams.server.answers import Completion
from otm.audit.streams.server.blocks import Request
from otm.audit.streams.server.distributions.lists import LARGEST_EXCESS

PROBABLE = -5.0
"""Least log-probability of a token that is compared between two lists."""

MOST_ANSWERS = 1_024
"""Number of answers that are kept for the checks."""


@dataclass(frozen=True, eq=False)
class KeptAnswer:
    """An answer of a server, with its request."""

    server: int
    request: Request
    answer: Completion

    def text(self, place: int) -> Hashable:
        """Return the text before a token, as a key."""
        return self.request.prompt, self.answer.tokens[:place]


@dataclass(frozen=True)
class ListFormat:
    """The form of a server's lists."""

    # Requested length.
    listed: int
    chat: bool = False
    # Whether the lists are after temperature and truncation.
    processed: bool = False
    # Largest rounding error of a value.
    error: float = 0.0

    def key(self, kept: KeptAnswer, place: int) -> Hashable:
        """Return the text before a token, and the parameters if lists depend on them."""
        parameters = kept.request.parameters if self.processed else None
        return kept.text(place), parameters


class AnswerSample:
    """Evenly spaced answers of an audit, at most `MOST_ANSWERS`."""

    def __init__(self) -> None:
        self.answers: list[KeptAnswer] = []
        self._stride, self._number = 1, 0

    def add(self, server: int, request: Request, answer: Completion) -> None:
        """Keep every answer at first, then every second one, and so on."""
        if self._number % self._stride == 0:
            self.answers.append(KeptAnswer(server, request, answer))
        self._number += 1
        if len(self.answers) > MOST_ANSWERS:
            self.answers, self._stride = self.answers[::2], 2 * self._stride

    def of(self, server: int) -> list[KeptAnswer]:
        """Return the answers of one server."""
        return [each for each in self.answers if each.server == server]


@dataclass(frozen=True)
class Difference:
    """The largest difference between two lists after the same text."""

    size: float = 0.0
    token: str = ""
    first: float = 0.0
    second: float = 0.0


def difference(first: Mapping[str, float], second: Mapping[str, float], listed: int) -> Difference:
    """Compare the probable tokens of two lists.

    A token that is missing from a list of more than N is at most as probable as its N-th token.
    """
    lowest = _lowest(first, listed), _lowest(second, listed)
    worst = Difference()
    for token in first.keys() | second.keys():
        one, two = first.get(token, lowest[0]), second.get(token, lowest[1])
        size = abs(one - two)
        if size <= worst.size or max(one, two) < PROBABLE or is_unclear(token):
            continue
        # The true value of a missing token may be lower, so only a higher value is a difference.
        if (token in first and token in second) or (one < two) == (token not in first):
            worst = Difference(size, token, one, two)
    return worst


def _lowest(entries: Mapping[str, float], listed: int) -> float:
    """Return the largest value that an unlisted token can have.

    In a list of N tokens, the sampled token may have replaced the N-th most probable one.
    """
    values = sorted(entries.values())
    if len(values) > listed:
        return values[-listed]
    if len(values) == listed:
        return values[1] if listed > 1 else 0.0
    return math.log(max(1 - math.fsum(map(math.exp, values)), LARGEST_EXCESS))


@dataclass(frozen=True, eq=False)
class Pair:
    """A list of an answer, and another list after the same text."""

    kept: KeptAnswer
    place: int
    other: Mapping[str, float]
    # Temperature of the request of the other list.
    temperature: float = 1.0
    # Other lists of the whole text, and the number of `other` among them.
    lists: Sequence[Mapping[str, float]] = ()
    number: int = 0
    # List of the draft model.
    draft: Mapping[str, float] | None = None

    @property
    def entries(self) -> Mapping[str, float]:
        """The list of the answer."""
        return self.kept.answer.lists[self.place]
