"""Bounds by a random order: they hold the optimum, they are tight, and a wrong one is caught."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm._core.arithmetic import Number, Probs
from otm.drafts import DraftDistribution, Independent, Joint
from otm.errors import InvalidParameterError
from otm.optimum import non_iid_drafts as other_drafts
from otm.optimum.non_iid_drafts import BoundedOptimum, bounds_by_random_order

F = Fraction


def law(rng: np.random.Generator, n: int) -> list[Fraction]:
    """Small whole weights or powers of two: zeros, ties and heavy tokens."""
    weights = rng.integers(0, 6, n) if rng.random() < 0.7 else 2 ** rng.integers(0, 30, n)
    weights[rng.integers(n)] += 1
    return [F(int(weight), int(weights.sum())) for weight in weights]


def instance(seed: int) -> tuple[DraftDistribution, Probs]:
    """Make a small exact joint distribution of either kind without a closed form, and a target."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    target = np.array(law(rng, n))
    if seed % 2:
        return Independent([law(rng, n) for _ in range(k)]), target
    every = list(itertools.product(range(n), repeat=k))
    chosen = rng.permutation(len(every))[: int(rng.integers(1, 13))]
    weights = law(rng, len(chosen))
    return Joint(zip([every[i] for i in chosen], weights, strict=True), n), target


def cut_value(drafts: DraftDistribution, target: Probs, tokens: list[int]) -> Number:
    """q(H) + 1 − Pr(S ⊆ H), by enumeration."""
    outside = sum((w for drawn, w in drafts.tuples() if not {*drawn} <= {*tokens}), F(0))
    return sum((target[token] for token in tokens), outside)


def optimum(drafts: DraftDistribution, target: Probs) -> Number:
    """Minimise over all 2^n sets, which shares nothing with the code under test."""
    subsets = itertools.chain.from_iterable(
        itertools.combinations(range(drafts.n), size) for size in range(drafts.n + 1)
    )
    return min(cut_value(drafts, target, list(subset)) for subset in subsets)


def holds(bounded: BoundedOptimum, value: Number) -> bool:
    return F(bounded.bounds.lower) <= value <= F(bounded.bounds.upper)


def test_the_bounds_hold_the_optimum_and_are_tight() -> None:
    gaps = []
    for seed in range(200):
        drafts, target = instance(seed)
        bounded = bounds_by_random_order(drafts, target, iterations=100)
        assert holds(bounded, optimum(drafts, target)), seed
        gaps.append(bounded.bounds.gap)
    assert np.median(gaps) <= 1e-6
    assert np.quantile(gaps, 0.9) <= 1e-2
    assert max(gaps) <= 0.1


@pytest.mark.parametrize("seed", range(20))
def test_the_cut_has_the_value_of_the_upper_bound(seed: int) -> None:
    drafts, target = instance(seed)
    bounds, cut = bounds_by_random_order(drafts, target)
    value = cut_value(drafts, target, cut.tokens.tolist())
    assert bounds.upper == cut.value
    assert value <= F(cut.value) <= value + F(1e-11)


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_the_bounds_hold_however_early_they_stop(iterations: int) -> None:
    for seed in range(60):
        drafts, target = instance(seed)
        bounded = bounds_by_random_order(drafts, target, iterations=iterations)
        assert holds(bounded, optimum(drafts, target))


def test_few_orders_are_enough_to_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches orders that are overwritten while they have a chance: then bounds do not hold."""
    monkeypatch.setattr(other_drafts, "MAX_ORDERS", 3)
    gaps = []
    for seed in range(60):
        drafts, target = instance(seed)
        bounded = bounds_by_random_order(drafts, target, iterations=50)
        assert holds(bounded, optimum(drafts, target))
        gaps.append(bounded.bounds.gap)
    assert np.median(gaps) <= 1e-4


def test_a_wrong_lower_bound_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: steps beyond the vertex, so that the mass picked is no longer one that can be."""
    best_step = other_drafts._best_step
    monkeypatch.setattr(other_drafts, "_best_step", lambda *args: 1.5 * best_step(*args))
    caught = 0
    for seed in range(60):
        drafts, target = instance(seed)
        try:
            bounded = bounds_by_random_order(drafts, target, iterations=20, tolerance=0)
        except InvalidParameterError:  # Interval rejects lower > upper
            caught += 1
        else:
            caught += not holds(bounded, optimum(drafts, target))
    assert caught >= 10


