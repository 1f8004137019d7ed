"""The three methods of an audit: exact paths, breakpoints and Monte Carlo."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from otm._core.display.progress import SILENT, Watch
from otm.audit.adapters.base import Adapter, Instance
from otm.audit.diagnose.diagnosis import same_distribution
from otm.audit.findings import TELLING, Findings
from otm.audit.instances import INSTANCES, left_out, smallest_deviation
from otm.audit.intercept.draws import OwnDraws
from otm.audit.observe import breakpoints, exact
from otm.audit.observe.later_runs import Again, LaterRuns
from otm.audit.observe.monte_carlo import Sample, Sampler
from otm.audit.observe.observation import Observation, UnsuitedError, rows_of
from otm.audit.observe.pace import TimeIsUpError
from otm.audit.observe.precision import COARSE, FINE
from otm.errors import ProblemTooLargeError

NEEDED = ("rows differ", "pairs", "two drafts, two tokens")
"""Names of the instances that come first, and without which no verifier is called lossless."""

AT_LEAST, SHARE = 10.0, 0.25
"""Seconds that Monte Carlo and the search for known mistakes have at least, or if it is less this
share of the audit's time."""

LOOKS, SMALL = 8, 4
"""One part in this many of Monte Carlo's time tests whether runs change later ones, on a small pair
with at most this number of tokens and of drafts."""

COSTLY = 5
"""How many times fewer examples are searched through where each takes thousands of runs."""

SHARES, AT_LEAST_RUNS = 8, 20_000
"""Breakpoints of one instance may take this part of all runs, and so many in any case."""


def needed() -> set[Instance]:
    """Instances without which no verifier is called lossless."""
    return {INSTANCES[name] for name in NEEDED}


@dataclass(frozen=True)
class Effort:
    """How much an audit does, and what it lets pass: as in `otm.audit.lossless`."""

    examples: int
    false_alarms: float
    delta: float
    max_runs: int
    tolerance: float
    seed: int
    watch: Watch = SILENT
    deadline: float = math.inf  # of `time.monotonic`
    at_least: float = AT_LEAST  # seconds for the work after the deadline
    slow: bool = False  # whether a run of the verifier takes long
    asked: frozenset[Instance] = frozenset()  # pairs that the user asked for

    def until(self) -> float:
        """Time by which work that begins now must end."""
        return max(self.deadline, time.monotonic() + self.at_least)


def by_paths(adapter: Adapter, instances: Sequence[Instance], effort: Effort) -> Findings:
    """Audit in fractions."""
    rng = np.random.default_rng(effort.seed)

    def observe(instance: Instance) -> Observation:
        try:
            seen = exact.by_paths(adapter, instance, effort.deadline)
            exact.check_in_floats(adapter, seen, rng, effort.deadline)
        except ProblemTooLargeError as error:
            if instance not in needed():
                raise
            raise UnsuitedError(f"a pair that a verdict needs is too large: {error}") from None
        return seen

    return _by_distributions(adapter, instances, effort, observe, effort.examples)


