"""What was seen of a verifier on one instance, and how far that is from the target."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from otm._core.arithmetic import Law, Number
from otm.audit.adapter import Instance
from otm.audit.running import Failure, Outcome
from otm.decoding.reading import Path
from otm.models.table import TableModel
from otm.testing.sequences import continued_distribution, sequence_distribution


class UnsuitedError(Exception):
    """A way to find laws does not work for a verifier; caught where another way is tried."""


@dataclass(frozen=True)
class WorstPrefix:
    """Output tokens after which the next one is farthest from the target's distribution."""

    prefix: Path  # the tokens output so far
    probability: Number  # probability of the prefix in the output
    output_probs: Law  # [V]: distribution of the next token in the output
    target_probs: Law  # [V]: and in the target model


@dataclass(frozen=True, eq=False)
class Observation:
    """Output distribution of a verifier on an instance."""

    instance: Instance  # the models
    # probabilities: fractions, or floats where they were found by bisection or are frequencies
    law: Mapping[Outcome, Number]
    length: int  # most tokens of a run: sequences are compared at this length
    # uniforms that give the outcome, where they are known
    examples: Mapping[Outcome, tuple[Number, ...]] = field(default_factory=dict)
    error: float = 0.0  # how far the law can be from the truth (TV)
    # how often each outcome was seen, for a law that is a frequency
    counts: Counter[Outcome] | None = None
    runs: int = 0  # runs of the verifier that it took

    @cached_property
    def sequences(self) -> dict[Path, Number]:
        """Law of the output, continued by the target; what went wrong has no part in it."""
        return self.continued(self.length)

    @cached_property
    def target(self) -> dict[Path, Fraction]:
        """Law that the sequences should have."""
        return sequence_distribution(self.instance.target, self.instance.prompt, self.length)

    def continued(self, length: int) -> dict[Path, Number]:
        """Law of the output, continued by the target to a length that no output exceeds."""
        outputs: Any = {path: p for path, p in self.law.items() if not isinstance(path, Failure)}
        return dict(
            continued_distribution(outputs, self.instance.target, self.instance.prompt, length)
        )

    @cached_property
    def tv_distance(self) -> Number:
        """Total variation distance of the two; what went wrong counts as output by mistake."""
        return distance(self.sequences, self.target)

    @cached_property
    def impossible(self) -> Outcome | None:
        """An outcome that the target cannot give, at whatever uniforms: the likeliest, or None."""
        prompt, model = self.instance.prompt, self.instance.target
        bad = [
            outcome
            for outcome in self.law
            if isinstance(outcome, Failure) or not _possible(model, prompt, outcome)
        ]
        return max(bad, key=lambda outcome: self.law[outcome], default=None)

    def impossible_outcomes(self) -> set[str]:
        """All outcomes that the target cannot give, written out."""
        prompt, model = self.instance.prompt, self.instance.target
        return {
            "crashed" if isinstance(outcome, Failure) and outcome.crashed else str(outcome)
            for outcome in self.law
            if isinstance(outcome, Failure) or not _possible(model, prompt, outcome)
        }

    def likeliest_excess(self) -> Outcome:
        """Find the output that is most above what the target allows, as a part of sequences."""
        excess: Counter[Path] = Counter()
        for path, probability in self.sequences.items():
            excess[path] = probability - self.target.get(path, 0)  # type: ignore[assignment]
        (worst, _), *_ = excess.most_common(1)
        prefixes = [path for path in self.law if not isinstance(path, Failure)]
        fitting = [path for path in prefixes if worst[: len(path)] == path]
        return max(fitting, key=lambda path: self.law[path])

    def worst_prefix(self) -> WorstPrefix | None:
        """Prefix after which the law of the next token is farthest, weighted by its probability."""
        best: tuple[float, WorstPrefix] | None = None
        masses: dict[Path, Number] = {}
        for path, probability in self.sequences.items():
            for end in range(self.length + 1):
                masses[path[:end]] = masses.get(path[:end], 0) + probability
        vocabulary = self.instance.vocabulary
        for prefix in sorted(masses, key=len):
            weight = masses[prefix]
            if len(prefix) == self.length or weight <= 0:
                continue
            after = [masses.get((*prefix, token), 0) / weight for token in range(vocabulary)]
            law = np.array(after, dtype=object if isinstance(weight, Fraction) else float)
            wanted = self.instance.target.probs(self.instance.prompt + prefix)
            off = float(weight * abs(law - wanted).sum() / 2)
            if best is None or off > best[0]:
                best = off, WorstPrefix(prefix, weight, law, wanted)
        return best[1] if best is not None and best[0] > self.error else None


def distance(a: Mapping[Path, Number], b: Mapping[Path, Number]) -> Number:
    """Total variation distance of two laws of sequences, of which the first may lack mass."""
    differences: list[Any] = [a.get(path, 0) - b.get(path, 0) for path in {**a, **b}]
    lost: Any = sum(b.values()) - sum(a.values())
    half: Number = (sum(map(abs, differences)) + abs(lost)) / 2
    return half


def laws_of(model: TableModel, prompt: Path, length: int) -> dict[Path, Law]:
    """Laws after a prompt and up to so many tokens, without those that the shorter ones give."""
    laws: dict[Path, Law] = {}
    for size in range(length):
        for path in itertools.product(range(model.vocabulary), repeat=size):
            law = model.probs(prompt + path)
            if not path or (law != model.probs(prompt + path[1:])).any():
                laws[path] = law
    return laws


def _possible(model: TableModel, prompt: Path, path: Path) -> bool:
    return all(model.probs(prompt + path[:i])[token] > 0 for i, token in enumerate(path))
