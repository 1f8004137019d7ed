"""Name the mistake that put a wrong list at a position.

The module looks for a wrong list among the lists of nearby positions and of other answers, and
compares it with the right list at the request's temperature.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from otm.audit.streams.server.checks.kept_answers import (
    PROBABLE,
    KeptAnswer,
    Pair,
    difference,
)

AFTER_TEMPERATURE = "lists are after temperature"
"""Part of the cause that says that the audit expected other lists."""

MATCH = 0.25
"""Largest difference between two lists that count as the same."""

MOST_SEARCHED = 64
"""Largest number of wrong lists whose cause is searched."""

FARTHEST = 6
"""Largest distance of positions whose lists are compared."""

FEWEST_TOKENS = 3
"""Smallest number of common tokens from which a temperature can be recognized."""


def find_cause(wrong: Sequence[Pair], kept: Sequence[KeptAnswer], listed: int) -> str:
    """Name the mistake that explains more than half of the wrong lists."""
    wrong = wrong[:MOST_SEARCHED]
    shifts: Counter[int] = Counter()
    temperatures = neighbours = drafts = 0
    known = _by_first_token(kept)
    for pair in wrong:
        shift = _shift(pair, listed)
        if _has_temperature(pair):
            temperatures += 1
        elif pair.draft and difference(pair.entries, pair.draft, listed).size <= MATCH:
            drafts += 1
        elif shift:
            shifts[shift] += 1
        elif _is_elsewhere(pair, known, listed):
            neighbours += 1
    total = len(wrong)
    if 2 * temperatures > total:
        return f"{temperatures:,} of {total:,} {AFTER_TEMPERATURE}, the others before"
    if 2 * sum(shifts.values()) > total:
        most = shifts.most_common(1)[0][0]
        return (
            f"{sum(shifts.values()):,} of {total:,} wrong lists are those of another position, "
            f"most often {abs(most)} {'later' if most > 0 else 'earlier'}"
        )
    if 2 * neighbours > total:
        return f"{neighbours:,} of {total:,} wrong lists are those of another request"
    if 2 * drafts > total:
        return f"{drafts:,} of {total:,} wrong lists are those of the draft model"
    if wrong[0].lists and not (temperatures or shifts or neighbours):
        return (
            "the wrong lists match no other position, request or temperature, as if of the draft "
            "model"
        )
    return ""


def _shift(pair: Pair, listed: int) -> int:
    """Return the distance to the nearest position with the same list, or 0."""
    for distance in range(1, FARTHEST + 1):
        for shift in (distance, -distance):
            number = pair.number + shift
            near = pair.lists[number] if 0 <= number < len(pair.lists) else {}
            if near and difference(pair.entries, near, listed).size <= MATCH:
                return shift
    return 0


def _has_temperature(pair: Pair) -> bool:
    """Whether the two lists differ only by the temperatures of their requests."""
    own, other = pair.kept.request.parameters.temperature, pair.temperature
    if own in (0, other) or other == 0:
        return False
    one, two = pair.entries, pair.other
    common = [token for token in one if token in two and max(one[token], two[token]) > PROBABLE]
    if len(common) < FEWEST_TOKENS:
        return False
    first, second = (np.array([at[token] for token in common]) for at in (one, two))
    apart = first * own - second * other
    return bool(np.ptp(apart) <= MATCH * max(own, other))


def _by_first_token(
    kept: Sequence[KeptAnswer],
) -> Mapping[str, list[tuple[KeptAnswer, int]]]:
    """Group positions by the most probable token of their lists."""
    found: defaultdict[str, list[tuple[KeptAnswer, int]]] = defaultdict(list)
    for each in kept:
        for place, entries in enumerate(each.answer.lists):
            if entries:
                found[max(entries, key=entries.__getitem__)].append((each, place))
    return found


def _is_elsewhere(
    pair: Pair, known: Mapping[str, list[tuple[KeptAnswer, int]]], listed: int
) -> bool:
    """Whether an answer to another prompt or with another text has the same list."""
    entries = pair.entries
    if not entries:
        return False
    first = max(entries, key=entries.__getitem__)
    return any(
        each.text(place) != pair.kept.text(pair.place)
        and difference(entries, each.answer.lists[place], listed).size <= MATCH
        for each, place in known.get(first, ())
    )
