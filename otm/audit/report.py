"""The report of an audit, for people and for machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from otm._core.arithmetic import Number
from otm._core.display.reprs import Brief, Printed
from otm._core.interval import Interval
from otm.audit import formatting as written
from otm.audit.adapters.base import Failure, Instance, Outcome
from otm.audit.formatting import Drafts
from otm.audit.observe.observation import WorstPrefix, rows_of

LOSSLESS = "lossless on everything tried"
NOT_LOSSLESS = "not lossless"
UNDECIDED = "undecided"

MORE_TIME = "max_seconds, --max-seconds"
"""Argument and option that give an audit more time."""

RARELY = ", but only at isolated values of a uniform, such as 0, or by rounding"
"""What the first line adds to a verdict where the distance is no more than rounding."""


class Judged(Printed):
    """A report with a verdict, which is printed line by line."""

    verdict: str

    @property
    def lossless(self) -> bool:
        """Whether no deviation shows, where one of the size asked for would have."""
        return self.verdict == LOSSLESS

    def _lines(self) -> Iterable[str]:
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as numbers, strings, lists and dicts, for JSON."""
        return dataclasses.asdict(self)  # type: ignore[call-overload,no-any-return]


def power_text(log10: float) -> str:
    """Write a power of ten by its logarithm."""
    return f"10^{log10:.1f}"


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


@dataclass(frozen=True)
class Nearest:
    """The known mistake that comes nearest to a verifier where none has its distribution."""

    diagnosis: Diagnosis
    tv_distance: float  # mean distance (TV) of the two, on the pairs of models where most is wrong
    from_target: float  # that of verifier and target there


@dataclass(frozen=True, eq=False)
class Isolated(Brief):
    """Outcomes that the target never gives, and that next to no uniforms lead to.

    They come from single values of a uniform, such as 0, or from rounding.
    """

    instance: Instance  # where they come out
    outcomes: tuple[Outcome, ...]
    probability: Number  # of all of them there; 0 if only isolated values of a uniform give them
    uniforms: tuple[Number, ...] | None  # some that give the first of them


@dataclass(frozen=True)
class Sampled:
    """Larger pairs of models that were sampled for some seconds, where no deviation shows."""

    instances: int  # how many
    runs: int  # on all of them
    delta: float  # a deviation (TV) of this size on one of them is missed with probability 10^−3


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


