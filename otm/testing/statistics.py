"""The statistics behind Monte Carlo checks: limits that hold at any number of draws, and power.

Every limit is a proved bound on false alarms, none an asymptotic one: at levels such as 10^−10 the
difference is not small.  Power is computed for the limit, and may be asymptotic, since negative
controls show it in each check anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs
from otm._core.numbers import as_real
from otm.errors import InvalidParameterError

LEAST_DELTA = 1e-9
"""Least deviation to be seen: it takes about 10^19 draws, more than can be counted in 64 bits."""

MISS_RATE = 1e-3
"""Probability with which a criterion may miss a deviation of the declared size."""


class Criterion(NamedTuple):
    """A statistic of a number of draws, and the limit above which they are rejected."""

    draws: int  # independent draws
    limit: float  # draws are rejected if their statistic is above it
    # from an array [draws] to a float; infinite for draws that cannot happen
    statistic: Callable[[npt.NDArray[Any]], float]


def g_statistic(counts: npt.NDArray[np.int64], probs: Probs) -> float:
    """Statistic G = 2 Σ c ln(c / (draws · probs)) of counts: [n], [n] → float.

    Infinite if a token of probability 0, or beyond the distribution, was drawn.
    """
    drawn = np.flatnonzero(counts)
    if drawn.size and (drawn[-1] >= probs.size or not (probs[drawn] > 0).all()):
        return math.inf
    seen = counts[drawn]
    return float(2 * (seen * np.log(seen / (counts.sum() * probs[drawn]))).sum())


def g_limit(categories: int, level: float) -> float:
    """Limit that G exceeds with probability at most `level`, for any distribution and any draws.

    With m = categories − 1 and for G > 2m, the probability is at most e^(−G/2+m) (G/2m)^m.
    """
    if categories < 2:
        raise InvalidParameterError(
            f"a distribution with {categories} possible tokens leaves nothing to chance; compare "
            "the draws with the token instead"
        )
    m = categories - 1
    ratio = 1.0  # limit / 2m solves ratio = 1 + ln ratio − ln(level) / m, a contraction
    for _ in range(200):
        ratio = 1 + math.log(ratio) - math.log(level) / m
    return 2 * m * ratio


def criterion_for_distribution(probs: Probs, delta: float, level: float) -> Criterion:
    """Likelihood ratio test of a distribution [n] that detects a total variation distance of delta.

    At that distance G is about a noncentral χ² with noncentrality at least 4 · draws · delta².
    """
    from scipy.optimize import brentq
    from scipy.stats import ncx2

    _check_delta(delta, 1)
    # not Pearson's statistic: on skewed distributions its false alarms are far above the level
    categories = int(np.count_nonzero(probs))
    limit = g_limit(categories, level)

    def misses_too_often(noncentrality: float) -> float:
        return float(ncx2.cdf(limit, categories - 1, noncentrality)) - MISS_RATE

    # at 4 · limit + 100 the noncentral χ² is many deviations above the limit
    noncentrality = float(brentq(misses_too_often, 1e-3, 4 * limit + 100))

    def statistic(tokens: npt.NDArray[Any]) -> float:
        if tokens.min() < 0:
            return math.inf
        return g_statistic(np.bincount(tokens, minlength=probs.size), probs)

    return Criterion(math.ceil(noncentrality / (4 * delta**2)), limit, statistic)


def criterion_for_probability(probability: float, delta: float, level: float) -> Criterion:
    """Exact two-sided binomial test that sees a difference of delta, up or down.

    Its statistic is −ln of the p-value.  Parameters as for `criterion_for_distribution`; the
    draws are true or false, and `probability` is that of true.
    """
    from scipy.stats import binom

    _check_delta(delta, max(probability, 1 - probability))

    def sees_delta(draws: int) -> bool:
        low = binom.ppf(level / 2, draws, probability)
        high = binom.isf(level / 2, draws, probability)
        missed = [
            float(binom.cdf(high, draws, other) - binom.cdf(low - 1, draws, other))
            for other in (probability - delta, probability + delta)
            if 0 <= other <= 1
        ]
        return max(missed) <= MISS_RATE

    draws = 1
    while not sees_delta(draws):
        draws *= 2

    def statistic(hits: npt.NDArray[Any]) -> float:
        count = int(np.count_nonzero(hits))
        tails = binom.cdf(count, draws, probability), binom.sf(count - 1, draws, probability)
        p_value = 2 * float(min(tails))
        return -math.log(p_value) if p_value > 0 else math.inf

    return Criterion(draws, -math.log(level), statistic)


def criterion_for_mean(
    mean: float, bounds: tuple[float, float], delta: float, level: float
) -> Criterion:
    """Hoeffding's test of the mean of bounded draws that sees a difference of delta.

    Its statistic is the distance of the two means.  Parameters as for `criterion_for_distribution`,
    with the bounds of a draw; delta is a distance of means.
    """
    low, high = bounds
    _check_delta(delta, high - low)
    deviations = math.sqrt(math.log(2 / level)) + math.sqrt(math.log(1 / MISS_RATE))
    draws = math.ceil(((high - low) * deviations / delta) ** 2 / 2)
    limit = (high - low) * math.sqrt(math.log(2 / level) / (2 * draws))

    def statistic(values: npt.NDArray[Any]) -> float:
        if values.min() < low or values.max() > high:
            return math.inf
        return abs(float(values.mean()) - mean)

    return Criterion(draws, limit, statistic)


def _check_delta(delta: float, largest: float) -> None:
    as_real(delta, "delta", least=LEAST_DELTA, most=largest, advice="the deviation to be seen")
