"""The report of an audit: printed lines, and a dictionary for JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from otm._core.arithmetic import Number
from otm._core.display.reprs import TextRepr
from otm._core.interval import Interval
from otm.audit import formatting
from otm.audit.evidence import Counterexample, Diagnosis, Isolated, Nearest, Sampled, as_json
from otm.audit.observe.observation import WorstPrefix

LOSSLESS = "lossless on everything tried"
NOT_LOSSLESS = "not lossless"
UNDECIDED = "undecided"

MORE_TIME = "max_seconds, --max-seconds"
"""Names of the argument and the option that give an audit more time."""

RARELY = ", but only at isolated values of a uniform, such as 0, or by rounding"
"""Addition to a verdict if the largest distance is at most the tolerance for rounding."""


class BaseReport(TextRepr):
    """A report that has a verdict and is printed line by line."""

    verdict: str

    @property
    def lossless(self) -> bool:
        """Whether the audit found no deviation and would have detected one of the required size."""
        return self.verdict == LOSSLESS

    def _lines(self) -> Iterable[str]:
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report as numbers, strings, lists and dicts, for JSON."""
        return dataclasses.asdict(self)  # type: ignore[call-overload,no-any-return]


def power_text(log10: float) -> str:
    """Format a power of ten from its logarithm."""
    return f"10^{log10:.1f}"


