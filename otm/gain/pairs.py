"""Paired scores of two models at some positions, turned into laws and measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from otm._core.files.stored import StoredArray
from otm._core.numbers import check_name
from otm._core.ratio_order import RatioOrder
from otm.coupling.build import PLANS
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidDistributionError, InvalidInputError
from otm.gain.capped import CAPPED_RULES, Accepted, by_cut, by_division_factor, by_rounds
from otm.gain.lossy_settings import Lenience, Typical, typical
from otm.gain.settings import Settings
from otm.problem import Problem

Floats = npt.NDArray[np.float64]

Measured = dict[str, npt.NDArray[Any]]
"""Arrays of what was computed, the positions along their first axes."""

Kind = Literal["logits", "log-probabilities", "probabilities"]
"""What the scores are."""

SUM_TOLERANCE = {"f2": 1e-2, "bfloat16": 1e-2, "f4": 1e-4}
"""How far probabilities may sum from one, by the type that they are stored in."""

LOG_SUM_TOLERANCE = {"f2": 3e-2, "bfloat16": 0.2, "f4": 1e-3}
"""The same of the logarithm of a sum of exponentials of log-probabilities."""

CLOSEST = 1e-6


@dataclass(frozen=True, eq=False)
class Pairs:
    """Scores of both models at R consecutive positions."""

    # [R, V] in any type of floats; or the files that have them, to be read by whoever measures
    draft: npt.NDArray[Any] | StoredArray
    target: npt.NDArray[Any] | StoredArray
    tokens: npt.NDArray[np.int64] | None  # [R]: those that the target drew there, if known
    first: int  # number of the first position, counted from 0
    stop: int  # and of the one behind the last
    kind: Kind  # what the scores are
    names: tuple[str, str]  # where the scores of draft and target are from, for messages
    dtypes: tuple[str, str]  # types in which they were stored

    def measure(self, settings: Settings) -> Measured:
        """Compute everything at each position; rows of both models are held one at a time.

        "acceptance" [R, D, rules, K], "optimum" [R, D, K], "lossy" [R, D, settings, 2, K]; with
        tokens "accepted" [R, D, capped rules, K].
        """
        drafts, targets = (
            given.read(self.first, self.stop) if isinstance(given, StoredArray) else given
            for given in (self.draft, self.target)
        )
        rows, counts = self.stop - self.first, len(settings.ks)
        temperatures = settings.draft_samplings
        found = {
            "acceptance": np.empty((rows, len(temperatures), len(settings.rules), counts)),
            "optimum": np.empty((rows, len(temperatures), counts)),
            # acceptance and total variation
            "lossy": np.empty((rows, len(temperatures), len(settings.lossy_settings), 2, counts)),
        }
        if self.tokens is not None:
            shape = rows, len(temperatures), len(settings.capped_rules), counts
            # probability that the token is accepted, given that it is the output
            found["accepted"] = np.empty(shape)
        for row in range(rows):
            target = self._law(1, row, targets[row], settings.sampling)
            for d, sampling in enumerate(temperatures):
                draft = self._law(0, row, drafts[row], sampling)
                accepted = _measure(draft, target, settings, found, (row, d))
                if self.tokens is not None:
                    ratio = self._ratio_of_token(draft, target, row)
                    for r, name in enumerate(settings.capped_rules):
                        found["accepted"][row, d, r] = np.minimum(accepted[name].cap * ratio, 1)
        return found

    def _ratio_of_token(self, draft: Floats, target: Floats, row: int) -> float:
        """Ratio p/q of the token that the target drew."""
        assert self.tokens is not None
        token = int(self.tokens[row])
        if not 0 <= token < target.size or target[token] == 0:
            raise InvalidInputError(
                f"position {self.first + row} has the token {token}, which the target law there "
                "never draws; leave the tokens out if they were not sampled from it"
            )
        return float(draft[token]) / float(target[token])

    def _law(
        self, which: Literal[0, 1], row: int, given: npt.NDArray[Any], sampling: SamplingParameters
    ) -> Floats:
        with np.errstate(invalid="ignore"):  # a signalling NaN is refused below, without a warning
            scores = given.astype(np.float64)
        try:
            if self.kind != "logits":
                with np.errstate(invalid="ignore"):
                    scores = self._as_log(scores, which)
            elif _looks_like_probabilities(scores):
                raise InvalidDistributionError(
                    "the numbers lie in [0, 1] and sum to one, as probabilities do; give their "
                    'kind, by `kind` or --kind, as "probabilities"'
                )
            law: Floats = sampling(scores)
        except InvalidDistributionError as error:
            raise InvalidInputError(
                f"row {self.first + row} of {self.names[which]}: {error}"
            ) from None
        return law

    def _as_log(self, scores: Floats, which: Literal[0, 1]) -> Floats:
        """Check that these are what they are said to be; return their logarithms."""
        dtype = self.dtypes[which].lstrip("<>|=")
        if self.kind == "probabilities":
            total, allowed = scores.sum(), SUM_TOLERANCE.get(dtype, CLOSEST)
            if not (scores.min() >= 0 and abs(total - 1) <= allowed):
                raise InvalidDistributionError(
                    f"the least number is {scores.min():.6g} and the sum {total:.6g}; "
                    f"probabilities are at least 0 and sum to one within {allowed:g}"
                )
            with np.errstate(divide="ignore"):
                return np.log(scores)
        highest = scores.max()
        total = (
            highest + np.log(np.exp(scores - highest).sum()) if np.isfinite(highest) else highest
        )
        allowed = LOG_SUM_TOLERANCE.get(dtype, CLOSEST)
        if np.isfinite(highest) and not abs(total) <= allowed:
            raise InvalidDistributionError(
                f"the logarithm of the sum of exponentials is {total:.6g}; that of "
                f"log-probabilities is 0 within {allowed:g}; unnormalised ones are of the kind "
                '"logits"'
            )
        return scores


def check_kind(kind: Any) -> Kind:
    """Refuse an unknown kind of scores."""
    known: Kind = check_name("kind of scores", kind, get_args(Kind))  # type: ignore[assignment]
    return known


def _measure(
    draft: Floats, target: Floats, settings: Settings, found: Measured, place: tuple[int, int]
) -> dict[str, Accepted]:
    """Write what is found for two laws into its place; return it for the rules that are caps."""
    order = RatioOrder(draft, target)
    leniences = [
        setting.lenience for setting in settings.lossy_settings if isinstance(setting, Lenience)
    ]
    optimum, lenient = by_cut(order, settings.ks, leniences, caps="accepted" in found)
    caps = {"optimal": optimum}
    found["optimum"][place] = optimum.probability
    if "k-Seq" in settings.rules:
        caps["k-Seq"] = by_division_factor(order, settings.ks)
    if "recursive rejection" in settings.rules:
        caps["recursive rejection"] = by_rounds(order, settings.ks)
    for r, name in enumerate(settings.rules):
        found["acceptance"][*place, r] = (
            caps[name].probability
            if name in CAPPED_RULES
            else _by_plan(name, draft, target, settings)
        )
    values = iter(lenient)
    for j, setting in enumerate(settings.lossy_settings):
        if isinstance(setting, Typical):
            found["lossy"][*place, j] = typical(draft, target, settings.ks, setting)
        else:
            value = next(values)
            found["lossy"][*place, j] = value, value - optimum.probability
    return caps


def _by_plan(name: str, draft: Floats, target: Floats, settings: Settings) -> list[float]:
    plans = (PLANS[name](Problem(draft, target, k)) for k in settings.ks)
    return [float(plan.acceptance) for plan in plans]


def _looks_like_probabilities(scores: Floats) -> bool:
    return bool(
        scores.size > 2
        and scores.min() >= 0
        and scores.max() < 1
        and abs(scores.sum() - 1) <= SUM_TOLERANCE["f2"]
    )
