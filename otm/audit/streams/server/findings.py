"""Combine the evidence from a server's answers into the verdict and its reasons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from otm.audit.report import LOSSLESS, NOT_LOSSLESS, UNDECIDED
from otm.audit.streams.e_process import MISSED, EProcess
from otm.audit.streams.server.answers import Completion
from otm.audit.streams.server.earlier_answers import FEWEST_COMPARED, STEADY, Copies, SameText
from otm.audit.streams.server.group_evidence import EVERYWHERE, Group, GroupEvidence
from otm.audit.streams.server.references import CountedToken, OwnLists, ProbsOf
from otm.audit.streams.server.suspects import MOST_EXAMINED, SampledToken, find_suspects
from otm.decoding import SamplingParameters

LEFT_OUT = 0.25
"""Largest share of tokens that may be excluded in a verdict "lossless"."""

OFF_LISTS = 0.5
"""Largest share of tokens that may be excluded or be on no list in a verdict "lossless"."""

GREEDY = 0.05
"""For "lossless", the distance of greedy decoding must exceed this value or the audit's bound."""

SHARES = {"own": 0.8, "same text": 0.1, "copies": 0.1}
"""Weights of the e-values: tokens against their own lists, against earlier lists, and copies."""


@dataclass(frozen=True)
class Limits:
    """Limits at which the audit ends."""

    requests: int
    tv: float
    level: float


