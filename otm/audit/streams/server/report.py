"""The report about a server: printed lines, and a dictionary for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from otm._core.display.text import shown, text_table
from otm.audit.report import LOSSLESS, NOT_LOSSLESS, BaseReport, power_text
from otm.audit.streams.e_process import MISSED
from otm.audit.streams.server.checks.greedy_texts import GreedyTexts
from otm.audit.streams.server.checks.list_checks import NOT_CONSISTENT, ListCheck
from otm.audit.streams.server.checks.seeds import SeededTexts
from otm.audit.streams.server.evidence.earlier_answers import Repeats, SameLists
from otm.audit.streams.server.evidence.endings import EndingCounts
from otm.audit.streams.server.probes import Acceptance


@dataclass(frozen=True)
class SettingResult:
    """Deviation of the tokens of a setting."""

    setting: str
    # Number of tokens that count.
    tokens: int
    # Largest mean excess of a union of classes.
    deviation: float
    # Logarithm of the e-value of these tokens alone.
    log10_e_value: float


@dataclass(frozen=True)
class DeviantPrompt:
    """The prompt whose tokens deviate most, and its most deviant token."""

    prompt: str
    deviation: float
    log10_e_value: float
    token: str
    seen: int
    expected: float


@dataclass(frozen=True, eq=False)
class ServerReport(BaseReport):
    """Result of `audit_server`: the verdict about a server, and the evidence.

    Attributes
    ----------
    server, model : str
        Address of the server and name of the model.
    verdict : str
        "not lossless"; "lossless on everything tried": the distance is at most `tv`; or
        "undecided": neither holds yet.
    reasons : tuple of str
        For "not lossless", the mistakes that best explain the tokens.  For "undecided", the unmet
        conditions of the verdict "lossless".
    against : str
        Reference that the tokens were compared with.
    requests : int
        Number of requests with sampled tokens, to both servers if there are two.
    tokens : int
        Number of tokens, or of pairs of tokens, that the evidence uses.
    left_out : int
        Number of tokens with unknown probability or without a partner.
    log10_e_value : float
        Logarithm to base 10 of the largest e-value.  A correct server reaches
        `-log10(false_alarms)` with probability at most `false_alarms`.
    tv_bound : float
        Upper bound on the mean TV after merging; it is too low with probability at most 10^−3.
    tv : float
        Distance that the audit had to exclude.
    false_alarms : float
        Bound on the probability that a correct server is called "not lossless".
    rounding : float
        Allowed mean error of a class's probability.
    retried : int
        Number of retries.
    entropy : float or None
        Mean entropy of the tokens that count, in bits; None with a second server.
    greedy_distance : float
        Mean TV between greedy decoding and the reference.  The verdict "lossless" requires that
        this distance exceeds `tv_bound` or 0.05.
    lists : SameLists or None
        Differences between the server's lists after the same text; None if the tokens were not
        compared with these lists.
    repeats : Repeats or None
        Number of texts that equal an earlier one; None with a second server.
    decimals : int or None
        Number of decimals of the listed log-probabilities, if they are rounded to four or fewer.
    rejected : tuple of str
        Sampling parameters that the server rejects, so that it uses its own values.
    settings : tuple of SettingResult
        Deviation of each setting.
    most_deviant : DeviantPrompt or None
        The most deviant prompt with its most deviant token, for every verdict.
    endings : EndingCounts or None
        Number of texts by ending, and the first wrong ending; None unless the audit checks endings.
    log_probs : tuple of ListCheck
        A verdict for each property of the log-probabilities: "consistent", "not consistent" or "not
        checked".  A wrong log-probability is not a wrong token, so these verdicts are separate from
        `verdict`.  If lists of prompts show that the lists of the tokens are wrong, `verdict` is
        "undecided", or "not lossless" if the tokens also deviate from the lists of prompts.
    greedy : GreedyTexts or None
        Number of greedy texts that agree with the reference, and the reasons for differences.
    seeds : SeededTexts or None
        Whether texts are equal when requested again with the same seed, alone and beside other
        requests.
    acceptance : Acceptance or None
        Drafts accepted during the audit, if the server's metrics contain them.

    Examples
    --------
    >>> from otm.audit import audit_server
    >>> from otm.audit.streams.server.simulated import simulated_server
    >>> report = audit_server(
    ...     "http://simulated", requests=8, transport=simulated_server(), probes=False
    ... )
    >>> report.verdict, report.requests, report.tokens
    ('undecided', 8, 64)
    """

    server: str
    model: str
    verdict: str
    reasons: tuple[str, ...]
    against: str
    requests: int
    tokens: int
    left_out: int
    log10_e_value: float
    tv_bound: float
    tv: float
    false_alarms: float
    rounding: float
    retried: int
    entropy: float | None
    greedy_distance: float
    lists: SameLists | None
    repeats: Repeats | None
    decimals: int | None
    rejected: tuple[str, ...]
    settings: tuple[SettingResult, ...]
    most_deviant: DeviantPrompt | None
    endings: EndingCounts | None
    log_probs: tuple[ListCheck, ...]
    greedy: GreedyTexts | None
    seeds: SeededTexts | None
    acceptance: Acceptance | None

    @property
    def wrong_log_probs(self) -> bool:
        """Whether a check found wrong log-probabilities."""
        return any(check.verdict == NOT_CONSISTENT for check in self.log_probs)

    def _lines(self) -> Iterator[str]:
        yield f"{shown(self.model)} at {self.server}: {self.verdict}{self._scope()}"
        yield from ("  - " + reason for reason in self.reasons)
        yield f"  compared with {self.against}"
        yield (
            f"  sampled: {self.requests:,} requests, {self.tokens:,} tokens that count, "
            f"{self.left_out:,} that do not"
        )
        limit = -math.log10(self.false_alarms)
        yield f"  e-value: 10^{self.log10_e_value:.1f}; 10^{limit:.1f} is needed to reject"
        yield (
            f"  mean TV, after merging into 16 classes: at most {self.tv_bound:.3g} "
            f"(required: {self.tv:g})"
        )
        yield from self._about_texts()
        names = ("setting", "tokens", "deviation", "e-value")
        cells = [
            (
                line.setting,
                f"{line.tokens:,}",
                f"{line.deviation:.3f}",
                power_text(line.log10_e_value),
            )
            for line in self.settings
        ]
        yield from ("    " + line for line in text_table(names, cells).splitlines())
        worst = self.most_deviant
        if worst is not None:
            yield (
                f"  most deviant prompt: {worst.prompt}, {worst.deviation:.3f}, e-value "
                f"{power_text(worst.log10_e_value)}"
            )
            yield (
                f"    token {shown(worst.token)}: {worst.seen:,} seen, "
                f"{worst.expected:,.1f} expected"
            )
        if self.log_probs:
            yield f"  log-probabilities: {'wrong' if self.wrong_log_probs else 'no contradiction'}"
        yield from (f"    {check}" for check in self.log_probs)
        for what, texts in ("greedy texts", self.greedy), ("texts with the same seed", self.seeds):
            if texts is not None:
                yield f"  {what}: {texts} (not part of the verdict)"
        if self.endings is not None:
            seen = self.endings
            yield (
                f"  endings of {seen.texts:,} texts: {seen.at_end:,} at an end token, "
                f"{seen.at_stop:,} at a stop string, {seen.full:,} at max_tokens, "
                f"{seen.unclear:,} unclear"
            )
        yield from self._acceptance()
        if self.retried:
            yield f"  retries: {self.retried:,}"
        yield (
            f"  false alarms: probability at most {self.false_alarms:g}; the bound is too low with "
            f"probability {MISSED:g}; rounding up to {self.rounding:g}"
        )
        if self.verdict == LOSSLESS:
            yield "  This is evidence, not a proof: it holds only for these prompts and classes."

    def _scope(self) -> str:
        """Return the end of the first line: the numbers that support the verdict."""
        requests = f"{self.requests:,} {'request' if self.requests == 1 else 'requests'}"
        if self.verdict == LOSSLESS:
            return f", at most {self.tv_bound:.3g} (TV) from its reference after {requests}"
        if self.verdict == NOT_LOSSLESS:
            if self.log10_e_value < -math.log10(self.false_alarms):
                return f", shown by a text with a wrong ending after {requests}"
            return f", shown by an e-value of {power_text(self.log10_e_value)} after {requests}"
        return f" after {requests}"

    def _about_texts(self) -> Iterator[str]:
        bits = "" if self.entropy is None else f"entropy: {self.entropy:.3g} bits per token; "
        yield f"  {bits}distance to greedy decoding: {self.greedy_distance:.3g}"
        if self.lists is not None:
            yield (
                f"  lists after the same text differ by {self.lists.mean_tv:.2g} (mean TV); "
                f"{self.lists.tokens:,} tokens had an earlier list after the same text; for other "
                "tokens, the audit cannot see whether the list was made before the token"
            )
        if self.repeats is not None:
            yield (
                f"  texts that repeat an earlier one: {self.repeats.repeated:,} of "
                f"{self.repeats.texts:,}, at most {self.repeats.expected:,.1f} expected"
            )
        if self.decimals is not None:
            yield (
                f"  log-probabilities have {self.decimals} decimals: the bound includes their "
                "rounding"
            )
        if self.rejected:
            yield (
                f"  rejected by the server, which uses its own values: {', '.join(self.rejected)}"
            )

    def _acceptance(self) -> Iterator[str]:
        seen = self.acceptance
        if seen is None:
            return
        yield (
            f"  drafts: {seen.accepted:,} of {seen.drafts:,} accepted in {seen.steps:,} steps, for "
            "all users of the server"
        )
        if seen.first is not None:
            best = "" if seen.possible is None else f"; the models allow {seen.possible:.3f}"
            yield f"    first draft of a step: {seen.first:.3f}{best}"
