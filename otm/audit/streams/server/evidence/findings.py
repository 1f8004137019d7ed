"""Combine the evidence from a server's answers into the verdict and its reasons."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from otm.audit.report import LOSSLESS, NOT_LOSSLESS, UNDECIDED
from otm.audit.streams.e_process import MISSED, EProcess
from otm.audit.streams.server.answers import Completion, Prompt
from otm.audit.streams.server.blocks import Block, Request
from otm.audit.streams.server.distributions.references import CountedToken, OwnLists
from otm.audit.streams.server.evidence.earlier_answers import (
    FEWEST_COMPARED,
    STEADY,
    Copies,
    SameText,
)
from otm.audit.streams.server.evidence.endings import EndingCheck, EndingViolation
from otm.audit.streams.server.evidence.excluded import ExcludedTokens
from otm.audit.streams.server.evidence.group_evidence import EVERYWHERE, Group, GroupEvidence
from otm.audit.streams.server.evidence.lengths import LengthCheck
from otm.audit.streams.server.evidence.neighbours import MixedUp
from otm.audit.streams.server.evidence.parameter_bets import plan_bets
from otm.audit.streams.server.evidence.parameter_mistakes import (
    Stated,
    Suspect,
    find_parameter_suspect,
)
from otm.audit.streams.server.evidence.penalty_bets import PenaltyBets
from otm.audit.streams.server.evidence.suspects import (
    MOST_EXAMINED,
    NO_SAMPLING,
    SampledToken,
    find_suspects,
)
from otm.audit.streams.server.plan import Plan
from otm.decoding import SamplingParameters

LEFT_OUT = 0.25
"""Largest share of tokens that may be excluded in a verdict "lossless"."""

OFF_LISTS = 0.5
"""Largest share of tokens that may be excluded or be on no list in a verdict "lossless"."""

NAMED = 1_000
"""Number of tokens, after "not lossless", that distinguishes mistakes in stated parameters."""

GREEDY = 0.05
"""For "lossless", the distance of greedy decoding must exceed this value or the audit's bound."""

DEVIATES = math.log(100)
"""Logarithm of the e-value above which a setting deviates by itself."""


def _alike(request: Request) -> tuple[int, SamplingParameters]:
    return request.prompt, request.law


def _groups_of(token: CountedToken, setting: int) -> list[Group]:
    return [("prompt", token.prompt), ("setting", setting), ("place", token.place)]