@pytest.mark.parametrize("mutant", ["max", "more"])
def test_another_wrong_lower_bound_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: Σ max(q, b), and Σ min(q, 1.5 b), as if drafts were picked more than once."""

    def wrong(wanted: Any, picked: Any) -> float:
        scaled = np.maximum(wanted, picked) if mutant == "max" else np.minimum(wanted, 1.5 * picked)
        return float(scaled.sum())

    monkeypatch.setattr(other_drafts, "_accepted", wrong)
    caught = 0
    for seed in range(60):
        drafts, target = instance(seed)
        try:
            bounded = bounds_by_random_order(drafts, target, iterations=20, tolerance=0)
        except InvalidParameterError:
            caught += 1
        else:
            caught += not holds(bounded, optimum(drafts, target))
    assert caught >= 10


def test_rounding_is_outwards() -> None:
    """Catches bounds that hold only up to rounding: 1/3 is not a float."""
    third = [F(1, 3)] * 3
    drafts = Independent([third, [F(1, 7), F(2, 7), F(4, 7)]])
    target = np.array([F(5, 7), F(1, 7), F(1, 7)])
    bounds, _ = bounds_by_random_order(drafts, target, tolerance=0)
    exact = optimum(drafts, target)
    assert F(bounds.lower) < exact < F(bounds.upper)
    assert bounds.gap <= 1e-12


def test_fractions_and_floats_have_the_same_bounds() -> None:
    drafts, target = instance(1)
    assert isinstance(drafts, Independent)
    floats = Independent(drafts.probs.astype(float))
    a, _ = bounds_by_random_order(drafts, target)
    b, _ = bounds_by_random_order(floats, target.astype(float))
    assert a.lower == pytest.approx(b.lower, abs=1e-9)
    assert a.upper == pytest.approx(b.upper, abs=1e-9)


@pytest.mark.parametrize(("n", "gap"), [(50, 1e-6), (1_000, 1e-6), (32_000, 1e-5)])
def test_large_laws(n: int, gap: float) -> None:
    rng = np.random.default_rng(n)
    base = rng.dirichlet(np.full(n, 0.3)) + 1e-12
    *laws, target = (base * np.exp(rng.normal(size=(3, n)))).tolist()
    bounds, cut = bounds_by_random_order(
        Independent([np.array(p) / sum(p) for p in laws]),
        np.array(target) / sum(target),
        iterations=40,
    )
    assert 0 < bounds.gap <= gap
    assert cut.value == bounds.upper


def test_rare_tokens_do_not_overflow() -> None:
    """Catches a division of a shortfall by a subnormal mass."""
    drafts = Independent([[1.0, 2.0**-1074, 0.0], [1.0, 0.0, 2.0**-1070]])
    bounded = bounds_by_random_order(drafts, np.array([0.25, 0.25, 0.5]))
    assert holds(bounded, F(1, 4) + F(2.0**-1074) + F(2.0**-1070))
    assert bounded.bounds.gap <= 1e-12


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"iterations": 0}, "iterations = 0"),
        ({"iterations": 2.0}, "iterations = 2.0"),
        ({"iterations": True}, "iterations = True"),
        ({"tolerance": -1e-3}, "tolerance = -0.001"),
        ({"tolerance": float("nan")}, "tolerance = nan"),
        ({"tolerance": "1e-3"}, "tolerance = '1e-3'"),
    ],
)
def test_parameters_out_of_range_are_refused(keywords: dict[str, Any], says: str) -> None:
    drafts, target = instance(1)
    with pytest.raises(InvalidParameterError, match=says):
        bounds_by_random_order(drafts, target, **keywords)
