"""The e-value of merged tokens: a mean of at most 1, that over all unions, few false alarms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from otm.audit.streams.server.distributions.lists import probs_from_logits
from otm.audit.streams.server.evidence.group_evidence import (
    CLASS_COUNT,
    EVERYWHERE,
    FAMILY_COUNT,
    LAMBDAS,
    GroupEvidence,
    Tally,
)
from otm.decoding import SamplingParameters

LEVEL = 0.05


def one_hot(place: int) -> np.ndarray:
    row = np.zeros((FAMILY_COUNT, CLASS_COUNT))
    row[:, place] = 1
    return row


def test_the_mixture_is_the_mean_over_all_unions() -> None:
    """Bug: a factor per class that is wrong by a constant, so that every e-value is too large."""
    rng = np.random.default_rng(0)
    tally = Tally(50, rng.normal(0, 4, (FAMILY_COUNT, CLASS_COUNT)))
    tally.excess -= tally.excess.mean(axis=1, keepdims=True)
    unions = np.array(list(itertools.product((0, 1), repeat=CLASS_COUNT)))
    terms = [
        math.exp(t * sum_ - 50 * (t * t / 8 + t * 0.001))
        for family in tally.excess
        for t in LAMBDAS
        for sum_ in unions @ family
    ]
    assert tally.log_e_value(1.0, 0.001) == pytest.approx(math.log(math.fsum(terms) / len(terms)))


@pytest.mark.parametrize("probs", [[0.5, 0.5], [0.9, 0.06, 0.04], [0.01, 0.99]])
def test_the_mean_of_the_e_value_is_at_most_one(probs: list[float]) -> None:
    """By enumeration of five tokens.  Bug: λ²/2 and λ²/8 exchanged, a weight counted twice."""
    mean = 0.0
    p = sum(q * one_hot(i) for i, q in enumerate(probs))
    for outcome in itertools.product(range(len(probs)), repeat=5):
        evidence = GroupEvidence({"place": 2, "prompt": 3})
        for place, token in enumerate(outcome):
            evidence.add([(one_hot(token) - p, [("place", place % 2), ("prompt", 0)])])
        mean += math.exp(evidence.log_e_value) * math.prod(probs[token] for token in outcome)
    assert 0.3 < mean <= 1


@pytest.mark.parametrize("probs", [[0.5, 0.5], [0.9, 0.1]])
def test_pairs_have_twice_the_range(probs: list[float]) -> None:
    """Bug: the bound of one token taken for pairs; this test fails with `width` 1."""
    means = {}
    for width in (1.0, 2.0):
        mean = 0.0
        for outcome in itertools.product(itertools.product((0, 1), repeat=2), repeat=6):
            excess = sum(one_hot(x) - one_hot(y) for x, y in outcome)
            weight = math.prod(probs[x] * probs[y] for x, y in outcome)
            terms = [np.exp(t * e[0] - 6 * t * t * width**2 / 8) for e in excess for t in LAMBDAS]
            mean += weight * float(max(terms)) if width == 1 else 0.0
            mean += weight * math.exp(Tally(6, excess).log_e_value(width, 0)) if width == 2 else 0
        means[width] = mean
    assert means[2.0] <= 1 < means[1.0]


def run_of(rng: np.random.Generator, temperature: float) -> GroupEvidence:
    """Simulate a server without HTTP: 64 tokens, in batches of 16."""
    evidence = GroupEvidence({"prompt": 4})
    asked, wrong = SamplingParameters(), SamplingParameters(temperature=temperature)
    for prompt in range(4):
        logits = rng.normal(0, 2, 24)
        law = probs_from_logits(logits, asked)
        assert law is not None
        tokens = rng.choice(24, size=16, p=wrong(logits))
        rows = [(law.deviation(f"token_id:{token}"), [("prompt", prompt)]) for token in tokens]
        evidence.add(rows)
    return evidence


def test_false_alarms_of_a_thousand_servers() -> None:
    """At level 0.05, with 64 tokens; the number of alarms is binomial at worst.

    Bug: evidence is tested after each batch, but at the level of a single test.
    """
    rng = np.random.default_rng(20)
    runs = [run_of(rng, 1.0) for _ in range(1000)]
    alarms = sum(run.largest >= -math.log(LEVEL) for run in runs)
    assert alarms <= 50 + 5 * math.sqrt(1000 * 0.05 * 0.95)
    # Hoeffding's lemma is far from tight here: the true distance, 0, is always below the bound
    assert all(run.bound(LEVEL) > 0 for run in runs)


def test_a_wrong_temperature_is_found() -> None:
    """The control of the test above."""
    rng = np.random.default_rng(21)
    assert sum(run_of(rng, 0.2).largest >= -math.log(LEVEL) for _ in range(50)) >= 45


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.3])
def test_the_bound_holds_and_gets_narrow(shift: float) -> None:
    """Bug: a bound of what was seen in place of what is true."""
    rng = np.random.default_rng(22)
    p = 0.5 * one_hot(0) + 0.5 * one_hot(1)
    for _ in range(20):
        evidence = GroupEvidence({"prompt": 1})
        tokens = rng.random(2000) < 0.5 + shift
        for batch in tokens.reshape(20, 100):
            evidence.add([(one_hot(int(token)) - p, []) for token in batch])
            assert evidence.bound(1e-3) >= shift
        assert evidence.tallies[EVERYWHERE].count == 2000
        assert evidence.bound(1e-3) <= shift + 0.12
