"""Evidence that a server mixes up simultaneous requests: their temperatures, or their rows.

The factor of a batch is a likelihood ratio.  Its alternative: with probability π, all requests have
the temperature of one of them, or a token has the distribution of another request at about the same
place.  Only rows of earlier requests of the batch are used, which are known before the token.  So
for a correct server the mean of each factor, given all earlier tokens, is at most 1, as for
repeated texts (docs/theory/server-audit.md).  Each likelihood ratio is reduced to allow for a
relative error of the probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from otm.audit.streams.e_process import EProcess, Floats
from otm.audit.streams.server.answers import Completion
from otm.audit.streams.server.blocks import Block
from otm.audit.streams.server.distributions.token_probs import TokenProbs
from otm.audit.streams.server.evidence.earlier_answers import RELATIVE_ERROR

RATES = np.array([1 / 2, 1 / 8, 1 / 32])
"""Values of π, with one e-value for each."""

NEAR = 3
"""Largest distance between the places of two rows that a server may exchange."""

WIDTHS = 0, NEAR
"""Largest distances that are tried."""

COLDEST = 0.05
"""Temperature that stands for greedy decoding in a likelihood ratio."""

SHARE = 0.6
"""Largest ratio of the gain of another cause at which a cause is named."""

FACTORS = np.array([0.7, 0.8, 0.9, 1.1, 1.25, 1.5])
"""Factors by which a server may multiply all temperatures, which also changes mixed blocks."""

RARE = 1e-3
"""Least probability of a token in the search for the cause, so that no single token decides."""

MANY_TIMES = 10.0
"""Likelihood ratio from which a token is counted as one of another row."""


class MixedUp:
    """The evidence that simultaneous requests are mixed up, and the cause that it suggests."""

    def __init__(self, drift: float, temperatures: Sequence[float]) -> None:
        """Start without batches; `temperatures` are those of all mixed blocks."""
        self.drift, self._temperatures = drift, sorted(set(temperatures))
        # First the rates of a common temperature, then those of exchanged rows by width.
        self.evidence = EProcess(np.ones((1 + len(WIDTHS)) * RATES.size))
        # Log-likelihood gains of causes, which are not e-values.
        self._constant = np.zeros(len(self._temperatures))
        # The same for another cause: the requested temperatures, multiplied by a factor.
        self._scaled = np.zeros(len(FACTORS))
        self._common, self._rows = np.zeros(RATES.size), np.zeros((len(WIDTHS), 2, RATES.size))
        # Answers of the last batch.  Unless requests are mixed up, their rows explain tokens as
        # well as the rows of this batch do.
        self._before: Sequence[Completion] = ()
        self._batches = self._tokens = self._exchanged = 0

    def add(self, block: Block, answers: Sequence[Completion]) -> None:
        """Add the batches of a block; the answers have the distributions of their tokens."""
        for start in range(0, len(answers), block.concurrency):
            part = slice(start, start + block.concurrency)
            temperatures = [each.parameters.temperature for each in block.requests[part]]
            cost = math.log1p(RELATIVE_ERROR * self.drift)
            shared = self._add_temperatures(temperatures, answers[part], cost)
            if len(temperatures) > 1:
                self.evidence.bet(np.concatenate([shared, self._add_rows(answers[part], cost)]))

    def _add_temperatures(
        self, temperatures: Sequence[float], answers: Sequence[Completion], cost: float
    ) -> Floats:
        """Return the log-factors of a batch for one temperature of all requests."""
        choices = np.array(self._temperatures)
        ratios = np.zeros((2, choices.size))
        for own, answer in zip(temperatures, answers, strict=True):
            tokens = zip(answer.tokens, answer.rows, answer.lists, strict=True)
            for token, row, entries in tokens:
                # The distribution of a greedy token says nothing about other temperatures.
                if own == 0 or row is None or row.of(token) is None:
                    continue
                safe = _safe_ratios(token, row, own, choices)
                ratios[0] += safe - cost * (choices != own)
                ratios[1] += _ratios(token, row, entries, own, choices)
                self._scaled += _ratios(token, row, entries, own, own * FACTORS)
        self._constant += ratios[1]
        tried = [number for number, t in enumerate(self._temperatures) if t in temperatures]
        if len(tried) < 2:
            return np.zeros(RATES.size)
        self._batches += 1
        means = np.logaddexp.reduce(ratios[:, tried], axis=1) - math.log(len(tried))
        self._common += np.logaddexp(np.log1p(-RATES), np.log(RATES) + means[1])
        factors: Floats = np.logaddexp(np.log1p(-RATES), np.log(RATES) + means[0])
        return factors

    def _add_rows(self, answers: Sequence[Completion], cost: float) -> Floats:
        """Return the log-factors of a batch for rows of other requests."""
        factors = np.zeros((len(WIDTHS), RATES.size))
        for number, answer in enumerate(answers):
            others = [each for each in answers if each is not answer]
            for place, (token, row) in enumerate(zip(answer.tokens, answer.rows, strict=True)):
                if row is None or row.of(token) is None:
                    continue
                # The server's own value for an unlisted or an excluded token.
                listed = math.exp(answer.lists[place].get(token, -math.inf))
                least = max(row.of(token) or 0.0, listed, RARE / 10)
                for which, width in enumerate(WIDTHS):
                    earlier = _near(answers[:number], place, width)
                    if earlier and (ratio := _row_ratio(token, row, earlier)) is not None:
                        factors[which] += np.log1p(RATES * (ratio * math.exp(-cost) - 1))
                    beside = _near(others, place, width)
                    control = _near(self._before[: len(others)], place, width)
                    if beside and control:
                        ratios = np.array([_mean_prob(token, each) for each in (beside, control)])
                        self._rows[which] += np.log1p(RATES * (ratios[:, None] / least - 1))
                self._tokens += 1
                self._exchanged += bool(beside) and _mean_prob(token, beside) > MANY_TIMES * least
        self._before = answers
        return factors.ravel()

    def explain(self) -> list[tuple[float, str]]:
        """Return the log-likelihood gains and descriptions of three causes."""
        best = int(self._constant.argmax())
        # The gain of all temperatures multiplied by a factor must be much smaller.
        least = float(self._scaled.max()) / SHARE
        return [
            (
                _above(float(self._constant[best]), least),
                "the temperature of requests has no effect: all tokens follow about temperature "
                f"{self._temperatures[best]:g}",
            ),
            (
                _above(float(self._common.max()), least),
                f"one temperature for simultaneous requests: tokens of {self._batches:,} mixed "
                "batches follow the temperature of another request beside them",
            ),
            (
                max(_above(float(x.max()), float(y.max()) / SHARE) for x, y in self._rows),
                f"rows of simultaneous requests: {self._exchanged:,} of {self._tokens:,} tokens "
                f"are {MANY_TIMES:g} times as probable after the texts of requests beside them as "
                "after their own",
            ),
        ]


def _above(gain: float, least: float) -> float:
    """Return a gain above the limit, or else 0."""
    return gain if gain > least else 0.0


def _near(answers: Sequence[Completion], place: int, width: int = NEAR) -> list[TokenProbs]:
    """Return the rows of other requests at about the same place."""
    return [
        row
        for answer in answers
        for row in answer.rows[max(place - width, 0) : place + width + 1]
        if row is not None
    ]


def _safe_ratios(token: str, row: TokenProbs, own: float, choices: Floats) -> Floats:
    """Return the log-likelihood ratios of other temperatures for the listed tokens of a row.

    Each ratio has a mean of 1.
    """
    place = row.places.get(token)
    if place is None:
        return np.zeros(choices.size)
    logs = np.log(np.maximum(row.probs, 1e-300))
    return _scaled_log(logs, place, own / np.maximum(choices, COLDEST)) - _scaled_log(
        logs, place, np.ones(1)
    )


def _scaled_log(logs: Floats, place: int, factors: Floats) -> Floats:
    """Return the log-probability of one of some tokens, whose logits are scaled by each factor."""
    apart = factors[:, None] * (logs - logs[place])
    most = apart.max(axis=1)
    found: Floats = -most - np.log(np.exp(apart - most[:, None]).sum(axis=1))
    return found


def _ratios(
    token: str, row: TokenProbs, entries: Mapping[str, float], own: float, choices: Floats
) -> Floats:
    """Return the log-likelihood ratios of other temperatures; ignore truncation if it excludes."""
    if token in row.places or row.rest > 0 or token not in entries:
        return _safe_ratios(token, row, own, choices)
    logs, place = np.array([*entries.values()]), [*entries].index(token)
    one, two = (
        _scaled_log(logs, place, 1 / t) for t in (np.maximum(choices, COLDEST), np.array([own]))
    )
    found: Floats = np.where(choices == own, 0.0, one - np.logaddexp(two, math.log(RARE)))
    return found


def _mean_prob(token: str, rows: Sequence[TokenProbs]) -> float:
    return math.fsum(row.of(token) or 0.0 for row in rows) / len(rows)


def _row_ratio(token: str, row: TokenProbs, others: Sequence[TokenProbs]) -> float | None:
    """Return the likelihood ratio of the mean of other rows; None for an excluded token.

    All tokens that are not on the list of the row are one class.
    """
    if token in row.places:
        return _mean_prob(token, others) / max(float(row.probs[row.places[token]]), 1e-300)
    if row.rest <= 0:
        return None
    listed = [math.fsum(other.of(each) or 0.0 for each in row.tokens) for other in others]
    return max(1 - math.fsum(listed) / len(others), 0.0) / row.rest