def by_breakpoints(adapter: Adapter, instances: Sequence[Instance], effort: Effort) -> Findings:
    """Audit in floats."""
    rng = np.random.default_rng(effort.seed)
    left = effort.max_runs
    precision = COARSE if effort.slow else FINE

    def observe(instance: Instance) -> Observation:
        nonlocal left
        allowed = min(left, max(effort.max_runs // SHARES, AT_LEAST_RUNS))
        try:
            seen = breakpoints.by_breakpoints(
                adapter, instance, rng, allowed, precision=precision, deadline=effort.deadline
            )
        except TimeIsUpError:
            raise
        except ProblemTooLargeError:
            left -= allowed
            raise
        left -= seen.runs
        return seen

    findings = _by_distributions(adapter, instances, effort, observe, effort.examples // COSTLY)
    return dataclasses.replace(findings, delta=precision.unseen)


def by_sampling(adapter: Adapter, instances: Sequence[Instance], effort: Effort) -> Findings:
    """Audit by Monte Carlo, and test whether runs change later ones."""
    later = LaterRuns(adapter, _most_telling(instances), effort.seed)

    def look() -> None:
        now = time.monotonic()
        later.look(now + max(effort.until() - now, 0) / LOOKS)

    try:
        look()
        findings = sampled(adapter, instances, effort)
        look()
    except ProblemTooLargeError as error:
        raise UnsuitedError(str(error)) from None
    changed = later.changed(effort.false_alarms)
    return dataclasses.replace(findings, later_runs=changed, slower=later.slower)


def sampled(adapter: Adapter, instances: Sequence[Instance], effort: Effort) -> Findings:
    """Compare frequencies with the target; the instances share the level."""
    rng = np.random.default_rng(effort.seed)
    level, runs = effort.false_alarms / len(instances), effort.max_runs // len(instances)
    sampler = Sampler(level, effort.delta, max(runs, 1), rng)
    until, samples = effort.until(), list[Sample]()
    for instance in effort.watch.over(instances, "pair of models", len(instances)):
        now = time.monotonic()
        share = max(until - now, 0) / (len(instances) - len(samples))
        samples.append(sampler.sample(adapter, instance, now + share))
    delta = max(sample.delta for sample in samples)
    return Findings(
        [sample.observation for sample in samples],
        [sample.observation for sample in samples if sample.rejected],
        smallest=None,
        ways=[sampler.fits],
        radius=max(sample.radius for sample in samples),
        false_alarms=effort.false_alarms,
        delta=delta,
        enough=delta <= effort.delta,
    )


def _most_telling(instances: Sequence[Instance]) -> Instance:
    """Choose the small pair of models whose rows depend most on the tokens before."""
    small = [each for each in instances if each.vocabulary <= SMALL and each.gamma <= SMALL]
    return max(small or instances, key=lambda each: sum(map(len, rows_of(each))))


def _by_distributions(
    adapter: Adapter,
    instances: Sequence[Instance],
    effort: Effort,
    observe: Callable[[Instance], Observation],
    examples: int,
) -> Findings:
    """Observe where it is not too much, and search for the smallest instance that deviates."""
    observations: list[Observation] = []
    searched: list[Observation] = []
    too_much: Exception | None = None

    def deviates(seen: Observation) -> bool:
        return seen.is_off(effort.tolerance) or seen.impossible is not None

    late: Sequence[Instance] = ()
    again: Again | None = None
    for place, instance in enumerate(
        effort.watch.over(instances, "pair of models", len(instances))
    ):
        try:
            observations.append(observe(instance))
        except TimeIsUpError as error:
            too_much, late = error, instances[place:]
            break
        except ProblemTooLargeError as error:
            too_much = error
        else:
            refuse_values_of_noise(adapter, deviates(observations[-1]))
            again = again or Again(adapter, observations[-1], effort.seed)
    if not observations:
        raise UnsuitedError(str(too_much))
    seen_instances = [seen.instance for seen in observations]

    off = (seen.tv_distance for seen in observations if seen.is_off(effort.tolerance))
    most = max(map(float, off), default=0.0)

    def deviation(instance: Instance) -> Observation | None:
        if time.monotonic() > effort.deadline:
            return None
        effort.watch.tell("search, pair of models", len(searched) + 1)
        try:
            searched.append(observe(instance))
        except (UnsuitedError, ProblemTooLargeError):
            return None
        seen = searched[-1]
        telling = seen.is_off(effort.tolerance) and float(seen.tv_distance) >= most / TELLING
        return seen if (telling if most else deviates(seen)) else None

    deviating = [seen for seen in observations if deviates(seen)]
    smallest = smallest_deviation(adapter, deviation, examples, effort.seed) if examples else None
    if again is not None and not deviating and smallest is None:
        again.check()
    return Findings(
        observations,
        deviating,
        smallest,
        [same_distribution(effort.tolerance, apart=apart) for apart in (False, True)],
        searched=searched,
        skipped=len(instances) - len(observations),
        enough=not needed() & (set(instances) - set(seen_instances)),
        left_out=left_out(seen_instances, late)
        + (("those of the size asked for",) if effort.asked & set(late) else ()),
        tolerance=effort.tolerance,
    )


METHODS: dict[str, Callable[[Adapter, Sequence[Instance], Effort], Findings]] = {
    "exact paths": by_paths,
    "breakpoints": by_breakpoints,
    "Monte Carlo": by_sampling,
}
"""Ways to know an output distribution, the preferred ones first."""


def refuse_values_of_noise(adapter: Adapter, deviates: bool) -> None:
    """Leave it to Monte Carlo where pieces that are not quite exact may be what deviates."""
    if deviates and isinstance(adapter, OwnDraws) and adapter.looked:
        raise UnsuitedError("its output may depend on the values of random noise")
