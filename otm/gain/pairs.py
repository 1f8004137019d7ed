"""Paired scores of two models at some positions: their distributions, and what every rule accepts.

All three lossless rules for i.i.d. drafts are computed for many k from one order of the tokens by
q/p, or of bins of them.  Each accepts min(q, c p) for a cap c of its own ("One family" in
`docs/theory/cap.md`), so that its running sums give the acceptance probabilities of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import at_least_once, power_slopes
from otm._core.files.stored import StoredArray
from otm._core.ratio_bins import FINEST, RatioBins
from otm.coupling.build import PLANS
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidDistributionError, InvalidInputError
from otm.gain.settings import Lenience, Settings, Typical
from otm.optimum.cut import ROUNDING
from otm.problem import Problem

Floats = npt.NDArray[np.float64]

Measured = dict[str, npt.NDArray[Any]]
"""Arrays of what was computed, the positions along their first axes."""

KINDS = ("logits", "log-probabilities", "probabilities")
"""What scores may be."""

SUM_TOLERANCE = {"f2": 1e-2, "bfloat16": 1e-2, "f4": 1e-4}
"""How far probabilities may sum from one, by the type that they are stored in."""

LOG_SUM_TOLERANCE = {"f2": 3e-2, "bfloat16": 0.2, "f4": 1e-3}
"""The same of the logarithm of a sum of exponentials of log-probabilities."""

CLOSEST = 1e-6
"""Tolerance of both for other types."""

MAX_STEPS = 4
"""Multiplications that are cheaper than the power itself."""

MAX_ITERATIONS = 100
"""More than bisection needs for the last digit of a number in [1, k]."""

RESOLVED = 2.0**-46
"""How much f(ρ) may be of V(ρ) where ρ is taken for ρ*.

As V ascends in ρ and 1 − (1 − V/ρ)^k descends, V(ρ*) is then no farther from V(ρ) than that.
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

    def measure(self, settings: Settings) -> Measured:
        """Compute everything at each position; rows of both models are held one at a time.

        As `measure_pair`, with two axes before: positions, and temperatures of the draft model.
        """
        drafts, targets = (
            scores.read(self.first, self.stop) if isinstance(scores, StoredArray) else scores
            for scores in (self.draft, self.target)
        )
        positions = []
        for row in range(self.stop - self.first):
            target = self._probs(1, row, targets[row], settings.sampling)
            of_row = []
            for sampling in settings.draft_samplings:
                draft = self._probs(0, row, drafts[row], sampling)
                ratio = self._ratio_of_token(draft, target, row)
                of_row.append(measure_pair(draft, target, settings, ratio))
            positions.append(of_row)
        return {
            name: np.array([[pair[name] for pair in of_row] for of_row in positions])
            for name in positions[0][0]
        }

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
                scores = self._as_logits(stored.astype(np.float64), which)
            probs: Floats = sampling(scores)
        except InvalidDistributionError as error:
            raise InvalidInputError(
                f"row {self.first + row} of {self.names[which]}: {error}"
            ) from None
        return probs

    def _as_logits(self, scores: Floats, which: Literal[0, 1]) -> Floats:
        """Check that these are what they are said to be; return them, or their logarithms."""
        from scipy.special import logsumexp

        if self.kind == "logits":
            within = scores.size > 2 and scores.min() >= 0 and scores.max() < 1
            if within and abs(scores.sum() - 1) <= SUM_TOLERANCE["f2"]:
                raise InvalidDistributionError(
                    "the numbers lie in [0, 1] and sum to one, as probabilities do; give their "
                    'kind, by `kind` or --kind, as "probabilities"'
                )
            return scores
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
        total, allowed = logsumexp(scores), LOG_SUM_TOLERANCE.get(dtype, CLOSEST)
        if np.isfinite(scores.max()) and not abs(total) <= allowed:
            raise InvalidDistributionError(
                f"the logarithm of the sum of exponentials is {total:.6g}; that of "
                f"log-probabilities is 0 within {allowed:g}; unnormalised ones are of the kind "
                '"logits"'
            )
        return scores


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
    rules, lenient = capped_rules(draft, target, settings, leniences, with_cap=ratio is not None)
    optimum = rules["optimal"]
    acceptance = np.empty((len(settings.rules), len(ks)))
    for r, name in enumerate(settings.rules):
        if name in rules:
            acceptance[r] = rules[name].probability
        else:
            acceptance[r] = [float(PLANS[name](Problem(draft, target, k)).acceptance) for k in ks]
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


