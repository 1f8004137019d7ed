"""The mistake that explains the deviation of a server's tokens best.

Each mistake changes the distributions of the lists: no sampling, another temperature, top-p, top-k,
a penalty on tokens of the text so far.  The audit names the one with the largest likelihood, and
what it counted; this is a hint, not a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from otm._core.listed_tokens import TOKEN_ID
from otm.audit.streams.server.answers import Prompt
from otm.audit.streams.server.evidence import Floats
from otm.audit.streams.server.laws import Law
from otm.audit.streams.server.repeats import Repeats

MOST = 3_000
"""Largest number of tokens that are examined."""

LEAST_GAIN = 7.0
"""Least logarithm of a named mistake's likelihood over that of the lists."""

SHARE = 0.6
"""A mistake is named too if its logarithm is at least this share of the best one's."""

MISTAKEN = 0.98
"""Probability that the mistake acts at a token; below 1, so that no single token decides."""

TEMPERATURES = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0)
"""Factors of the temperature that are tried."""

NUCLEI = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
"""Values of top-p that are tried."""

LIKELIEST = (2, 3, 5, 8, 10, 15)
"""Values of top-k that are tried."""

PENALTIES = (-2.0, -1.0, -0.5, -0.25, 0.5, 1.0)
"""Changes that are tried for the logits of tokens of the text so far."""


@dataclass(frozen=True)
class Sampled:
    """A token with its distribution and the tokens before it."""

    law: Law
    token: str
    prompt: Prompt
    before: tuple[str, ...]

    @property
    def again(self) -> Floats:
        """Which listed tokens stand in the prompt or the text so far: bool array [n]."""
        told = self.prompt if isinstance(self.prompt, str) else ""
        known = {*self.before}
        if not isinstance(self.prompt, str):
            known |= {f"{TOKEN_ID}{token}" for token in self.prompt}
        return np.array(
            [token in known or (token.strip() != "" and token in told) for token in self.law.tokens]
        )


def find_suspects(sampled: Sequence[Sampled], repeats: Repeats | None, level: float) -> list[str]:
    """Name the mistakes that explain the tokens of the most deviant setting best."""
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
    listed = [each for each in sampled[:MOST] if each.token in each.law.places]
    excluded = sum(each.law.of(each.token) == 0 and each.law.rest == 0 for each in sampled[:MOST])
    if excluded:
        found.append(
            "a parameter without effect: the sampling parameters or the lists exclude "
            f"{excluded:,} of {len(sampled[:MOST]):,} tokens"
        )
    if not listed:
        return texts + found
    table = _Table(listed)
    gains = [(gain, table.text(name, value)) for name, value, gain in table.best()]
    limit = max([LEAST_GAIN, *(SHARE * gain for gain, _ in gains)])
    named = [text for gain, text in sorted(gains, reverse=True) if gain >= limit]
    greedy = [text for text in named if text.startswith("no sampling")]
    return greedy or texts + found + named


class _Table:
    """Distributions of tokens as arrays [n, m], padded with zeros, likeliest first."""

    def __init__(self, sampled: Sequence[Sampled]) -> None:
        width = max(len(each.law.tokens) for each in sampled)
        self.probs, self.again = np.zeros((2, len(sampled), width))
        self.place = np.array([each.law.places[each.token] for each in sampled])
        for row, each in enumerate(sampled):
            size = len(each.law.tokens)
            self.probs[row, :size] = each.law.probs
            self.again[row, :size] = each.again
        self.before = np.cumsum(self.probs, axis=1) - self.probs
        self.probs /= np.maximum(self.probs.sum(axis=1, keepdims=True), 1e-300)
        self.each = np.arange(len(sampled))

    def best(self) -> list[tuple[str, float, float]]:
        """Find the best value of each mistake, and the logarithm of its gain in likelihood."""
        ranks = np.arange(self.probs.shape[1])
        tilts: dict[str, tuple[Sequence[float], Callable[[float], Floats]]] = {
            "greedy": ((1,), lambda _: self.probs * (ranks == 0)),
            "temperature": (TEMPERATURES, lambda t: self.probs ** (1 / t)),
            "top-p": (NUCLEI, lambda p: self.probs * (self.before < p)),
            "top-k": (LIKELIEST, lambda k: self.probs * (ranks < k)),
            "penalty": (PENALTIES, lambda b: self.probs * np.exp(b * self.again)),
        }
        found = []
        for name, (values, weights_of) in tilts.items():
            gains = [(self._gain(weights_of(value)), value) for value in values]
            gain, value = max(gains)
            found.append((name, value, gain))
        return found

    def _gain(self, weights: Floats) -> float:
        """Compare the likelihood with weights in place of the probabilities."""
        mistaken = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
        own = np.maximum(self.probs[self.each, self.place], 1e-300)
        ratios = mistaken[self.each, self.place] / own
        return float(np.log1p(MISTAKEN * (ratios - 1)).sum())

    def text(self, name: str, value: float) -> str:
        """Name a mistake, with the counts that show it."""
        count = len(self.each)
        top, expected = int((self.place == 0).sum()), float(self.probs[:, 0].sum())
        if name == "greedy":
            return (
                f"no sampling: {top:,} of {count:,} tokens are the most likely of their lists, as "
                f"in greedy decoding, {expected:,.1f} expected"
            )
        if name == "temperature":
            return (
                f"another temperature, about {value:g} times the one asked for: {top:,} of "
                f"{count:,} tokens are the most likely of their lists, {expected:,.1f} expected"
            )
        if name == "penalty":
            again = int(self.again[self.each, self.place].sum())
            often = float((self.probs * self.again).sum())
            what = "a penalty" if value < 0 else "a reward"
            return (
                f"{what} for tokens of the prompt or the text so far (repetition, frequency or "
                f"presence): {again:,} of {count:,} tokens were there before, {often:,.1f} expected"
            )
        ranks = np.arange(self.probs.shape[1])
        cut = (
            self.before >= value
            if name == "top-p"
            else np.broadcast_to(ranks >= value, self.probs.shape)
        )
        beyond, should = int(cut[self.each, self.place].sum()), float(self.probs[cut].sum())
        return (
            f"{name} of about {value:g}, or another truncation: it excludes {beyond:,} of "
            f"{count:,} tokens, {should:,.1f} expected"
        )
