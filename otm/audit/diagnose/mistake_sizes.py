"""Estimate the sizes and positions of mistakes from the output of a verifier.

A mistake of any size can be named without trying them all: what it does to the first tokens that
come out wrong says how large it is and where.  Each reading is right if the mistake is of its kind,
and otherwise makes a suspect that does not fit.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from otm._core.arithmetic import Number, Probs
from otm.audit.diagnose.known_bugs import KNOWN_BUGS, KnownBug
from otm.audit.diagnose.known_bugs.size_and_place import (
    behind_from,
    cut_to,
    floor_at,
    hot_from,
    lenient,
    passes_at,
    tiles_of,
)
from otm.audit.observe.observation import Observation, distance
from otm.decoding.reading import Path

MOST = 8
"""Most suspects of one kind; each takes as long as the verifier took."""

ROUNDING = 1e-9
"""Differences up to this are none, beside the error of an observation."""

FINEST = 10**6
"""Largest denominator of a floor under probabilities."""


def parametrized_suspects(observations: Sequence[Observation]) -> tuple[KnownBug, ...]:
    """Make suspects with the sizes and positions that chains of drafts show, if not listed."""
    chains = [seen for seen in observations if seen.instance.k == 1 and seen.is_off(ROUNDING)]
    wrong = [(seen, place) for seen in chains if (place := first_wrong(seen))]
    firsts = [_First(seen) for seen, place in wrong if place == 1]
    place = min((place for _, place in wrong), default=1)
    sampled = any(seen.counts for seen, _ in wrong)  # then an earlier place may not show yet
    places = range(2 if sampled else max(place, 2), place + 1)
    made = [make(place) for place in places for make in (passes_at, hot_from, behind_from)]
    made += [cut_to(kept) for kept in _likeliest([first.kept() for first in firsts]) if kept > 1]
    made += [tiles_of(size) for size in tile_sizes([first.tiles() for first in firsts])]
    floors = [least for first in firsts for least in first.floors()]
    made += [floor_at(least) for least in _likeliest(floors)]
    factors = [factor for first in firsts for factor in first.factors()]
    made += [lenient(factor) for factor in _likeliest(factors)]
    known = {bug.name for bug in KNOWN_BUGS}
    return tuple(bug for bug in made if bug.name not in known)


def first_wrong(seen: Observation) -> int | None:
    """Return the position of the first token whose distribution is wrong; None if there is none."""
    for place in range(1, seen.length + 1):
        wanted = _beginnings(seen.target, place)
        off = distance(_beginnings(seen.sequences, place), wanted)
        if float(off) > _error(seen, len(wanted)):
            return place
    return None


def _error(seen: Observation, outcomes: int) -> float:
    """Bound the error of the probabilities (TV); for frequencies, twice its expectation."""
    noise = math.sqrt(outcomes / seen.runs) if seen.counts else 0.0
    return seen.error + ROUNDING + noise


def _beginnings(law: Any, length: int) -> dict[Path, Number]:
    """Sum the probabilities of all sequences with the same beginning."""
    sums: dict[Path, Any] = defaultdict(int)
    for path, probability in law.items():
        sums[path[:length]] += probability
    return sums


def tile_sizes(ranges: Sequence[range]) -> list[int]:
    """Choose sizes that are in all ranges, those that are divided by the largest power of two."""
    low = max((each.start for each in ranges), default=0)
    high = min((each.stop for each in ranges), default=0)
    return sorted(range(low, high), key=lambda size: -(size & -size))[:MOST]


def _likeliest(values: Sequence[Any]) -> list[Any]:
    """Choose the values that most instances show."""
    return [value for value, _ in Counter(values).most_common(MOST)]


def _simple(values: Probs) -> list[Fraction]:
    """Write values as fractions, each once."""
    return [Fraction(value).limit_denominator(FINEST) for value in set(values.tolist())]


class _First:
    """The law of the first token, where it is wrong, beside the rows that it comes from."""

    def __init__(self, seen: Observation) -> None:
        instance = seen.instance
        law = _beginnings(seen.sequences, 1)
        self.law: Probs = np.array([law.get((x,), 0) for x in range(instance.vocabulary)])
        self.target = instance.target.probs(instance.prompt)
        self.draft = instance.draft.probs(instance.prompt)
        self.error = _error(seen, 4)  # of a single token, four standard deviations

    def kept(self) -> int:
        """Count what can replace a draft: it is likelier than its drafts that are accepted."""
        return int((self.law > np.minimum(self.target, self.draft) + self.error).sum())

    def tiles(self) -> range:
        """Find the sizes of tiles of which the third has the first token that is wrong."""
        wrong = int(np.argmax(abs(self.law - self.target) > self.error))
        right = np.flatnonzero(self.target[:wrong] > self.draft[:wrong])
        return range((int(right[-1]) if right.size else 0) // 2 + 1, wrong // 2 + 1)

    def floors(self) -> list[Fraction]:
        """Find probabilities that rare tokens are raised to: they come as drafts alone."""
        raised = (self.law > self.target + self.error) & (self.law < self.draft + self.error)
        return _simple(self.law[raised])

    def factors(self) -> list[Fraction]:
        """Find what the ratio is multiplied by, from drafts that nothing replaces."""
        other = (abs(self.law - self.target) > self.error) & (self.law < self.draft - self.error)
        rejected = other & (self.target > 0) & (self.target < self.draft)
        return _simple(self.law[rejected] / self.target[rejected])
