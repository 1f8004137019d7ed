"""What an audit by one method found, and the report that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from otm._core.arithmetic import Number
from otm._core.interval import Interval
from otm.audit.adapter import Adapter, Instance, source_of
from otm.audit.diagnosis import Same, diagnose
from otm.audit.observation import Observation
from otm.audit.report import LOSSLESS, NOT_LOSSLESS, UNDECIDED, Counterexample, Report
from otm.audit.running import CRASHES
from otm.decoding.reading import Path


@dataclass(frozen=True)
class Findings:
    """Observations of a verifier, and what they cost."""

    observations: Sequence[Observation]  # on each instance
    deviating: Sequence[Observation]  # those that no lossless verifier gives
    smallest: Observation | None  # one found by search that deviates, the smallest
    same: Same  # how their laws are compared with those of known mistakes
    radius: float = 0.0  # how far their distances (TV) can be from the truth
    tried: int = 0  # instances that the search took beyond the observations
    runs: int = 0  # and its runs of the verifier
    skipped: int = 0  # instances that were too large
    false_alarms: float = 0.0  # probability that a lossless verifier deviates; as in the report
    delta: float = 0.0  # the deviation (TV) that is detected; as in the report
    enough: bool = True  # whether all runs were made that the level and delta asked for
    tolerance: float = 0.0  # distances (TV) up to this were taken for rounding

    def report(self, adapter: Adapter, method: str, why_not_exact: tuple[str, ...]) -> Report:
        """Sum it up."""
        seen = [*self.observations, *([self.smallest] if self.smallest else [])]
        worst = max(seen, key=lambda observation: observation.tv_distance)
        example = self._example()
        error = self.radius + worst.error
        interval = Interval(worst.tv_distance, worst.tv_distance)
        if error:
            tv = float(worst.tv_distance)
            interval = Interval(max(tv - error, 0.0), min(tv + error, 1.0))
        verdict = NOT_LOSSLESS if example else LOSSLESS if self.enough else UNDECIDED
        return Report(
            verifier=adapter.name,
            verdict=verdict,
            method=method,
            why_not_exact=why_not_exact,
            tv_distance=worst.tv_distance,
            tv_interval=interval,
            instances=len(self.observations) + self.tried,
            runs=sum(observation.runs for observation in self.observations) + self.runs,
            skipped=self.skipped,
            largest_instance=_largest([observation.instance for observation in seen]),
            false_alarms=self.false_alarms,
            delta=self.delta,
            tolerance=self.tolerance,
            worst_prefix=example.worst_prefix() if example else None,
            counterexample=_counterexample(adapter, example) if example else None,
            diagnoses=diagnose(self._most_telling_first(example), self.same) if example else (),
        )

    def _example(self) -> Observation | None:
        """Choose the smallest instance that deviates, and of equal ones the farthest."""
        if self.smallest is not None:
            return self.smallest
        return min(
            self.deviating, key=lambda o: (*_size(o.instance), -float(o.tv_distance)), default=None
        )

    def _most_telling_first(self, example: Observation) -> list[Observation]:
        right = [seen for seen in self.observations if seen not in self.deviating]
        by_size = sorted(self.deviating, key=lambda seen: _size(seen.instance))
        return list(dict.fromkeys([example, *by_size, *right]))


def _size(instance: Instance) -> tuple[int, int, int]:
    return instance.vocabulary, instance.gamma, instance.k


def _largest(instances: Sequence[Instance]) -> tuple[int, int, int]:
    return (
        max(instance.vocabulary for instance in instances),
        max(instance.gamma for instance in instances),
        max(instance.k for instance in instances),
    )


def _counterexample(adapter: Adapter, seen: Observation) -> Counterexample:
    output = seen.likeliest_excess() if seen.impossible is None else seen.impossible
    uniforms = seen.examples.get(output)
    return Counterexample(
        seen.instance,
        seen.tv_distance,
        output,
        seen.law[output],
        impossible=seen.impossible is not None,
        drafts=_drafts(adapter, seen.instance, uniforms),
        uniforms=uniforms,
    )


def _drafts(
    adapter: Adapter, instance: Instance, uniforms: tuple[Number, ...] | None
) -> Path | None:
    """Drafts of a run, if the verifier tells them."""
    drafted = getattr(adapter, "drafted", None)
    if drafted is None or uniforms is None:
        return None
    try:
        drafts: Path = drafted(instance, source_of(np.array(uniforms)))
    except CRASHES:  # of a verifier that crashes before it has drafts
        return None
    return drafts
