"""The mixture of bets: a mean of 1 on fair coins, its maximum, and the step at which it decides."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from otm.audit.streams.e_process import EProcess

SHARES = [0.5, 0.3, 0.2]
BETS = np.log(np.array([[0.5, 1.5], [1.0, 1.0], [1.75, 0.25]]))
"""Factors of three bets on a fair coin [J, side], each of mean 1."""


def played(coins: tuple[int, ...], limit: float = math.inf) -> EProcess:
    process = EProcess(SHARES, limit)
    process.bet(np.array([BETS[:, coin] for coin in coins]), range(10, 10 + len(coins)))
    return process


def test_the_mixture_has_mean_one_and_rarely_reaches_a_limit() -> None:
    """By enumeration of eight coins.  Bugs: shares that sum to more, factors of one token twice."""
    runs = [played(coins, math.log(3)) for coins in itertools.product((0, 1), repeat=8)]
    assert np.mean([math.exp(run.log_e_value) for run in runs]) == pytest.approx(1)
    assert 0 < np.mean([run.decided for run in runs]) <= 1 / 3


def test_a_decision_stays_and_names_its_step() -> None:
    """Bug: the last value in place of the largest one, or the number of a token for its step."""
    run = played((1, 1, 1, 0, 0, 0), limit=math.log(1.5))
    values = [played((1, 1, 1, 0, 0, 0)[:n]).log_e_value for n in range(1, 7)]
    assert run.largest == pytest.approx(max(values))
    assert run.log_e_value == pytest.approx(values[-1])
    assert values[-1] < math.log(1.5)
    assert run.decided
    assert run.decided_at == 10 + next(i for i, v in enumerate(values) if v >= math.log(1.5))
    assert played((1,)).decided_at is None


def test_bets_in_batches_are_bets_at_once() -> None:
    """Bug: a batch that begins from 1 again; updates by hand are the same."""
    at_once, batches, by_hand = played((0, 1, 0, 1)), EProcess(SHARES), EProcess(SHARES)
    for batch in ((0, 1), (0, 1)):
        batches.bet(np.array([BETS[:, coin] for coin in batch]), [0, 1])
        by_hand.update(by_hand.logs + BETS.sum(axis=1))
    for other in (batches, by_hand):
        np.testing.assert_allclose(other.logs, at_once.logs)
        assert other.log_e_value == pytest.approx(at_once.log_e_value)
