"""The Monte Carlo helper: limits, calibration, power, blindness, the budget."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, ncx2

from otm.errors import InvalidInputError, InvalidParameterError
from otm.testing.monte_carlo import BUDGET, Budget, Control, Sampler
from otm.testing.statistics import (
    MISS_RATE,
    criterion_for_distribution,
    criterion_for_mean,
    criterion_for_probability,
    g_limit,
    g_statistic,
)

UNIFORM = np.full(4, 0.25)
SKEWED = np.array([0.4, 0.3, 0.2, 0.1])


def tokens_from(law: Any) -> Sampler:
    return lambda rng, draws: rng.choice(len(law), size=draws, p=law)


def coin(probability: float) -> Sampler:
    return lambda rng, draws: rng.random(draws) < probability


def test_the_budget_of_the_suite_is_the_stated_one() -> None:
    assert BUDGET.false_alarms == 1e-6
    assert BUDGET.level == pytest.approx(1e-10)


@pytest.mark.parametrize(
    ("categories", "limit"), [(2, 54.7), (16, 116.8), (64, 266.4), (256, 758.5)]
)
def test_limits_of_g(categories: int, limit: float) -> None:
    assert round(g_limit(categories, 1e-10), 1) == limit
    m, g = categories - 1, g_limit(categories, 1e-10)
    assert -g / 2 + m + m * math.log(g / (2 * m)) == pytest.approx(math.log(1e-10), abs=1e-9)


@pytest.mark.parametrize(("categories", "draws"), [(16, 4.5e5), (256, 1.7e6)])
def test_draws_for_a_distance_of_one_percent(categories: int, draws: float) -> None:
    law = np.full(categories, 1 / categories)
    criterion = criterion_for_distribution(law, 0.01, 1e-10)
    assert criterion.draws == pytest.approx(draws, rel=0.03)
    missed = ncx2.cdf(criterion.limit, categories - 1, 4 * criterion.draws * 0.01**2)
    assert missed == pytest.approx(MISS_RATE, rel=1e-3)


@pytest.mark.parametrize("law", [[0.5, 0.5], [0.97, 0.02, 0.01], [0.9999, 0.0001]])
def test_g_is_calibrated(law: list[float]) -> None:
    # exactly, over all outcomes of 60 draws: false alarms are never above the level
    draws, level = 60, 1e-3
    limit = g_limit(len(law), level)
    alarms = 0.0
    for counts in np.ndindex((draws + 1,) * (len(law) - 1)):
        rest = draws - sum(counts)
        if rest >= 0:
            outcome = np.array([*counts, rest])
            ways = math.factorial(draws) / math.prod(math.factorial(int(c)) for c in outcome)
            if g_statistic(outcome, np.array(law)) > limit:
                alarms += ways * float(np.prod(np.array(law) ** outcome))
    assert alarms <= level


def test_g_of_an_impossible_token_is_infinite() -> None:
    law = np.array([0.5, 0.5, 0.0])
    assert g_statistic(np.array([5, 5, 0]), law) == 0
    assert g_statistic(np.array([5, 5, 1]), law) == math.inf
    assert g_statistic(np.array([5, 5, 0, 1]), law) == math.inf  # outside the vocabulary
    assert criterion_for_distribution(law, 0.5, 1e-3).statistic(np.array([0, 1, -1])) == math.inf


@pytest.mark.parametrize("probability", [0.0, 0.02, 0.5, 0.999, 1.0])
def test_the_binomial_criterion_is_calibrated_and_sees_delta(probability: float) -> None:
    delta, level = 0.1, 1e-6
    draws, limit, statistic = criterion_for_probability(probability, delta, level)
    rejected = np.array([statistic(np.arange(draws) < hits) > limit for hits in range(draws + 1)])
    assert binom.pmf(np.arange(draws + 1), draws, probability)[rejected].sum() <= level
    for other in (probability - delta, probability + delta):
        if 0 <= other <= 1:
            missed = binom.pmf(np.arange(draws + 1), draws, other)[~rejected].sum()
            assert missed <= MISS_RATE


def test_the_limit_of_means_is_hoeffding_s() -> None:
    draws, limit, statistic = criterion_for_mean(2.0, (1, 4), 0.5, 1e-10)
    assert limit == pytest.approx(3 * math.sqrt(math.log(2 / 1e-10) / (2 * draws)))
    miss = math.exp(-2 * draws * ((0.5 - limit) / 3) ** 2)
    assert miss == pytest.approx(MISS_RATE, rel=0.02)
    assert statistic(np.array([1.0, 4.0])) == 0.5
    assert statistic(np.array([1.0, 4.1])) == math.inf
    assert statistic(np.array([0.9, 4.0])) == math.inf


@pytest.mark.parametrize("delta", [0.0, 1e-300, -0.1, 1.5, math.nan])
def test_a_deviation_out_of_range_is_refused(delta: float) -> None:
    for criterion in (
        lambda: criterion_for_distribution(UNIFORM, delta, 1e-3),
        lambda: criterion_for_probability(0.5, delta, 1e-3),
        lambda: criterion_for_mean(0.5, (0, 1), delta, 1e-3),
    ):
        with pytest.raises(InvalidParameterError, match="delta"):
            criterion()


def test_a_right_sampler_passes_and_a_wrong_one_fails() -> None:
    budget = Budget()
    control = Control(tokens_from(SKEWED), SKEWED)
    verdict = budget.check_distribution(
        "right", tokens_from(UNIFORM), UNIFORM, delta=0.1, control=control
    )
    assert verdict.statistic <= verdict.limit
    with pytest.raises(AssertionError, match="above the limit"):
        budget.check_distribution("wrong", tokens_from(SKEWED), UNIFORM, delta=0.1, control=control)
    sparse = np.array([0.5, 0.5, 0, 0])
    with pytest.raises(AssertionError, match="inf"):
        budget.check_distribution(
            "support", tokens_from(UNIFORM), sparse, delta=0.1, control=control
        )


def test_probabilities_and_means_are_checked() -> None:
    budget = Budget()
    control = Control(coin(0.6), 0.6)
    budget.check_probability("right", coin(0.5), 0.5, delta=0.1, control=control)
    with pytest.raises(AssertionError, match="above the limit"):
        budget.check_probability("wrong", coin(0.6), 0.5, delta=0.1, control=control)
    budget.check_mean("mean", coin(0.5), 0.5, bounds=(0, 1), delta=0.1, control=control)
    with pytest.raises(AssertionError, match="above the limit"):
        budget.check_mean("wrong mean", coin(0.6), 0.5, bounds=(0, 1), delta=0.1, control=control)


def test_a_negative_control_that_passes_is_an_error() -> None:
    # its stated distribution is far away, but it draws the right one: the check sees nothing
    blind = Control(tokens_from(UNIFORM), SKEWED)
    with pytest.raises(AssertionError, match="does not reject"):
        Budget().check_distribution(
            "blind", tokens_from(UNIFORM), UNIFORM, delta=0.2, control=blind
        )


def test_a_negative_control_that_is_too_close_is_refused() -> None:
    control = Control(tokens_from(SKEWED), SKEWED)
    with pytest.raises(InvalidParameterError, match="at least delta"):
        Budget().check_distribution(
            "close", tokens_from(UNIFORM), UNIFORM, delta=0.21, control=control
        )


def test_names_are_used_once() -> None:
    budget = Budget()
    control = Control(coin(1), 1)
    budget.check_probability("name", coin(0.5), 0.5, delta=0.5, control=control)
    with pytest.raises(InvalidInputError, match="already has a check"):
        budget.check_probability("name", coin(0.5), 0.5, delta=0.5, control=control)


def test_a_failed_check_cannot_be_repeated() -> None:
    budget = Budget()
    with pytest.raises(AssertionError):
        budget.check_probability("name", coin(1), 0.5, delta=0.5, control=Control(coin(1), 1))
    with pytest.raises(InvalidInputError, match="already has a check"):
        budget.check_probability("name", coin(0.5), 0.5, delta=0.5, control=Control(coin(1), 1))


def test_the_budget_runs_out() -> None:
    budget = Budget(capacity=2)
    control = Control(coin(1), 1)
    for name in "ab":
        budget.check_probability(name, coin(0.5), 0.5, delta=0.5, control=control)
    with pytest.raises(InvalidInputError, match="all 2 checks"):
        budget.check_probability("c", coin(0.5), 0.5, delta=0.5, control=control)


def test_draws_depend_on_the_name_alone() -> None:
    drawn: list[list[int]] = []

    def sampler(rng: np.random.Generator, draws: int) -> Any:
        drawn.append(rng.integers(0, 4, size=draws).tolist())
        return np.array(drawn[-1])

    control = Control(tokens_from([1, 0, 0, 0]), np.array([1, 0, 0, 0]))
    for budget, name in ((Budget(), "a"), (Budget(), "a"), (Budget(), "b")):
        budget.check_distribution(name, sampler, UNIFORM, delta=0.5, control=control)
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_sampler_and_its_control_draw_from_different_streams() -> None:
    drawn: list[Any] = []

    def recorded(sampler: Sampler) -> Sampler:
        def record(rng: np.random.Generator, draws: int) -> Any:
            drawn.append(rng.bit_generator.state)
            return sampler(rng, draws)

        return record

    control = Control(recorded(coin(1)), 1)
    Budget().check_probability("streams", recorded(coin(0.5)), 0.5, delta=0.5, control=control)
    assert drawn[0] != drawn[1]


def test_a_sampler_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="one entry per draw"):
        Budget().check_probability(
            "shape", lambda rng, _: rng.random(3), 0.5, delta=0.5, control=Control(coin(1), 1)
        )


def test_a_law_with_one_token_is_refused() -> None:
    one, control = np.array([0.0, 1.0]), Control(coin(1), np.array([1.0, 0.0]))
    with pytest.raises(InvalidParameterError, match="not random"):
        Budget().check_distribution("one", coin(1), one, delta=0.5, control=control)
