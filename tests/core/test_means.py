"""Means clustered by prompt: their intervals, and the differences of what is paired."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from figures.wagner.profiles import reduction
from otm._core.means import PairedMeans, Prompts, Setup, clustered_mean, ratio_of_totals
from otm.errors import InvalidParameterError, UnknownMethodError


def test_clusters_of_one_size_are_judged_by_their_means() -> None:
    """Catches contexts of one prompt that are taken for independent ones."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(12, 5)) + rng.normal(size=(12, 1))
    found = clustered_mean(values.ravel(), np.repeat(np.arange(12), 5), level=0.9)
    means = values.mean(axis=1)
    low, high = stats.t.interval(0.9, 11, loc=means.mean(), scale=stats.sem(means))
    assert found == pytest.approx((means.mean(), low, high))
    alone = clustered_mean(values.ravel(), np.arange(60), level=0.9)
    assert alone.high - alone.low < found.high - found.low


def test_clusters_of_different_sizes() -> None:
    """The linearised ratio, written out; catches a mean of the means of clusters."""
    found = clustered_mean([1, 2, 3, 10], [5, 5, 5, 7])
    residuals = np.array([1 + 2 + 3 - 3 * 4, 10 - 4])
    error = np.sqrt(2 * (residuals**2).sum()) / 4
    assert found.mean == 4
    assert found.high - found.mean == pytest.approx(stats.t.ppf(0.975, 1) * error)


def test_intervals_cover_as_often_as_they_say() -> None:
    """Clusters of 1 to 6 values that share a mean; catches an error without Student's t."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        clusters = np.repeat(np.arange(20), rng.integers(1, 7, 20))
        found = clustered_mean(
            rng.normal(size=20)[clusters] + rng.normal(size=clusters.size), clusters
        )
        covered += found.low <= 0 <= found.high
    assert 0.90 < covered / 400 < 0.98


def test_one_prompt_alone_shows_nothing() -> None:
    assert clustered_mean([1, 2], [0, 0]) == (1.5, -np.inf, np.inf)


def test_differences_are_paired() -> None:
    """Catches two intervals that are subtracted, where the contexts are the same."""
    rng = np.random.default_rng(2)
    first = rng.normal(size=30)
    a, b = Setup("a", 1, 1), Setup("b", 2, 1)
    means = PairedMeans("x", {a: first, b: first + 1}, np.arange(30))
    assert means.difference(b, a) == pytest.approx((1, 1, 1))
    assert means["b", 2, 1].mean == pytest.approx(first.mean() + 1)
    with pytest.raises(UnknownMethodError, match="'a', 1, 1"):
        means["c", 1, 1]


@pytest.mark.parametrize(
    ("values", "clusters", "level"),
    [([], [], 0.95), ([1, 2], [0], 0.95), ([1, 2], [0, 1], 1), ([1, 2], [0, 1], 0)],
)
def test_wrong_input_is_refused(values: list[float], clusters: list[int], level: float) -> None:
    with pytest.raises(InvalidParameterError):
        clustered_mean(values, clusters, level=level)


@pytest.mark.parametrize("level", [0, 1, 2, np.nan, "0.95", None, True])
def test_a_level_is_checked_when_means_are_made(level: Any) -> None:
    """Catches a table that fails when it is printed."""
    with pytest.raises(InvalidParameterError, match=r"level = .* \(0, 1\)"):
        PairedMeans("x", {Setup("a", 1, 1): np.ones(3)}, np.arange(3), level)


def test_four_ratios_are_one_estimator() -> None:
    """Bug: an interval of a report, figure or benchmark that is another estimator's."""
    rng = np.random.default_rng(3)
    clusters = np.repeat(np.arange(9), rng.integers(1, 7, 9))
    values = rng.normal(2, 1, clusters.size)
    sums, sizes = np.bincount(clusters, values), np.bincount(clusters)
    ratio = sums.sum() / sizes.sum()
    error = np.sqrt(9 / 8 * ((sums - ratio * sizes) ** 2).sum()) / sizes.sum()
    wanted = ratio, *stats.t.interval(0.95, 8, loc=ratio, scale=error)
    found = ratio_of_totals(sums, sizes)
    assert found == pytest.approx(wanted, rel=1e-12)
    assert clustered_mean(values, clusters) == found
    assert Prompts(clusters).mean(sums) == found
    less = reduction(sums, sizes)
    assert less == pytest.approx([100 * (1 - found[i]) for i in (0, 2, 1)], rel=1e-12)


@pytest.mark.parametrize("denominators", [[], [1.0], [1.0, -1.0], [0.0, 0.0], [np.nan, 1.0]])
def test_ratios_of_nothing_are_refused(denominators: list[float]) -> None:
    """Bug: a NaN or an infinite ratio in a report."""
    with pytest.raises(InvalidParameterError, match="a positive total"):
        ratio_of_totals([1.0, 2.0], denominators)


def test_a_setup_that_one_operand_left_out_is_kept_if_the_other_measured_it() -> None:
    """Bug: merging a run with a limit and a run without one, which then cannot be printed."""
    setup, prompts = Setup("a", 1, 1), np.array([0, 1])
    without = PairedMeans("tokens", {}, prompts, 0.95, {setup: "too slow"})
    measured = PairedMeans("tokens", {setup: np.array([1.0, 2.0])}, prompts)
    for both in (without | measured, measured | without):
        assert both[setup].mean == 1.5
        assert not both.left_out
        assert "a" in repr(both)
