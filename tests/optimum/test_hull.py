"""The hull law: the best for every weight at once, against all sets of tokens."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest

from otm._core.arithmetic import Number, Probs, as_fractions, is_exact
from otm._core.ratio_bins import RatioBins, ratio_of
from otm.optimum.hull import _pooled, hull_win_ratio

WEIGHTS = [Fraction(w, 12) for w in (1, 3, 5, 6, 8, 10, 11, 12)]


def mean_power(x: Number, numbers: int | Probs) -> Number:
    """Mean of x^M: M is k, or m with `numbers[m]`."""
    if isinstance(numbers, int):
        return x**numbers
    return sum((number * x**m for m, number in enumerate(numbers)), 0 * x)


def wanted(draft: Probs, target: Probs, numbers: int | Probs, weight: Number = 1) -> Probs:
    """Law v of the winner, for each token."""
    law = hull_win_ratio(RatioBins.of(draft, target), numbers, weight)
    drafted = draft > 0
    ratio = ratio_of(draft[drafted], target[drafted])
    place = law.bins.place(ratio)
    scale = np.resize(np.asarray(law.scale), law.mean.shape)[place]
    won = 0 * draft
    won[drafted] = draft[drafted] * np.where(law.follows[place], scale * ratio, law.mean[place])
    return won


def weights_with_zeros_and_ties(rng: np.random.Generator, n: int) -> Probs:
    weights = rng.integers(0, 6, n) * (rng.random(n) < 0.8)
    weights[rng.integers(n)] += 1
    return np.asarray(as_fractions(weights) / Fraction(int(weights.sum())))


def random_numbers(rng: np.random.Generator) -> int | Probs:
    if rng.random() < 0.4:
        return int(rng.integers(1, 6))
    return weights_with_zeros_and_ties(rng, int(rng.integers(2, 6)))


def test_no_law_of_the_winner_is_better_for_any_weight() -> None:
    """In fractions: feasible for every set, and equal to the bound of the best set.

    Catches a hull of the wrong points, vertices that are lost, and tokens without target mass.
    """
    rng = np.random.default_rng(15)
    for _ in range(60):
        n, numbers = int(rng.integers(1, 6)), random_numbers(rng)
        draft, target = (weights_with_zeros_and_ties(rng, n) for _ in range(2))
        won = wanted(draft, target, numbers)
        nobody = mean_power(Fraction(0), numbers)
        assert won.sum() == 1 - nobody
        sets = [
            list(chosen)
            for chosen in chain.from_iterable(combinations(range(n), m) for m in range(n + 1))
        ]
        inside = [mean_power(draft[chosen].sum() + Fraction(0), numbers) for chosen in sets]
        for chosen, alone in zip(sets, inside, strict=True):
            assert won[chosen].sum() >= alone - nobody
        for weight in WEIGHTS:
            bound = min(
                weight * target[chosen].sum() + 1 - alone
                for chosen, alone in zip(sets, inside, strict=True)
            )
            assert np.minimum(weight * target, won).sum() == bound


@pytest.mark.parametrize("numbers", [3, [0.1, 0.2, 0.3, 0.4], [0, 0.5, 0, 0, 0, 0, 0, 0.2, 0.3]])
@pytest.mark.parametrize("weight", [1, 0.6, 0.2])
def test_bins_lose_nothing_at_the_weight(weight: float, numbers: int | list[float]) -> None:
    """With 20,000 tokens, against a scan of the sorted tokens.  Catches bins that must be split."""
    law = numbers if isinstance(numbers, int) else np.array(numbers)
    rng = np.random.default_rng(16)
    scores = 2.5 * rng.standard_normal(20_000)
    draft, target = np.exp(scores), np.exp(scores + rng.standard_normal(scores.size))
    target[rng.random(scores.size) < 0.3] = 0
    draft, target = draft / draft.sum(), target / target.sum()
    won = wanted(draft, target, law, weight)
    assert won.sum() == pytest.approx(1 - mean_power(0.0, law), abs=1e-14)
    order = np.argsort(target / draft)
    below = np.append(0, np.cumsum(draft[order])), np.append(0, np.cumsum(target[order]))
    bound = (weight * below[1] + 1 - mean_power(below[0], law)).min()
    assert np.minimum(weight * target, won).sum() == pytest.approx(bound, abs=1e-13)
    bins = hull_win_ratio(RatioBins.of(draft, target), law, weight).bins
    assert bins.wide.size > 100  # most were not split


def test_neighbours_are_pooled_alike_in_floats_and_fractions() -> None:
    """Catches blocks of SciPy's isotonic regression that are read the wrong way round."""
    rng = np.random.default_rng(17)
    for n in (1, 2, 7, 60):
        draft, target = (weights_with_zeros_and_ties(rng, n) + Fraction(1, n) for _ in range(2))
        draft, target = draft / draft.sum(), target / target.sum()
        exact, rounded = (
            hull_win_ratio(RatioBins.of(p, q), 4)
            for p, q in ((draft, target), (draft.astype(float), target.astype(float)))
        )
        assert is_exact(exact.mean)
        if exact.mean.size == rounded.mean.size:  # equal ratios may differ in floats
            assert rounded.mean == pytest.approx(exact.mean.astype(float), rel=1e-12)


def test_a_pool_is_as_long_as_slopes_do_not_descend() -> None:
    won: list[Number] = [Fraction(1), Fraction(2), Fraction(2), Fraction(1), Fraction(5)]
    target: list[Number] = [Fraction(1)] * 5
    assert _pooled(won, target) == [0]
    assert _pooled(won[::-1], target) == [0, 1, 4]
