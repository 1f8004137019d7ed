"""Check the log-probabilities that a server returns, apart from its tokens.

A wrong log-probability is not a wrong sample, so these checks have verdicts of their own.  Two
lists after the same text are compared by the logarithms of their probable tokens.  The allowed
difference is four times the rounding.  The rounding is the largest of these numbers: 1/16, one unit
of the logits, the decimals of the lists, the median difference, and the difference between
repeated lists of the same prompt; the last two are at most 1/4.  Logits in bfloat16 have units of
1/8 if they are between 16 and 32.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from otm._core.display.text import shown
from otm._core.listed_tokens import IMPOSSIBLE, TOKEN_ID, is_unclear
from otm.audit.greedy import CERTAIN
from otm.audit.streams.server.answers import MARGIN, Completion
from otm.audit.streams.server.checks.kept_answers import KeptAnswer, ListFormat, Pair, difference
from otm.audit.streams.server.checks.list_causes import find_cause
from otm.audit.streams.server.distributions.lists import LARGEST_EXCESS

CONSISTENT = "consistent"
NOT_CONSISTENT = "not consistent"
NOT_CHECKED = "not checked"

LEAST_ROUNDING = 1 / 16
"""Rounding of log-probabilities that every server is allowed."""

MOST_ROUNDING = 1 / 4
"""Largest median difference that counts as rounding."""

UNITS = 2.0 ** np.arange(-1, -9, -1)
"""Possible units of logits in low precision, largest first."""

FEWEST_VALUES = 5
"""Smallest number of different values of a list that shows the unit of the logits."""


@dataclass(frozen=True)
class ListCheck:
    """Verdict about one property of a server's log-probabilities.

    Parameters
    ----------
    name : str
        The property.
    verdict : str
        "consistent", "not consistent" or "not checked".
    positions : int
        Number of positions that were compared.
    detail : str
        The first counterexample, the allowed difference, or the reason for "not checked".
    cause : str
        The known mistake that explains most counterexamples; empty if there is none.
    """

    name: str
    verdict: str
    positions: int
    detail: str
    cause: str = ""

    def __str__(self) -> str:
        """Write the property and its verdict on one line."""
        count = f", {self.positions:,} positions" if self.positions else ""
        cause = f": {self.cause}" if self.cause else ""
        return f"{self.name}: {self.verdict}{cause} ({self.detail}{count})"


def unit_of(entries: Mapping[str, float]) -> float:
    """Return the largest power of 2 that divides all differences in a list, 0 if there is none."""
    logs = np.array([*{log for log in entries.values() if log > IMPOSSIBLE}])
    if logs.size < FEWEST_VALUES:
        return 0.0
    steps = (logs - logs.max()) / UNITS[:, None]
    exact = (np.abs(steps - np.round(steps)) * UNITS[:, None] < 1e-4).all(axis=1)
    return float(UNITS[exact.argmax()]) if exact.any() else 0.0


def allowed_difference(sizes: Sequence[float], *roundings: float) -> float:
    """Return the largest difference that rounding explains, from all observed differences."""
    median = min(float(np.median(sizes)), MOST_ROUNDING) if sizes else 0.0
    return CERTAIN * max(LEAST_ROUNDING, median, *roundings)


def check_answers(kept: Sequence[KeptAnswer], form: ListFormat) -> list[ListCheck]:
    """Check each list by itself, and compare lists after the same text."""
    if not any(any(each.answer.lists) for each in kept):
        return [ListCheck("lists", NOT_CHECKED, 0, "the server returned no lists")]
    fault = functools.partial(_unsorted if form.chat else _too_large, error=form.error)
    return [
        _check_each(
            kept,
            "one list at each position",
            _missing_list,
            "some tokens have no list, as if they were bonus tokens",
        ),
        _check_each(kept, "sampled token on its list, with the same value", _other_value, ""),
        _check_each(kept, "lists of a distribution", fault, ""),
        _check_same_text(kept, form),
    ]


def _check_each(
    kept: Iterable[KeptAnswer], name: str, find: Callable[[Completion, int], str | None], cause: str
) -> ListCheck:
    """Check every position; `find` returns a counterexample, "", or None if unchecked."""
    count, wrong, first = 0, 0, ""
    for each in kept:
        for place in range(len(each.answer.tokens)):
            found = find(each.answer, place)
            count += found is not None
            if found:
                wrong += 1
                first = first or f"{where(each, place)}: {found}"
    if wrong:
        return ListCheck(name, NOT_CONSISTENT, count, f"{first}; {wrong:,} wrong", cause)
    if not count:
        return ListCheck(name, NOT_CHECKED, 0, "the server returns no values for this")
    return ListCheck(name, CONSISTENT, count, "no counterexample")


def where(each: KeptAnswer, place: int) -> str:
    """Describe a position for a message."""
    return f"prompt {each.request.prompt}, token {place}"


def _missing_list(answer: Completion, place: int) -> str | None:
    return "" if answer.lists[place] else "the list is missing"


def _other_value(answer: Completion, place: int) -> str | None:
    """Describe a sampled token whose value differs from the value on its list."""
    token, entries = answer.tokens[place], answer.lists[place]
    own = answer.own[place] if place < len(answer.own) else None
    if own is None or not entries or is_unclear(token):
        return None
    added = entries[token] == min(entries.values())
    if abs(own - entries[token]) <= MARGIN * max(1.0, abs(own)):
        return ""
    if added and not token.startswith(TOKEN_ID):
        # The server may spell the sampled token differently.
        return None
    return f"{shown(token)} has {own:.4g}, but {entries[token]:.4g} on its list"


def _too_large(answer: Completion, place: int, error: float) -> str | None:
    """Describe a list whose probabilities sum to more than 1, with values wrong by `error`."""
    entries = answer.lists[place]
    total = math.fsum(map(math.exp, entries.values()))
    largest = (1 + LARGEST_EXCESS) * math.exp(error)
    return "" if total <= largest else f"the probabilities sum to {total:.4g}"


def _unsorted(answer: Completion, place: int, error: float) -> str | None:
    """Describe an array that is not sorted; the sampled token may have any place."""
    entries = answer.lists[place]
    logs = [log for token, log in entries.items() if token != answer.tokens[place]]
    for one, two in itertools.pairwise(logs):
        if two > one + MARGIN:
            return f"{two:.4g} stands below {one:.4g}"
    return _too_large(answer, place, error)


def _check_same_text(kept: Sequence[KeptAnswer], form: ListFormat) -> ListCheck:
    """Compare each list with the first list after the same text."""
    firsts: dict[Hashable, KeptAnswer] = {}
    pairs: list[Pair] = []
    for each in kept:
        for place, entries in enumerate(each.answer.lists):
            if not entries:
                continue
            first = firsts.setdefault(form.key(each, place), each)
            if first is not each:
                temperature = first.request.parameters.temperature
                pairs.append(Pair(each, place, first.answer.lists[place], temperature))
    return compare_pairs("lists after the same text", pairs, form)


def compare_pairs(
    name: str,
    pairs: Sequence[Pair],
    form: ListFormat,
    *roundings: float,
    other: str = "in another answer",
    kept: Sequence[KeptAnswer] = (),
) -> ListCheck:
    """Compare the lists of each pair, and describe the first pair that differs."""
    if not pairs:
        return ListCheck(name, NOT_CHECKED, 0, "no two lists follow the same text")
    found = [difference(each.entries, each.other, form.listed) for each in pairs]
    units = sorted(unit_of(each.entries) for each in pairs[:64])
    sizes = [each.size for each in found]
    limit = allowed_difference(sizes, units[len(units) // 2], form.error, *roundings)
    wrong = [pair for pair in zip(pairs, found, strict=True) if pair[1].size > limit]
    if not wrong:
        text = f"differences up to {max(sizes):.2g}, {limit:.2g} allowed"
        return ListCheck(name, CONSISTENT, len(pairs), text)
    worst, apart = wrong[0]
    return ListCheck(
        name,
        NOT_CONSISTENT,
        len(pairs),
        f"{where(worst.kept, worst.place)}: {shown(apart.token)} has {apart.first:.4g}, but "
        f"{apart.second:.4g} {other}; {len(wrong):,} differ by more than {limit:.2g}",
        find_cause([pair for pair, _ in wrong], kept, form.listed),
    )
