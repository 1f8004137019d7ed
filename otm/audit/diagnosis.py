"""Which known mistake a deviation is: the one that yields the same laws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from otm.audit.adapter import Adapter, Instance
from otm.audit.exact import by_paths
from otm.audit.observation import Observation, UnsuitedError, distance
from otm.audit.running import Failure
from otm.audit.sampling import Sampler
from otm.errors import ProblemTooLargeError

Same = Callable[[Observation, Observation], bool]
"""Whether a verifier, observed on an instance, can have the law of a known mistake there."""


@dataclass(frozen=True)
class Diagnosis:
    """A known mistake with the output distribution of the verifier on all instances tried."""

    name: str  # of the bug in `otm.audit.known_bugs`
    mistake: str  # what kind of mistake it is
    summary: str  # what was wrong there
    threads: tuple[str, ...]  # where it was reported
    # whether the laws were compared only where the verifier returns tokens at all uniforms: how a
    # verifier fails where its mistake leaves nothing to draw differs from one to another
    partly: bool = False


def diagnose(observations: Sequence[Observation], same: Same) -> tuple[Diagnosis, ...]:
    """Name the known mistakes that explain what was observed of one verifier.

    Observations that tell most come first.  Several are named if the instances do not tell them
    apart.
    """
    found = _named(observations, same)
    if found:
        return found
    sound = [seen for seen in observations if not any(isinstance(o, Failure) for o in seen.law)]
    if not 0 < len(sound) < len(observations):
        return ()
    return tuple(replace(diagnosis, partly=True) for diagnosis in _named(sound, same))


def _named(observations: Sequence[Observation], same: Same) -> tuple[Diagnosis, ...]:
    return tuple(
        Diagnosis(bug.name, bug.mistake, bug.summary, tuple(bug.threads))
        for bug in _known_bugs()
        if _explains(bug.verifier, observations, same)
    )


def same_law(tolerance: float) -> Same:
    """Compare laws that are known, exactly or up to an error."""

    def same(seen: Observation, known: Observation) -> bool:
        length = max(seen.length, known.length)
        off = distance(seen.continued(length), known.continued(length))
        near = float(off) <= seen.error + known.error + (tolerance if seen.error else 0)
        return near and seen.impossible_outcomes() == known.impossible_outcomes()

    return same


def fitting(sampler: Sampler) -> Same:
    """Compare frequencies with a law by the test that compares them with the target."""

    def same(seen: Observation, known: Observation) -> bool:
        if seen.length != known.length or any(
            isinstance(outcome, Failure) for outcome in known.law
        ):
            return False
        return sampler.fits(seen, known.sequences)

    return same


def _explains(adapter: Adapter, observations: Sequence[Observation], same: Same) -> bool:
    """Whether a mistake has the laws of the verifier wherever it can be made, and is one there."""
    shows = False
    for seen in observations:
        known = _law(adapter, seen.instance)
        if known is None:
            continue
        if not same(seen, known):
            return False
        shows = shows or known.tv_distance > 0 or known.impossible is not None
    return shows


def _law(adapter: Adapter, instance: Instance) -> Observation | None:
    if not adapter.supports(instance):
        return None
    try:
        return by_paths(adapter, instance)
    except (UnsuitedError, ProblemTooLargeError):
        return None


def _known_bugs() -> tuple[Any, ...]:
    from otm.audit.known_bugs import KNOWN_BUGS

    return tuple(KNOWN_BUGS)
