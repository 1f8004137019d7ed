"""Audit steps that an engine recorded, without running a verifier.

The output of a lossless verifier, continued by the target, has the target's distribution.  Let y_1
… y_n be the output of a step, and p_i the target's distribution after y_1 … y_i.  Given n > i and
y_1 … y_i, the next token y_{i+1} has the distribution p_i (docs/theory/recorded-steps.md, Theorem
15.1).  So with a lossless verifier every output token follows its row.  `RowEvidence` tests
after every token whether the output tokens follow their rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from otm._core.display.progress import Progress, watching
from otm._core.files.paths import as_path, file_label
from otm._core.numbers import as_level, as_real
from otm.audit.diagnose.token_suspects import DRAFT_MISTAKES, SUSPECTS, suspect_rows
from otm.audit.evidence import Diagnosis
from otm.audit.report import LOSSLESS, NOT_LOSSLESS, UNDECIDED
from otm.audit.streams.e_process import Floats
from otm.audit.streams.recorded.report import (
    ClassCount,
    ImpossibleToken,
    RecordedReport,
    StreamResult,
)
from otm.audit.streams.recorded.row_evidence import (
    POSITIONS,
    TOKEN_CLASSES,
    RowEvidence,
    TokenBatch,
    mark_classes,
)
from otm.audit.streams.recorded.steps import PRECISE, Step, read_steps
from otm.errors import InvalidInputError

TOGETHER = 512
"""Number of tokens that are added to the evidence together."""

DIAGNOSED = 20_000
"""Number of tokens that are compared with suspects, from the first; later tokens are ignored."""

UNFIT = math.log(100)
"""Limit of the log e-value against a suspect, above which the audit does not name it.

The audit also does not name a suspect if a single bet against it has reached this limit.
"""


@dataclass(eq=False)
class _Series:
    """Tokens of one kind, outputs or drafts, and the evidence that they deviate from their rows."""

    evidence: RowEvidence
    waiting: list[TokenBatch] = field(default_factory=list)
    kept: list[TokenBatch] = field(default_factory=list)
    total: int = 0
    # Number of tokens in the evidence.
    flushed: int = 0
    impossible: int = 0
    first: ImpossibleToken | None = None
    # Whether the previous token was in the upper half of the ids.
    upper: bool = False
    # The previous token.
    before: int = -1

    def add(
        self, rows: Floats, others: Floats | None, step: Step, tokens: Sequence[int], number: int
    ) -> None:
        """Add tokens, as indices into `step.ids`, with their rows [n, N, U] of all hypotheses."""
        for position, place in enumerate(tokens):
            if not rows[position, 0, place] > 0:
                self.impossible += 1
                self.first = self.first or ImpossibleToken(number, position, int(step.ids[place]))
        known = int(np.searchsorted(step.ids, self.before))
        again = known < step.ids.size and step.ids[known] == self.before
        members = mark_classes(rows[:, 0], others, tokens, (self.upper, known if again else -1))
        where = np.zeros((len(tokens), len(POSITIONS)), dtype=np.bool_)
        where[:, 0] = where[0, 1] = where[1:, 2] = True
        if 0 < len(step.drafts) < len(tokens):
            where[-1] = [True, False, False, True]
        self.waiting.append(TokenBatch.of_step(rows, members, tokens, where, number))
        self.upper = bool(members[-1, 4, tokens[-1]])
        self.before = int(step.ids[tokens[-1]])
        self.total += len(tokens)
        if self.total - self.flushed >= TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Bet on the tokens that were added since the last call."""
        if not self.waiting:
            return
        batch = TokenBatch.joined(self.waiting)
        self.evidence.add(batch)
        if self.total <= DIAGNOSED or not self.kept:
            self.kept.append(batch)
        self.waiting.clear()
        self.flushed = self.total

    def result(self, other: str, *, impossible_decides: bool) -> StreamResult:
        """Summarise for the report; `other` names the model that the rows do not belong to."""
        seen = self.evidence
        logs = np.logaddexp.reduce(seen.by_class, axis=2) - math.log(seen.by_class.shape[2])
        logs /= math.log(10)
        counts = [
            ClassCount(
                name.replace("the other model", f"the {other}"),
                where,
                positions=int(seen.counts[g]),
                expected=float(seen.expected[g, k]),
                seen=int(seen.hits[g, k]),
                log10_e_value=float(logs[g, k]),
            )
            for g, where in enumerate(POSITIONS)
            for k, name in enumerate(TOKEN_CLASSES)
            if 0 < seen.expected[g, k] < seen.counts[g]
        ]
        counts.sort(key=lambda count: -count.log10_e_value)
        decided_at = seen.decided_at
        if impossible_decides and self.first is not None:
            decided_at = min(self.first.step, self.first.step if decided_at is None else decided_at)
        log10 = seen.largest / math.log(10)
        follow = decided_at is None
        return StreamResult(
            self.total, log10, decided_at, tuple(counts), self.impossible, self.first, follow
        )


