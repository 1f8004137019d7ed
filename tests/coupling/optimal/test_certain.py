"""The winner among certain drafts and one drawn draft, against the cuts of all sets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest

from otm._core.arithmetic import as_fractions
from otm._core.probs.sparse import SparseProbs
from otm.coupling.optimal.agreeing import AgreeingDrafts
from otm.coupling.optimal.certain import CertainDrafts
from otm.testing.sequences import output_distribution_of
from tests.coupling.optimal import best_winner as reference
from tests.coupling.optimal.best_winner import F, Law

WEIGHTS = [F(0), F(1, 5), F(1, 2), F(5, 7), F(1), F(3, 2), F(4)]


def random_law(rng: np.random.Generator, n: int) -> Law:
    """Probabilities with zeros and ties."""
    while not (weights := rng.integers(0, 6, n) * (rng.random(n) < 0.75)).any():
        pass
    return [Fraction(int(weight), int(weights.sum())) for weight in weights]


def sparse(law: Law) -> SparseProbs:
    return SparseProbs.from_dense(as_fractions(law))


def dense(rule: AgreeingDrafts | CertainDrafts, n: int) -> Law:
    """Return the rule's distribution of the winner, for all tokens."""
    law = [F(0)] * n
    for token, probability in zip(rule.tokens.tolist(), rule.winner_probs, strict=True):
        law[token] = F(probability)
    return law


def random_cases(number: int, seed: int) -> Iterator[tuple[Law, Law, list[int]]]:
    """Target, draft and a set of certain tokens, of at least one token and not of all."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        n = int(rng.integers(2, 6))
        certain = rng.permutation(n)[: rng.integers(1, n)].tolist()
        yield random_law(rng, n), random_law(rng, n), certain


def test_the_reference_is_the_best_law_for_any_children() -> None:
    """Theorem 23.1, for children that any random distribution of sets gives."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        n = int(rng.integers(2, 5))
        sets = rng.integers(0, 2**n, 5).tolist()
        weights = random_law(rng, 5)
        inside = [
            sum((w for c, w in zip(sets, weights, strict=True) if not c & ~h), F(0))
            for h in range(2**n)
        ]
        target = random_law(rng, n)
        reference.check(reference.best_winner(inside, target), inside, target, WEIGHTS)


@pytest.mark.parametrize("draws", [0, 1])
def test_no_law_of_a_winner_accepts_more(draws: int) -> None:
    """Certain drafts alone, and with a drawn one: against the cuts of all sets, in fractions."""
    for target, draft, certain in random_cases(150, 2 + draws):
        inside = reference.certain_and_drawn(certain, draft, draws)
        if inside is not None:
            drawn = sparse(draft) if draws else None
            rule = CertainDrafts(np.array(certain), drawn, sparse(target))
            reference.check(dense(rule, len(target)), inside, target, WEIGHTS)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_independent_drafts_have_the_same_law(k: int) -> None:
    """The first line of Theorem 23.2 is the hull of Theorem 14.3."""
    for target, draft, _ in random_cases(25, 10 + k):
        rule = AgreeingDrafts(sparse(draft), sparse(target), as_fractions([0] * k + [1]))
        inside = reference.certain_and_drawn([], draft, k)
        assert inside is not None
        reference.check(dense(rule, len(target)), inside, target, WEIGHTS)


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_several_drawn_drafts_beside_certain_ones(draws: int) -> None:
    """Theorem 23.4: slots and swaps with the certain drafts first attain the best distribution."""
    for target, draft, certain in random_cases(40, 20 + draws):
        inside = reference.certain_and_drawn(certain, draft, draws)
        if inside is not None and sum(target[i] for i in certain) > 0:
            realised = reference.slots_and_swaps(certain, draft, target, draws)
            reference.check(realised, inside, target, WEIGHTS)


def test_drafts_without_replacement_have_a_hull_of_prefixes() -> None:
    """The second line of Theorem 23.2, against the best distribution for the same children."""
    for target, draft, _ in random_cases(30, 30):
        for k in range(1, 1 + min(3, sum(d > 0 for d in draft))):
            inside = reference.without_replacement(draft, k)
            law = reference.hull_of_prefixes(inside, draft, target)
            reference.check(law, inside, target, WEIGHTS)


@pytest.mark.parametrize("has_drawn", [False, True])
def test_the_coins_give_the_law(has_drawn: bool) -> None:
    """Equal: `winner` for each uniform, `winning` for each set of drafts, `winner_probs`."""
    for target, draft, certain in random_cases(60, 40 + has_drawn):
        others = [x for x, d in enumerate(draft) if d > 0 and x not in certain]
        if has_drawn and not others:
            continue
        rule = CertainDrafts(
            np.array(certain), sparse(draft) if has_drawn else None, sparse(target)
        )
        whole, realised = sum(draft[x] for x in others), [F(0)] * len(target)
        for x in others if has_drawn else [None]:
            drafts = [*certain, *([] if x is None else [x])]
            places = np.searchsorted(rule.tokens, drafts).tolist()
            coins = output_distribution_of(
                lambda source, rule=rule, places=places: (rule.winner(places, source(len(places))),)
            )
            wins = rule.winning(places)
            assert [coins.get((i,), 0) for i in range(len(drafts))] == wins.tolist()
            for token, probability in zip(drafts, wins, strict=True):
                realised[token] += probability * (1 if x is None else draft[x] / whole)
        assert realised == dense(rule, len(target))


def _accepted(rule: CertainDrafts, target: SparseProbs) -> float:
    wins = dict(zip(rule.tokens.tolist(), rule.winner_probs.tolist(), strict=True))
    law = zip(target.tokens.tolist(), target.probabilities.tolist(), strict=True)
    return float(sum(min(q, wins.get(x, 0)) for x, q in law))


def test_floats_agree_with_fractions() -> None:
    """Bug: a cap from rounded sums, which must cost acceptance and never the distribution."""
    rng = np.random.default_rng(50)
    for _ in range(20):
        weights = rng.gamma(0.05, size=(2, 300)) + 1e-300
        target, draft = (SparseProbs.from_dense(w / w.sum()) for w in weights)
        certain = np.argsort(-weights[1])[: rng.integers(0, 5)]
        rule = CertainDrafts(certain, draft, target)
        exact = [
            SparseProbs(law.tokens, as_fractions(law.probabilities.tolist()))
            for law in (draft, target)
        ]
        best = CertainDrafts(certain, *exact)
        assert rule.winner_probs.sum() == pytest.approx(1, abs=1e-13)
        assert _accepted(rule, target) == pytest.approx(float(_accepted(best, exact[1])), rel=1e-12)
        assert (rule.winner_probs <= rule._drawn * (1 + 1e-12))[~rule._is_certain].all()


def fixed(uniforms: Sequence[float]) -> np.ndarray:
    return np.array(uniforms)


def test_drafts_that_the_target_excludes_never_win_beside_a_drawn_one() -> None:
    """Bug: 0/0 where t(A) = 0."""
    target = SparseProbs([2, 3], [0.5, 0.5])
    draft = SparseProbs([0, 1, 2], [0.5, 0.25, 0.25])
    rule = CertainDrafts(np.array([0, 1]), draft, target)
    assert rule.winning([0, 1, 2]).tolist() == [0, 0, 1]
    assert rule.winner([0, 1, 2], fixed([0.999, 0.5, 0.5])) == 2
    alone = CertainDrafts(np.array([0, 1]), None, target)
    assert alone.accepted_share(0, 1.0) == 0
    assert list(itertools.chain(alone.residual_mass(1.0)[1])) == [0.5, 0.5]
