"""The benchmark under load, on the shipped models: what it records, not how fast it is."""

from __future__ import annotations

import json
from argparse import Namespace

import pytest

from benchmarks.load import efficiencies, record, row_of
from otm.gain import FastestTree, Latency, rates_under_load
from otm.models import encode, load


def test_setups_have_their_rule_and_the_record_is_json() -> None:
    """Bug: walk and keep under the name of block, a γ that is not measured."""
    options = Namespace(ks=[1, 2], gammas=[1, 2], tokens=8)
    prompts = [encode("In the beginning"), encode("And it came to pass")]
    tokens, hits = efficiencies(load("target"), load("small"), prompts, options)
    assert 1 > hits.sum() > 0.5 > hits[1] > 0
    rules = {1: "block", 2: "walk and keep"}
    assert set(tokens) == {(rules[k], k, gamma) for k in (1, 2) for gamma in (1, 2)}
    for gamma in (1, 2):
        assert 1 < tokens["block", 1, gamma] < tokens["walk and keep", 2, gamma] <= gamma + 1
    times = Latency((1, 4), (1, 3), (0.1, 0.2), ((1, 1.5), (1.5, 5)))
    saved = json.loads(json.dumps(record(tokens, times, rates_under_load(tokens, times, [1, 2]))))
    assert len(saved["rates"]) == 2 * 5
    assert saved["rates"][0]["speedup"] == pytest.approx(
        max(rate["speedup"] for rate in saved["rates"][:5])
    )
    row = row_of(2, FastestTree((((), ()), ()), 1.5, 1.25))
    assert row == {"requests": 2, "nodes": 4, "levels": 2, "accepted": 1.5, "speedup": 1.25}
