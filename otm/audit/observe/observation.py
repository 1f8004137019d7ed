"""Observed output distributions of a verifier, and their distances from the target."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from otm._core.arithmetic import Number, Probs, total
from otm._core.display.reprs import ShortRepr
from otm.audit.adapters.base import Failure, Instance, Outcome
from otm.audit.runs import Runner
from otm.decoding.reading import Path
from otm.testing.sequences import continued_distribution, sequence_distribution

ISOLATED = 2.0**-23
"""Largest probability of an outcome that counts as caused by one value of a 24-bit uniform."""

TWICE_ISOLATED = 2.0**-45
"""Smallest probability of an outcome from one isolated uniform; from two it is ≤ 2^−46."""

MAX_RATIO = 4
"""Largest ratio of the largest distance to a counterexample's distance."""

NOT_REPEATED = "the same uniforms do not always give the same output"
"""Reason why no distribution can be computed."""


class UnsuitedError(Exception):
    """A method does not work for a verifier; caught where another method is tried."""


@dataclass(frozen=True)
class WorstPrefix:
    """Output prefix after which the next token is farthest from the target's distribution."""

    # The output tokens so far.
    prefix: Path
    # Probability of the prefix in the output.
    probability: Number
    # Distribution of the next token in the output [V].
    output_probs: Probs
    # Distribution of the next token in the target [V].
    target_probs: Probs

    @property
    def off(self) -> float:
        """Distance of the next token (TV), weighted by the probability of the prefix."""
        return float(self.probability * abs(self.output_probs - self.target_probs).sum() / 2)


@dataclass(frozen=True, eq=False)
class Observation(ShortRepr):
    """Output distribution of a verifier on an instance."""

    # The models.
    instance: Instance
    # Probability of each outcome: fractions, or floats from bisection or frequencies.
    probs: Mapping[Outcome, Number]
    # Largest number of tokens of a run; sequences are compared at this length.
    length: int
    # Uniforms that lead to each outcome, if they are known.
    examples: Mapping[Outcome, tuple[Number, ...]] = field(default_factory=dict)
    # Largest error of the probabilities (TV).
    error: float = 0.0
    # Count of each outcome, if the probabilities are frequencies.
    counts: Counter[Outcome] | None = None
    # Whether a test rejects the frequencies; None without a test.
    rejected: bool | None = None
    # Number of runs of the verifier.
    runs: int = 0
    # Largest number of uniforms of a run; 0 if unknown.
    uniforms: int = 0
    # Number of pieces between breakpoints; a known mistake has a path for each.
    pieces: int = 0

    @cached_property
    def sequences(self) -> dict[Path, Number]:
        """Distribution of the output, continued by the target; without failures."""
        return self._continued(self.length)

    @cached_property
    def target(self) -> dict[Path, Fraction]:
        """Distribution of the sequences under the target."""
        return sequence_distribution(self.instance.target, self.instance.prompt, self.length)

    def continued(self, length: int) -> dict[Path, Number]:
        """Continue the outputs by the target to a length that no output exceeds."""
        return self.sequences if length == self.length else self._continued(length)

    def _continued(self, length: int) -> dict[Path, Number]:
        outputs: Any = {path: p for path, p in self.probs.items() if not isinstance(path, Failure)}
        return dict(
            continued_distribution(outputs, self.instance.target, self.instance.prompt, length)
        )

    @cached_property
    def tv_distance(self) -> Number:
        """Total variation distance from the target; a failure counts as a wrong output."""
        return distance(self.sequences, self.target)

    def is_off(self, tolerance: float) -> bool:
        """Whether the distance exceeds the error and the tolerance."""
        return float(self.tv_distance) > self.error + tolerance

    def deviates(self, tolerance: float) -> bool:
        """Whether a lossless verifier cannot have this observed distribution."""
        if self.rejected is not None:
            return self.rejected
        return self.is_off(tolerance) or self.impossible is not None

    def isolated(self) -> list[Outcome]:
        """Return impossible outcomes that come from single values of a uniform or rounding.

        Failures are left out if others of their kind are more probable.
        """
        rare = [outcome for outcome in self._impossible if self.probs[outcome] <= ISOLATED]
        likely = {
            x.kind for x in self._impossible if isinstance(x, Failure) and self.probs[x] > ISOLATED
        }
        return [x for x in rare if not (isinstance(x, Failure) and x.kind in likely)]

    @cached_property
    def impossible(self) -> Outcome | None:
        """An outcome that is impossible under the target; None if there is none.

        Failures that are not isolated have priority, then the most probable outcome.
        """

        def priority(outcome: Outcome) -> tuple[bool, Number]:
            probability = self.probs[outcome]
            return isinstance(outcome, Failure) and probability > ISOLATED, probability

        return max(self._impossible, key=priority, default=None)

    @cached_property
    def _impossible(self) -> list[Outcome]:
        prompt, target = self.instance.prompt, self.instance.target
        return [
            outcome
            for outcome in self.probs
            if isinstance(outcome, Failure)
            or not all(target.probs(prompt + outcome[:i])[x] > 0 for i, x in enumerate(outcome))
        ]

    def impossible_outcomes(self) -> set[str]:
        """Return all outcomes that are impossible under the target, as text.

        With the method breakpoints, an outcome is omitted if it needs isolated values of two
        uniforms at once.
        """
        return {
            "crashed" if isinstance(outcome, Failure) and outcome.crashed else str(outcome)
            for outcome in self._impossible
            if not 0 < self.probs[outcome] < TWICE_ISOLATED
        }

    def largest_excess(self) -> Outcome:
        """Return the output, or its beginning, that exceeds its target probability most."""
        worst = max(
            self.sequences, key=lambda path: self.sequences[path] - self.target.get(path, 0)
        )
        prefixes = [worst[:end] for end in range(len(worst) + 1)]
        return max((p for p in prefixes if p in self.probs), key=self.probs.__getitem__)

    def prefixes(self) -> Iterator[WorstPrefix]:
        """Yield the next token's distribution after each prefix of the output, short ones first."""
        masses: dict[Path, Any] = defaultdict(int)
        for path, probability in self.sequences.items():
            for end in range(self.length + 1):
                masses[path[:end]] += probability
        for prefix in sorted(masses, key=len):
            weight = masses[prefix]
            if len(prefix) < self.length and weight > 0:
                after = [masses[*prefix, x] / weight for x in range(self.instance.vocabulary)]
                probs = np.array(after, dtype=object if isinstance(weight, Fraction) else float)
                target = self.instance.target.probs(self.instance.prompt + prefix)
                yield WorstPrefix(prefix, weight, probs, target)

    def worst_prefix(self) -> WorstPrefix | None:
        """Return the prefix with the largest weighted distance of the next token, or None."""
        worst, farthest = None, self.error
        for here in self.prefixes():
            if here.off > farthest:
                worst, farthest = here, here.off
        return worst