@dataclass(frozen=True, eq=False)
class Report(Judged):
    """The answer of `otm.audit.lossless` about a verifier.

    Attributes
    ----------
    verifier : str
        The name of the verifier.
    verdict : str
        "lossless on everything tried", "not lossless", or "undecided": no deviation shows, but too
        few runs were allowed to see deviations of the size asked for, or no time was left for whole
        kinds of pairs (`left_out`), or runs change later runs (`later_runs`).
    method : str
        "exact paths", "breakpoints" or "Monte Carlo".
    why_not_exact : tuple of str
        Why the methods before it do not work.
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
        Monte Carlo, or where a breakpoint was missed; 0 if nothing was left to chance.
    tolerance : float
        Deviations (TV) up to this were taken for rounding.
    worst_prefix : WorstPrefix or None
        Where the next token goes most wrong, on the counterexample.
    counterexample : Counterexample or None
        The smallest one with a distance of the order of the largest.
    isolated : Isolated or None
        Outcomes that the target never gives, of a probability of at most 2^−23, beside the
        counterexample: from single values of a uniform, such as 0, or from rounding.
    diagnoses : tuple of Diagnosis
        The known mistakes with the same output distributions.
    nearest : Nearest or None
        Without these, a known mistake that is much nearer to the output than the target is.
    sampled : Sampled or None
        Larger pairs that were sampled beside, where breakpoints had to leave some out.
    left_out : tuple of str
        Kinds of pairs, such as "several chains", that were not tried for lack of time.
    compared : bool
        Whether time sufficed to compare the output with all known mistakes.
    later_runs : str or None
        How runs change later runs, if Monte Carlo sees it; None otherwise.  A single run then has
        no distribution of its own, and the numbers of Monte Carlo do not hold.  It is a false alarm
        with probability at most `false_alarms`.
    slower : float or None
        Time of a run at the end of Monte Carlo over that at the start; None if below 4.

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
    isolated: Isolated | None
    diagnoses: tuple[Diagnosis, ...]
    nearest: Nearest | None = None
    sampled: Sampled | None = None
    left_out: tuple[str, ...] = ()
    compared: bool = True
    later_runs: str | None = None
    slower: float | None = None

    def _lines(self) -> Iterable[str]:
        rare = self.counterexample is not None and self.tv_distance <= self.tolerance
        yield f"{self.verifier}: {self.verdict}{RARELY if rare else ''}"
        left_out = f" ({self.skipped} left out: too large, or no time)" if self.skipped else ""
        pairs = f"{self.instances} {'pair' if self.instances == 1 else 'pairs'} of models"
        yield f"  method: {self.method}, {pairs}, {self.runs:,} runs{left_out}"
        yield from (f"  not by {reason}" for reason in self.why_not_exact)
        low, high = (float(end) for end in (self.tv_interval.lower, self.tv_interval.upper))
        between = "" if low == high else f", between {low:.3g} and {high:.3g}"
        yield f"  distance to the target (TV), at worst: {written.short(self.tv_distance)}{between}"
        if self.false_alarms:
            yield (
                f"  false alarms: probability at most {self.false_alarms:g}; a distance of "
                f"{min(self.delta, 1):.3g} is missed with probability 0.001"
            )
        elif self.delta and self.lossless:
            yield (
                f"  breakpoints: what happens in fewer than {self.delta:.2g} of the runs may have "
                "been missed"
            )
        if self.lossless and 0 < self.tv_distance <= self.tolerance:
            yield f"  A distance up to {self.tolerance:g} is taken for rounding."
        if (sampled := self.sampled) is not None:
            yield (
                f"  sampled besides: {sampled.instances} larger pairs, {sampled.runs:,} runs; no "
                f"deviation, but up to {min(sampled.delta, 1):.2g} would be missed"
            )
        if self.later_runs is not None:
            yield f"  a run changes later runs: {self.later_runs}"
        if self.slower is not None:
            yield (
                f"  a run takes {self.slower:.0f} times as long at the end as at the start: the "
                "code may keep state from run to run"
            )
        if self.counterexample is not None:
            yield from self._example(self.counterexample)
        if (worst := self.worst_prefix) is not None:
            probability = written.number(worst.probability)
            yield f"  worst prefix: {written.tokens(worst.prefix)} (probability {probability})"
            yield f"    next token: {written.probs(worst.output_probs)}"
            yield f"    the target: {written.probs(worst.target_probs)}"
        if self.isolated is not None:
            yield self._besides(self.isolated)
        yield from self._conclusion()

    def _conclusion(self) -> Iterable[str]:
        if self.verdict == NOT_LOSSLESS:
            if not self.compared:
                yield f"  no time was left to search for known mistakes: allow more ({MORE_TIME})"
            elif not self.diagnoses:
                yield "  no known mistake has this distribution"
            if (near := self.nearest) is not None:
                yield (
                    f"  nearest: {near.diagnosis.mistake} ({near.diagnosis.name}), at "
                    f"{near.tv_distance:.2g} where the target is at {near.from_target:.2g}"
                )
            for diagnosis in self.diagnoses[:4]:
                known = "; ".join((diagnosis.name, *diagnosis.threads))
                where = ", where it returns tokens" if diagnosis.partly else ""
                where += ", isolated uniforms set aside" if diagnosis.apart else ""
                yield f"  same distribution as{where}: {diagnosis.mistake} ({known})"
            if len(self.diagnoses) > 4:
                yield f"  and as {len(self.diagnoses) - 4} other known bugs"
        elif self.verdict == LOSSLESS:
            tokens, gamma, k = self.largest_instance
            yield (
                "  This is evidence, not a proof: other models were not tried, none of more than "
                f"{tokens} tokens, γ = {gamma}, k = {k}."
            )
            yield "  Larger ones: vocabulary, gamma, prompt (--vocabulary, --gamma, --prompt)."
        else:
            yield f"  No deviation shows, but {self._missing()}"

    def _missing(self) -> str:
        """Say why a verdict is undecided, and what to do."""
        if self.later_runs is not None:
            return "runs change later runs: let the code clear its state before each run."
        if self.left_out:
            kinds = ", ".join(self.left_out)
            return f"no time was left for whole kinds of pairs: {kinds}; allow more ({MORE_TIME})."
        missed = "too few pairs were tried"
        if self.false_alarms:
            missed = "one of the size asked for may be missed"
        return f"{missed}: allow more runs, or more time ({MORE_TIME})."

    @staticmethod
    def _besides(isolated: Isolated) -> str:
        outputs = ", ".join(map(written.outcome, isolated.outcomes[:3]))
        more = ", ..." if len(isolated.outcomes) > 3 else ""
        at = f" at uniforms {written.numbers(isolated.uniforms)}" if isolated.uniforms else ""
        return (
            "  besides, isolated uniforms or rounding give what the target never gives: "
            f"{outputs}{more} (probability {written.number(isolated.probability)}){at}"
        )

    @staticmethod
    def _example(example: Counterexample) -> Iterable[str]:
        instance = example.instance
        drafts = ", ".join(map(str, instance.gammas or (instance.gamma,)))
        turns = " in turn" if instance.gammas else ""
        shape = f"{instance.vocabulary} tokens, γ = {drafts}{turns}, k = {instance.k}"
        asked = "" if instance.length is None else f", {instance.length} tokens asked for"
        yield f"  smallest counterexample: {shape}, prompt {written.tokens(instance.prompt)}{asked}"
        for name, rows in zip(("target", "draft"), rows_of(instance), strict=True):
            yield f"    {name}: {written.table(rows)}"
        if example.uniforms is not None:
            yield f"    uniforms: {written.numbers(example.uniforms)}"
        if example.drafts is not None:
            yield f"    drafts: {written.drafts(example.drafts)}"
        if isinstance(example.output, Failure):
            yield f"    {example.output.text} (probability {written.number(example.probability)})"
        elif example.impossible:
            yield (
                f"    output: {written.tokens(example.output)}, which the target never gives "
                f"(probability {written.number(example.probability)})"
            )
        else:
            tv = written.number(example.tv_distance)
            yield f"    output: {written.tokens(example.output)}, too often; TV {tv}"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as numbers, strings, lists and dicts, for JSON.

        Fractions are strings such as "1/3".
        """
        example, worst, besides = self.counterexample, self.worst_prefix, self.isolated
        shape = zip(("vocabulary", "gamma", "k"), self.largest_instance, strict=True)
        return vars(self) | {
            "why_not_exact": list(self.why_not_exact),
            "left_out": list(self.left_out),
            "tv_distance": float(self.tv_distance),
            "tv_interval": [float(self.tv_interval.lower), float(self.tv_interval.upper)],
            "largest_instance": dict(shape),
            "worst_prefix": worst and _plain(vars(worst)),
            "counterexample": example and _plain(_parts(example.instance) | vars(example)),
            "sampled": self.sampled and vars(self.sampled),
            "isolated": besides and _plain(_parts(besides.instance) | vars(besides)),
            "nearest": self.nearest and dataclasses.asdict(self.nearest),
            "diagnoses": [_plain(vars(diagnosis)) for diagnosis in self.diagnoses],
        }


def _parts(instance: Instance) -> dict[str, Any]:
    """Write out an instance in a counterexample, which then needs no object for it."""
    target, draft = (list(rows.items()) for rows in rows_of(instance))
    shape = {name: getattr(instance, name) for name in ("gamma", "k", "prompt", "length", "gammas")}
    return shape | {"target": target, "draft": draft}


def _plain(value: Any) -> Any:
    """Turn parts of a report into what JSON has; probabilities and uniforms become strings."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items() if name != "instance"}
    if isinstance(value, tuple | list | np.ndarray):
        return [_plain(part) for part in value]
    if isinstance(value, Failure):
        return value.text
    return str(value) if isinstance(value, float | Fraction) else value
