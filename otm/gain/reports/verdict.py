"""The verdict at the top of a report: one sentence, its condition and three numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from otm.coupling.compare.capped import CAPPED_RULES
from otm.gain.recommendation import Recommendation, rounded_text, verdict_sentences
from otm.gain.reports.settings import Settings

SPEED = "speed against plain decoding"
TOKENS = "tokens per target call"
ACCEPTANCE = "acceptance probability"

HOW_TO_GET_SPEED = (
    "The speed is unknown, because no latency was given. To get it, repeat the report with "
    "--latency C, the draft model's time per token divided by the target's, or --latency FILE, "
    "a table of step times (in Python: latency=…). Finished positions are kept."
)
HOW_TO_GET_TOKENS = (
    "Lists of the most probable tokens do not determine tokens per target call or the speed. To "
    "get both, record the scores of all tokens, or let both models read a text with --text FILE."
)


class Numbers(Protocol):
    """The numbers of a report that a verdict needs; `Summary` has them."""

    @property
    def settings(self) -> Settings:
        """Settings of the report."""

    @property
    def acceptance(self) -> Sequence[dict[str, Any]]:
        """Rows with the acceptance probability."""

    @property
    def bounds(self) -> Sequence[dict[str, Any]]:
        """Rows with bounds on α_k."""

    @property
    def block_efficiency(self) -> Sequence[dict[str, Any]]:
        """Rows with tokens per step."""

    @property
    def recommendation(self) -> Recommendation | None:
        """Setups for decoding, fastest first."""

    @property
    def costs(self) -> str:
        """The costs that the recommendation assumes, in words."""


class Verdict(NamedTuple):
    """The first lines of a report.

    Attributes
    ----------
    headline : str
        The answer, one short sentence.
    detail : str
        A second sentence with the numbers, or an empty text.
    condition : str
        When the answer holds, or how to get an answer.
    numbers : tuple of (str, str)
        Three names with their numbers.
    """

    headline: str
    detail: str
    condition: str
    numbers: tuple[tuple[str, str], ...]


def verdict(summary: Numbers) -> Verdict:
    """Return the verdict of a report: the speed if it is known, else the tokens or acceptance."""
    if summary.bounds:
        return _from_bounds(summary)
    if summary.recommendation is not None:
        return _from_speeds(summary, summary.recommendation)
    if summary.block_efficiency:
        return _from_tokens(summary)
    if summary.acceptance:
        return _from_acceptance(summary)
    return Verdict("This report has no results.", "", "", ())


def _from_speeds(summary: Numbers, recommendation: Recommendation) -> Verdict:
    """Return the verdict of a report with a latency."""
    best = recommendation.best
    headline, detail = verdict_sentences(recommendation)
    temperature = best.draft_sampling.temperature
    numbers = [
        (SPEED, rounded_text(best.speedup)),
        (TOKENS, rounded_text(best.block_efficiency)),
    ]
    numbers += [
        (ACCEPTANCE, rounded_text(row["mean"]))
        for row in summary.acceptance
        if (row["draft temperature"], row["rule"], row["k"])
        == (temperature, best.setup.rule, best.setup.k)
    ]
    if temperature != summary.settings.sampling.temperature:
        detail = f"{detail} Sample the draft model at temperature {temperature:g}.".strip()
    condition = f"{summary.costs} {_scope(summary, temperature)}"
    return Verdict(headline, detail, condition, tuple(numbers))


def _from_tokens(summary: Numbers) -> Verdict:
    """Return the verdict about tokens per target call, for a report without a latency."""
    rows = _main_rows(summary, summary.block_efficiency)
    gamma, most_drafts = max(row["gamma"] for row in rows), max(row["K"] for row in rows)
    longest = [row for row in rows if row["gamma"] == gamma]
    one = next(row for row in longest if row["K"] == 1)
    several = max(
        (row for row in longest if row["K"] == most_drafts), key=lambda row: row["chains"].mean
    )
    headline = (
        f"With one chain of γ = {gamma} drafts, a target call gives "
        f"{rounded_text(one['chains'])} tokens instead of 1."
    )
    detail = ""
    if most_drafts > 1:
        detail = (
            f"With K = {most_drafts} chains and the rule {several['rule']}, it gives at least "
            f"{rounded_text(several['chains'])} tokens."
        )
    acceptance = next(
        row["mean"]
        for row in _main_rows(summary, summary.acceptance)
        if (row["k"], row["rule"]) == (1, one["rule"])
    )
    numbers = (
        (SPEED, "unknown"),
        (f"{TOKENS} (K = 1, γ = {gamma})", rounded_text(one["chains"])),
        (f"{ACCEPTANCE} (K = 1)", rounded_text(acceptance)),
    )
    condition = f"{HOW_TO_GET_SPEED} {_scope(summary, summary.settings.draft_temperatures[0])}"
    return Verdict(headline, detail, condition, numbers)


def _from_acceptance(summary: Numbers) -> Verdict:
    """Return the verdict of a report that has no tokens per target call for its rules."""
    k = summary.settings.ks[-1]
    rows = [row for row in _main_rows(summary, summary.acceptance) if row["k"] == k]
    best = max(rows, key=lambda row: row["mean"].mean)
    number = rounded_text(best["mean"])
    headline = f"With k = {k} drafts, {best['rule']} accepts one with probability {number}."
    condition = (
        "Tokens per target call and the speed are unknown: a report computes them only for the "
        f"rules {', '.join(CAPPED_RULES)}."
    )
    numbers = ((SPEED, "unknown"), (TOKENS, "unknown"), (f"{ACCEPTANCE} (k = {k})", number))
    return Verdict(headline, "", condition, numbers)


def _from_bounds(summary: Numbers) -> Verdict:
    """Return the verdict of a report on lists of the most probable tokens."""
    last = summary.bounds[-1]
    headline = (
        f"With k = {last['k']} drafts, the best lossless rule accepts one with a probability "
        f"between {_outer_range(last, ' and ')}."
    )
    ends = {row["k"]: row for row in (summary.bounds[0], last)}
    numbers = [(f"{ACCEPTANCE} (k = {k})", _outer_range(row, " to ")) for k, row in ends.items()]
    return Verdict(headline, "", HOW_TO_GET_TOKENS, ((SPEED, "unknown"), *numbers))


def _outer_range(row: dict[str, Any], link: str) -> str:
    """Write both bounds with two decimals, rounded outwards so that the range stays true."""
    low = math.floor(100 * row["lower"].mean) / 100
    high = math.ceil(100 * row["upper"].mean) / 100
    return f"{low:.2f}{link}{high:.2f}"


def _main_rows(summary: Numbers, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Select the rows at the main draft temperature."""
    main = summary.settings.draft_temperatures[0]
    return [row for row in rows if row["draft temperature"] == main]


def _scope(summary: Numbers, draft_temperature: float) -> str:
    """Write the text and the sampling parameters for which the answer holds."""
    target_sampling = summary.settings.sampling
    sampling = str(target_sampling).replace("T ", "temperature ", 1)
    if draft_temperature != target_sampling.temperature:
        sampling += f" (draft model: {draft_temperature:g})"
    return f"The answer holds for text like these positions, sampled at {sampling}."