class Accepted(NamedTuple):
    """Acceptance probabilities [K], one for each number of drafts, and the caps [K].

    Of the optimum also the draft's masses above the cuts.
    """

    probability: Floats
    cap: Floats
    above: Floats | None = None


def capped_rules(
    draft: Floats,
    target: Floats,
    settings: Settings,
    leniences: Sequence[float] = (),
    *,
    with_cap: bool = True,
) -> tuple[dict[str, Accepted], Floats]:
    """Compute the optimum and the other capped rules, by name, and the lenient optimum [l, K].

    Of many tokens a bin stands for one; all bins in which that could matter are split together.
    """
    ks = settings.ks
    order = RatioBins.of(draft, target, bits=FINEST)
    rules: dict[str, Accepted] = {}
    wide = None
    while True:
        rules["optimal"], lenient = by_cut(order, ks, leniences, with_cap=with_cap)
        if "k-Seq" in settings.rules:
            start = rules["k-Seq"].cap if "k-Seq" in rules else None
            rules["k-Seq"] = by_division_factor(order, ks, start)
        if "recursive rejection" in settings.rules:
            rules["recursive rejection"] = by_rounds(order, range(1, ks[-1] + 1))
        if not order.wide.size:
            break
        # a cap depends on those of all rounds before
        doubtful = _with_caps(order, [rule.cap for rule in rules.values()])
        now_wide = order.wide.size
        if wide is None or now_wide > wide:  # as the optimum descends, others come to no doubt
            values = rules["optimal"].probability, *lenient
            doubtful = np.union1d(doubtful, _with_cuts(order, ks, (1, *leniences), values))
        if not doubtful.size:
            break
        order, wide = order.split(doubtful), now_wide - np.unique(doubtful).size
    if "recursive rejection" in rules:
        of_rounds = rules["recursive rejection"]
        rules["recursive rejection"] = Accepted(*(each[np.array(ks) - 1] for each in of_rounds[:2]))
    return rules, lenient


def _with_caps(bins: RatioBins, caps: Sequence[Floats]) -> npt.NDArray[np.int64]:
    """Bins whose tokens have ratios on both sides of a cap."""
    cap = np.concatenate(caps)
    place = np.searchsorted(bins.least, cap, side="right") - 1
    return np.asarray(place[(bins.least[place] < cap) & (cap < bins.most[place])])


def _with_cuts(
    bins: RatioBins, ks: Sequence[int], leniences: Sequence[float], values: Sequence[Floats]
) -> npt.NDArray[np.int64]:
    """Bins inside of which a cut may have less than some value, [K] a lenience."""
    draft_above, target_below = bins.corners(bins.wide)
    below = [target_below / lenience for lenience in leniences]
    better = np.zeros(bins.wide.size, dtype=np.bool_)
    for i, hit in enumerate(_at_least_once(draft_above, ks)):
        for masses, of_lenience in zip(below, values, strict=True):
            better |= masses + hit < of_lenience[i] * (1 - ROUNDING)
    return np.asarray(bins.wide[better])


def _at_least_once(hit: Floats, ks: Sequence[int]) -> Iterator[Floats]:
    """Give `at_least_once` of probabilities for each k, from that of the next smaller k if close.

    The same array may come again, with other numbers.
    """
    some, miss, before = hit.copy(), 1 - hit, 1
    for k in ks:
        if k - before > MAX_STEPS:
            some = at_least_once(hit, k)
        else:  # one draft more: 1 − (1 − T)^k grows to T + (1 − T) times itself
            for _ in range(k - before):
                some *= miss
                some += hit
        before = k
        yield some


