"""The report about recorded steps, for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from otm._core.display.text import text_table
from otm.audit.evidence import Diagnosis
from otm.audit.report import LOSSLESS, NOT_LOSSLESS, BaseReport, power_text
from otm.audit.streams.e_process import MISSED

SHOWN = 5
"""Most lines of the table of counts that are printed."""


@dataclass(frozen=True)
class ClassCount:
    """Expected and observed number of tokens of a class, at some positions."""

    tokens: str  # the class
    where: str  # the place in the steps
    positions: int  # how many tokens were there
    expected: float  # of these in the class, by the rows
    seen: int  # in the class
    log10_e_value: float  # against the rows, of this count alone

    @property
    def deviation(self) -> float:
        """How much likelier the class was than its rows say, on average."""
        return (self.seen - self.expected) / self.positions


@dataclass(frozen=True)
class ImpossibleToken:
    """A token whose row gives it no probability."""

    step: int  # number of the step, from 0
    position: int  # place in the output or among the drafts, from 0
    token: int


@dataclass(frozen=True)
class StreamResult:
    """Whether tokens follow their rows."""

    tokens: int  # how many there are
    log10_e_value: float  # largest e-value of all classes and suspects together
    shown_at: int | None  # the step at which it reached the limit
    counts: tuple[ClassCount, ...]  # most telling first
    impossible: int  # tokens of probability 0
    first_impossible: ImpossibleToken | None
    follow: bool  # False if they do not


@dataclass(frozen=True, eq=False)
class RecordedReport(BaseReport):
    """The answer of `otm.audit.recorded` about recorded steps.

    Attributes
    ----------
    name : str
        What was audited.
    verdict : str
        "lossless on everything tried", "not lossless", or "undecided": no deviation shows, but
        there are too few tokens to see one of the size asked for.
    steps : int
        Number of steps.
    output : StreamResult
        Whether the output follows the target's rows: number of tokens, e-value, counts of classes
        with those expected, tokens that are impossible.
    drafts : StreamResult or None
        Whether the drafts follow the draft's rows; None where these were not recorded.
    accepted : int
        Number of drafts that were output.
    reached : int
        Number of drafts that had a chance: all before them were output, and so was a token in
        their place.
    accepted_by_chain : float
        Number that chain verification would accept of those, on average: the sum of
        Σ min(target, draft).
    false_alarms : float
        Bound on the probability of the verdict "not lossless" for a lossless verifier, and of the
        remark that drafts do not follow their rows for honest ones, together.
    delta : float
        If the mean probability of a class of tokens is wrong by this, which is a TV of at least
        this, it is missed with probability at most 10^−3.
    rounding : float
        Largest relative error of a recorded probability that passes.
    diagnoses : tuple of Diagnosis
        Known mistakes that the output fits.

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
    accepted_by_chain: float
    false_alarms: float
    delta: float
    rounding: float
    diagnoses: tuple[Diagnosis, ...]

    def _lines(self) -> Iterator[str]:
        yield f"{self.name}: {self.verdict}"
        yield f"  recorded: {self.steps:,} steps, {self.output.tokens:,} tokens"
        yield from self._stream("output", "the target rows", self.output)
        if self.drafts is not None:
            yield from self._stream("drafts", "the draft rows", self.drafts)
            if not self.drafts.follow:
                yield "    A verifier that takes the draft rows for their distribution is wrong."
        if self.reached and self.drafts is not None:
            seen, chain = self.accepted / self.reached, self.accepted_by_chain / self.reached
            yield f"  drafts in the output: {seen:.4f}; chain verification accepts {chain:.4f}"
        for diagnosis in self.diagnoses:
            known = "; ".join((diagnosis.name, *diagnosis.threads))
            yield f"  fits: {diagnosis.mistake} ({known})"
        if self.verdict == NOT_LOSSLESS and not self.diagnoses:
            yield "  fits none of the mistakes that rows alone can tell"
        yield (
            f"  false alarms: probability at most {self.false_alarms:g}; a class whose probability "
            f"is off by {self.delta:.3g} is missed with probability {MISSED:g}"
        )
        if self.verdict == LOSSLESS:
            yield "  This is evidence, not a proof: it is about these steps and these classes."
        elif self.verdict != NOT_LOSSLESS:
            yield "  No deviation shows, but a smaller one would be missed: record more steps."

    def _stream(self, what: str, rows: str, seen: StreamResult) -> Iterator[str]:
        says = "follow" if what == "drafts" else "follows"
        says = (
            f"{what} {says}"
            if seen.follow
            else f"{what} {'do' if what == 'drafts' else 'does'} not follow"
        )
        at = "" if seen.shown_at is None else f", certain from step {seen.shown_at:,} on"
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
