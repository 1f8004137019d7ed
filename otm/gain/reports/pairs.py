"""Paired scores of two models at some positions: their distributions, and what rules accept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import at_least_once, power_slopes
from otm._core.files.stored import StoredArray
from otm._core.probs.distribution import narrowest_type, sum_tolerance, tolerance_of_numbers
from otm.coupling.build import build_plan
from otm.coupling.compare.capped import capped_rules
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidDistributionError, InvalidInputError
from otm.gain.reports.padding import Padding, are_probabilities
from otm.gain.reports.settings import Lenience, Settings, Typical
from otm.problem import Problem

Floats = npt.NDArray[np.float64]

Measured = dict[str, npt.NDArray[Any]]
"""Arrays of what was computed, the positions along their first axes."""

KINDS = ("logits", "log-probabilities", "probabilities")
"""What scores may be."""

TYPES = {"f2": "float16", "bfloat16": "bfloat16", "f4": "float32", "f8": "float64"}
"""Types in which scores are stored."""

LOG_SUM_TOLERANCE = {"float16": 3e-2, "bfloat16": 0.2, "float32": 1e-3}
"""Allowed distance of log Σ exp(log-probabilities) from zero, by type of storage.

A distance that probabilities of the type may have from one is allowed in any case.
"""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Scores of both models at R consecutive positions."""

    # [R, V] in any type of floats; or the files that have them, to be read by whoever measures
    draft: npt.NDArray[Any] | StoredArray
    target: npt.NDArray[Any] | StoredArray
    tokens: npt.NDArray[np.int64] | None  # [R]: those that the target drew there, if known
    first: int  # number of the first position, counted from 0
    stop: int  # and of the one behind the last
    kind: str  # what the scores are
    names: tuple[str, str]  # where the scores of draft and target are from, for messages
    dtypes: tuple[str, str]  # types in which they were stored
    padding: tuple[Padding, Padding] | None = None  # of files; models have no padding

    def measure(self, settings: Settings) -> Measured:
        """Compute everything at each position; rows of both models are held one at a time.

        As `measure_pair`, with two axes before: positions, and temperatures of the draft model.
        """
        positions = []
        for row, drafts, target in self.rows(settings.draft_samplings, settings.sampling):
            of_row = []
            for draft in drafts:
                ratio = self._ratio_of_token(draft, target, row)
                of_row.append(measure_pair(draft, target, settings, ratio))
            positions.append(of_row)
        return {
            name: np.array([[pair[name] for pair in of_row] for of_row in positions])
            for name in positions[0][0]
        }

    def rows(
        self, of_draft: Sequence[SamplingParameters], of_target: SamplingParameters
    ) -> Iterator[tuple[int, list[Floats], Floats]]:
        """Give each row: its number, the draft distribution for each sampling, the target's."""
        drafts, targets = (
            scores.read(self.first, self.stop) if isinstance(scores, StoredArray) else scores
            for scores in (self.draft, self.target)
        )
        if self.padding is not None:
            for which, rows in enumerate((drafts, targets)):
                self.padding[which].check(rows, self.kind, self.names[which], self.first)
        for row in range(self.stop - self.first):
            target = self._probs(1, row, targets[row], of_target)
            yield row, [self._probs(0, row, drafts[row], each) for each in of_draft], target

    def _ratio_of_token(self, draft: Floats, target: Floats, row: int) -> float | None:
        """Ratio p/q of the token that the target drew, if it is known."""
        if self.tokens is None:
            return None
        token = int(self.tokens[row])
        if not 0 <= token < target.size or target[token] == 0:
            raise InvalidInputError(
                f"position {self.first + row} has the token {token}, which the target's "
                "distribution there never gives; leave the tokens out if they were not sampled "
                "from it"
            )
        return float(draft[token]) / float(target[token])

    def _probs(
        self, which: Literal[0, 1], row: int, stored: npt.NDArray[Any], sampling: SamplingParameters
    ) -> Floats:
        """Check the scores of one row, and return the distribution that is sampled from."""
        try:
            with np.errstate(invalid="ignore"):  # NaN is refused below, without a warning
                scores = stored.astype(np.float64)
                if self.padding is None:
                    scores = self._as_logits(scores, which)
                else:
                    padding = self.padding[which]
                    scores = padding.without_padding(scores, self.kind)
                    scores = padding.fit(self._as_logits(scores, which))
            probs: Floats = sampling(scores)
        except InvalidDistributionError as error:
            raise InvalidInputError(
                f"row {self.first + row} of {self.names[which]}: {error}"
            ) from None
        return probs

    def _as_logits(self, scores: Floats, which: Literal[0, 1]) -> Floats:
        """Check that these are what they are said to be; return them, or their logarithms."""
        if self.kind == "logits":
            if are_probabilities(scores):
                raise InvalidDistributionError(
                    "the numbers lie in [0, 1] and sum to one, as probabilities do; give their "
                    'kind, by `kind` or --kind, as "probabilities"'
                )
            return scores
        kind = TYPES[self.dtypes[which].lstrip("<>|=")]
        if self.kind == "probabilities":
            total, allowed = scores.sum(), sum_tolerance(kind, scores.size)
            if not abs(total - 1) <= allowed:
                allowed = tolerance_of_numbers(kind, scores)
            if not (scores.min() >= 0 and abs(total - 1) <= allowed):
                raise InvalidDistributionError(
                    f"the least number is {scores.min():.6g} and the sum {total:.6g}; "
                    f"probabilities are at least 0 and sum to one within {allowed:g}"
                )
            with np.errstate(divide="ignore"):
                return np.log(scores)
        from scipy.special import logsumexp  # slow to import: logits do not need it

        total, allowed = logsumexp(scores), _log_sum_tolerance(kind, scores.size)
        if not abs(total) <= allowed:
            allowed = _log_sum_tolerance(narrowest_type(kind, scores), scores.size)
        if np.isfinite(scores.max()) and not abs(total) <= allowed:
            raise InvalidDistributionError(
                f"the logarithm of the sum of exponentials is {total:.6g}; that of "
                f"log-probabilities is 0 within {allowed:g}; unnormalised ones are of the kind "
                '"logits"'
            )
        return scores


