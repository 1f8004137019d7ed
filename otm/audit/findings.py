"""What an audit by one method shows: how far off the output is, and which known mistake it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache

import numpy as np

from otm._core.interval import Interval
from otm.audit.adapter import CRASHES, Adapter, Failure, Instance, Source
from otm.audit.drawn import AT_ZERO, accepts_at_zero, draws_twice
from otm.audit.exact import by_paths
from otm.audit.known_bugs import KNOWN_BUGS, KnownBug
from otm.audit.known_bugs.drafting import RANDOMNESS
from otm.audit.known_bugs.sized import SIZED
from otm.audit.known_bugs.steps import Repeated, both
from otm.audit.known_bugs.verification import ACCEPTANCE, BONUS, RESIDUAL
from otm.audit.measured import of_measure
from otm.audit.observation import ISOLATED, Observation, UnsuitedError, distance, rows_of
from otm.audit.own_drafts import SECOND_SAMPLE, samples_twice
from otm.audit.report import (
    LOSSLESS,
    NOT_LOSSLESS,
    UNDECIDED,
    Counterexample,
    Diagnosis,
    Isolated,
    Report,
    Sampled,
)
from otm.errors import ProblemTooLargeError

PAIRS, STEPS = 150, 1000
"""Two mistakes at once, and steps of loops, are looked for where a verifier costs no more."""

SINGLE = 8 * ISOLATED
"""A distance that isolated uniforms, of a few drafts, can give."""

TELLING = 4
"""A counterexample, and what is shown there, has at least this part of the largest distance."""

Same = Callable[[Observation, Observation], bool]
"""Whether a verifier, observed on an instance, can have the distribution of a known mistake."""


def same_distribution(tolerance: float, *, apart: bool = False) -> Same:
    """Compare distributions that are known, exactly or up to an error.

    What the target cannot give must come out in both, even at isolated uniforms, or is set apart.
    """

    def same(seen: Observation, known: Observation) -> bool:
        length = max(seen.length, known.length)
        off = distance(seen.continued(length), known.continued(length))
        near = float(off) <= seen.error + known.error + (
            tolerance if seen.error or seen.pieces else 0
        )
        return near and (apart or seen.impossible_outcomes() == known.impossible_outcomes())

    return same


def diagnose(
    observations: Sequence[Observation], ways: Sequence[Same], loop: Adapter | None = None
) -> tuple[Diagnosis, ...]:
    """Name the known mistakes that explain what was observed of one verifier.

    Several are named if the instances do not tell them apart, but of sizes read off the output only
    the first that fits.  Of two ways to compare, the second sets isolated outcomes apart; then two
    mistakes at once are tried too.  A loop may make those of a single step.
    """
    observations = sorted(observations, key=_cost)  # most fail on one soon
    bugs = [(bug, bug.verifier) for bug in KNOWN_BUGS if loop is None or bug.verifier.loops]
    for place, same in enumerate(ways):
        explained = _named(bugs, observations, same)
        if not explained and loop is None:
            measured = ((bug, bug.verifier) for bug in of_measure(observations))
            explained = _named(measured, observations, same, most=1)
        if explained:
            return tuple(replace(diagnosis, apart=place > 0) for diagnosis in explained)
    sound = [o for o in observations if not any(isinstance(out, Failure) for out in o.probs)]
    if 0 < len(sound) < len(observations):
        explained = _named(bugs, sound, ways[0])
        if explained:
            return tuple(replace(diagnosis, partly=True) for diagnosis in explained)
    wrong = [seen for seen in observations if seen.is_off(SINGLE)]
    shows = wrong or [seen for seen in observations if seen.impossible is not None]
    if loop is not None and shows and (len(ways) > 1 or not wrong):
        few = [seen for seen in [*shows, *observations] if _cost(seen) <= STEPS]
        steps = [
            (bug, _in_loop(bug.verifier, loop.max_tokens, cut))
            for bug in KNOWN_BUGS
            for cut in (False, True)
            if not (bug.verifier.loops or bug.verifier.several or bug in SIZED)
        ]
        explained = _named(steps, few, ways[0]) if _cost(shows[0]) <= STEPS else ()
        if not explained:
            explained = _told(loop, wrong, observations)
        return explained
    if loop is not None or len(ways) == 1 or not wrong or _cost(wrong[0]) > PAIRS:
        return ()
    return _named([(bug, bug.verifier) for bug in _pairs()], [wrong[0], *observations], ways[0])


def _told(
    loop: Adapter, wrong: Sequence[Observation], observations: Sequence[Observation]
) -> tuple[Diagnosis, ...]:
    """Name the mistake that a loop's tokens, or what it draws, give away."""
    if wrong:
        name, told = SECOND_SAMPLE, samples_twice(wrong) or draws_twice(loop, wrong)
    else:
        name, told = AT_ZERO, accepts_at_zero(loop, observations)
    return tuple(_named_so(bug) for bug in KNOWN_BUGS if told and bug.name == name)


def _cost(seen: Observation) -> int:
    """Estimate what it takes to follow a mistake on an instance."""
    return (seen.pieces or seen.runs) * seen.instance.vocabulary**2 * seen.instance.gamma


@cache
def _pairs() -> tuple[KnownBug, ...]:
    """Make two mistakes at once, which are in different steps."""
    pairs = []
    for one, other in itertools.combinations((ACCEPTANCE, RESIDUAL, BONUS, RANDOMNESS), 2):
        for a, b in itertools.product(one, other):
            if (verifier := both(a.verifier, b.verifier)) is not None:
                mistake, summary = f"{a.mistake}, and {b.mistake}", f"{a.summary} {b.summary}"
                pairs.append(KnownBug(verifier, mistake, summary, a.threads + b.threads))
    return tuple(pairs)


