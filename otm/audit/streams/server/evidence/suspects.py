"""Name the known mistakes that best explain the deviation of a server's tokens.

Each mistake changes the distributions of the lists: no sampling, another temperature, top-p, top-k,
or a penalty on tokens of the text so far.  The audit names the mistake with the largest likelihood,
and the counts that support it; this is a hint, not a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from otm._core.listed_tokens import token_name
from otm.audit.diagnose.known_bugs.steps import greedy_probs
from otm.audit.streams.e_process import Bools, Floats
from otm.audit.streams.server.answers import Completion, Prompt
from otm.audit.streams.server.distributions.token_probs import TokenProbs
from otm.audit.streams.server.evidence.earlier_answers import Repeats

MOST_EXAMINED = 3_000
"""Largest number of tokens that are examined."""

LEAST_GAIN = 7.0
"""Smallest log-likelihood gain over the lists at which a mistake is named."""

SHARE = 0.6
"""Smallest ratio to the best log-likelihood gain at which another mistake is named too."""

NO_SAMPLING = "no sampling"
"""Name of the mistake of a server that decodes greedily."""
NEARLY = 0.75
"""Smallest ratio to the best log-likelihood gain at which mixed-up requests are named instead."""

MISTAKEN = 0.98
"""Probability that the mistake affects a token; below 1, so that no single token decides."""


@dataclass(frozen=True)
class SampledToken:
    """A token with its distribution and the preceding tokens."""

    row: TokenProbs
    token: str
    prompt: Prompt
    answer: Completion
    # Number of tokens of the answer before this one.
    place: int

    def written(self, most: int | None = None) -> Bools:
        """Whether each listed token is in the answer so far: bool array [n]."""
        known = {*self.answer.tokens[: self.place]}
        return np.array([token in known for token in self.row.tokens[:most]], dtype=np.bool_)

    def told(self, most: int | None = None) -> Bools:
        """Whether each listed token is in the prompt: bool array [n]."""
        text = self.prompt if isinstance(self.prompt, str) else ""
        ids = () if isinstance(self.prompt, str) else self.prompt
        known = {token_name(token) for token in ids}
        found = [
            token in known or (token.strip() != "" and token in text)
            for token in self.row.tokens[:most]
        ]
        return np.array(found, dtype=np.bool_)


def find_suspects(
    sampled: Sequence[SampledToken],
    repeats: Repeats | None,
    level: float,
    mixed: Sequence[tuple[float, str]] = (),
    parameter: tuple[float, str] | None = None,
) -> list[str]:
    """Describe the mistakes that best explain the tokens of the most deviant setting.

    `mixed` has log-likelihood gains and descriptions of mistakes that mix up requests.
    `parameter` is a mistake in stated parameters with its log-likelihood gain.  If no other mistake
    is clearly more probable, only this mistake is named.
    """
    texts = []
    often = repeats is not None and repeats.repeated >= 2 * repeats.expected + 0.9
    if repeats is not None and often and repeats.log10_e_value > -math.log10(level) / 2:
        number = f"{repeats.repeated:,} of {repeats.texts:,}"
        cause = (
            "the server does not sample, or uses the same seed for every request"
            if repeats.repeated == repeats.texts
            else "requests share a seed or a stream of random numbers, or answers come from a cache"
        )
        texts.append(
            f"repeated texts: {number} equal an earlier one, at most "
            f"{repeats.expected:.1f} expected: {cause}"
        )
    found = []
    sampled = sampled[:MOST_EXAMINED]
    listed = [each for each in sampled if each.token in each.row.places]
    # The row of a greedy request has one token, which no parameter excludes.
    limited = [each for each in sampled if each.row.rest == 0 and len(each.row.tokens) > 1]
    excluded = sum(each.row.of(each.token) == 0 for each in limited)
    if excluded:
        found.append(
            "a parameter without effect: the sampling parameters or the lists exclude "
            f"{excluded:,} of {len(sampled):,} tokens"
        )
    stated = [] if parameter is None or parameter[0] < LEAST_GAIN else [parameter]
    if not listed:
        return texts + ([stated[0][1]] if stated else found)
    table = _Table(listed)
    gains = sorted((table.explain(mistake) for mistake in MISTAKES), reverse=True)
    if stated and stated[0][0] >= gains[0][0] - LEAST_GAIN / 2:
        return [*texts, stated[0][1]]
    gain, cause = max(mixed, default=(0.0, ""))
    if gain >= max(LEAST_GAIN, NEARLY * gains[0][0]):
        # Such a mistake also explains other temperatures and tokens outside a truncation.
        return [*texts, cause]
    limit = max(LEAST_GAIN, SHARE * gains[0][0])
    named = [text for gain, text in gains if gain >= limit]
    greedy = [text for text in named if text.startswith(NO_SAMPLING)]
    return greedy or texts + found + named


class _Table:
    """Distributions of tokens as arrays [n, m], padded with zeros, most probable token first."""

    def __init__(self, sampled: Sequence[SampledToken]) -> None:
        shape = len(sampled), max(len(each.row.tokens) for each in sampled)
        self.probs = np.zeros(shape)
        self.written, self.again = np.zeros((2, *shape), dtype=np.bool_)
        self._tokens = np.arange(len(sampled)), [each.row.places[each.token] for each in sampled]
        for row, each in enumerate(sampled):
            size = len(each.row.tokens)
            self.probs[row, :size] = each.row.probs
            self.written[row, :size], self.again[row, :size] = each.written(), each.told()
        self.again |= self.written
        self.before = np.cumsum(self.probs, axis=1) - self.probs
        self.probs /= np.maximum(self.probs.sum(axis=1, keepdims=True), 1e-300)
        self.ranks = np.broadcast_to(np.arange(shape[1]), shape)

    def explain(self, mistake: SamplingMistake) -> tuple[float, str]:
        """Find the mistake's best value; return its log-likelihood gain and its description."""
        gain, value = max((self._gain(mistake.weights(self, v)), v) for v in mistake.values)
        shows = mistake.shows(self, value)
        return gain, mistake.text.format(
            value=value,
            what="a penalty" if value < 0 else "a reward",
            seen=int(shows[self._tokens].sum()),
            count=len(shows),
            expected=float(self.probs[shows].sum()),
        )

    def _gain(self, weights: Floats) -> float:
        """Return the log-likelihood gain of weights over the probabilities."""
        mistaken = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
        ratios = mistaken[self._tokens] / np.maximum(self.probs[self._tokens], 1e-300)
        return float(np.log1p(MISTAKEN * (ratios - 1)).sum())


