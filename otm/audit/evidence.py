"""Evidence in a report: counterexamples and known mistakes, and their printed lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from otm._core.arithmetic import Number
from otm._core.display.reprs import ShortRepr
from otm.audit import formatting
from otm.audit.adapters.base import Drafts, Failure, Instance, Outcome
from otm.audit.instances import rows_of


@dataclass(frozen=True)
class Diagnosis:
    """A known mistake that has the verifier's output distribution on all instances tried."""

    # Name of the bug in `otm.audit.diagnose.known_bugs`.
    name: str
    # Kind of mistake.
    mistake: str
    # What was wrong in the reported case.
    summary: str
    # Where the bug was reported.
    threads: tuple[str, ...]
    # Whether the comparison skipped instances on which the verifier fails at some uniforms:
    # verifiers with the same mistake may fail in different ways where no mass remains.
    partly: bool = False
    # Whether the comparison ignored outcomes at isolated uniforms, which differ.
    apart: bool = False

    def _line(self) -> str:
        known = "; ".join((self.name, *self.threads))
        limits = "; compared where the verifier always returns tokens" if self.partly else ""
        limits += "; isolated uniforms ignored" if self.apart else ""
        return f"  same distribution as: {self.mistake} ({known}){limits}"


@dataclass(frozen=True)
class Nearest:
    """The known mistake nearest to a verifier that no known mistake explains."""

    diagnosis: Diagnosis
    # Mean distance (TV) between mistake and verifier, on the most deviating pairs of models.
    tv_distance: float
    # Mean distance (TV) between the target and the verifier on the same pairs.
    from_target: float

    def _line(self) -> str:
        return (
            f"  nearest known mistake: {self.diagnosis.mistake} ({self.diagnosis.name}), at "
            f"distance {self.tv_distance:.2g} from the output; the target is at "
            f"{self.from_target:.2g}"
        )


@dataclass(frozen=True, eq=False)
class Isolated(ShortRepr):
    """Outcomes that are impossible under the target and come from almost no uniforms.

    Isolated outcomes come from single values of a uniform, such as 0, or from rounding.
    """

    # Pair of models with these outcomes.
    instance: Instance
    outcomes: tuple[Outcome, ...]
    # Total probability of the outcomes; 0 if only isolated values of a uniform lead to them.
    probability: Number
    # Uniforms that lead to the first outcome.
    uniforms: tuple[Number, ...] | None

    def _line(self) -> str:
        outputs = ", ".join(map(formatting.outcome, self.outcomes[:3]))
        more = ", ..." if len(self.outcomes) > 3 else ""
        at = f" at uniforms {formatting.numbers(self.uniforms)}" if self.uniforms else ""
        return (
            "  in addition, isolated uniforms or rounding give outputs that are impossible under "
            f"the target: {outputs}{more} (probability {formatting.number(self.probability)}){at}"
        )

    def _as_dict(self) -> dict[str, Any]:
        return _with_models(self)


@dataclass(frozen=True)
class Sampled:
    """Larger pairs of models on which some seconds of sampling found no deviation."""

    # Number of pairs.
    instances: int
    # Number of runs on all pairs.
    runs: int
    # A deviation (TV) of this size on one pair is missed with probability 10^−3.
    delta: float

    def _line(self) -> str:
        return (
            f"  sampled in addition: {self.instances} larger pairs, {self.runs:,} runs; no "
            f"deviation found, but one of up to {min(self.delta, 1):.2g} may be missed"
        )


@dataclass(frozen=True, eq=False)
class Counterexample(ShortRepr):
    """Models on which the output does not follow the target, and a run that shows it.

    Attributes
    ----------
    instance : Instance
        The models, in fractions.
    tv_distance : float or Fraction
        Distance (TV) between output and target on these models, in [0, 1].
    output : tuple of int or Failure
        An output that is too frequent, or that must not occur.
    probability : float or Fraction
        Probability of this output; 0 if it only occurs at isolated values of a uniform.
    impossible : bool
        Whether this output is impossible under the target.
    drafts : tuple of int, tuple of tuples, dict or None
        Drafts of the run, if they are known: one chain, several chains, or a tree with its "tokens"
        and their "parents".
    uniforms : tuple of numbers or None
        Uniforms that lead to this output, if they are an argument of the verifier.

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
    drafts: Drafts | None
    uniforms: tuple[Number, ...] | None

    def _lines(self) -> Iterable[str]:
        instance = self.instance
        drafts = ", ".join(map(str, instance.gammas or (instance.gamma,)))
        turns = " in turn" if instance.gammas else ""
        shape = f"{instance.vocabulary} tokens, γ = {drafts}{turns}, k = {instance.k}"
        asked = "" if instance.length is None else f", max_tokens {instance.length}"
        prompt = formatting.tokens(instance.prompt)
        yield f"  smallest counterexample: {shape}, prompt {prompt}{asked}"
        for name, rows in zip(("target", "draft"), rows_of(instance), strict=True):
            yield f"    {name}: {formatting.table(rows)}"
        if self.uniforms is not None:
            yield f"    uniforms: {formatting.numbers(self.uniforms)}"
        if self.drafts is not None:
            yield f"    drafts: {formatting.drafts(self.drafts)}"
        if isinstance(self.output, Failure):
            yield f"    {self.output.text} (probability {formatting.number(self.probability)})"
        elif self.impossible:
            yield (
                f"    output: {formatting.tokens(self.output)}, impossible under the target "
                f"(probability {formatting.number(self.probability)})"
            )
        else:
            tv = formatting.number(self.tv_distance)
            yield f"    output: {formatting.tokens(self.output)}, too often; TV {tv}"

    def _as_dict(self) -> dict[str, Any]:
        return _with_models(self)


def _with_models(evidence: Any) -> dict[str, Any]:
    """Convert evidence for JSON: a dictionary, with the models in place of the instance."""
    instance: Instance = evidence.instance
    target, draft = (list(rows.items()) for rows in rows_of(instance))
    shape = {name: getattr(instance, name) for name in ("gamma", "k", "prompt", "length", "gammas")}
    return as_json(shape | {"target": target, "draft": draft} | vars(evidence))  # type: ignore[no-any-return]


def as_json(value: Any) -> Any:
    """Convert parts of a report to JSON values; probabilities and uniforms become strings."""
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items() if name != "instance"}
    if isinstance(value, tuple | list | np.ndarray):
        return [as_json(part) for part in value]
    if isinstance(value, Failure):
        return value.text
    return str(value) if isinstance(value, float | Fraction) else value
