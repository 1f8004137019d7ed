"""The evidence in a report: counterexamples and known mistakes, and the lines that show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from otm._core.arithmetic import Number
from otm._core.display.reprs import Brief
from otm.audit import formatting
from otm.audit.adapters.base import Drafts, Failure, Instance, Outcome
from otm.audit.instances import rows_of


@dataclass(frozen=True)
class Diagnosis:
    """A known mistake with the output distribution of the verifier on all instances tried."""

    name: str  # of the bug in `otm.audit.diagnose.known_bugs`
    mistake: str  # what kind of mistake it is
    summary: str  # what was wrong there
    threads: tuple[str, ...]  # where it was reported
    # whether only instances were compared on which the verifier returns tokens at all uniforms: how
    # it fails where its mistake leaves nothing to draw differs from one verifier to another
    partly: bool = False
    apart: bool = False  # whether outcomes at isolated uniforms, which differ, were set aside

    def _line(self) -> str:
        known = "; ".join((self.name, *self.threads))
        where = ", where it returns tokens" if self.partly else ""
        where += ", isolated uniforms set aside" if self.apart else ""
        return f"  same distribution as{where}: {self.mistake} ({known})"


@dataclass(frozen=True)
class Nearest:
    """The known mistake that comes nearest to a verifier where none has its distribution."""

    diagnosis: Diagnosis
    tv_distance: float  # mean distance (TV) of the two, on the pairs of models where most is wrong
    from_target: float  # that of verifier and target there

    def _line(self) -> str:
        return (
            f"  nearest: {self.diagnosis.mistake} ({self.diagnosis.name}), at "
            f"{self.tv_distance:.2g} where the target is at {self.from_target:.2g}"
        )


@dataclass(frozen=True, eq=False)
class Isolated(Brief):
    """Outcomes that the target never gives, and that next to no uniforms lead to.

    They come from single values of a uniform, such as 0, or from rounding.
    """

    instance: Instance  # where they come out
    outcomes: tuple[Outcome, ...]
    probability: Number  # of all of them there; 0 if only isolated values of a uniform give them
    uniforms: tuple[Number, ...] | None  # some that give the first of them

    def _line(self) -> str:
        outputs = ", ".join(map(formatting.outcome, self.outcomes[:3]))
        more = ", ..." if len(self.outcomes) > 3 else ""
        at = f" at uniforms {formatting.numbers(self.uniforms)}" if self.uniforms else ""
        return (
            "  besides, isolated uniforms or rounding give what the target never gives: "
            f"{outputs}{more} (probability {formatting.number(self.probability)}){at}"
        )

    def _as_dict(self) -> dict[str, Any]:
        return _with_models(self)


@dataclass(frozen=True)
class Sampled:
    """Larger pairs of models that were sampled for some seconds, where no deviation shows."""

    instances: int  # how many
    runs: int  # on all of them
    delta: float  # a deviation (TV) of this size on one of them is missed with probability 10^−3

    def _line(self) -> str:
        return (
            f"  sampled besides: {self.instances} larger pairs, {self.runs:,} runs; no "
            f"deviation, but up to {min(self.delta, 1):.2g} would be missed"
        )


@dataclass(frozen=True, eq=False)
class Counterexample(Brief):
    """Models on which the output does not follow the target, and a run that shows it.

    Attributes
    ----------
    instance : Instance
        The models, in fractions.
    tv_distance : float or Fraction
        Distance (TV) of output and target there, in [0, 1].
    output : tuple of int or Failure
        An output that comes too often, or that must never come.
    probability : float or Fraction
        Probability of this output; 0 if isolated values of a uniform give it.
    impossible : bool
        Whether the target never gives this output.
    drafts : tuple of int, tuple of these, dict or None
        The drafts of the run, if the verifier tells them: one chain, several, or a tree as its
        "tokens" and their "parents".
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
    drafts: Drafts | None
    uniforms: tuple[Number, ...] | None

    def _lines(self) -> Iterable[str]:
        instance = self.instance
        drafts = ", ".join(map(str, instance.gammas or (instance.gamma,)))
        turns = " in turn" if instance.gammas else ""
        shape = f"{instance.vocabulary} tokens, γ = {drafts}{turns}, k = {instance.k}"
        asked = "" if instance.length is None else f", {instance.length} tokens asked for"
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
                f"    output: {formatting.tokens(self.output)}, which the target never gives "
                f"(probability {formatting.number(self.probability)})"
            )
        else:
            tv = formatting.number(self.tv_distance)
            yield f"    output: {formatting.tokens(self.output)}, too often; TV {tv}"

    def _as_dict(self) -> dict[str, Any]:
        return _with_models(self)


def _with_models(evidence: Any) -> dict[str, Any]:
    """Write evidence as JSON has it, with the models in place of the instance."""
    instance: Instance = evidence.instance
    target, draft = (list(rows.items()) for rows in rows_of(instance))
    shape = {name: getattr(instance, name) for name in ("gamma", "k", "prompt", "length", "gammas")}
    return as_json(shape | {"target": target, "draft": draft} | vars(evidence))  # type: ignore[no-any-return]


def as_json(value: Any) -> Any:
    """Turn parts of a report into what JSON has; probabilities and uniforms become strings."""
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items() if name != "instance"}
    if isinstance(value, tuple | list | np.ndarray):
        return [as_json(part) for part in value]
    if isinstance(value, Failure):
        return value.text
    return str(value) if isinstance(value, float | Fraction) else value