@dataclass(frozen=True)
class SamplingMistake:
    """A mistake in sampling from the listed distributions, at several strengths."""

    text: str
    values: tuple[float, ...]
    # Function that returns the weights of the listed tokens under the mistake.
    weights: Callable[[_Table, float], Floats]
    # Function that returns the tokens whose number indicates the mistake.
    shows: Callable[[_Table, float], Bools]


def _penalty(where: str, shows: Callable[[_Table], Bools]) -> SamplingMistake:
    """Return the mistake that adds a number to the logits of tokens that were there before."""
    return SamplingMistake(
        f"{{what}} for tokens of the {where} (repetition, frequency or presence): {{seen:,}} of "
        "{count:,} tokens were there before, {expected:,.1f} expected",
        (-2.0, -1.0, -0.5, -0.25, 0.5, 1.0),
        lambda table, more: table.probs * np.exp(more * shows(table)),
        lambda table, _: shows(table),
    )


MISTAKES = (
    SamplingMistake(
        NO_SAMPLING + ": {seen:,} of {count:,} tokens are the most likely of their lists, as in "
        "greedy decoding, {expected:,.1f} expected",
        (1,),
        lambda table, _: greedy_probs(table.probs),
        lambda table, _: table.ranks == 0,
    ),
    SamplingMistake(
        "another temperature, about {value:g} times the requested one: {seen:,} of {count:,} "
        "tokens are the most likely of their lists, {expected:,.1f} expected",
        (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0),
        lambda table, factor: table.probs ** (1 / factor),
        lambda table, _: table.ranks == 0,
    ),
    SamplingMistake(
        "top-p of about {value:g}, or another truncation: it excludes {seen:,} of {count:,} "
        "tokens, {expected:,.1f} expected",
        (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98),
        lambda table, top_p: table.probs * (table.before < top_p),
        lambda table, top_p: table.before >= top_p,
    ),
    SamplingMistake(
        "top-k of about {value:g}, or another truncation: it excludes {seen:,} of {count:,} "
        "tokens, {expected:,.1f} expected",
        (2, 3, 5, 8, 10, 15),
        lambda table, top_k: table.probs * (table.ranks < top_k),
        lambda table, top_k: table.ranks >= top_k,
    ),
    _penalty("prompt or the text so far", lambda table: table.again),
    _penalty("text so far, without the prompt", lambda table: table.written),
)
"""All mistakes that the audit compares with the tokens."""
