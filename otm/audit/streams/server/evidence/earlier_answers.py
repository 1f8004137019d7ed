"""Evidence from earlier answers: lists that depend on the sampled token, and copied texts.

A server that makes its lists after it samples the tokens passes every comparison of a token with
its own list.  But the list of an earlier request after the same text cannot depend on a later
token.  Therefore the audit compares later tokens and lists with the first list after the same text
(Theorem 16.4).

Requests without a seed are independent.  Suppose that a text copies the j-th earlier text with
probability π w_j, where Σ w_j = 1, and otherwise follows the lists.  The likelihood ratio of copies
to the lists alone is 1 − π + π Σ w_j [the text is the j-th] / P(text).  For a correct server, the
mean of the likelihood ratio is 1.  Half of the weights are on recent texts, the other half on all
texts.  P(text) is at most the product of the probabilities of its tokens, where a token that does
not count has probability 1 (Theorem 16.5).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from otm._core.listed_tokens import is_unclear
from otm.audit.streams.e_process import EProcess, Floats
from otm.audit.streams.server.answers import Completion
from otm.audit.streams.server.distributions.token_probs import TokenProbs
from otm.audit.streams.server.evidence.group_evidence import (
    CLASS_COUNT,
    FAMILY_COUNT,
    Group,
    GroupEvidence,
)
from otm.decoding import SamplingParameters

STEADY = 0.05
"""Allowed TV between a correct server's lists after the same text; batches round differently."""

FEWEST_COMPARED = 48
"""Smallest number of comparisons with earlier lists for the verdict "lossless"."""

MOST_TEXTS = 2**17
"""Number of texts whose first lists are stored."""

COPY_RATES = np.array([1 / 2, 1 / 16, 1 / 256])
"""Values of the copying probability π, with one e-value for each."""

RECENT = 16
"""Number of latest texts, for each prompt and sampling parameters, that get a larger weight."""

MOST_COPIED = 2**12
"""Largest number of texts stored for one prompt with one set of sampling parameters."""

RELATIVE_ERROR = 10.0
"""Relative error of a probability, in units of the audit's rounding."""


@dataclass(frozen=True)
class SameLists:
    """Differences between a server's lists after the same text."""

    # Number of tokens with an earlier list after the same text.
    tokens: int
    # Mean TV between a list and the first list after the same text.
    mean_tv: float
    # Logarithm of the e-value of tokens against the first list after the same text.
    log10_e_value: float


class SameText:
    """Comparisons of each list and its token with the first list after the same text."""

    def __init__(self, sizes: dict[str, int], drift: float) -> None:
        """Start without texts; `sizes`: number of groups "prompt", "setting" and "place"."""
        self._drift = max(drift, STEADY)
        self.evidence = GroupEvidence(sizes, drift=self._drift)
        # Number of tokens with an earlier list after the same text.
        self.tokens = 0
        self._distances = 0.0
        self._shift: Floats = np.zeros((FAMILY_COUNT, CLASS_COUNT))
        self._texts: dict[tuple[Hashable, str], int] = {}
        self._first: dict[tuple[Hashable, SamplingParameters], TokenProbs] = {}

    @property
    def mean_distance(self) -> float:
        """Mean TV between a list and the first list after the same text."""
        return self._distances / max(self.tokens, 1)

    @property
    def shift(self) -> float:
        """TV between the mean of later lists and the mean of their first lists, in classes."""
        return float(np.abs(self._shift).sum(axis=1).max()) / 2 / max(self.tokens, 1)

    def add(
        self,
        prompt: int,
        parameters: SamplingParameters,
        answers: Sequence[Completion],
        error: float = 0.0,
    ) -> None:
        """Compare tokens and lists of a block with the first lists after the same texts.

        `error` is an additional error of rounded lists.
        """
        self.evidence.drift = self._drift + error
        compared: list[tuple[Floats, list[Group]]] = []
        for answer in answers:
            text: Hashable = ("prompt", prompt)
            groups: list[Group] = [("prompt", prompt), ("setting", parameters)]
            for place, (token, row) in enumerate(zip(answer.tokens, answer.rows, strict=True)):
                first = self._first.get((text, parameters))
                if first is not None:
                    # Only the first list decides whether the token counts.
                    if first.of(token) is not None:
                        compared.append((first.deviation(token), [*groups, ("place", place)]))
                    if row is not None:
                        self._compare(first, row)
                elif row is not None:
                    self._first[text, parameters] = row
                if is_unclear(token):
                    # Another token may have the same string.
                    break
                known = self._texts.get((text, token))
                if known is None:
                    if len(self._texts) >= MOST_TEXTS:
                        break
                    known = self._texts[text, token] = len(self._texts)
                text = known
        self.evidence.add(compared)

    def forget_lists(self) -> None:
        """Forget all first lists, because later lists are not comparable with them."""
        self._first.clear()

    def summary(self) -> SameLists:
        """Summarise for the report."""
        return SameLists(self.tokens, self.mean_distance, self.evidence.largest / math.log(10))

    def _compare(self, first: TokenProbs, later: TokenProbs) -> None:
        self.tokens += 1
        if first is not later:
            self._distances += first.distance(later)
            self._shift += first.merge_other(later) - first.merged_probs


