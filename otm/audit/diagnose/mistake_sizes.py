"""Estimate the sizes and positions of mistakes from the output of a verifier.

The audit can name a mistake of any size without trying all sizes: the first wrong tokens show its
size and position.  Each estimate assumes a kind of mistake; if the mistake is of another kind, the
suspect does not fit.
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
    lenient,
    passes_at,
    previous_row_from,
    residual_cut_to,
    target_floor_at,
    temperature_lost_at,
    tile_sums_of,
)
from otm.audit.observe.observation import Observation, distance
from otm.decoding.reading import Path

MOST = 8
"""Largest number of suspects of one kind; each costs as much time as the verifier."""

ROUNDING = 1e-9
"""Tolerance for rounding, in addition to the error of an observation."""

FINEST = 10**6
"""Largest denominator of a lower limit of probabilities."""


def parametrized_suspects(observations: Sequence[Observation]) -> tuple[KnownBug, ...]:
    """Return suspects with the sizes and positions that chains show, except known bugs."""
    chains = [seen for seen in observations if seen.instance.k == 1 and seen.is_off(ROUNDING)]
    wrong = [(seen, place) for seen in chains if (place := first_wrong(seen))]
    firsts = [_First(seen) for seen, place in wrong if place == 1]
    place = min((place for _, place in wrong), default=1)
    # In samples, the deviation at an earlier position may not be significant yet.
    sampled = any(seen.counts for seen, _ in wrong)
    places = range(2 if sampled else max(place, 2), place + 1)
    made = [
        make(place)
        for place in places
        for make in (passes_at, temperature_lost_at, previous_row_from)
    ]
    made += [
        residual_cut_to(kept)
        for kept in _most_common([first.kept() for first in firsts])
        if kept > 1
    ]
    made += [tile_sums_of(size) for size in tile_sizes([first.tiles() for first in firsts])]
    floors = [least for first in firsts for least in first.floors()]
    made += [target_floor_at(least) for least in _most_common(floors)]
    factors = [factor for first in firsts for factor in first.factors()]
    made += [lenient(factor) for factor in _most_common(factors)]
    known = {bug.name for bug in KNOWN_BUGS}
    return tuple(bug for bug in made if bug.name not in known)


def first_wrong(seen: Observation) -> int | None:
    """Return the first position with a wrong distribution of the token; None if all are right."""
    for place in range(1, seen.length + 1):
        expected = _beginnings(seen.target, place)
        off = distance(_beginnings(seen.sequences, place), expected)
        if float(off) > _error(seen, len(expected)):
            return place
    return None


def _error(seen: Observation, outcomes: int) -> float:
    """Return a bound on the error of probabilities (TV): for frequencies, twice the mean error."""
    noise = math.sqrt(outcomes / seen.runs) if seen.counts else 0.0
    return seen.error + ROUNDING + noise


def _beginnings(probs: Any, length: int) -> dict[Path, Number]:
    """Sum the probabilities of all sequences with the same beginning."""
    sums: dict[Path, Any] = defaultdict(int)
    for path, probability in probs.items():
        sums[path[:length]] += probability
    return sums


def tile_sizes(ranges: Sequence[range]) -> list[int]:
    """Return sizes in all ranges, sorted by the largest power of two that divides them."""
    low = max((each.start for each in ranges), default=0)
    high = min((each.stop for each in ranges), default=0)
    return sorted(range(low, high), key=lambda size: -(size & -size))[:MOST]


def _most_common(values: Sequence[Any]) -> list[Any]:
    """Return the values that occur most often, at most `MOST`, in descending order of frequency."""
    return [value for value, _ in Counter(values).most_common(MOST)]


def _simple(values: Probs) -> list[Fraction]:
    """Convert values to fractions, without duplicates."""
    return [Fraction(value).limit_denominator(FINEST) for value in set(values.tolist())]


class _First:
    """The wrong distribution of the first token, with the rows of both models."""

    def __init__(self, seen: Observation) -> None:
        instance = seen.instance
        probs = _beginnings(seen.sequences, 1)
        self.probs: Probs = np.array([probs.get((x,), 0) for x in range(instance.vocabulary)])
        self.target = instance.target.probs(instance.prompt)
        self.draft = instance.draft.probs(instance.prompt)
        # For a single token, four standard deviations.
        self.error = _error(seen, 4)

    def kept(self) -> int:
        """Count the tokens whose probability exceeds min(target, draft): these replace drafts."""
        return int((self.probs > np.minimum(self.target, self.draft) + self.error).sum())

    def tiles(self) -> range:
        """Return the sizes of tiles whose third tile contains the first wrong token."""
        wrong = int(np.argmax(abs(self.probs - self.target) > self.error))
        right = np.flatnonzero(self.target[:wrong] > self.draft[:wrong])
        return range((int(right[-1]) if right.size else 0) // 2 + 1, wrong // 2 + 1)

    def floors(self) -> list[Fraction]:
        """Return probabilities that exceed the target's but not the draft model's, up to errors."""
        raised = (self.probs > self.target + self.error) & (self.probs < self.draft + self.error)
        return _simple(self.probs[raised])

    def factors(self) -> list[Fraction]:
        """Return factors of the acceptance ratio, from tokens that never replace a draft."""
        off = abs(self.probs - self.target) > self.error
        rejected = (
            off
            & (self.probs < self.draft - self.error)
            & (self.target > 0)
            & (self.target < self.draft)
        )
        return _simple(self.probs[rejected] / self.target[rejected])