@dataclass(frozen=True, eq=False)
class Report(BaseReport):
    """Result of `otm.audit.lossless`: the verdict about a verifier, and the evidence.

    Attributes
    ----------
    verifier : str
        Name of the verifier.
    verdict : str
        "lossless on everything tried", "not lossless" or "undecided".  Undecided: the audit found
        no deviation, but it had too few runs to detect a deviation of the required size, it had no
        time for whole kinds of pairs (`left_out`), or runs change later runs (`later_runs`).
    method : str
        "exact paths", "breakpoints" or "Monte Carlo".
    why_not_exact : tuple of str
        Why each method that precedes `method` in order of preference does not work.
    tv_distance : float or Fraction
        Largest distance (TV) between output and target on any instance.
    tv_interval : Interval
        Interval that contains the largest distance.  The interval is certain for exact paths, holds
        up to bisection for breakpoints, and has confidence 1 − `false_alarms` on all instances
        together for Monte Carlo.
    instances : int
        Number of pairs of models on which the verifier was run.
    runs : int
        Number of runs.
    skipped : int
        Number of pairs that were too large for the method.
    largest_instance : tuple of int
        Largest vocabulary, number of drafts γ of a chain, and number of chains k of an instance.
    false_alarms : float
        Bound on the probability that Monte Carlo rejects a lossless verifier; 0 for a method that
        does not sample.
    delta : float
        The audit misses a deviation (TV) of this size on an instance with probability at most
        10^−3, because of sampling or an undetected breakpoint; 0 if the method cannot miss a
        deviation.
    tolerance : float
        Deviations (TV) up to this value counted as rounding.
    worst_prefix : WorstPrefix or None
        Prefix on the counterexample after which the next token deviates most.
    counterexample : Counterexample or None
        Smallest pair of models whose distance is similar to the largest one.
    isolated : Isolated or None
        Outputs that are impossible under the target and have probability at most 2^−23, in addition
        to the counterexample.  These impossible outputs come from single values of a uniform, such
        as 0, or from rounding.
    diagnoses : tuple of Diagnosis
        Known mistakes that lead to the same output distributions as the verifier's.
    nearest : Nearest or None
        If `diagnoses` is empty, a known mistake that is much nearer to the output than the target
        is.
    sampled : Sampled or None
        Larger pairs that were sampled in addition, because they were too large for breakpoints.
    left_out : tuple of str
        Kinds of pairs, such as "several chains", that the audit had no time to try.
    compared : bool
        Whether the audit had time to compare the output with all known mistakes.
    later_runs : str or None
        How runs change later runs, if Monte Carlo detects it; None otherwise.  If runs change later
        runs, a single run has no output distribution, and Monte Carlo's numbers do not hold.  A
        false alarm has probability at most `false_alarms`.
    slower : float or None
        Time of a run at the end of Monte Carlo divided by its time at the start; None if below 4.

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
        pairs = f"{self.instances} {'pair' if self.instances == 1 else 'pairs'} of models"
        yield f"{self.verifier}: {self.verdict}{self._scope(pairs)}"
        skipped = f" ({self.skipped} skipped: too large, or no time)" if self.skipped else ""
        yield f"  method: {self.method}, {pairs}, {self.runs:,} runs{skipped}"
        yield from (f"  not by {reason}" for reason in self.why_not_exact)
        low, high = (float(end) for end in (self.tv_interval.lower, self.tv_interval.upper))
        between = "" if low == high else f", between {low:.3g} and {high:.3g}"
        distance = formatting.short(self.tv_distance)
        yield f"  largest distance to the target (TV): {distance}{between}"
        if self.false_alarms:
            yield (
                f"  false alarms: probability at most {self.false_alarms:g}; a distance of "
                f"{min(self.delta, 1):.3g} is missed with probability 0.001"
            )
        elif self.delta and self.lossless:
            yield (
                f"  breakpoints: events in fewer than {self.delta:.2g} of the runs may have been "
                "missed"
            )
        if self.lossless and 0 < self.tv_distance <= self.tolerance:
            yield f"  A distance up to {self.tolerance:g} counts as rounding."
        if self.sampled is not None:
            yield self.sampled._line()
        if self.later_runs is not None:
            yield f"  runs change later runs: {self.later_runs}"
        if self.slower is not None:
            yield (
                f"  a run takes {self.slower:.0f} times as long at the end as at the start: the "
                "code may keep state from run to run"
            )
        if self.counterexample is not None:
            yield from self.counterexample._lines()
        if (worst := self.worst_prefix) is not None:
            probability = formatting.number(worst.probability)
            yield f"  worst prefix: {formatting.tokens(worst.prefix)} (probability {probability})"
            yield f"    next token: {formatting.probs(worst.output_probs)}"
            yield f"    the target: {formatting.probs(worst.target_probs)}"
        if self.isolated is not None:
            yield self.isolated._line()
        yield from self._conclusion()

    def _scope(self, pairs: str) -> str:
        """Return the end of the first line: the instances that support the verdict."""
        if self.verdict == LOSSLESS:
            return f", {pairs} by {self.method}"
        if self.verdict != NOT_LOSSLESS:
            return f" after {self.runs:,} runs on {pairs}, without a deviation so far"
        if self.counterexample is not None and self.tv_distance <= self.tolerance:
            return f"{RARELY} ({pairs})"
        distance = formatting.short(self.tv_distance)
        return f", with a distance to the target of up to {distance} (TV) on {pairs}"

    def _conclusion(self) -> Iterable[str]:
        if self.verdict == NOT_LOSSLESS:
            if not self.compared:
                yield f"  no time was left to search for known mistakes: allow more ({MORE_TIME})"
            elif not self.diagnoses:
                yield "  no known mistake has this distribution"
            if self.nearest is not None:
                yield self.nearest._line()
            yield from (diagnosis._line() for diagnosis in self.diagnoses[:4])
            if len(self.diagnoses) > 4:
                yield f"  and the same as {len(self.diagnoses) - 4} other known bugs"
        elif self.verdict == LOSSLESS:
            tokens, gamma, k = self.largest_instance
            yield (
                f"  This is evidence, not a proof: no model with more than {tokens} tokens, "
                f"γ = {gamma}, k = {k} was tried."
            )
            yield "  Larger ones: vocabulary, gamma, prompt (--vocabulary, --gamma, --prompt)."
        else:
            yield f"  No deviation was found, but {self._missing()}"

    def _missing(self) -> str:
        """Return why a verdict is undecided, and what to do."""
        if self.later_runs is not None:
            return "runs change later runs: let the code clear its state before each run."
        if self.left_out:
            kinds = ", ".join(self.left_out)
            return f"no time was left for whole kinds of pairs: {kinds}; allow more ({MORE_TIME})."
        missed = "too few pairs were tried"
        if self.false_alarms:
            missed = "a deviation of the required size may have been missed"
        return f"{missed}: allow more runs, or more time ({MORE_TIME})."

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report as numbers, strings, lists and dicts, for JSON.

        Fractions are strings such as "1/3".
        """
        shape = zip(("vocabulary", "gamma", "k"), self.largest_instance, strict=True)
        return vars(self) | {
            "why_not_exact": list(self.why_not_exact),
            "left_out": list(self.left_out),
            "tv_distance": float(self.tv_distance),
            "tv_interval": [float(self.tv_interval.lower), float(self.tv_interval.upper)],
            "largest_instance": dict(shape),
            "worst_prefix": self.worst_prefix and as_json(vars(self.worst_prefix)),
            "counterexample": self.counterexample and self.counterexample._as_dict(),
            "sampled": self.sampled and vars(self.sampled),
            "isolated": self.isolated and self.isolated._as_dict(),
            "nearest": self.nearest and dataclasses.asdict(self.nearest),
            "diagnoses": [as_json(vars(diagnosis)) for diagnosis in self.diagnoses],
        }