def recorded(
    steps: Any,
    *,
    false_alarms: float = 1e-6,
    delta: float = 0.05,
    rounding: float | None = None,
    name: str | None = None,
    progress: Progress | None = None,
) -> RecordedReport:
    """Test whether recorded steps of an engine are those of a lossless verifier.

    The audit compares every output token with the target's distribution in its position, and
    every draft token with the draft's distribution.  The audit uses e-values that hold after any
    number of steps ([ville1939]_; own design, docs/theory/recorded-steps.md).  The audit may
    miss a deviation that is smaller than the report's `delta`, or independent of the recorded
    data; `lossless` detects more if the verifier can be run.

    Parameters
    ----------
    steps : str, Path or iterable of dict
        A file or the steps, in the order in which they were taken.  A step has ::

            {"target_probs": [[0.5, 0.5], [0.25, 0.75]], "draft_probs": [[0.75, 0.25]],
             "drafts": [0], "output": [0, 1]}

        A step has target rows [γ + 1][V] and draft rows [γ][V] along the drafts, γ draft tokens,
        and the new tokens: the accepted drafts and one more token.  A row may also be an object
        that maps tokens to probabilities, `{"17": 0.5, "4": 0.5}`, and leaves out tokens of
        probability 0.
        `draft_probs` may be missing.  `drafts` may be missing too, for several chains, trees or
        decoding without drafts; the target rows then follow the output.  A file has one step per
        line.  Alternatively, a `.npz` or `.safetensors` file has one array for each name in a step,
        of shape [steps, γ + 1, V] and so on, where −1 pads tokens on the right.
    false_alarms : float, optional
        Bound on the probability that the audit rejects steps of a lossless verifier whose drafts
        were sampled from the recorded draft rows.
    delta : float, optional
        The deviation of a class (TV) that the audit must be able to detect before its verdict may
        be "lossless on everything tried".
    rounding : float, optional
        Largest relative error of a recorded probability; a row must sum to 1 within this error.
        If `rounding` is above 10^−5, all tokens of recorded probability 0 may together have the
        probability `rounding`.  By default 10^−5, and 0.01 for arrays in half precision.
    name : str, optional
        Name in the report; by default the name of the file.
    progress : callable, optional
        As for `lossless`.

    Returns
    -------
    RecordedReport
        The verdict, and the counts that support it.

    Raises
    ------
    InvalidInputError
        If there is no step, the file cannot be read, or a step does not have the form stated
        for `steps`; the message names the step.
    InvalidParameterError
        If a number is out of range.

    References
    ----------
    .. [ville1939] Ville, "Étude critique de la notion de collectif", 1939.

    Examples
    --------
    Steps whose drafts are all accepted, although the draft gives token 0 twice its probability:

    >>> import numpy as np
    >>> target, draft = [[0.4, 0.6], [0.5, 0.5]], [[0.8, 0.2]]
    >>> rng = np.random.default_rng(1)
    >>> drafts, last = rng.choice(2, p=draft[0], size=200), rng.choice(2, size=200)
    >>> report = recorded(
    ...     {"target_probs": target, "draft_probs": draft, "drafts": [x], "output": [x, y]}
    ...     for x, y in zip(drafts, last)
    ... )
    >>> report.verdict, report.diagnoses[0].name, report.drafts.follow
    ('not lossless', 'every draft accepted', True)
    """
    level = as_level(false_alarms, "false_alarms")
    delta = as_real(delta, "delta", above=0, below=1)
    if rounding is not None:
        rounding = as_real(rounding, "rounding", least=0, below=0.5)
    if isinstance(steps, PathLike):
        steps = as_path(steps)
    given, slack = read_steps(steps, rounding)
    lost = slack if slack > PRECISE else 0.0
    limit = math.log(2 / level)
    out = _Series(RowEvidence(1 + len(SUSPECTS), 0, slack, lost, limit))
    drafted = _Series(RowEvidence(1 + len(DRAFT_MISTAKES), 0, slack, lost, limit))
    accepted = reached = count = 0
    by_chain = 0.0
    with watching(progress, "recorded") as watch:
        for number, step in enumerate(watch.over(given, "step")):
            count += 1
            _add_output(out, step, number)
            if step.draft is not None:
                _add_drafts(drafted, step, step.draft, number)
                tried = min(len(step.output), len(step.drafts))
                pairs = np.minimum(step.target[:tried], step.draft[:tried])
                by_chain += float(pairs.sum())
            for x, y in zip(step.drafts, step.output, strict=False):
                reached += 1
                accepted += x == y
    if not count:
        raise InvalidInputError("there are no steps; give at least one")
    out.flush()
    drafted.flush()
    output = out.result("draft", impossible_decides=not lost)
    detected = out.evidence.detectable()
    verdict = LOSSLESS if detected <= delta else UNDECIDED
    return RecordedReport(
        name=name or (file_label(steps) if isinstance(steps, str | Path) else "recorded steps"),
        verdict=verdict if output.follow else NOT_LOSSLESS,
        steps=count,
        output=output,
        drafts=drafted.result("target", impossible_decides=not lost) if drafted.total else None,
        accepted=accepted,
        reached=reached,
        expected_by_chain=by_chain,
        false_alarms=level,
        delta=detected,
        rounding=slack,
        diagnoses=() if output.follow else _diagnoses(out, slack, lost),
    )


