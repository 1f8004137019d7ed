"""Test statistics of Monte Carlo checks, with proved limits and the required numbers of draws.

Each limit is proved for any number of draws.  At levels such as 10^−10, asymptotic limits differ
considerably from proved ones.  The power at a limit may be computed asymptotically, since the
negative control of a check also tests its power.
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
"""Smallest allowed δ; it needs about 10^19 draws, more than a 64-bit integer can count."""

MISS_RATE = 1e-3
"""Largest probability that a criterion misses a deviation of size δ."""


class Criterion(NamedTuple):
    """A test statistic, its limit and the number of draws."""

    # Number of independent draws.
    draws: int
    # The sampler is rejected if the statistic exceeds this limit.
    limit: float
    # Function from an array [draws] to a float, which is infinite if a draw is impossible.
    statistic: Callable[[npt.NDArray[Any]], float]


def g_statistic(counts: npt.NDArray[np.int64], probs: Probs) -> float:
    """Return the statistic G = 2 Σ c ln(c / (draws · probs)) of counts c [n].

    G is infinite if a token with a positive count has probability 0 or is not in the distribution.
    """
    tokens = np.flatnonzero(counts)
    if tokens.size and (tokens[-1] >= probs.size or not (probs[tokens] > 0).all()):
        return math.inf
    positive = counts[tokens]
    return float(2 * (positive * np.log(positive / (counts.sum() * probs[tokens]))).sum())


def g_limit(categories: int, level: float) -> float:
    """Return a limit that G exceeds with probability at most `level`.

    The limit is valid for every distribution and every number of draws.  The limit x solves
    e^(−x/2+m) (x/2m)^m = `level`, with m = categories − 1; for x > 2m the left side bounds the
    probability that G exceeds x.
    """
    if categories < 2:
        raise InvalidParameterError(
            f"the distribution has {categories} tokens of positive probability, so it is not "
            "random; compare the draws with the token instead"
        )
    m = categories - 1
    # The ratio limit / 2m is the fixed point of the contraction 1 + ln ratio − ln(level) / m.
    ratio = 1.0
    for _ in range(200):
        ratio = 1 + math.log(ratio) - math.log(level) / m
    return 2 * m * ratio


def criterion_for_distribution(probs: Probs, delta: float, level: float) -> Criterion:
    """Return a likelihood ratio test of a distribution [n] with the statistic G.

    The test detects a total variation distance of delta.  At this distance, G has approximately a
    noncentral χ² distribution with noncentrality at least 4 · draws · delta².
    """
    from scipy.optimize import brentq
    from scipy.stats import ncx2

    _check_delta(delta, 1)
    # On skewed distributions, Pearson's statistic would have far more false alarms than G.
    categories = int(np.count_nonzero(probs))
    limit = g_limit(categories, level)

    def misses_too_often(noncentrality: float) -> float:
        return float(ncx2.cdf(limit, categories - 1, noncentrality)) - MISS_RATE

    # With noncentrality 4 · limit + 100, the mean is many standard deviations above the limit.
    noncentrality = float(brentq(misses_too_often, 1e-3, 4 * limit + 100))

    def statistic(tokens: npt.NDArray[Any]) -> float:
        if tokens.min() < 0:
            return math.inf
        return g_statistic(np.bincount(tokens, minlength=probs.size), probs)

    return Criterion(math.ceil(noncentrality / (4 * delta**2)), limit, statistic)


def criterion_for_probability(probability: float, delta: float, level: float) -> Criterion:
    """Return an exact two-sided binomial test of the probability of True.

    The test detects a difference of delta in both directions.  The statistic is −ln of the p-value.
    """
    from scipy.stats import binom

    _check_delta(delta, max(probability, 1 - probability))

    def detects_delta(draws: int) -> bool:
        low = binom.ppf(level / 2, draws, probability)
        high = binom.isf(level / 2, draws, probability)
        missed = [
            float(binom.cdf(high, draws, other) - binom.cdf(low - 1, draws, other))
            for other in (probability - delta, probability + delta)
            if 0 <= other <= 1
        ]
        return max(missed) <= MISS_RATE

    draws = 1
    while not detects_delta(draws):
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
    """Return a test of the mean of bounded draws by Hoeffding's inequality.

    The test detects a difference of delta.  The statistic is the distance between the sample mean
    and `mean`.
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
    as_real(delta, "delta", least=LEAST_DELTA, most=largest, advice="the deviation to detect")
