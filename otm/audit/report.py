"""What an audit found, for people and for machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from otm._core.arithmetic import Law, Number
from otm._core.interval import Interval
from otm.audit.adapter import Instance
from otm.audit.diagnosis import Diagnosis
from otm.audit.observation import WorstPrefix, laws_of
from otm.audit.running import Failure, Outcome
from otm.decoding.reading import Path
from otm.models.table import TableModel

LOSSLESS = "lossless on everything tried"
NOT_LOSSLESS = "not lossless"
UNDECIDED = "undecided"


@dataclass(frozen=True, eq=False)
class Counterexample:
    """Models on which the output does not have the law of the target, and a run that shows it.

    Attributes
    ----------
    instance : Instance
        The models, in fractions.
    tv_distance : float or Fraction
        Distance (TV) of the two laws there, in [0, 1].
    output : tuple of int or Failure
        An output that comes too often, or that must never come.
    probability : float or Fraction
        Probability of this output; 0 if isolated values of a uniform give it.
    impossible : bool
        Whether the target never gives this output.
    drafts : tuple of int or None
        The drafts of the run, if the verifier tells them.
    uniforms : tuple of numbers or None
        Uniforms that give it, if they are an argument.

    Examples
    --------
    >>> from otm.audit import lossless
    >>> def accept_all(target_probs, draft_probs, draft_tokens, uniforms):
    ...     return [*draft_tokens, 0]
    >>> example = lossless(accept_all, examples=0).counterexample
    >>> example.output, example.probability, str(example.tv_distance)
    ((0, 0), Fraction(3, 4), '3/4')
    """

    instance: Instance
    tv_distance: Number
    output: Outcome
    probability: Number
    impossible: bool
    drafts: Path | None
    uniforms: tuple[Number, ...] | None


@dataclass(frozen=True, eq=False)
class Report:
    """What `otm.audit.lossless` found out about a verifier.

    Attributes
    ----------
    verifier : str
        The name of the verifier.
    verdict : str
        "lossless on everything tried", "not lossless", or "undecided": nothing was found, but too
        few runs were allowed to see deviations of the size asked for.
    method : str
        "exact paths", "breakpoints" or "Monte Carlo".
    why_not_exact : tuple of str
        Why the methods before it did not serve.
    tv_distance : float or Fraction
        Distance (TV) of the output from the target on the instance where it is largest.
    tv_interval : Interval
        Where that distance lies: certain for exact paths; up to bisection for breakpoints; for
        Monte Carlo at confidence 1 − `false_alarms`, on all instances at once.
    instances : int
        Number of pairs of models on which it was run.
    runs : int
        Number of runs.
    skipped : int
        Number of pairs that were too large for the method.
    largest_instance : tuple of int
        Largest vocabulary, number of drafts γ of a chain and number of chains k of an instance.
    false_alarms : float
        Bound on the probability that Monte Carlo rejects a lossless verifier; 0 if nothing was left
        to chance.
    delta : float
        A deviation (TV) of this size on an instance is missed with probability at most 10^−3: by
        Monte Carlo, or where breakpoints were not all found; 0 if nothing was left to chance.
    tolerance : float
        Deviations (TV) up to this were taken for rounding.
    worst_prefix : WorstPrefix or None
        Where the next token goes most wrong, on the counterexample.
    counterexample : Counterexample or None
        The smallest that was found.
    diagnoses : tuple of Diagnosis
        The known mistakes that have the same laws.

    Examples
    --------
    >>> from otm.audit import lossless
    >>> from otm.coupling import KSeq
    >>> report = lossless(KSeq, examples=0)
    >>> report.lossless, report.method, report.tv_distance
    (True, 'exact paths', Fraction(0, 1))
    """

    verifier: str
    verdict: str
    method: str
    why_not_exact: tuple[str, ...]
    tv_distance: Number
    tv_interval: Interval
    instances: int
    runs: int
    skipped: int
    largest_instance: tuple[int, int, int]
    false_alarms: float
    delta: float
    tolerance: float
    worst_prefix: WorstPrefix | None
    counterexample: Counterexample | None
    diagnoses: tuple[Diagnosis, ...]

    @property
    def lossless(self) -> bool:
        """Whether nothing was found, by an audit that would have seen it."""
        return self.verdict == LOSSLESS

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterable[str]:
        yield f"{self.verifier}: {self.verdict}"
        left_out = f" (left out as too large: {self.skipped})" if self.skipped else ""
        pairs = f"{self.instances} pairs of models"
        yield f"  method: {self.method}, {pairs}, {self.runs:,} runs{left_out}"
        yield from (f"  not by {reason}" for reason in self.why_not_exact)
        low, high = (float(end) for end in (self.tv_interval.lower, self.tv_interval.upper))
        between = "" if low == high else f", between {low:.3g} and {high:.3g}"
        yield f"  distance to the target (TV), at worst: {_number(self.tv_distance)}{between}"
        if self.false_alarms:
            yield (
                f"  false alarms: probability at most {self.false_alarms:g}; a distance of "
                f"{self.delta:.3g} is missed with probability 0.001"
            )
        elif self.delta and self.lossless:
            yield (
                f"  breakpoints: what happens in fewer than {self.delta:.2g} of the runs may have "
                "been missed"
            )
        if self.lossless and 0 < self.tv_distance <= self.tolerance:
            yield f"  A distance up to {self.tolerance:g} is taken for rounding."
        if self.counterexample is not None:
            yield from self._example(self.counterexample)
        if (worst := self.worst_prefix) is not None:
            probability = _number(worst.probability)
            yield f"  worst prefix: {_tokens(worst.prefix)} (probability {probability})"
            yield f"    next token: {_law(worst.output_probs)}"
            yield f"    the target: {_law(worst.target_probs)}"
        if self.verdict == NOT_LOSSLESS:
            if not self.diagnoses:
                yield "  no known mistake has this law"
            for found in self.diagnoses[:4]:
                known = "; ".join((found.name, *found.threads))
                where = ", where it returns tokens" if found.partly else ""
                yield f"  same law as{where}: {found.mistake} ({known})"
            if len(self.diagnoses) > 4:
                yield f"  and as {len(self.diagnoses) - 4} other known bugs"
        elif self.verdict == LOSSLESS:
            tokens, gamma, k = self.largest_instance
            yield (
                "  This is evidence, not a proof: other models were not tried, none of more than "
                f"{tokens} tokens, γ = {gamma}, k = {k}."
            )
        else:
            yield "  Nothing was found, but a smaller distance would be missed: allow more runs."

    @staticmethod
    def _example(example: Counterexample) -> Iterable[str]:
        instance = example.instance
        shape = f"{instance.vocabulary} tokens, γ = {instance.gamma}, k = {instance.k}"
        yield f"  smallest counterexample: {shape}, prompt {_tokens(instance.prompt)}"
        length = instance.gamma + 1
        yield f"    target: {_table(instance.target, instance.prompt, length)}"
        yield f"    draft: {_table(instance.draft, instance.prompt, length)}"
        if example.uniforms is not None:
            yield f"    uniforms: {', '.join(map(_number, example.uniforms))}"
        if example.drafts is not None:
            yield f"    drafts: {_tokens(example.drafts)}"
        if isinstance(example.output, Failure):
            yield f"    {example.output.text} (probability {_number(example.probability)})"
        elif example.impossible:
            yield (
                f"    output: {_tokens(example.output)}, which the target never gives (probability "
                f"{_number(example.probability)})"
            )
        else:
            tv = _number(example.tv_distance)
            yield f"    output: {_tokens(example.output)}, too often; TV {tv}"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as numbers, strings, lists and dicts, for JSON.

        Fractions are strings such as "1/3".
        """
        example, worst = self.counterexample, self.worst_prefix
        return {
            "verifier": self.verifier,
            "verdict": self.verdict,
            "method": self.method,
            "why_not_exact": list(self.why_not_exact),
            "tv_distance": float(self.tv_distance),
            "tv_interval": [float(self.tv_interval.lower), float(self.tv_interval.upper)],
            "instances": self.instances,
            "runs": self.runs,
            "skipped": self.skipped,
            "largest_instance": dict(
                zip(("vocabulary", "gamma", "k"), self.largest_instance, strict=True)
            ),
            "false_alarms": self.false_alarms,
            "delta": self.delta,
            "tolerance": self.tolerance,
            "worst_prefix": worst
            and {
                "prefix": list(worst.prefix),
                "probability": str(worst.probability),
                "output_probs": list(map(str, worst.output_probs)),
                "target_probs": list(map(str, worst.target_probs)),
            },
            "counterexample": example
            and {
                "gamma": example.instance.gamma,
                "k": example.instance.k,
                "prompt": list(example.instance.prompt),
                "target": _rows(example.instance.target, example.instance),
                "draft": _rows(example.instance.draft, example.instance),
                "tv_distance": str(example.tv_distance),
                "output": example.output.text
                if isinstance(example.output, Failure)
                else list(example.output),
                "probability": str(example.probability),
                "impossible": example.impossible,
                "drafts": None if example.drafts is None else list(example.drafts),
                "uniforms": None if example.uniforms is None else list(map(str, example.uniforms)),
            },
            "diagnoses": [
                {
                    "name": found.name,
                    "mistake": found.mistake,
                    "summary": found.summary,
                    "threads": list(found.threads),
                    "partly": found.partly,
                }
                for found in self.diagnoses
            ],
        }


def _number(value: Number) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _law(law: Law) -> str:
    return "(" + ", ".join(map(_number, law.tolist())) + ")"


def _tokens(path: Path) -> str:
    return " ".join(map(str, path)) or "(none)"


def _table(model: TableModel, prompt: Path, length: int) -> str:
    rows = laws_of(model, prompt, length).items()
    return "; ".join(
        f"after {_tokens(path)} {_law(law)}" if path else _law(law) for path, law in rows
    )


def _rows(model: TableModel, instance: Instance) -> list[list[Any]]:
    laws = laws_of(model, instance.prompt, instance.gamma + 1)
    return [[list(path), list(map(str, law))] for path, law in laws.items()]
