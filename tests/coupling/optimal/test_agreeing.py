"""A winner among a random number of drafts, and the distribution of how many agree with it."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import otm
from otm._core.arithmetic import Number, Probs, as_fractions
from otm._core.probs.sparse import SparseProbs
from otm.coupling.optimal.agreeing import (
    AgreeingDrafts,
    hull_segments,
    quadrature,
)
from otm.kernels.optimal.numpy import slopes_between

F = Fraction
WEIGHTS = [Fraction(w, 12) for w in (1, 3, 5, 6, 8, 10, 11, 12)]


def random_law(rng: np.random.Generator, size: int) -> Probs:
    """In fractions, with zeros and ties."""
    weights = rng.integers(0, 6, size) * (rng.random(size) < 0.8)
    weights[rng.integers(size)] += 1
    return np.asarray(as_fractions(weights) / Fraction(int(weights.sum())))


def winner_of(draft: Probs, target: Probs, numbers: Probs) -> AgreeingDrafts:
    return AgreeingDrafts(SparseProbs.from_dense(draft), SparseProbs.from_dense(target), numbers)


def mean_power(x: Number, numbers: Probs) -> Number:
    """Mean of x^M, where M is m with `numbers[m]`."""
    return sum((number * x**m for m, number in enumerate(numbers)), 0 * x)


def accepted(winner: AgreeingDrafts, weight: Number) -> Number:
    """Mass that is accepted of a target with a weight."""
    shares = [winner.accepted_share(place, weight) for place in range(winner.tokens.size)]
    return sum(
        (won * share for won, share in zip(winner.winner_probs, shares, strict=True)), 0 * weight
    )


def test_no_law_of_the_winner_is_better_for_any_weight() -> None:
    """In fractions: feasible for every set, and equal to the bound of the best set.

    Catches a hull of the wrong points, vertices that are lost, and tokens without target mass.
    """
    rng = np.random.default_rng(15)
    for _ in range(60):
        n = int(rng.integers(1, 6))
        draft, target = random_law(rng, n), random_law(rng, n)
        numbers = random_law(rng, int(rng.integers(2, 6)))
        winner = winner_of(draft, target, numbers)
        won = 0 * draft
        won[winner.tokens] = winner.winner_probs
        nobody = numbers[0]
        assert won.sum() == 1 - nobody
        sets = [list(s) for m in range(n + 1) for s in itertools.combinations(range(n), m)]
        inside = [mean_power(draft[chosen].sum() + Fraction(0), numbers) for chosen in sets]
        for chosen, alone in zip(sets, inside, strict=True):
            assert won[chosen].sum() >= alone - nobody
        for weight in WEIGHTS:
            bound = min(
                weight * target[chosen].sum() + 1 - alone
                for chosen, alone in zip(sets, inside, strict=True)
            )
            assert accepted(winner, weight) == bound
            tokens, left = winner.residual_mass(weight)
            assert left.sum() == weight - bound
            expected = np.maximum(weight * target - won, F(0))
            assert left.tolist() == expected[tokens].tolist()


def test_winner_and_number_of_those_that_agree_by_enumeration() -> None:
    """Catches any error in the distribution of the number of agreeing drafts, by enumeration."""
    rng = np.random.default_rng(18)
    swapping = 0
    for _ in range(60):
        n, k = [(2, 3), (3, 3), (4, 2)][rng.integers(3)]
        draft, numbers = random_law(rng, n), random_law(rng, k + 1)
        winner = winner_of(draft, random_law(rng, n), numbers)
        size, drawn = winner.tokens.size, draft[winner.tokens]
        laws = [list(zip(*winner.slot_distribution(x), strict=True)) for x in range(size)]
        swapping += any(len(law) > 1 for law in laws)
        joint = np.full((size, k + 1), F(0))
        for m in range(1, k + 1):
            for drafts in itertools.product(range(size), repeat=m):
                alone = np.full(m, F(0))
                for slots in itertools.product(*(laws[x] for x in drafts)):
                    places = [place for place, _ in slots]
                    first = places.index(max(places))
                    alone[first] += np.prod([chance for _, chance in slots])
                assert winner.winning(drafts).tolist() == alone.tolist()
                for x, chance in zip(drafts, alone, strict=True):
                    joint[x, drafts.count(x)] += numbers[m] * drawn[list(drafts)].prod() * chance
        assert winner.winner_probs.tolist() == joint.sum(axis=1).tolist()
        for place in np.flatnonzero(joint.sum(axis=1)).tolist():
            agreeing = winner.agreeing(place)
            assert agreeing.tolist() == (joint[place] / joint[place].sum()).tolist()
    assert swapping > 10


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_floats_are_as_good_as_fractions(k: int) -> None:
    """Catches nodes or weights of the quadrature, and masses that cancel."""
    rng = np.random.default_rng(k)
    weights = [rng.integers(1, 50, 12), rng.integers(1, 50, 12), rng.integers(0, 9, k + 1) + 1]
    exact = winner_of(*(as_fractions(x) / F(int(x.sum())) for x in weights))
    rounded = winner_of(*(x / x.sum() for x in weights))
    assert rounded.winner_probs == pytest.approx(exact.winner_probs.astype(float), rel=1e-12)
    for place in range(0, 12, 3):
        agreeing = exact.agreeing(place).astype(float)
        assert rounded.agreeing(place) == pytest.approx(agreeing, abs=1e-13)


@pytest.mark.parametrize("n", [1000, 30_000])
@pytest.mark.parametrize("k", [2, 8, 64])
def test_many_tokens(n: int, k: int) -> None:
    """The swaps as they are stored give the distribution that is claimed, and lose nothing.

    Catches masses that swap with slots of others than they should, and sums that round too much.
    """
    rng = np.random.default_rng(16)
    scores = 2.5 * rng.standard_normal(n)
    draft, target = np.exp(scores), np.exp(scores + rng.standard_normal(n))
    target[rng.random(n) < 0.3] = 0
    draft, target = draft / draft.sum(), target / target.sum()
    numbers = rng.random(k + 1)
    numbers = numbers / numbers.sum()
    winner = winner_of(draft, target, numbers)
    assert winner.winner_probs.sum() == pytest.approx(1 - numbers[0], abs=1e-14)
    order = np.argsort(target / draft)
    below = [np.append(0, np.cumsum(each[order])) for each in (draft, target)]
    inside = np.polynomial.polynomial.polyval(below[0], numbers)
    for weight in (1, 0.6, 0.2):
        bound = (weight * below[1] + 1 - inside).min()
        lost = bound - np.minimum(weight * target, winner.winner_probs).sum()
        assert -1e-12 < lost < (1e-12 if n < 8192 else 1e-4)
    # what each slot holds, and how often it wins
    places = rng.integers(n, size=50).tolist()
    laws = [winner.slot_distribution(place) for place in places]
    slope = slopes_between(winner._below, numbers)
    for place, (slots, law) in zip(places, laws, strict=True):
        assert law.min() >= -1e-15
        assert winner.winner_probs[place] == pytest.approx(
            draft[place] * (law @ slope[slots]), rel=1e-9
        )
        agreeing = winner.agreeing(place)
        assert agreeing.sum() == pytest.approx(1, abs=1e-14)
        assert agreeing.min() >= 0
    slots = winner._mass.size
    held = np.bincount(winner._swaps.low, winner._swaps.mass, slots)
    held += np.bincount(winner._swaps.high, winner._swaps.mass, slots)
    assert (held <= winner._mass * (1 + 1e-12)).all()
    assert slots == n if n < 8192 else slots < n


@pytest.mark.parametrize(("n", "k"), [(200, 8), (600, 4), (9_000, 2)])
def test_the_winner_has_the_law_that_is_claimed(n: int, k: int) -> None:
    """In fractions, from the moves as a draft makes them; also where tokens share slots.

    Catches a distribution that is the intended one, and not that of the stored swaps.
    """
    rng = np.random.default_rng(21)
    scores = 2.5 * rng.standard_normal(n)
    draft, target = np.exp(scores), np.exp(scores + rng.standard_normal(n))
    target[rng.random(n) < 0.3] = 0
    numbers = rng.random(k + 1)
    draft, target, numbers = (x / x.sum() for x in (draft, target, numbers))
    winner = winner_of(draft, target, numbers)
    masses = [F(x) for x in draft.tolist()]
    total = sum(masses)
    held = [F(0)] * winner._mass.size
    moves = []
    for place, mass in enumerate(masses):
        slots, law = winner.slot_distribution(place)
        edges = [F(0), *map(F, law[:-1].cumsum().tolist()), F(1)]
        steps = [high - low for low, high in itertools.pairwise(edges)]
        moves.append(list(zip(slots.tolist(), steps, strict=True)))
        for slot, step in moves[-1]:
            held[slot] += step * mass / total
    exact = as_fractions(numbers)
    below = [mean_power(x, exact) for x in itertools.accumulate(held, initial=F(0))]
    win = [(b - a) / x for (a, b), x in zip(itertools.pairwise(below), held, strict=True)]
    won = [
        mass / total * sum(step * win[slot] for slot, step in steps)
        for mass, steps in zip(masses, moves, strict=True)
    ]
    claimed = map(F, winner.winner_probs.tolist())
    assert sum(abs(a - b) for a, b in zip(won, claimed, strict=True)) / 2 < 1e-15


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_polynomials_are_integrated_exactly(k: int, exact: bool) -> None:
    points, weights = quadrature(k, exact=exact)
    for power in range(k):
        integral = sum(w * x**power for x, w in zip(points, weights, strict=True))
        assert integral == (F(1, power + 1) if exact else pytest.approx(1 / (power + 1)))


def test_surely_k_drafts_accept_the_optimum() -> None:
    """With weight one, against the closed form."""
    rng = np.random.default_rng(19)
    for k in (1, 2, 3, 6):
        draft, target = random_law(rng, 6), random_law(rng, 6)
        winner = winner_of(draft, target, as_fractions([0] * k + [1]))
        assert accepted(winner, F(1)) == otm.alpha(draft, target, k)


def test_distributions_that_floats_can_hardly_hold() -> None:
    """Subnormal probabilities, equal and disjoint supports: finite shares and distributions."""
    tiny = 2.0**-1070
    cases = [
        ([0.5, 0.5 - tiny, tiny], [tiny, 0.5, 0.5]),
        ([tiny, 1.0, 0], [1.0, tiny, 0]),
        ([0.25, 0.75, 0], [0.25, 0.75, 0]),
        ([1.0, 0, 0], [0, 0, 1.0]),
    ]
    for draft, target in cases:
        winner = winner_of(np.array(draft), np.array(target), np.array([0.0, 0.25, 0.75]))
        assert winner.winner_probs.sum() == pytest.approx(1)
        for place in range(winner.tokens.size):
            assert 0 <= winner.accepted_share(place, 0.5) <= 1
            assert winner.agreeing(place).sum() == pytest.approx(1)
            assert winner.slot_distribution(place)[1].sum() == pytest.approx(1)


def test_neighbours_are_pooled_alike_in_floats_and_fractions() -> None:
    """Catches blocks of SciPy's isotonic regression that are read the wrong way round."""
    rng = np.random.default_rng(17)
    for n in (1, 2, 7, 60, 500):
        won, target = (rng.integers(1, 1000, n) / 1024 for _ in range(2))
        target[: n // 3] = 0
        exact = hull_segments(as_fractions(won), as_fractions(target))
        assert hull_segments(won, target).tolist() == exact.tolist()


def test_a_segment_is_as_long_as_slopes_do_not_descend() -> None:
    won, target = as_fractions([1, 2, 2, 1, 5]), as_fractions([1] * 5)
    assert hull_segments(won, target).tolist() == [0]
    assert hull_segments(won[::-1], target).tolist() == [0, 1, 4]


def test_tokens_without_target_mass_are_segments_by_themselves() -> None:
    """Catches slopes that are divided by zero."""
    for target in ([0, 0, 1, 1], [0, 0, 0, 0]):
        found = hull_segments(np.array([0.5, 0.1, 0.1, 0.3]), np.array(target, dtype=float))
        assert found.tolist() == [0, 1, 2] + [3] * (target[3] == 0)
