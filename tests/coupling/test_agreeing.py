"""A winner among a random number of drafts, and the law of how many agree with it."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import otm
from otm._core.arithmetic import Probs, as_fractions
from otm.coupling.agreeing import AgreeingDrafts, quadrature
from otm.problem import Problem
from tests.coupling.realised import realised_output

F = Fraction


def random_winner(rng: np.random.Generator, n: int, k: int) -> AgreeingDrafts:
    """In fractions, with zeros and ties, and sometimes no draft at all."""

    def law(size: int) -> Probs:
        weights = rng.integers(0, 6, size) * (rng.random(size) < 0.8)
        weights[rng.integers(size)] += 1
        return np.asarray(as_fractions(weights) / Fraction(int(weights.sum())))

    return AgreeingDrafts(Problem(law(n), law(n), k), law(k + 1), F(3, 4))


def test_winner_and_number_of_those_that_agree_by_enumeration() -> None:
    """All numbers of drafts, tokens and slots.  Catches any error in the law of the number."""
    rng = np.random.default_rng(18)
    swapping = 0
    for _ in range(100):
        n, k = [(2, 3), (3, 3), (4, 2)][rng.integers(3)]
        winner = random_winner(rng, n, k)
        swapping += bool(winner.slots.owner.size)
        draft = winner.problem.draft
        laws = {x: list(zip(*winner.slot_law(x), strict=True)) for x in np.flatnonzero(draft)}
        joint = np.full((n, k + 1), F(0))
        for m in range(1, k + 1):
            for drafts in itertools.product(laws, repeat=m):
                for slots in itertools.product(*(laws[x] for x in drafts)):
                    places = [place for place, _ in slots]
                    token = drafts[places.index(max(places))]
                    probability = winner.numbers[m] * draft[list(drafts)].prod()
                    joint[token, drafts.count(token)] += probability * np.prod(
                        [chance for _, chance in slots]
                    )
        assert winner.winner_distribution.tolist() == joint.sum(axis=1).tolist()
        for token in np.flatnonzero(joint.sum(axis=1)):
            agreeing = winner.agreeing(token)
            assert agreeing.tolist() == (joint[token] / joint[token].sum()).tolist()
    assert swapping > 10


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_floats_are_as_good_as_fractions(k: int) -> None:
    """Catches nodes or weights of the quadrature, and masses that cancel."""
    rng = np.random.default_rng(k)
    draft, target = (rng.integers(1, 50, 12) for _ in range(2))
    numbers = rng.integers(0, 9, k + 1) + 1
    exact = AgreeingDrafts(
        Problem(*(as_fractions(x) / F(int(x.sum())) for x in (draft, target)), k),
        as_fractions(numbers) / F(int(numbers.sum())),
    )
    rounded = AgreeingDrafts(
        Problem(draft / draft.sum(), target / target.sum(), k), numbers / numbers.sum()
    )
    won = exact.winner_distribution.astype(float)
    assert rounded.winner_distribution == pytest.approx(won, rel=1e-12)
    for token in range(0, 12, 3):
        agreeing = exact.agreeing(token).astype(float)
        assert rounded.agreeing(token) == pytest.approx(agreeing, abs=1e-13)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_polynomials_are_integrated_exactly(k: int, exact: bool) -> None:
    points, weights = quadrature(k, exact=exact)
    for power in range(k):
        integral = sum(w * x**power for x, w in zip(points, weights, strict=True))
        assert integral == (F(1, power + 1) if exact else pytest.approx(1 / (power + 1)))


def test_surely_k_drafts_is_an_optimal_plan() -> None:
    """With weight one, against the closed form; lossless, by all drafts."""
    rng = np.random.default_rng(19)
    for _ in range(20):
        problem = random_winner(rng, 3, 3).problem
        plan = AgreeingDrafts(problem, as_fractions([0, 0, 0, 1]))
        assert plan.acceptance == otm.alpha(problem.draft, problem.target, 3)
        assert plan.output_distribution().tolist() == problem.target.tolist()
        output = 0 * problem.target
        for drafts in itertools.product(np.flatnonzero(problem.draft), repeat=3):
            output = output + plan.conditional(drafts) * problem.draft[list(drafts)].prod()
        assert output.tolist() == problem.target.tolist()


def test_what_is_stored_wins_as_often_as_it_is_said_to() -> None:
    """In bins of 9,000 tokens, in fractions, by code that shares nothing with the plan."""
    rng = np.random.default_rng(21)
    scores = 2.5 * rng.standard_normal(9_000)
    draft, target = np.exp(scores), np.exp(scores + rng.standard_normal(scores.size))
    problem = Problem(draft / draft.sum(), target / target.sum(), 3)
    winner = AgreeingDrafts(problem, np.array([0.0, 0.25, 0.5, 0.25]), 0.75)
    assert winner._wanted.follows.any()
    _, accepted = realised_output(winner)
    assert float(accepted) == pytest.approx(winner.accepted_mass.sum(), abs=1e-14)
    won = winner.winner_distribution
    assert won.sum() == pytest.approx(1, abs=1e-14)
    for token in (int(draft.argmax()), int(target.argmax()), 0):
        assert winner.agreeing(token).sum() == pytest.approx(1, abs=1e-14)
