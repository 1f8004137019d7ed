"""The report about a server, for people and for machines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from otm._core.display.text import shown, text_table
from otm.audit.report import LOSSLESS, BaseReport, power_text
from otm.audit.streams.e_process import MISSED
from otm.audit.streams.server.earlier_answers import Repeats, SameLists
from otm.audit.streams.server.probes import Acceptance, Agreement


@dataclass(frozen=True)
class SettingResult:
    """How far the tokens of a setting deviate."""

    setting: str
    tokens: int  # that count
    deviation: float  # the most by which a union of classes came too often, on average
    log10_e_value: float  # of these tokens alone


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
    """The answer of `audit_server`.

    Attributes
    ----------
    server, model : str
        Address and name of the model.
    verdict : str
        "not lossless"; "lossless on everything tried": the distance is at most `tv`; or
        "undecided": neither shows yet.
    reasons : tuple of str
        For "not lossless", the mistakes that explain the tokens best; for "undecided", the
        conditions of "lossless" that do not hold yet.
    against : str
        What the tokens were compared with.
    requests : int
        Number of requests whose tokens were sampled, of both servers if there are two.
    tokens : int
        Number of tokens (of pairs of tokens) that count.
    left_out : int
        Number of tokens whose probability is not known, or that have no partner.
    log10_e_value : float
        The largest e-value, as a power of 10: a server that is right reaches `-log10(false_alarms)`
        with probability `false_alarms` at most.
    tv_bound : float
        The mean TV after merging is at most this; too low with probability at most 10^−3.
    tv : float
        The distance that was asked for.
    false_alarms : float
        Bound on the probability of "not lossless" for a server that is right.
    rounding : float
        How far the probability of a class may be off on average without being called wrong.
    retried : int
        Number of requests that were sent again.
    entropy : float or None
        Mean entropy of the tokens that count, in bits; None with a second server.
    greedy_distance : float
        Mean TV of greedy decoding from what the tokens were compared with. "Lossless" needs it to
        be larger than the bound or than 0.05.
    lists : SameLists or None
        Differences between the server's lists after the same text; None if the tokens were not
        compared with these lists.
    repeats : Repeats or None
        Number of texts that equal an earlier one; None with a second server.
    decimals : int or None
        Decimals of the listed log-probabilities where they are rounded to four or fewer.
    refused : tuple of str
        Sampling parameters that the server rejects: it uses its own values of these.
    settings : tuple of SettingResult
        One for each setting.
    most_deviant : DeviantPrompt or None
        The prompt that deviates most, with the token that does; shown whatever the verdict.
    greedy : Agreement or None
        How many greedy texts are the same as those of what is compared with.
    seeds : Agreement or None
        How many texts are the same again with the same seed.
    acceptance : Acceptance or None
        Drafts accepted meanwhile, if the server's metrics say so.

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
    refused: tuple[str, ...]
    settings: tuple[SettingResult, ...]
    most_deviant: DeviantPrompt | None
    greedy: Agreement | None
    seeds: Agreement | None
    acceptance: Acceptance | None

    def _lines(self) -> Iterator[str]:
        yield f"{shown(self.model)} at {self.server}: {self.verdict}"
        yield from ("  - " + reason for reason in self.reasons)
        yield f"  compared with {self.against}"
        yield (
            f"  sampled: {self.requests:,} requests, {self.tokens:,} tokens that count, "
            f"{self.left_out:,} that do not"
        )
        limit = -math.log10(self.false_alarms)
        yield f"  e-value 10^{self.log10_e_value:.1f}; 10^{limit:.1f} decides"
        yield (
            f"  mean TV, after merging into 16 classes: at most {self.tv_bound:.3g} "
            f"({self.tv:g} was asked for)"
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
                f"    token {shown(worst.token)}: {worst.seen:,} times instead of "
                f"{worst.expected:,.1f}"
            )
        for what, texts in ("greedy texts", self.greedy), ("texts of the same seed", self.seeds):
            if texts is not None:
                first = f"; {texts.first}" if texts.first else ""
                yield f"  {what}: {texts.same} of {texts.texts} the same{first} (no verdict)"
        yield from self._acceptance()
        if self.retried:
            yield f"  requests sent again: {self.retried:,}"
        yield (
            f"  false alarms: probability at most {self.false_alarms:g}; the bound is too low with "
            f"probability {MISSED:g}; rounding up to {self.rounding:g}"
        )
        if self.verdict == LOSSLESS:
            yield "  This is evidence, not a proof: it is about these prompts and classes."

    def _about_texts(self) -> Iterator[str]:
        bits = "" if self.entropy is None else f"entropy: {self.entropy:.3g} bits per token; "
        yield f"  {bits}distance of greedy decoding: {self.greedy_distance:.3g}"
        if self.lists is not None:
            yield (
                f"  lists after the same text differ by {self.lists.mean_tv:.2g} (mean TV); "
                f"{self.lists.tokens:,} tokens had an earlier list after the same text; whether "
                "lists were made before the other tokens is not known"
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
        if self.refused:
            yield (
                f"  rejected by the server, which uses its own values: {', '.join(self.refused)}"
            )

    def _acceptance(self) -> Iterator[str]:
        seen = self.acceptance
        if seen is None:
            return
        yield (
            f"  drafts: {seen.accepted:,} of {seen.drafts:,} accepted in {seen.steps:,} steps, all "
            "users of the server together"
        )
        if seen.first is not None:
            best = "" if seen.possible is None else f"; the models allow {seen.possible:.3f}"
            yield f"    the first of a step: {seen.first:.3f}{best}"
