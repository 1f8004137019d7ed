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
from otm._core.display.reprs import Brief
from otm.audit.adapters.base import Failure, Instance, Outcome
from otm.audit.runs import Runner
from otm.decoding.reading import Path
from otm.testing.sequences import continued_distribution, sequence_distribution

ISOLATED = 2.0**-23
"""Most probability of an outcome that is taken for that of a single uniform, of 24 bits."""

TWICE_ISOLATED = 2.0**-40
"""Least probability of an outcome of one isolated uniform; that of two is 2^−46 at most."""

TELLING = 4
"""A counterexample, and what is shown there, has at least this part of the largest distance."""

NOT_REPEATED = "the same uniforms do not always give the same output"
"""Why no distribution can be computed."""


class UnsuitedError(Exception):
    """A method does not work for a verifier; caught where another one is tried."""


@dataclass(frozen=True)
class WorstPrefix:
    """Output tokens after which the next one is farthest from the target's distribution."""

    prefix: Path  # the tokens output so far
    probability: Number  # probability of the prefix in the output
    output_probs: Probs  # [V]: distribution of the next token in the output
    target_probs: Probs  # [V]: and in the target model

    @property
    def off(self) -> float:
        """How far off the next token is (TV), weighted by the probability of the prefix."""
        return float(self.probability * abs(self.output_probs - self.target_probs).sum() / 2)


@dataclass(frozen=True, eq=False)
class Observation(Brief):
    """Output distribution of a verifier on an instance."""

    instance: Instance  # the models
    # of each outcome: fractions, or floats where they come from bisection or are frequencies
    probs: Mapping[Outcome, Number]
    length: int  # most tokens of a run: sequences are compared at this length
    # uniforms that lead to the outcome, where they are known
    examples: Mapping[Outcome, tuple[Number, ...]] = field(default_factory=dict)
    error: float = 0.0  # how far the probabilities can be from the truth (TV)
    # how often each outcome was seen, for probabilities that are frequencies
    counts: Counter[Outcome] | None = None
    rejected: bool | None = None  # whether a test rejects the frequencies; None if there is none
    runs: int = 0  # runs of the verifier that it took
    uniforms: int = 0  # most uniforms that a run took; 0 if unknown
    pieces: int = 0  # pieces between breakpoints, each of which a known mistake has as a path

    @cached_property
    def sequences(self) -> dict[Path, Number]:
        """Distribution of the output, continued by the target; failures are left out."""
        return self._continued(self.length)

    @cached_property
    def target(self) -> dict[Path, Fraction]:
        """Distribution that the sequences should have."""
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
        """Total variation distance of the two; a failure counts as a wrong output."""
        return distance(self.sequences, self.target)

    def is_off(self, tolerance: float) -> bool:
        """Whether the distance exceeds the error and the tolerance."""
        return float(self.tv_distance) > self.error + tolerance

    def deviates(self, tolerance: float) -> bool:
        """Whether a lossless verifier cannot have such an output."""
        if self.rejected is not None:
            return self.rejected
        return self.is_off(tolerance) or self.impossible is not None

    def isolated(self) -> list[Outcome]:
        """Outcomes that the target cannot give, from single values of a uniform or rounding."""
        return [outcome for outcome in self._impossible if self.probs[outcome] <= ISOLATED]

    @cached_property
    def impossible(self) -> Outcome | None:
        """An outcome that the target cannot give, at whatever uniforms, or None.

        Of those that are not isolated a failure comes first, then the likeliest.
        """

        def telling(outcome: Outcome) -> tuple[bool, Number]:
            probability = self.probs[outcome]
            return isinstance(outcome, Failure) and probability > ISOLATED, probability

        return max(self._impossible, key=telling, default=None)

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
        """Return all outcomes that the target cannot give, as text.

        Where breakpoints give them, those of two isolated uniforms at once are left out.
        """
        return {
            "crashed" if isinstance(outcome, Failure) and outcome.crashed else str(outcome)
            for outcome in self._impossible
            if not 0 < self.probs[outcome] < TWICE_ISOLATED
        }

    def likeliest_excess(self) -> Outcome:
        """Find the output, or its beginning, that exceeds its target probability most."""
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
        """Prefix after which the next token is farthest off, weighted by its probability."""
        worst, farthest = None, self.error
        for here in self.prefixes():
            if here.off > farthest:
                worst, farthest = here, here.off
        return worst


@dataclass(frozen=True)
class Observed:
    """Output distributions of a verifier on all instances by one method, and their coverage."""

    runner: Runner
    observations: Sequence[Observation]  # on each instance
    smallest: Observation | None = None  # the smallest one of the search that deviates
    searched: Sequence[Observation] = ()  # on the instances of the search
    # whether frequencies fit a known distribution; None where distributions are known
    fits: Callable[[Observation, Observation], bool] | None = None
    radius: float = 0.0  # how far their distances (TV) can be from the truth
    skipped: int = 0  # instances that were too large
    false_alarms: float = 0.0  # probability that a lossless verifier deviates; as in the report
    delta: float = 0.0  # the deviation (TV) that is detected; as in the report
    enough: bool = True  # whether all was done that a verdict without a deviation needs
    left_out: tuple[str, ...] = ()  # kinds of instances that no time was left for
    sampled: Observed | None = None  # of larger instances that were sampled beside these
    later_runs: str | None = None  # how runs change later runs
    slower: float | None = None  # time of a run at the end over that at the start
    tolerance: float = 0.0  # distances (TV) up to this were taken for rounding
    method: str = ""
    why_not_exact: tuple[str, ...] = ()  # why the methods before it do not work

    @property
    def seen(self) -> list[Observation]:
        """All observations of the report; of the search only the smallest."""
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
    """Total variation distance of two distributions of sequences; the first may lack mass."""
    differences: list[Any] = [a.get(path, 0) - b.get(path, 0) for path in {**a, **b}]
    lost: Any = total(b.values()) - total(a.values())
    half: Number = (total(map(abs, differences)) + abs(lost)) / 2
    return half
