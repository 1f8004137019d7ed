"""Estimate the output distribution by many runs, with a test of stated level and power."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number
from otm.audit.adapters.base import Failure, Instance, Outcome, OutOfUniformsError
from otm.audit.observe.observation import Observation, Observed, UnsuitedError
from otm.audit.runs import Runner, add_uniforms
from otm.audit.scope import AuditBudget, Pace
from otm.decoding.reading import Path
from otm.testing.sequences import sequence_distribution
from otm.testing.statistics import Criterion, criterion_for_distribution, g_statistic
from otm.testing.symbolic import MAX_UNIFORMS

PARTS = (16, 4, 1)
"""A sample is tested after 1/16, 1/4 and all of its runs, so that large deviations end it early."""

BATCH = 4096
"""Largest number of runs whose uniforms are drawn at once."""


def sample_instances(
    runner: Runner, instances: Sequence[Instance], budget: AuditBudget
) -> Observed:
    """Compare frequencies with the target; the instances share the false-alarm level and time."""
    rng = np.random.default_rng(budget.seed)
    level, runs = budget.false_alarms / len(instances), budget.max_runs // len(instances)
    sampler = Sampler(level, budget.delta, max(runs, 1), rng)
    until, samples = budget.until(), list[Sample]()
    for instance in budget.watch.over(instances, "pair of models", len(instances)):
        now = time.monotonic()
        share = max(until - now, 0) / (len(instances) - len(samples))
        samples.append(sampler.sample(runner, instance, now + share))
    delta = max(sample.delta for sample in samples)
    return Observed(
        runner,
        [sample.observation for sample in samples],
        fits=sampler.fits,
        radius=max(sample.radius for sample in samples),
        false_alarms=budget.false_alarms,
        delta=delta,
        enough=delta <= budget.delta,
    )


@dataclass(frozen=True, eq=False)
class Sample:
    """Runs of a verifier on one instance, and their result."""

    # The frequencies; the test rejects a lossless verifier with at most the level's probability.
    observation: Observation
    # Bound on the error of the observation's TV, which fails with at most the level's probability.
    radius: float
    # The deviation (TV) that is rejected with probability 1 − 10^−3.
    delta: float


@dataclass(frozen=True, eq=False)
class Sampler:
    """Settings of samples: their share of the level, their power and their runs."""

    # Probability with which one sample may be rejected although the verifier is lossless.
    level: float
    # The deviation (TV) that a sample must detect.
    delta: float
    # Largest number of runs of a sample, even if its power is then too low.
    max_runs: int
    # Generator of all random numbers.
    rng: np.random.Generator
    # Number of runs between two checks of the time.
    pace: Pace = field(default_factory=lambda: Pace(most=BATCH))

    def sample(self, runner: Runner, instance: Instance, deadline: float = math.inf) -> Sample:
        """Run a verifier until it is rejected, all runs are made, or the time is up."""
        length = runner.max_tokens(instance)
        target = sequence_distribution(instance.target, instance.prompt, length)
        places = {path: i for i, path in enumerate(target)}
        expected = np.array([float(p) for p in target.values()])
        level = self.level / len(PARTS)
        criterion = _criterion(max(expected.size, 2), self.delta, level)
        draws = min(criterion.draws, self.max_runs)
        counts: Counter[Outcome] = Counter()
        continued = np.zeros(expected.size + 1, dtype=np.int64)
        done = 0
        for part in PARTS:
            planned = math.ceil(draws / part)
            new = self._run(runner, instance, planned - done, deadline)
            done += new.total()
            counts += new
            continued += self._continued(new, instance, places, length)
            rejected = g_statistic(continued, np.append(expected, 0)) > criterion.limit
            if rejected:
                break
            if done < planned:
                # The time is up; all runs so far count.
                draws = done
                break
        frequencies: dict[Outcome, Number] = {o: count / done for o, count in counts.items()}
        observation = Observation(instance, frequencies, length, counts=counts, runs=done)
        rejected = rejected or observation.impossible is not None
        return Sample(
            replace(observation, rejected=rejected),
            _radius(expected.size + 1, done, level),
            self.delta * math.sqrt(max(criterion.draws / draws, 1)),
        )

    def fits(self, seen: Observation, known: Observation) -> bool:
        """Return whether runs fit a known distribution, by the same test as for the target."""
        failing = any(isinstance(outcome, Failure) for outcome in known.probs)
        if failing or seen.length != known.length:
            return False
        places = {path: i for i, path in enumerate(known.sequences)}
        expected = np.array([float(p) for p in known.sequences.values()])
        drawn = self._continued(seen.counts or Counter(), seen.instance, places, seen.length)
        criterion = _criterion(max(expected.size, 2), self.delta, self.level)
        return g_statistic(drawn, np.append(expected, 0)) <= criterion.limit

    def _run(
        self, runner: Runner, instance: Instance, runs: int, deadline: float
    ) -> Counter[Outcome]:
        """Make this number of runs; fewer, but at least one, if the time is up."""
        counts: Counter[Outcome] = Counter()
        width = MAX_UNIFORMS
        while counts.total() < runs and not (counts and time.monotonic() > deadline):
            with self.pace.measured(runs - counts.total()) as size:
                uniforms = self.rng.random((max(size * MAX_UNIFORMS // width, 1), width))
                while True:
                    try:
                        counts.update(runner.run_rows(instance, uniforms))
                        break
                    except OutOfUniformsError as error:
                        # Continue the same runs with more uniforms.
                        uniforms = self._longer(uniforms, error)
                        width = uniforms.shape[1]
        return counts

    def _longer(
        self, uniforms: npt.NDArray[np.float64], error: OutOfUniformsError
    ) -> npt.NDArray[np.float64]:
        try:
            return add_uniforms(uniforms, error, self.rng)
        except OutOfUniformsError as too_many:
            raise UnsuitedError(str(too_many)) from None

    def _continued(
        self,
        counts: Counter[Outcome],
        instance: Instance,
        places: dict[Path, int],
        length: int,
    ) -> npt.NDArray[np.int64]:
        """Count sequences, continued by the target at random; unknown sequences come last."""
        drawn = np.zeros(len(places) + 1, dtype=np.int64)
        for outcome in sorted(counts, key=str):
            if isinstance(outcome, Failure):
                drawn[-1] += counts[outcome]
                continue
            prompt = instance.prompt + outcome
            rests = sequence_distribution(instance.target, prompt, length - len(outcome))
            split = self.rng.multinomial(counts[outcome], [float(p) for p in rests.values()])
            for rest, count in zip(rests, split.tolist(), strict=True):
                drawn[places.get(outcome + rest, -1)] += count
        return drawn


@cache
def _criterion(categories: int, delta: float, level: float) -> Criterion:
    """Return the criterion for any distribution over this number of sequences."""
    return criterion_for_distribution(np.full(categories, 1 / categories), delta, level)


def _radius(categories: int, draws: int, level: float) -> float:
    """Return a bound on the TV between frequencies and true probabilities.

    The bound fails with probability at most `level`.  The function uses the smaller of two bounds:
    2^K e^(−2nr²) over all events, and McDiarmid's bound around the mean of Σ abs(c/n − p)/2, which
    is at most √(K/n)/2.
    """
    events = math.sqrt((categories * math.log(2) + math.log(1 / level)) / (2 * draws))
    mean = math.sqrt(categories / draws) / 2
    return min(events, mean + math.sqrt(math.log(1 / level) / (2 * draws)), 1.0)
