"""The three ways to audit: each observes a verifier on all instances and says what deviates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from otm.audit import breakpoints, exact
from otm.audit.adapter import Adapter, Instance
from otm.audit.diagnosis import fitting, same_law
from otm.audit.findings import Findings
from otm.audit.observation import Observation, UnsuitedError
from otm.audit.sampling import Sampler
from otm.audit.search import Search
from otm.errors import ProblemTooLargeError

Observe = Callable[[Instance], Observation]

COSTLY = 5
"""How many times fewer examples are searched through where each takes thousands of runs."""


@dataclass(frozen=True)
class Effort:
    """How much an audit does, and what it lets pass: as in `otm.audit.lossless`."""

    examples: int
    false_alarms: float
    delta: float
    max_runs: int
    tolerance: float
    seed: int


def by_paths(adapter: Adapter, instances: Sequence[Instance], effort: Effort) -> Findings:
    """Audit in fractions."""
    rng = np.random.default_rng(effort.seed)

    def observe(instance: Instance) -> Observation:
        seen = exact.by_paths(adapter, instance)
        exact.check_in_floats(adapter, seen, rng)
        return seen

    return _by_laws(adapter, instances, effort, observe, effort.examples)


def by_breakpoints(adapter: Adapter, instances: Sequence[Instance], effort: Effort) -> Findings:
    """Audit in floats."""
    rng = np.random.default_rng(effort.seed)
    left = effort.max_runs

    def observe(instance: Instance) -> Observation:
        nonlocal left
        try:
            seen = breakpoints.by_breakpoints(adapter, instance, rng, left)
        except ProblemTooLargeError:
            left = 0  # the small ones come first
            raise
        left -= seen.runs
        return seen

    findings = _by_laws(adapter, instances, effort, observe, effort.examples // COSTLY)
    return dataclasses.replace(findings, delta=breakpoints.UNSEEN)


def by_sampling(adapter: Adapter, instances: Sequence[Instance], effort: Effort) -> Findings:
    """Audit by Monte Carlo; the level is shared by the instances."""
    each = len(instances)
    sampler = Sampler(
        effort.false_alarms / each,
        effort.delta,
        max(effort.max_runs // each, 1),
        np.random.default_rng(effort.seed),
    )
    samples = [sampler.sample(adapter, instance) for instance in instances]
    delta = max(sample.delta for sample in samples)
    return Findings(
        [sample.observation for sample in samples],
        [sample.observation for sample in samples if sample.rejected],
        smallest=None,
        same=fitting(sampler),
        radius=max(sample.radius for sample in samples),
        false_alarms=effort.false_alarms,
        delta=delta,
        enough=delta <= effort.delta,
    )


def _by_laws(
    adapter: Adapter,
    instances: Sequence[Instance],
    effort: Effort,
    observe: Observe,
    examples: int,
) -> Findings:
    """Observe where it is not too much, and search for the smallest instance that deviates."""
    observations: list[Observation] = []
    tried = runs = 0
    too_much: Exception | None = None
    for instance in instances:
        try:
            observations.append(observe(instance))
        except ProblemTooLargeError as error:
            too_much = error
    if not observations:
        raise UnsuitedError(str(too_much))

    def deviates(seen: Observation) -> bool:
        return (
            seen.impossible is not None or float(seen.tv_distance) > seen.error + effort.tolerance
        )

    def holds(instance: Instance) -> bool:
        nonlocal tried, runs
        try:
            seen = observe(instance)
        except (UnsuitedError, ProblemTooLargeError):
            return False
        tried += 1
        runs += seen.runs
        return deviates(seen)

    search = Search(adapter, holds, examples, effort.seed)
    smallest = search.smallest() if examples else None
    return Findings(
        observations,
        [seen for seen in observations if deviates(seen)],
        None if smallest is None else observe(smallest),
        same_law(effort.tolerance),
        tried=tried,
        tolerance=effort.tolerance,
        skipped=len(instances) - len(observations),
        runs=runs,
    )