@dataclass(frozen=True)
class Observed:
    """Output distributions of a verifier on all instances by one method, and their coverage."""

    runner: Runner
    # One observation for each instance.
    observations: Sequence[Observation]
    # The smallest deviating observation of the search.
    smallest: Observation | None = None
    # Observations on the instances of the search.
    searched: Sequence[Observation] = ()
    # Predicate: do frequencies fit a known distribution?  None if the distributions are known.
    fits: Callable[[Observation, Observation], bool] | None = None
    # Largest error of the distances (TV).
    radius: float = 0.0
    # Number of instances that were too large.
    skipped: int = 0
    # Probability that a lossless verifier deviates, as in the report.
    false_alarms: float = 0.0
    # The deviation (TV) that is detected, as in the report.
    delta: float = 0.0
    # Whether the coverage suffices for the verdict "lossless".
    enough: bool = True
    # Kinds of instances that no time was left for.
    left_out: tuple[str, ...] = ()
    # Observations of larger instances that were sampled in addition.
    sampled: Observed | None = None
    # How runs change later runs.
    later_runs: str | None = None
    # Time of a run at the end, divided by the time at the start.
    slower: float | None = None
    # Distances (TV) up to this value counted as rounding.
    tolerance: float = 0.0
    method: str = ""
    # Why the preceding methods do not work.
    why_not_exact: tuple[str, ...] = ()

    @property
    def seen(self) -> list[Observation]:
        """All observations of the report; the search adds only its smallest instance."""
        return [*self.observations, *([self.smallest] if self.smallest else [])]

    @property
    def deviating(self) -> list[Observation]:
        """Observations that a lossless verifier cannot have."""
        return [seen for seen in self.seen if seen.deviates(self.tolerance)]

    @property
    def runs(self) -> int:
        """Number of runs on all instances."""
        return sum(each.runs for each in (*self.observations, *self.searched))


def distance(a: Mapping[Path, Number], b: Mapping[Path, Number]) -> Number:
    """Return the TV distance of two distributions of sequences; the first may sum to below 1."""
    differences: list[Any] = [a.get(path, 0) - b.get(path, 0) for path in {**a, **b}]
    lost: Any = total(b.values()) - total(a.values())
    half: Number = (total(map(abs, differences)) + abs(lost)) / 2
    return half