def _log_sum_tolerance(kind: str, n: int) -> float:
    """Return the allowed distance of a log-sum from zero, for n numbers of a type."""
    return max(LOG_SUM_TOLERANCE.get(kind, 0.0), sum_tolerance(kind, n))


def measure_pair(
    draft: Floats, target: Floats, settings: Settings, ratio: float | None = None
) -> Measured:
    """Compute what every rule and lossy setting accepts: draft [V], target [V] → arrays.

    "acceptance" [rules, K], "optimum" [K], "lossy" [settings, 2, K] (acceptance, total variation);
    with the ratio p/q of the output token "ratio", "accepted" [capped rules, K], how likely it is a
    draft, and "above" [K], the draft's mass above the optimal cut.
    """
    ks = settings.ks
    leniences = [each.lenience for each in settings.lossy_settings if isinstance(each, Lenience)]
    rules, lenient = capped_rules(
        draft, target, ks, settings.rules, leniences, with_cap=ratio is not None
    )
    optimum = rules["optimal"]
    acceptance = np.empty((len(settings.rules), len(ks)))
    for r, name in enumerate(settings.rules):
        if name in rules:
            acceptance[r] = rules[name].probability
        else:
            plans = (build_plan(settings.plans[name], Problem(draft, target, k), name) for k in ks)
            acceptance[r] = [float(plan.acceptance) for plan in plans]
    lossy = np.empty((len(settings.lossy_settings), 2, len(ks)))
    of_lenience = dict(zip(leniences, lenient, strict=True))
    for j, setting in enumerate(settings.lossy_settings):
        if isinstance(setting, Typical):
            lossy[j] = typical(draft, target, ks, setting)
        else:
            accepted = of_lenience[setting.lenience]
            lossy[j] = accepted, accepted - optimum.probability
    measured = {"acceptance": acceptance, "optimum": optimum.probability, "lossy": lossy}
    if ratio is not None:
        caps = [rules[name].cap for name in settings.capped_rules]
        measured["accepted"] = np.minimum(np.reshape(caps, (-1, len(ks))) * ratio, 1)
        measured |= {"ratio": np.asarray(ratio), "above": np.asarray(optimum.above)}
    return measured


def typical(draft: Floats, target: Floats, ks: Sequence[int], setting: Typical) -> Floats:
    """Compute the acceptance of a `Typical`, and its total variation from the target: [2, K]."""
    positive = target[target > 0]
    perplexity = math.exp(float((positive * np.log(positive)).sum()))
    likely = np.flatnonzero(target > min(setting.epsilon, setting.delta * perplexity))
    best = int(target.argmax())
    levels, level = np.unique(target[likely], return_inverse=True)
    drafted = draft[likely]
    unlikely = max(1 - float(drafted.sum()), 0.0)
    masses = np.cumsum([unlikely, *np.bincount(level, drafted, levels.size)])
    accepted_and_moved = np.empty((2, len(ks)))
    for i, k in enumerate(ks):
        # the first of k drafts on the highest level reached
        output = drafted * power_slopes(masses, k)[level]
        accepted = min(float(output.sum()), 1.0)
        moved = np.abs(output - target[likely])
        rest = 1 - float(target[likely].sum())  # the others are never output, but for the best
        if likely.size and target[best] == levels[-1]:
            place = int(np.searchsorted(likely, best))
            moved[place] = abs(output[place] + 1 - accepted - target[best])
            hit = 0.0  # the best is likely, and would have been accepted
        else:
            rest += 1 - 2 * target[best]
            hit = float(at_least_once(float(draft[best]), k))
        accepted_and_moved[:, i] = accepted + (1 - accepted) * hit, (moved.sum() + max(rest, 0)) / 2
    return accepted_and_moved