def _named(
    bugs: Iterable[tuple[KnownBug, Adapter]],
    observations: Sequence[Observation],
    same: Same,
    most: int | None = None,
) -> tuple[Diagnosis, ...]:
    fitting = (bug for bug, verifier in bugs if _explains(verifier, observations, same))
    named = {bug.name: _named_so(bug) for bug in itertools.islice(fitting, most)}
    return tuple(named.values())


def _named_so(bug: KnownBug) -> Diagnosis:
    return Diagnosis(bug.name, bug.mistake, bug.summary, tuple(bug.threads))


@lru_cache(maxsize=1024)
def _in_loop(verifier: Adapter, max_tokens: int | None, cut: bool) -> Adapter:
    """Repeat a verifier of one step as a loop may do."""
    return Repeated(verifier, cut, max_tokens)


def _explains(adapter: Adapter, observations: Sequence[Observation], same: Same) -> bool:
    """Whether a mistake has these outputs wherever it can be made, and is a mistake there."""
    shows, isolated = False, not any(seen.is_off(SINGLE) for seen in observations)
    for seen in observations:
        if not adapter.supports(seen.instance):
            continue
        known = _of_known_bug(adapter, seen.instance)
        if known is None:
            continue
        if not same(seen, known):
            return False
        shows = shows or known.tv_distance > 0 or (isolated and known.impossible is not None)
    return shows


@lru_cache(maxsize=16384)
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
    ways: Sequence[Same]  # how they are compared with those of known mistakes, the strictest first
    radius: float = 0.0  # how far their distances (TV) can be from the truth
    searched: Sequence[Observation] = ()  # on the instances of the search
    skipped: int = 0  # instances that were too large
    false_alarms: float = 0.0  # probability that a lossless verifier deviates; as in the report
    delta: float = 0.0  # the deviation (TV) that is detected; as in the report
    enough: bool = True  # whether all was done that a verdict without a deviation needs
    sampled: Findings | None = None  # of larger instances that were sampled beside these
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
        example = self._example()
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
            largest_instance=tuple(map(max, zip(*map(_shape, instances), strict=True))),
            false_alarms=self.false_alarms,
            delta=self.delta,
            tolerance=self.tolerance,
            worst_prefix=example.worst_prefix() if example else None,
            counterexample=self._counterexample(adapter, example) if example else None,
            isolated=self._isolated(example) if example else None,
            diagnoses=self._diagnoses(adapter, example) if example else (),
            sampled=self.sampled.as_sampled() if self.sampled else None,
        )

    def as_sampled(self) -> Sampled:
        """Say what was sampled, where nothing deviates."""
        runs = sum(each.runs for each in self.observations)
        return Sampled(len(self.observations), runs, self.delta)

    def _example(self) -> Observation | None:
        """Choose the smallest instance on which much is wrong, that of the search before others."""
        seen = [*self.deviating, *([self.smallest] if self.smallest else [])]
        most = max((float(o.tv_distance) for o in seen), default=0.0)
        telling = [
            o for o in seen if o.is_off(self.tolerance) and float(o.tv_distance) >= most / TELLING
        ]

        def least(o: Observation) -> tuple[tuple[int, ...], bool, float]:
            return size(o.instance), o is not self.smallest, -float(o.tv_distance)

        return min(telling or seen, key=least, default=None)

    def _diagnoses(self, adapter: Adapter, example: Observation) -> tuple[Diagnosis, ...]:
        """Name the mistakes that explain what was seen."""
        searched = [example] if example is self.smallest else []
        ways = self.ways if example.is_off(self.tolerance) else self.ways[:1]
        return diagnose([*self.observations, *searched], ways, adapter if adapter.loops else None)

    def _isolated(self, example: Observation) -> Isolated | None:
        """Find outcomes of next to no probability, on the example or else on a small instance."""
        if not example.is_off(self.tolerance):
            return None  # then they are the counterexample
        by_size = sorted(self.deviating, key=lambda o: size(o.instance))
        for seen in [example, *by_size]:
            outcomes = seen.isolated()
            if outcomes:
                probability = sum((seen.probs[o] for o in outcomes), start=Fraction(0))
                examples = seen.examples.get(outcomes[0])
                return Isolated(seen.instance, tuple(outcomes), probability, examples)
        return None

    def _counterexample(self, adapter: Adapter, seen: Observation) -> Counterexample:
        """Show an output that comes too often; what the target never gives if that is as much."""
        impossible = seen.impossible
        if impossible is not None and seen.is_off(self.tolerance):
            enough = 0.0 if isinstance(impossible, Failure) else float(seen.tv_distance) / TELLING
            impossible = impossible if float(seen.probs[impossible]) > enough else None
        output = seen.likeliest_excess() if impossible is None else impossible
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
            impossible=impossible is not None,
            drafts=drafts,
            uniforms=uniforms,
        )


def _shape(instance: Instance) -> tuple[int, int, int]:
    return instance.vocabulary, instance.gamma, instance.k


@lru_cache(maxsize=4096)
def size(instance: Instance) -> tuple[int, ...]:
    """How much there is to read of an instance: its positive probabilities, then its shape."""
    rows = rows_of(instance)
    positive = sum(int((probs > 0).sum()) for each in rows for probs in each.values())
    return positive, *_shape(instance), len(instance.prompt)
