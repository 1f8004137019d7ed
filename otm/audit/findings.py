"""What an audit by one method shows: how far off the output is, and which known mistake it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from otm._core.interval import Interval
from otm.audit.adapter import CRASHES, Adapter, Failure, Instance, Source
from otm.audit.exact import by_paths
from otm.audit.known_bugs import KNOWN_BUGS
from otm.audit.observation import Observation, UnsuitedError, distance
from otm.audit.report import LOSSLESS, NOT_LOSSLESS, UNDECIDED, Counterexample, Diagnosis, Report
from otm.errors import ProblemTooLargeError

Same = Callable[[Observation, Observation], bool]
"""Whether a verifier, observed on an instance, can have the distribution of a known mistake."""


def same_distribution(tolerance: float) -> Same:
    """Compare distributions that are known, exactly or up to an error."""

    def same(seen: Observation, known: Observation) -> bool:
        length = max(seen.length, known.length)
        off = distance(seen.continued(length), known.continued(length))
        near = float(off) <= seen.error + known.error + (tolerance if seen.error else 0)
        return near and seen.impossible_outcomes() == known.impossible_outcomes()

    return same


def diagnose(observations: Sequence[Observation], same: Same) -> tuple[Diagnosis, ...]:
    """Name the known mistakes that explain what was observed of one verifier.

    Observations that tell most come first.  Several are named if the instances do not tell them
    apart.
    """
    explained = _named(observations, same)
    if explained:
        return explained
    sound = [o for o in observations if not any(isinstance(out, Failure) for out in o.probs)]
    if not 0 < len(sound) < len(observations):
        return ()
    return tuple(replace(diagnosis, partly=True) for diagnosis in _named(sound, same))


def _named(observations: Sequence[Observation], same: Same) -> tuple[Diagnosis, ...]:
    return tuple(
        Diagnosis(bug.name, bug.mistake, bug.summary, tuple(bug.threads))
        for bug in KNOWN_BUGS
        if _explains(bug.verifier, observations, same)
    )


def _explains(adapter: Adapter, observations: Sequence[Observation], same: Same) -> bool:
    """Whether a mistake has these outputs wherever it can be made, and is a mistake there."""
    shows = False
    for seen in observations:
        if not adapter.supports(seen.instance):
            continue
        known = _of_known_bug(adapter, seen.instance)
        if known is None:
            continue
        if not same(seen, known):
            return False
        shows = shows or known.tv_distance > 0 or known.impossible is not None
    return shows


@lru_cache(maxsize=2048)
def _of_known_bug(adapter: Adapter, instance: Instance) -> Observation | None:
    """Observe a known bug; kept, since audits have most of their instances in common."""
    try:
        return by_paths(adapter, instance)
    except (UnsuitedError, ProblemTooLargeError):
        return None


@dataclass(frozen=True)
class Findings:
    """Observations of a verifier, and what they cost."""

    observations: Sequence[Observation]  # on each instance
    deviating: Sequence[Observation]  # those that no lossless verifier has
    smallest: Observation | None  # the smallest that the search has and that deviates
    same: Same  # how they are compared with those of known mistakes
    radius: float = 0.0  # how far their distances (TV) can be from the truth
    searched: Sequence[Observation] = ()  # on the instances of the search
    skipped: int = 0  # instances that were too large
    false_alarms: float = 0.0  # probability that a lossless verifier deviates; as in the report
    delta: float = 0.0  # the deviation (TV) that is detected; as in the report
    enough: bool = True  # whether all runs were made that the level and delta asked for
    tolerance: float = 0.0  # distances (TV) up to this were taken for rounding

    def report(self, adapter: Adapter, method: str, why_not_exact: tuple[str, ...]) -> Report:
        """Sum it up."""
        seen = [*self.observations, *([self.smallest] if self.smallest else [])]
        instances = [observation.instance for observation in seen]
        worst = max(seen, key=lambda observation: observation.tv_distance)
        interval = Interval(worst.tv_distance, worst.tv_distance)
        if error := self.radius + worst.error:
            tv = float(worst.tv_distance)
            interval = Interval(max(tv - error, 0.0), min(tv + error, 1.0))
        # the smallest instance that deviates, and of equal ones the farthest
        example = self.smallest or min(
            self.deviating, key=lambda o: (*_size(o.instance), -float(o.tv_distance)), default=None
        )
        return Report(
            verifier=adapter.name,
            verdict=NOT_LOSSLESS if example else LOSSLESS if self.enough else UNDECIDED,
            method=method,
            why_not_exact=why_not_exact,
            tv_distance=worst.tv_distance,
            tv_interval=interval,
            instances=len(self.observations) + len(self.searched),
            runs=sum(each.runs for each in (*self.observations, *self.searched)),
            skipped=self.skipped,
            largest_instance=tuple(map(max, zip(*map(_size, instances), strict=True))),
            false_alarms=self.false_alarms,
            delta=self.delta,
            tolerance=self.tolerance,
            worst_prefix=example.worst_prefix() if example else None,
            counterexample=_counterexample(adapter, example) if example else None,
            diagnoses=diagnose(self._most_telling_first(example), self.same) if example else (),
        )

    def _most_telling_first(self, example: Observation) -> list[Observation]:
        right = [seen for seen in self.observations if seen not in self.deviating]
        by_size = sorted(self.deviating, key=lambda seen: _size(seen.instance))
        return list(dict.fromkeys([example, *by_size, *right]))


def _size(instance: Instance) -> tuple[int, int, int]:
    return instance.vocabulary, instance.gamma, instance.k


def _counterexample(adapter: Adapter, seen: Observation) -> Counterexample:
    output = seen.likeliest_excess() if seen.impossible is None else seen.impossible
    uniforms = seen.examples.get(output)
    drafted, drafts = getattr(adapter, "drafted", None), None
    if drafted is not None and uniforms is not None:
        with suppress(*CRASHES):  # of a verifier that crashes before it has drafts
            drafts = drafted(seen.instance, Source(np.array(uniforms)))
    return Counterexample(
        seen.instance,
        seen.tv_distance,
        output,
        seen.probs[output],
        impossible=seen.impossible is not None,
        drafts=drafts,
        uniforms=uniforms,
    )
