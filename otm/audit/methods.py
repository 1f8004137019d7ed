"""The three ways to audit: each observes a subject on all instances and says what deviates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from otm.audit import breakpoints, exact
from otm.audit.diagnosis import fitting, same_law
from otm.audit.findings import Findings
from otm.audit.observation import Observation, UnsuitedError
from otm.audit.sampling import Sampler
from otm.audit.search import Search
from otm.audit.subject import Instance, Subject
from otm.errors import ProblemTooLargeError

__all__ = ["Effort", "by_breakpoints", "by_paths", "by_sampling"]

Observe = Callable[[Instance], Observation]

COSTLY = 5
"""How many times fewer examples are searched through where each takes thousands of runs."""


@dataclass(frozen=True)
class Effort:
    """How much an audit does, and what it lets pass: as in `otm.audit.lossless`."""

    examples: int
    level: float
    delta: float
    max_runs: int
    tolerance: float
    seed: int


def by_paths(subject: Subject, instances: Sequence[Instance], effort: Effort) -> Findings:
    """Audit in fractions."""
    rng = np.random.default_rng(effort.seed)

    def observe(instance: Instance) -> Observation:
        seen = exact.by_paths(subject, instance)
        exact.check_in_floats(subject, seen, rng)
        return seen

    return _by_laws(subject, instances, effort, observe, effort.examples)


def by_breakpoints(subject: Subject, instances: Sequence[Instance], effort: Effort) -> Findings:
    """Audit in floats."""
    rng = np.random.default_rng(effort.seed)
    left = effort.max_runs

    def observe(instance: Instance) -> Observation:
        nonlocal left
        try:
            seen = breakpoints.by_breakpoints(subject, instance, rng, left)
        except ProblemTooLargeError:
            left = 0  # the small ones come first
            raise
        left -= seen.runs
        return seen

    findings = _by_laws(subject, instances, effort, observe, effort.examples // COSTLY)
    return dataclasses.replace(findings, delta=breakpoints.UNSEEN)


def by_sampling(subject: Subject, instances: Sequence[Instance], effort: Effort) -> Findings:
    """Audit by Monte Carlo; the level is shared by the instances."""
    each = len(instances)
    sampler = Sampler(
        effort.level / each,
        effort.delta,
        max(effort.max_runs // each, 1),
        np.random.default_rng(effort.seed),
    )
    samples = [sampler.sample(subject, instance) for instance in instances]
    delta = max(sample.delta for sample in samples)
    return Findings(
        [sample.observation for sample in samples],
        [sample.observation for sample in samples if sample.rejected],
        smallest=None,
        same=fitting(sampler),
        radius=max(sample.radius for sample in samples),
        level=effort.level,
        delta=delta,
        enough=delta <= effort.delta,
    )


def _by_laws(
    subject: Subject,
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
        return seen.impossible is not None or float(seen.tv) > seen.error + effort.tolerance

    def holds(instance: Instance) -> bool:
        nonlocal tried, runs
        try:
            seen = observe(instance)
        except (UnsuitedError, ProblemTooLargeError):
            return False
        tried += 1
        runs += seen.runs
        return deviates(seen)

    search = Search(subject, holds, examples, effort.seed)
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