@dataclass(frozen=True)
class Repeats:
    """Number of texts that repeat an earlier one of the same prompt and sampling parameters."""

    # Number of texts that have earlier texts.
    texts: int
    repeated: int
    # Upper bound on the expected number of repeats.
    expected: float
    log10_e_value: float


@dataclass
class _Earlier:
    """Earlier texts of one prompt and its sampling parameters."""

    recent: deque[tuple[str, ...]] = field(default_factory=lambda: deque(maxlen=RECENT))
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    number: int = 0
    # Total probability of all distinct texts.
    likely: float = 0.0

    def share(self, text: tuple[str, ...]) -> float:
        """Sum the weights of the earlier texts that are equal to this text."""
        return (self.recent.count(text) / len(self.recent) + self.counts[text] / self.number) / 2

    def add(self, text: tuple[str, ...], probability: float) -> None:
        self.recent.append(text)
        if self.number < MOST_COPIED:
            self.likely += 0.0 if text in self.counts else probability
            self.counts[text] += 1
            self.number += 1


class Copies:
    """Earlier texts of each prompt, and the evidence that some texts are copies."""

    def __init__(self, drift: float) -> None:
        self.drift = drift
        self.evidence = EProcess(np.ones(COPY_RATES.size))
        self._earlier: dict[Hashable, _Earlier] = {}
        self._texts, self._repeated, self._expected = 0, 0, 0.0

    def summary(self) -> Repeats:
        """Summarise for the report."""
        log10 = self.evidence.log_e_value / math.log(10)
        return Repeats(self._texts, self._repeated, self._expected, log10)

    def add(self, key: Hashable, answer: Completion) -> None:
        """Compare a text with earlier texts."""
        if not answer.tokens:
            return
        tokens = zip(answer.rows, answer.tokens, strict=True)
        likely = math.fsum(math.log(_highest_probability(row, token)) for row, token in tokens)
        earlier = self._earlier.setdefault(key, _Earlier())
        if earlier.number:
            share = earlier.share(answer.tokens)
            self._texts += 1
            self._repeated += share > 0
            self._expected += min(earlier.likely, 1.0)
            ratio = share * math.exp(min(-likely, 600.0))
            # Each probability may be wrong by its relative error.
            off = len(answer.tokens) * math.log1p(RELATIVE_ERROR * self.drift)
            excess = math.expm1(min(off, 600.0))
            self.evidence.bet(np.log1p(COPY_RATES * (ratio - 1)) - np.log1p(COPY_RATES * excess))
        earlier.add(answer.tokens, math.exp(likely))


def _highest_probability(row: TokenProbs | None, token: str) -> float:
    """Return an upper bound on the probability of a token; 1 if it is unknown."""
    probability = None if row is None else row.of(token)
    if row is None or probability is None:
        return 1.0
    return probability or row.rest or 1.0