class Findings:
    """All evidence so far: from tokens, lists after the same text, and repeated texts."""

    def __init__(
        self,
        limits: Limits,
        probs_of: ProbsOf | None,
        sizes: dict[str, int],
        drift: float,
        least_temperature: float,
    ) -> None:
        """Start without answers; `sizes` has numbers of groups, `probs_of` is None for pairs."""
        self.limits, self.drift, self._least = limits, drift, least_temperature
        self.probs_of = probs_of
        self.evidence = GroupEvidence(
            sizes, width=1.0 if probs_of is not None else 2.0, drift=drift
        )
        self.copies = None if probs_of is None else Copies(drift)
        own = isinstance(probs_of, OwnLists)
        self.same_text = SameText(sizes, drift) if own else None
        self._parts: dict[str, EProcess] = {"own": self.evidence}
        if self.same_text is not None:
            self._parts["same text"] = self.same_text.evidence
        if self.copies is not None:
            self._parts["copies"] = self.copies.evidence
        self.mixture = EProcess([SHARES[name] for name in self._parts], -math.log(limits.level))
        self.left_out = 0
        # Sums over the tokens that count; the last sums the probabilities of unlisted tokens.
        self._greedy_distance, self._entropy, self._others = 0.0, 0.0, 0.0
        # Tokens by setting, for the search for suspects.
        self._sampled: dict[int, list[SampledToken]] = {}

    def add(
        self,
        setting: int,
        prompt: int,
        parameters: SamplingParameters,
        answers: Sequence[Completion],
        counted: Sequence[CountedToken],
    ) -> None:
        """Add the answers of a block, and their tokens that count."""
        drift = max(self.drift, self.error)
        if self.copies is not None:
            self.copies.drift = drift
            for answer in answers:
                self.copies.add((prompt, parameters), answer)
        if self.same_text is not None:
            self.same_text.add(prompt, parameters, answers, self.error)
        self.left_out += sum(len(answer.tokens) for answer in answers) - len(counted)
        groups: list[Group] = [("prompt", prompt), ("setting", setting)]
        self.evidence.drift = drift
        self.evidence.add((token.deviation, [*groups, ("place", token.place)]) for token in counted)
        self.mixture.update(np.array([part.log_e_value for part in self._parts.values()]))
        kept = self._sampled.setdefault(setting, [])
        for token in counted:
            self._greedy_distance += token.greedy_distance
            if token.sampled is not None:
                self._entropy += token.sampled.row.entropy
                self._others += token.sampled.row.rest
                if len(kept) < MOST_EXAMINED:
                    kept.append(token.sampled)

    @property
    def verdict(self) -> str:
        """Verdict from the answers so far."""
        if self.mixture.decided:
            return NOT_LOSSLESS
        return UNDECIDED if self.missing() else LOSSLESS

    @property
    def error(self) -> float:
        """Largest error of a class's probability due to the rounding of the lists."""
        return self.probs_of.error / self._least if isinstance(self.probs_of, OwnLists) else 0.0

    @property
    def bound(self) -> float:
        """Upper bound on the mean TV to the reference, even if lists depend on sampled tokens."""
        shift = 0.0 if self.same_text is None else self.same_text.shift
        return min(self.evidence.bound(MISSED) + shift + self.error, 1.0)

    @property
    def count(self) -> int:
        """Number of tokens, or of pairs, that count."""
        return self.evidence.tallies[EVERYWHERE].count

    @property
    def greedy_distance(self) -> float:
        """Mean TV between greedy decoding and the distributions of the tokens that count."""
        return self._greedy_distance / max(self.count, 1)

    @property
    def entropy(self) -> float | None:
        """Mean entropy of the tokens that count, in bits; None for pairs."""
        return None if self.probs_of is None else self._entropy / max(self.count, 1)

    def missing(self) -> list[str]:
        """List the unmet conditions of the verdict "lossless"."""
        found, bound = [], self.bound
        if not bound <= self.limits.tv:
            found.append(
                f"the bound on the distance is {bound:.3g} so far, but must be at most "
                f"{self.limits.tv:g}: allow more requests (--requests)"
            )
        if self.much_left_out:
            found.append(
                "too many tokens are excluded: request longer lists (--logprobs) or lower "
                "temperatures"
            )
        elif self.off_lists:
            found.append(
                "too many tokens are not on their lists, so that only their total probability is "
                "known: request longer lists (--logprobs) or lower temperatures"
            )
        if not self.greedy_distance > min(bound, GREEDY):
            what = (
                "both servers return the same tokens too often"
                if self.entropy is None
                else f"the tokens have too little entropy, {self.entropy:.3g} bits on average"
            )
            found.append(
                f"{what}: the distance to greedy decoding is only {self.greedy_distance:.3g}; use "
                "higher temperatures, or prompts with more possible continuations"
            )
        same = self.same_text
        if same is not None and same.tokens < FEWEST_COMPARED:
            found.append(
                f"only {same.tokens} lists were compared with an earlier list after the same "
                f"text, but {FEWEST_COMPARED} are needed to show whether lists depend on sampled "
                "tokens: use fewer prompts"
            )
        if same is not None and same.mean_distance > STEADY:
            found.append(
                f"lists after the same text differ by {same.mean_distance:.3g} (mean TV), more "
                f"than the allowed {STEADY:g}"
            )
        return found

    def reasons(self) -> tuple[str, ...]:
        """List the reasons for a verdict other than "lossless"."""
        verdict = self.verdict
        if verdict == NOT_LOSSLESS:
            return tuple(self.suspects()) or (
                "no mistake that the audit knows explains the tokens",
            )
        return tuple(self.missing()) if verdict == UNDECIDED else ()

    def suspects(self) -> list[str]:
        """Describe the mistakes that may have caused a deviation."""
        found = []
        same, limit = self.same_text, self.mixture.limit
        own = self.evidence.largest
        if same is not None and (
            same.mean_distance > STEADY
            or (same.mean_distance > self.drift and same.evidence.largest >= limit > own)
        ):
            found.append(
                f"lists after the same text differ by {same.mean_distance:.3g} (mean TV, "
                f"{same.tokens:,} tokens), as if the server made them after sampling the token, or "
                "used several models"
            )
        repeats = None if self.copies is None else self.copies.summary()
        if self._sampled and (not found or own >= limit):
            log_of = self.evidence.log_e_value_of
            worst = max(self._sampled, key=lambda number: log_of(("setting", number)))
            found += find_suspects(self._sampled[worst], repeats, self.limits.level)
        return found

    @property
    def much_left_out(self) -> bool:
        """Whether too many tokens are excluded for a verdict; never for pairs."""
        tokens = self.left_out + self.count
        return self.probs_of is not None and self.left_out > LEFT_OUT * tokens

    @property
    def off_lists(self) -> bool:
        """Whether too few tokens are on their lists for a verdict; never for pairs."""
        off = self.left_out + self._others
        return self.probs_of is not None and off > OFF_LISTS * (self.left_out + self.count)
