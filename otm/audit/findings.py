"""What an audit by one method shows of a verifier: how far off the output is, and where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from otm._core.interval import Interval
from otm.audit.adapters.base import CRASHES, Adapter, Failure, Instance, Source
from otm.audit.diagnose.diagnosis import Same, diagnose, nearest
from otm.audit.observe.observation import Observation, rows_of
from otm.audit.observe.pace import TimeIsUpError
from otm.audit.report import (
    LOSSLESS,
    NOT_LOSSLESS,
    UNDECIDED,
    Counterexample,
    Diagnosis,
    Isolated,
    Nearest,
    Report,
    Sampled,
)

TELLING = 4
"""A counterexample, and what is shown there, has at least this part of the largest distance."""


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
    left_out: tuple[str, ...] = ()  # kinds of instances that no time was left for
    sampled: Findings | None = None  # of larger instances that were sampled beside these
    later_runs: str | None = None  # how runs change later runs
    slower: float | None = None  # time of a run at the end over that at the start
    tolerance: float = 0.0  # distances (TV) up to this were taken for rounding

    def report(
        self,
        adapter: Adapter,
        method: str,
        why_not_exact: tuple[str, ...],
        until: float = math.inf,
    ) -> Report:
        """Make the report; look for known mistakes until `time.monotonic` is past `until`."""
        seen = [*self.observations, *([self.smallest] if self.smallest else [])]
        instances = [observation.instance for observation in seen]
        worst = max(seen, key=lambda observation: observation.tv_distance)
        interval = Interval(worst.tv_distance, worst.tv_distance)
        if error := self.radius + worst.error:
            tv = float(worst.tv_distance)
            interval = Interval(max(tv - error, 0.0), min(tv + error, 1.0))
        example = self._example()
        diagnoses, near, compared = self._named(adapter, example, until)
        enough = self.enough and not (self.left_out or self.later_runs)
        return Report(
            verifier=adapter.name,
            verdict=NOT_LOSSLESS if example else LOSSLESS if enough else UNDECIDED,
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
            diagnoses=diagnoses,
            nearest=near,
            sampled=self.sampled.as_sampled() if self.sampled else None,
            left_out=self.left_out,
            compared=compared,
            later_runs=self.later_runs,
            slower=self.slower,
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

    def _named(
        self, adapter: Adapter, example: Observation | None, until: float
    ) -> tuple[tuple[Diagnosis, ...], Nearest | None, bool]:
        """Name the mistakes that explain the output, or the nearest; say if time sufficed."""
        if example is None:
            return (), None, True
        searched = [example] if example is self.smallest else []
        ways = self.ways if example.is_off(self.tolerance) else self.ways[:1]
        loop = adapter if adapter.loops else None
        try:
            diagnoses = diagnose([*self.observations, *searched], ways, loop, until)
            near = None if diagnoses else nearest(self.observations, loop, until)
        except TimeIsUpError:
            return (), None, False
        return diagnoses, near, True

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