def _add_output(series: _Series, step: Step, number: int) -> None:
    """Add the output tokens, each with the distributions of all suspects."""
    target = step.target[: len(step.output)]
    rows = np.concatenate(
        [target[:, None], suspect_rows(target, step.draft, len(step.drafts))], axis=1
    )
    others = None if step.draft is None else step.draft[: len(target)]
    series.add(rows, others, step, step.output, number)


def _add_drafts(series: _Series, step: Step, draft: Floats, number: int) -> None:
    """Add all drafts, including those after a rejected draft."""
    if not step.drafts:
        return
    rows = np.stack([draft, *(of_row(draft) for of_row in DRAFT_MISTAKES.values())], axis=1)
    series.add(rows, step.target[: len(rows)], step, step.drafts, number)


def _diagnoses(series: _Series, slack: float, lost: float) -> tuple[Diagnosis, ...]:
    """Return suspects that the output fits without a deviation, and much better than the target."""
    log_probs = np.concatenate([batch.log_probs for batch in series.kept])
    total = log_probs.sum(axis=0)
    fits = []
    for place, bug in enumerate(SUSPECTS.values(), 1):
        if np.isneginf(total[place]) or not total[place] - total[0] > series.evidence.limit:
            continue
        evidence = RowEvidence(1 + len(SUSPECTS), place, slack, lost, UNFIT)
        for batch in series.kept:
            evidence.add(batch)
        if not evidence.decided and max(evidence.by_class.max(), evidence.by_other.max()) < UNFIT:
            fits.append((float(total[place]), bug.diagnosis))
    return tuple(diagnosis for _, diagnosis in sorted(fits, key=lambda fit: -fit[0]))
