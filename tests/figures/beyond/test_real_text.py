"""The figure on real text: orderings that are theorems, and intervals that deserve their name."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from figures.beyond import real_text
from figures.beyond.real_text import batch_means_interval
from figures.language_models import next_token_probs
from figures.rules import K_SEQ, MULTI_ROUND, OPTIMUM
from figures.table import Table
from otm.errors import InvalidParameterError

CONTEXTS = 24


@pytest.fixture(scope="module")
def table() -> Table:
    return real_text.real_text(CONTEXTS)


def means(table: Table, rule: str, quantity: str = "acceptance") -> np.ndarray:
    return table.where(quantity=quantity, rule=rule)["mean"]


def test_every_rule_has_every_number_of_drafts(table: Table) -> None:
    """Bug: rows of two rules or of two k swapped by a wrong axis."""
    assert table.names == ("quantity", "rule", "k", "mean", "low", "high", "contexts")
    assert set(table["contexts"]) == {CONTEXTS}
    for quantity, rules in (("acceptance", real_text.RULES), ("loss", (K_SEQ, MULTI_ROUND))):
        assert set(table.where(quantity=quantity)["rule"]) == set(rules)
        for rule in rules:
            drafts = table.where(quantity=quantity, rule=rule)["k"]
            assert tuple(drafts) == real_text.DRAFTS


def test_one_draft_is_the_maximal_coupling(table: Table) -> None:
    """Bug: any rule's k off by one; with one draft all of them accept Σ min(p, q)."""
    overlaps = [np.minimum(d, t).sum() for d, t, _ in next_token_probs(CONTEXTS, real_text.SEED)]
    for rule in real_text.RULES:
        assert means(table, rule)[0] == pytest.approx(np.mean(overlaps), abs=1e-12), rule


def test_the_optimum_is_above_every_rule_and_no_rule_falls_with_k(table: Table) -> None:
    """Bug: a rule that is not lossless, or an optimum that is not one."""
    for rule in real_text.RULES:
        curve = means(table, rule)
        assert (means(table, OPTIMUM) >= curve - 1e-12).all(), rule
        assert all(later >= earlier - 1e-12 for earlier, later in pairwise(curve)), rule
        assert 0 < curve.min() <= curve.max() <= 1


def test_k_seq_keeps_its_guarantee(table: Table) -> None:
    """Bug: a k-Seq that misses Theorem 1 on a large vocabulary."""
    k = np.array(real_text.DRAFTS)
    guarantee = 1 - (1 - 1 / k) ** k
    assert (means(table, K_SEQ) >= guarantee * means(table, OPTIMUM) - 1e-12).all()


def test_losses_are_paired_differences(table: Table) -> None:
    """Bug: differences of the wrong rules; or of intervals, which would be far wider."""
    for rule in (K_SEQ, MULTI_ROUND):
        difference = means(table, OPTIMUM) - means(table, rule)
        np.testing.assert_allclose(means(table, rule, "loss"), difference, rtol=0, atol=1e-12)
        loss, acceptance = (
            table.where(quantity=quantity, rule=rule, k=8) for quantity in ("loss", "acceptance")
        )
        assert loss["high"] - loss["low"] < acceptance["high"] - acceptance["low"]


def test_intervals_contain_their_means(table: Table) -> None:
    """Bug: the two ends swapped or around another mean."""
    assert (table["low"] <= table["mean"]).all()
    assert (table["mean"] <= table["high"]).all()


def test_the_same_call_gives_the_same_table(table: Table) -> None:
    """Bug: positions or intervals that depend on a hidden random state."""
    assert real_text.real_text(CONTEXTS) == table


def test_the_full_version_takes_every_position() -> None:
    """Bug: the history before the first position is counted as a position, or the last is lost."""
    assert real_text.real_text.full is not None
    [contexts] = real_text.real_text.full().values()
    assert sum(1 for _ in next_token_probs(contexts, seed=0)) == contexts
    with pytest.raises(InvalidParameterError):
        next_token_probs(contexts + 1, seed=0)


def autoregressive(rng: np.random.Generator, correlation: float, n: int) -> np.ndarray:
    """Stationary normal series of mean 0 in which neighbours are correlated."""
    noise = rng.normal(size=n)
    series = np.empty(n)
    series[0] = noise[0]
    for i in range(1, n):
        series[i] = correlation * series[i - 1] + np.sqrt(1 - correlation**2) * noise[i]
    return series


def test_batch_means_cover_the_mean_of_a_dependent_series() -> None:
    """Bug: intervals as if neighbours were independent, here 2.6 times too narrow.

    2,000 intervals at a coverage of 0.95 have a standard deviation of 0.005.
    """
    rng = np.random.default_rng(20230731)
    n, trials = 1000, 2000
    covered = independent = 0
    for _ in range(trials):
        series = autoregressive(rng, 0.75, n)
        interval = batch_means_interval(series)
        covered += interval.low <= 0 <= interval.high
        reach = 1.96 * series.std(ddof=1) / np.sqrt(n)
        independent += abs(series.mean()) <= reach
    assert 0.92 < covered / trials < 0.97
    assert independent / trials < 0.65


def test_batch_means_with_one_value_a_batch_are_student_s_interval() -> None:
    """Bug: the normal quantile for Student's, n for n − 1, a half-sided level."""
    # t at 0.975 with 3 degrees of freedom is 3.182446; the standard deviation is √(5/3)
    interval = batch_means_interval([1, 2, 3, 4], batches=4)
    reach = 3.182446305284263 * np.sqrt(5 / 3) / 2
    assert interval == pytest.approx((2.5, 2.5 - reach, 2.5 + reach), rel=1e-12)


@pytest.mark.parametrize("batches", [0, 1, 5])
def test_too_few_or_too_many_batches_are_refused(batches: int) -> None:
    """Bug: 0/0 in the variance of one batch, or empty batches."""
    with pytest.raises(InvalidParameterError, match="at least two batches"):
        batch_means_interval([1.0, 2.0, 3.0, 4.0], batches=batches)