def by_cut(
    order: RatioBins, ks: Sequence[int], leniences: Sequence[float] = (), *, with_cap: bool = True
) -> tuple[Accepted, Floats]:
    """α_k of each k, with its cap, and α_k(l) of each lenience l: [K] and [l, K].

    Equivalent to, but faster than `optimal_value` and `lenient_value`, up to rounding: powers come
    from those for the next smaller k if close.  Without `with_cap` these are NaN.
    """
    below = [order.target_below / lenience for lenience in leniences]
    values, lenient = np.empty(len(ks)), np.empty((len(below), len(ks)))
    above = np.empty(len(ks))
    for i, hit in enumerate(_at_least_once(order.draft_above, ks)):
        sums = order.target_below + hit
        place = sums.argmin()
        values[i], above[i] = sums[place], order.draft_above[place]
        for j, masses in enumerate(below):
            lenient[j, i] = np.minimum.reduce(masses + hit)
    np.minimum(values, 1, out=values)
    np.minimum(lenient, 1, out=lenient)
    cap = _caps_of_values(order, values, ks) if with_cap else np.full(len(ks), np.nan)
    return Accepted(values, cap, above), lenient


def _caps_of_values(order: RatioBins, values: Floats, ks: Sequence[int]) -> Floats:
    """Compute the optimal cap for each α_k [K], as `optimal_cap` does."""
    with np.errstate(invalid="ignore"):  # ∞ · 0 where no mass is above
        capped = order.target_below[:-1] + order.ratio * order.draft_above[:-1]
    below = np.searchsorted(capped, values, side="right")
    with np.errstate(divide="ignore", invalid="ignore"):
        cap = (values - order.target_below[below]) / order.draft_above[below]
    # the difference can cancel where little mass is above
    cap = np.maximum(cap, np.append(0, order.ratio)[below])
    everything = order.target_below[-1] * (1 - ROUNDING)
    largest = np.asarray(ks, dtype=np.float64)
    free = (values >= everything) | (below == capped.size)
    return np.where(free, largest, np.clip(cap, 1, largest))


@np.errstate(divide="ignore", invalid="ignore")  # ln 0 where every draft is accepted
def by_division_factor(
    order: RatioBins, ks: Sequence[int], start: Floats | None = None
) -> Accepted:
    """Compute the acceptance of k-Seq at its division factors ρ*, which are its caps: [K].

    From factors close by it takes fewer steps.
    """
    # ρ* is the root of f(ρ) = 1 − (1 − V/ρ)^k − V, V(ρ) = Σ min(q, ρ p) the capped mass, as in
    # otm.optimum.division_factor; here by Newton's steps within a bracket
    counts = np.asarray(ks, dtype=np.float64)
    low, high = np.ones(counts.size), counts.copy()
    rho = np.sqrt(counts) if start is None else start  # not far off for models that are alike
    for _ in range(MAX_ITERATIONS):
        mass, slope = _capped(order, rho)
        share = np.minimum(mass / rho, 1)
        kept = counts * np.log1p(-share)
        excess = -np.expm1(kept) - mass
        valid = excess <= 0
        high, low = np.where(valid, rho, high), np.where(valid, low, rho)
        fall = counts * np.exp(kept) / (1 - share) * (slope - share) / rho - slope
        step = rho - excess / fall
        inside = (step > low) & (step < high)
        done = (np.abs(excess) <= RESOLVED * mass) | (high - low <= RESOLVED * rho)
        rho = np.where(inside, step, np.where(done, rho, (low + high) / 2))
        if done.all():
            break
    mass, _ = _capped(order, rho)
    return Accepted(np.minimum(mass, 1), rho)


def by_rounds(order: RatioBins, ks: Sequence[int]) -> Accepted:
    """Compute the acceptance of recursive rejection: [K]; its cap grows by 1 − V in each round."""
    ratio, draft_above, target_below = order.ratio, order.draft_above, order.target_below
    mass, cap = 0.0, 0.0
    rounds = []
    for _ in range(max(ks)):
        cap += max(1 - mass, 0)
        place = ratio.searchsorted(cap, "right").item()
        mass = min(target_below.item(place) + cap * draft_above.item(place), 1.0)
        rounds.append((mass, cap))
    return Accepted(*np.transpose(rounds)[:, np.asarray(ks) - 1])


def _capped(order: RatioBins, cap: Floats) -> tuple[Floats, Floats]:
    """`RatioBins.capped_mass` for each entry of an array, and its slopes to the right."""
    below = order.ratio.searchsorted(cap, "right")
    slope = order.draft_above[below]
    return order.target_below[below] + cap * slope, slope


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
