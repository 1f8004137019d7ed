"""Tokens per second under load: against the costs themselves, and by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain import Latency, Setup, rates_under_load
from otm.gain import measured_latency as module
from otm.gain.measured_latency import measure_latency
from tests.gain.test_latency import Clock, TimedModel

ROWS, TOKENS = (1, 2, 3, 4, 6, 8, 12, 16, 32), (1, 2, 3, 5)


def target_time(tokens: int, rows: int) -> float:
    """Bound by the weights for few tokens, and by arithmetic for many."""
    return max(10.0, 0.5 * tokens * rows)


def draft_time(rows: int) -> float:
    return max(1.0, 0.125 * rows)


TABLE = Latency(
    ROWS,
    TOKENS,
    [draft_time(rows) for rows in ROWS],
    [[target_time(tokens, rows) for rows in ROWS] for tokens in TOKENS],
    overhead=0.25,
    autoregressive_overhead=0.125,
)
SETUPS = {("block", 1, 2): 2.2, ("block", 1, 4): 3.0, ("walk and keep", 2, 4): 3.5}


@pytest.mark.parametrize("requests", [1, 2, 4, 8])
def test_rates_are_tokens_by_time(requests: int) -> None:
    """From the costs of the shapes.  Bug: rows that are requests or chains alone, γ tokens."""
    table = rates_under_load(SETUPS, TABLE, [requests])
    plain = requests / (target_time(1, requests) + 0.125)
    expected: dict[Any, float] = {None: plain}
    for (rule, k, gamma), tokens in SETUPS.items():
        rows = requests * k
        time = gamma * draft_time(rows) + target_time(gamma + 1, rows) + 0.25
        expected[Setup(rule, k, gamma)] = requests * tokens / time
    assert {x.setup: x.server_rate for x in table.rates} == pytest.approx(expected)
    for rate in table.rates:
        assert rate.request_rate == pytest.approx(rate.server_rate / requests)
        assert rate.speedup == pytest.approx(rate.server_rate / plain)
    assert table.best(requests).server_rate == pytest.approx(max(expected.values()))


def test_drafts_are_switched_off_where_they_do_not_pay() -> None:
    """Long drafts for one request, shorter ones for more, none at last (the control)."""
    table = rates_under_load(SETUPS, TABLE, [1, 4, 8, 16])
    found = [table.best_setup(requests) for requests in (1, 3, 8, 9)]
    assert found == [
        Setup("walk and keep", 2, 4), Setup("block", 1, 4), Setup("block", 1, 2), None
    ]  # fmt: skip
    assert "16        no drafts" in str(table)
    for wrong in (0, 17):
        with pytest.raises((InvalidInputError, InvalidParameterError), match=str(wrong)):
            table.best_setup(wrong)


def test_one_request_is_the_table_itself() -> None:
    assert TABLE.under_load(1) == dataclasses.replace(
        TABLE,
        rows=TABLE.under_load(1).rows,
        draft=TABLE.under_load(1).draft,
        target=TABLE.under_load(1).target,
    )
    for k in range(1, 17):
        assert TABLE.under_load(1).step_time(4, k) == TABLE.step_time(4, k)
    assert TABLE.under_load(2).step_time(4, 8) == TABLE.step_time(4, 16) != TABLE.step_time(4, 8)


@pytest.mark.parametrize("requests", [2, 3, 5])
def test_loads_between_grid_points_keep_every_bend(requests: int) -> None:
    """Bug: chains whose rows lie between grid points, read on a line that cuts a corner."""
    loaded = TABLE.under_load(requests)
    for k in range(1, 16 // requests + 1):
        assert loaded.step_time(3, k) == pytest.approx(TABLE.step_time(3, requests * k))


def test_trees_are_read_in_one_row_of_each_request() -> None:
    """By hand: levels of 1, 2 and 1 nodes.  Bug: the last level drafted from, K rows of paths."""
    time = 2 * draft_time(2) + draft_time(4) + target_time(5, 2) + 0.25
    assert TABLE.under_load(2).tree_time([1, 2, 1]) == pytest.approx(time)
    rates = rates_under_load({("target-only", (1, 2), 2): 2.5}, TABLE, [4]).rates
    (found,) = (x.request_rate for x in rates if x.setup is not None)
    assert found == pytest.approx(2.5 / (2 * draft_time(4) + np.interp(4, [3, 5], [10, 10]) + 0.25))
    with pytest.raises(InvalidInputError, match="5 nodes"):
        TABLE.tree_time([1, 4])
    with pytest.raises(InvalidParameterError, match="each level"):
        rates_under_load({("target-only", (2,), 2): 2.5}, TABLE, [1])


def test_measuring_covers_every_load(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    models = TimedModel(clock, 10, 1, 0.25), TimedModel(clock, 1, 0.5, 0.125)
    found = measure_latency(*models, 4, gammas=[2], ks=[2], requests=[1, 4], repeats=4)
    assert found.rows == (1, 2, 4, 8)
    assert found.under_load(4).step_time(2, 2) == pytest.approx(2 * 2.5 + 15)


def test_loads_beyond_the_table_are_not_guessed() -> None:
    with pytest.raises(InvalidInputError, match="measure more"):
        TABLE.under_load(33)
    with pytest.raises(InvalidInputError, match="no numbers of requests"):
        rates_under_load(SETUPS, TABLE, [])
    with pytest.raises(InvalidParameterError, match="block efficiency"):
        rates_under_load({("block", 1, 2): -1.0}, TABLE, [1])
    with pytest.raises(InvalidInputError, match="8 requests with k = 8 need 64 rows"):
        rates_under_load({("block", 8, 2): 2.0}, TABLE, [1, 8])
    with pytest.raises(InvalidInputError, match="need 48 rows"):
        rates_under_load({("target-only", (3, 2, 1), 2): 2.0}, TABLE, [16])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"block_efficiencies": None}, "give a mapping"),
        ({"block_efficiencies": {("block", 1): 2.0}}, "rule, K, γ"),
        ({"block_efficiencies": {("block", (2, 1), -1): 2.0}}, "γ = -1"),
        ({"latency": None}, "give a Latency"),
        ({"requests": 8}, "give numbers"),
    ],
)
def test_bad_arguments_are_refused(change: Any, words: str) -> None:
    """Bugs: errors of Python, and a tree without its last level for γ = −1."""
    arguments: Any = {"block_efficiencies": SETUPS, "latency": TABLE, "requests": [1]}
    with pytest.raises(InvalidInputError, match=words):
        rates_under_load(**(arguments | change))
