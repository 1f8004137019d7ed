"""Scores of two models at the same positions: their distributions, and each rule's acceptance."""

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
"""Computed arrays by name, with the positions along their first axis."""

KINDS = ("logits", "log-probabilities", "probabilities")
"""Kinds of scores."""

TYPES = {"f2": "float16", "bfloat16": "bfloat16", "f4": "float32", "f8": "float64"}
"""Names of the types in which scores are stored."""

LOG_SUM_TOLERANCE = {"float16": 3e-2, "bfloat16": 0.2, "float32": 1e-3}
"""Allowed distance of log Σ exp(log-probabilities) from zero, by type of storage.

If the tolerance of the type for the sum of probabilities is larger, that tolerance is used.
"""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Scores of both models at R consecutive positions."""

    # scores [R, V] in any float type, or the files from which the worker reads them
    draft: npt.NDArray[Any] | StoredArray
    target: npt.NDArray[Any] | StoredArray
    # tokens [R] that the target sampled, if known
    tokens: npt.NDArray[np.int64] | None
    # index of the first position, and index after the last position
    first: int
    stop: int
    # kind of the scores, one of `KINDS`
    kind: str
    # origin of the draft's and the target's scores, for messages
    names: tuple[str, str]
    # types in which both models' scores were stored
    dtypes: tuple[str, str]
    # padding of both files; scores of models have no padding
    padding: tuple[Padding, Padding] | None = None

    def measure(self, settings: Settings) -> Measured:
        """Return the arrays of `measure_pair` at each position, with one row in memory at a time.

        The first two axes of each array are positions and temperatures of the draft model.
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
        """Yield each row's index, draft distributions (one per sampling), target distribution."""
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
        """Return the ratio p/q of the token that the target sampled; None if it is unknown."""
        if self.tokens is None:
            return None
        token = int(self.tokens[row])
        if not 0 <= token < target.size or target[token] == 0:
            raise InvalidInputError(
                f"position {self.first + row} has the token {token}, to which the target's "
                "distribution gives probability 0; omit the tokens if the target did not sample "
                "them"
            )
        return float(draft[token]) / float(target[token])

    def _probs(
        self, which: Literal[0, 1], row: int, stored: npt.NDArray[Any], sampling: SamplingParameters
    ) -> Floats:
        """Check a row of scores; return its distribution, with sampling parameters applied."""
        try:
            # NaN raises an error below, so no warning is needed
            with np.errstate(invalid="ignore"):
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
        """Check the kind of the scores, and return logits or logarithms of probabilities."""
        if self.kind == "logits":
            if are_probabilities(scores):
                raise InvalidDistributionError(
                    "the numbers lie in [0, 1] and sum to one, as probabilities do; set `kind` or "
                    '--kind to "probabilities"'
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
        # this import is slow, and logits do not need it
        from scipy.special import logsumexp

        total, allowed = logsumexp(scores), _log_sum_tolerance(kind, scores.size)
        if not abs(total) <= allowed:
            allowed = _log_sum_tolerance(narrowest_type(kind, scores), scores.size)
        if np.isfinite(scores.max()) and not abs(total) <= allowed:
            raise InvalidDistributionError(
                f"the logarithm of the sum of exponentials is {total:.6g}; for "
                f"log-probabilities it must be 0 within {allowed:g}; if the scores are not "
                'normalised, set the kind to "logits"'
            )
        return scores


def _log_sum_tolerance(kind: str, n: int) -> float:
    """Return the allowed distance of log Σ exp from zero, for n numbers of a type."""
    return max(LOG_SUM_TOLERANCE.get(kind, 0.0), sum_tolerance(kind, n))


def measure_pair(
    draft: Floats, target: Floats, settings: Settings, ratio: float | None = None
) -> Measured:
    """Compute the acceptance of every rule and lossy setting, from draft [V] and target [V].

    The arrays are "acceptance" [rules, K], "optimum" [K] and "lossy" [settings, 2, K], with
    acceptance and total variation. If the ratio p/q of the output token is known, there are three
    more arrays: "ratio"; "accepted" [capped rules, K], the probability that the output is a draft;
    and "above" [K], the draft's mass above the optimal cut.
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
    """Return the acceptance of a `Typical` rule and its total variation from the target: [2, K]."""
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
        # the output is the first of k drafts on the highest level that a draft reaches
        output = drafted * power_slopes(masses, k)[level]
        accepted = min(float(output.sum()), 1.0)
        moved = np.abs(output - target[likely])
        # unlikely tokens are never output, except the most probable token
        rest = 1 - float(target[likely].sum())
        if likely.size and target[best] == levels[-1]:
            place = int(np.searchsorted(likely, best))
            moved[place] = abs(output[place] + 1 - accepted - target[best])
            # the most probable token is likely, so an accepted draft already covers it
            hit = 0.0
        else:
            rest += 1 - 2 * target[best]
            hit = float(at_least_once(float(draft[best]), k))
        accepted_and_moved[:, i] = accepted + (1 - accepted) * hit, (moved.sum() + max(rest, 0)) / 2
    return accepted_and_moved