class Findings:
    """All evidence so far: from tokens, lists after the same text, and repeated texts."""

    def __init__(self, plan: Plan) -> None:
        """Start without answers."""
        self.plan, self.limits = plan, plan.limits
        self.drift, self.probs_of = plan.drift, plan.probs_of
        pairs, mixed = plan.probs_of is None, plan.mixed_temperatures
        own = isinstance(plan.probs_of, OwnLists)
        checks_endings = plan.request.checks_endings
        width = 2.0 if pairs else 1.0
        self.evidence = GroupEvidence(plan.groups, width=width, drift=plan.drift)
        self.same_text = SameText(plan.groups, plan.drift) if own else None
        self.copies = None if pairs else Copies(plan.drift)
        self.mixed_up = MixedUp(plan.drift, mixed) if mixed else None
        self.excluded = None if pairs else ExcludedTokens()
        self.penalties = None if pairs else PenaltyBets()
        self.bets = plan_bets(plan)
        self.lengths = LengthCheck() if mixed else None
        self.endings = EndingCheck(plan.request, plan.tokens) if checks_endings else None
        others = (self.same_text, self.copies, self.mixed_up)
        # Weights of the e-values, relative to the sum of those in use.
        weighted = [
            *((self.evidence, 0.8), (self.excluded, 0.1), (self.penalties, 0.1), (self.bets, 0.2)),
            *((other.evidence, 0.1) for other in others if other is not None),
        ]
        used = [(part, weight) for part, weight in weighted if part is not None]
        self._parts = [part for part, _ in used]
        level = -math.log(plan.limits.level)
        self.mixture = EProcess([weight for _, weight in used], level)
        self.left_out = 0
        # Sums over the tokens that count; the last sums the probabilities of unlisted tokens.
        self._greedy_distance, self._entropy, self._others = 0.0, 0.0, 0.0
        # Numbers of simultaneous requests, by setting.
        self._settings: dict[int, int] = {}
        # Tokens by setting, for the search for suspects.
        self._sampled: dict[int, list[SampledToken]] = {}
        self._parameters: dict[int, SamplingParameters] = {}

    def bet(self, prompt: Prompt, parameters: SamplingParameters, answer: Completion) -> None:
        """Bet on mistakes in the request parameters."""
        if self.bets is not None:
            self.bets.drift = max(self.drift, self.error)
            self.bets.add(prompt, answer, parameters)

    def add(
        self,
        block: Block,
        answers: Sequence[Completion],
        counted: Sequence[CountedToken],
    ) -> None:
        """Add the answers of a block, and their tokens that count."""
        drift = max(self.drift, self.error)
        if self.mixed_up is not None:
            self.mixed_up.drift = drift
            self.mixed_up.add(block, answers)
        pairs = zip(block.requests, answers, strict=True)
        for (prompt, law), alike in itertools.groupby(pairs, lambda pair: _alike(pair[0])):
            texts = [answer for _, answer in alike]
            if self.copies is not None:
                self.copies.drift = drift
                for answer in texts:
                    self.copies.add((prompt, law), answer)
            if self.same_text is not None:
                self.same_text.add(prompt, law, texts, self.error)
        self.left_out += sum(len(answer.tokens) for answer in answers) - len(counted)
        self.evidence.drift = drift
        self.evidence.add((each.deviation, _groups_of(each, block.setting)) for each in counted)
        if self.excluded is not None:
            rows = [(each.sampled.row, each.sampled.token) for each in counted if each.sampled]
            self.excluded.add(rows, drift)
        if self.penalties is not None:
            self.penalties.add((each.sampled for each in counted if each.sampled), drift)
        self.mixture.update(np.array([part.log_e_value for part in self._parts]))
        kept = self._sampled.setdefault(block.setting, [])
        if len({*map(_alike, block.requests)}) == 1:
            self._settings[block.setting] = block.concurrency
            self._parameters[block.setting] = block.requests[0].law
        for token in counted:
            self._greedy_distance += token.greedy_distance
            if token.sampled is not None:
                self._entropy += token.sampled.row.entropy
                self._others += token.sampled.row.rest
                if len(kept) < MOST_EXAMINED:
                    kept.append(token.sampled)

    def check_ending(self, prompt: str, answer: Completion, requested: int) -> None:
        """Check the length and the ending of a text, after its block was added."""
        if self.lengths is not None:
            self.lengths.add(prompt, answer, requested)
        if self.endings is None:
            return
        before = self.endings.unlisted
        self.endings.add(prompt, answer)
        if self.same_text is not None and self.endings.unlisted != before:
            # Earlier lists leave out more end tokens.
            self.same_text.forget_lists()

    @property
    def verdict(self) -> str:
        """Verdict from the answers so far."""
        if self.mixture.decided or self.violation is not None:
            return NOT_LOSSLESS
        return UNDECIDED if self.missing() else LOSSLESS

    @property
    def finished(self) -> bool:
        """Whether no more requests are needed, for the verdict and for naming a mistake."""
        many = self.count >= NAMED or self.violation is not None
        # A few tokens that are excluded, penalised, of other rows or of mixed blocks decide long
        # before they show the mistake.
        mixed = None if self.mixed_up is None else self.mixed_up.evidence
        parts = self.excluded, self.penalties, mixed
        few = any(part is not None and part.largest > DEVIATES for part in parts)
        few |= any(
            self.evidence.log_e_value_of((kind, key)) > DEVIATES
            for kind, key in self.evidence.tallies
            if kind == "setting" and key not in self._settings
        )
        if self.bets is None and not self.plan.omitted and not few:
            many |= not any(parameters.min_p for parameters in self._parameters.values())
        return self.verdict != UNDECIDED and (self.verdict != NOT_LOSSLESS or many)

    @property
    def violation(self) -> EndingViolation | None:
        """The first text with a wrong ending or length."""
        checks = (each for each in (self.endings, self.lengths) if each is not None)
        return next((each.violation for each in checks if each.violation is not None), None)

    @property
    def error(self) -> float:
        """Largest error of a class's probability due to the rounding of the lists."""
        return (
            self.probs_of.error / self.plan.least_temperature
            if isinstance(self.probs_of, OwnLists)
            else 0.0
        )

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
        if self.endings is not None and self.endings.hides_tokens:
            # The other conditions need tokens that count.
            return self.endings.missing()
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
        return found + ([] if self.endings is None else self.endings.missing())

    def reasons(self) -> tuple[str, ...]:
        """List the reasons for a verdict other than "lossless"."""
        verdict = self.verdict
        if verdict == NOT_LOSSLESS:
            found = [] if self.violation is None else [str(self.violation)]
            if self.mixture.decided:
                found += self.suspects()
            return tuple(found) or ("no mistake that the audit knows explains the tokens",)
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
            named = find_suspects(
                self._sampled[worst],
                repeats,
                self.limits.level,
                mixed=self._mixed_causes(),
                parameter=self._parameter_suspect(worst),
            )
            unset = "; the server decodes greedily if requests leave out the temperature"
            greedy = "temperature" in self.plan.omitted
            found += [
                text + unset if greedy and text.startswith(NO_SAMPLING) else text for text in named
            ]
        return found

    def _parameter_suspect(self, setting: int) -> Suspect | None:
        """Return the mistake in stated parameters that best explains the tokens of a setting."""
        if self.probs_of is None or setting not in self._parameters:
            return None
        stated = Stated(self._parameters[setting], self.plan.request, self.plan.omitted)
        return find_parameter_suspect(self._sampled[setting], stated, self.probs_of)

    def _mixed_causes(self) -> list[tuple[float, str]]:
        """Return mistakes that mix up requests, unless other requests deviate too."""
        if self.mixed_up is None:
            return []
        log_of = self.evidence.log_e_value_of
        deviate = [number for number in self._settings if log_of(("setting", number)) > DEVIATES]
        if any(self._settings[number] == 1 for number in deviate):
            return []
        # In these blocks, all requests have one temperature.
        return self.mixed_up.explain()[-1 if deviate else 0 :]

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
