"""The report about recorded steps: printed lines, and a dictionary for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from otm._core.display.text import text_table
from otm.audit.evidence import Diagnosis
from otm.audit.report import LOSSLESS, NOT_LOSSLESS, BaseReport, power_text
from otm.audit.streams.e_process import MISSED

SHOWN = 5
"""Largest number of printed rows of the table of counts."""


@dataclass(frozen=True)
class ClassCount:
    """Expected and observed number of tokens of a class, at some positions."""

    # Name of the class.
    tokens: str
    # Position in the steps.
    where: str
    # Number of tokens in these positions.
    positions: int
    # Number of these tokens that the rows predict to be in the class.
    expected: float
    # Number of these tokens that are in the class.
    seen: int
    # Logarithm of the e-value of this count alone.
    log10_e_value: float

    @property
    def deviation(self) -> float:
        """Mean excess of the class's frequency over its probability."""
        return (self.seen - self.expected) / self.positions


@dataclass(frozen=True)
class ImpossibleToken:
    """A token whose row gives it probability 0."""

    # Number of the step, from 0.
    step: int
    # Position in the output or among the drafts, from 0.
    position: int
    token: int


@dataclass(frozen=True)
class StreamResult:
    """Result of the test whether tokens follow their rows."""

    # Number of tokens.
    tokens: int
    # Largest logarithm of the e-value for all classes and suspects together.
    log10_e_value: float
    # The step at which the e-value reached its limit.
    decided_at: int | None
    # Counts, sorted from the largest e-value to the smallest.
    counts: tuple[ClassCount, ...]
    # Number of tokens whose row gives them probability 0.
    impossible: int
    first_impossible: ImpossibleToken | None
    # Whether the test found no deviation from the rows.
    follow: bool


@dataclass(frozen=True, eq=False)
class RecordedReport(BaseReport):
    """Result of `otm.audit.recorded`: the verdict about recorded steps, and the evidence.

    Attributes
    ----------
    name : str
        Name of the recorded steps.
    verdict : str
        "lossless on everything tried", "not lossless" or "undecided".  Undecided: the audit found
        no deviation, but there were too few tokens to detect one of the required size.
    steps : int
        Number of steps.
    output : StreamResult
        Test whether the output follows the target rows: number of tokens, e-value, observed and
        expected counts of classes, impossible tokens.
    drafts : StreamResult or None
        Test whether the drafts follow the draft rows; None if no draft rows were recorded.
    accepted : int
        Number of drafts in the output.
    reached : int
        Number of drafts that the verifier tested: all earlier drafts of the step were accepted, and
        the output has a token in their position.
    expected_by_chain : float
        Mean number of tested drafts that chain verification would accept: the sum of Σ min(target,
        draft).
    false_alarms : float
        Bound on the probability that a lossless verifier is called "not lossless", or that drafts
        sampled from their rows are reported not to follow them.
    delta : float
        If the mean probability of a class of tokens is wrong by this value, the audit misses it
        with probability at most 10^−3.  If a class is wrong by `delta`, the TV is at least `delta`.
    rounding : float
        Allowed relative error of a recorded probability.
    diagnoses : tuple of Diagnosis
        Known mistakes that fit the output.

    Examples
    --------
    >>> from otm.audit import recorded
    >>> step = {"target_probs": [[0.5, 0.5], [0.5, 0.5]], "drafts": [1], "output": [0]}
    >>> report = recorded([step])
    >>> report.verdict, report.reached, report.accepted
    ('undecided', 1, 0)
    """

    name: str
    verdict: str
    steps: int
    output: StreamResult
    drafts: StreamResult | None
    accepted: int
    reached: int
    expected_by_chain: float
    false_alarms: float
    delta: float
    rounding: float
    diagnoses: tuple[Diagnosis, ...]

    def _lines(self) -> Iterator[str]:
        steps = f"{self.steps:,} recorded {'step' if self.steps == 1 else 'steps'}"
        tokens = f"{self.output.tokens:,} {'token' if self.output.tokens == 1 else 'tokens'}"
        joint = {LOSSLESS: ",", NOT_LOSSLESS: " on"}.get(self.verdict, " after")
        yield f"{self.name}: {self.verdict}{joint} {steps} with {tokens}"
        yield from self._stream("output", "the target rows", self.output)
        if self.drafts is not None:
            yield from self._stream("drafts", "the draft rows", self.drafts)
            if not self.drafts.follow:
                yield "    A verifier that uses the draft rows as draft distribution is wrong."
        if self.reached and self.drafts is not None:
            seen, chain = self.accepted / self.reached, self.expected_by_chain / self.reached
            yield f"  accepted drafts: {seen:.4f}; chain verification would accept {chain:.4f}"
        for diagnosis in self.diagnoses:
            known = "; ".join((diagnosis.name, *diagnosis.threads))
            yield f"  fits: {diagnosis.mistake} ({known})"
        if self.verdict == NOT_LOSSLESS and not self.diagnoses:
            yield "  fits none of the mistakes that rows alone can show"
        yield (
            f"  false alarms: probability at most {self.false_alarms:g}; a class whose probability "
            f"is off by {self.delta:.3g} is missed with probability {MISSED:g}"
        )
        if self.verdict == LOSSLESS:
            yield "  This is evidence, not a proof: it holds only for these steps and classes."
        elif self.verdict != NOT_LOSSLESS:
            yield "  No deviation was found, but a smaller one would be missed: record more steps."

    def _stream(self, what: str, rows: str, seen: StreamResult) -> Iterator[str]:
        says = "follow" if what == "drafts" else "follows"
        says = (
            f"{what} {says}"
            if seen.follow
            else f"{what} {'do' if what == 'drafts' else 'does'} not follow"
        )
        at = "" if seen.decided_at is None else f", decisive from step {seen.decided_at:,} on"
        yield f"  {says} {rows}: e-value {power_text(seen.log10_e_value)}{at}"
        if seen.first_impossible is not None:
            first = seen.first_impossible
            yield (
                f"    tokens of probability 0: {seen.impossible:,}, the first is {first.token} at "
                f"position {first.position} of step {first.step:,}"
            )
        if not seen.follow and seen.counts:
            worst = seen.counts[0]
            yield (
                f"    worst: {worst.tokens}, {worst.where}: {worst.seen:,} of {worst.positions:,} "
                f"instead of {worst.expected:,.1f} ({worst.deviation:+.3f})"
            )
            names = ("tokens", "where", "of", "expected", "seen", "e-value")
            cells = [
                (
                    count.tokens,
                    count.where,
                    f"{count.positions:,}",
                    f"{count.expected:,.1f}",
                    f"{count.seen:,}",
                    power_text(count.log10_e_value),
                )
                for count in seen.counts[:SHOWN]
            ]
            yield from ("    " + line for line in text_table(names, cells).splitlines())
