"""What the theory pages and the papers say, and no test of a module shows.

`docs/tables/theorems.md` and `docs/tables/papers.md` list all statements with their tests.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

import otm
from otm.coupling import KSeq, OptimalPlan
from otm.coupling.optimal.slots import winning_probabilities
from otm.decoding import ModelDrafter, spectr_verifier, stream
from otm.decoding.draft_tree import Randomness
from otm.decoding.drafters.base import Branching
from otm.models import TableModel
from otm.testing.sequences import (
    continued_distribution,
    output_distribution_of,
    sequence_distribution,
)

F = Fraction


def law(rng: random.Random, n: int, *, full: bool = False) -> list[Fraction]:
    """Draw a distribution of small fractions, with zeros unless it must be full."""
    weights = [rng.randint(1 if full else 0, 6) for _ in range(n)]
    weights[rng.randrange(n)] += 1
    return [F(weight, sum(weights)) for weight in weights]


def distance(p: list[Fraction], q: list[Fraction]) -> Fraction:
    """Total variation distance."""
    return sum((abs(x - y) for x, y in zip(p, q, strict=True)), F(0)) / 2


def test_the_optimum_moves_no_faster_than_the_laws() -> None:
    """Theorem 2.4.  It is sharp: some distributions move as far as they may."""
    rng, sharp = random.Random(0), 0
    for _ in range(300):
        n, k = rng.randint(1, 4), rng.randint(1, 3)
        p, other_p, q, other_q = (law(rng, n) for _ in range(4))
        tuples = [
            [
                math.prod((x[token] for token in drafts), start=F(1))
                for drafts in product(range(n), repeat=k)
            ]
            for x in (p, other_p)
        ]
        moved = abs(F(otm.alpha(p, q, k)) - F(otm.alpha(other_p, other_q, k)))
        limit = distance(tuples[0], tuples[1]) + distance(q, other_q)
        assert moved <= limit
        sharp += moved == limit > 0
    assert sharp


def winning_law(table: list[list[Fraction]], k: int) -> tuple[list[Fraction], list[Fraction]]:
    """Return the winner's distribution for a table [slots][tokens], and the slope of each slot."""
    before, slopes = F(0), []
    for row in table:
        after = before + sum(row)
        slopes.append((after**k - before**k) / sum(row))
        before = after
    won = [
        sum((row[x] * w for row, w in zip(table, slopes, strict=True)), F(0))
        for x in range(len(table[0]))
    ]
    return won, slopes


def test_a_misplaced_mass_costs_what_it_gains() -> None:
    """Theorem 5.6, for a mass so small that what is not of first order does not count."""
    rng, tiny, largest = random.Random(1), F(1, 10**12), F(0)
    for _ in range(200):
        slots, n, k = rng.randint(2, 5), rng.randint(2, 4), rng.randint(2, 6)
        masses = law(rng, slots * n, full=True)
        table = [masses[i * n : (i + 1) * n] for i in range(slots)]
        won, slopes = winning_law(table, k)
        (low, high), token = rng.sample(range(slots), 2), rng.randrange(n)
        table[low][token] -= tiny
        table[high][token] += tiny
        change = 2 * distance(won, winning_law(table, k)[0]) / tiny
        limit = 2 * abs(slopes[high] - slopes[low])
        assert change <= limit + F(1, 10**6)
        largest = max(largest, change / limit)
    assert largest > F(1, 2)  # more than the tokens that moved


def test_nothing_is_gained_below_the_best_factor() -> None:
    """Theorem 6.3: where a smaller factor is lossless, it accepts the same mass.

    `KSeq` rejects smaller factors, so the test computes the accepted mass itself.
    """
    rng, lossless = random.Random(2), 0
    for _ in range(300):
        n, k = rng.randint(1, 3), rng.randint(2, 3)
        p, q = law(rng, n), law(rng, n)
        best = F(KSeq(otm.Problem(p, q, k)).rho or 1)  # the upper end of a narrow bracket
        for rho in (F(1), (1 + best) / 2):
            (mass, at_best) = (accepted_by_k_seq(p, q, k, factor) for factor in (rho, best))
            if rho < best - F(1, 100) and all(x <= y for x, y in zip(mass, q, strict=True)):
                assert max(abs(x - y) for x, y in zip(mass, at_best, strict=True)) < F(1, 10**9)
                lossless += 1
    assert lossless


def accepted_by_k_seq(
    p: list[Fraction], q: list[Fraction], k: int, rho: Fraction
) -> list[Fraction]:
    """Return the mass that the test accepts, draft by draft."""
    passes = [min(x, y / rho) for x, y in zip(p, q, strict=True)]
    reached = sum(((1 - sum(passes)) ** i for i in range(k)), F(0))
    return [reached * x for x in passes]


def test_the_optimum_depends_on_capped_sums() -> None:
    """Theorem 10.1: every cap bounds the optimum, and some cap attains it."""
    rng = np.random.default_rng(3)
    for k in (1, 2, 5):
        for _ in range(20):
            p, q = rng.dirichlet(np.full(6, 0.5), 2)
            m = np.append(0, np.geomspace(1e-9, 1, 20_001))  # the draft mass outside of the cut
            caps = k * (1 - m) ** (k - 1)
            most = 1 - (1 - m) ** k - caps * m  # at the m where caps is the slope of h
            values = most + np.minimum(q, caps[:, None] * p).sum(axis=1)
            alpha = otm.alpha(p, q, k)
            assert values.min() >= alpha - 1e-12
            assert values.min() <= alpha + 1e-4


def test_an_error_of_the_winning_law_is_passed_on_once() -> None:
    """Theorem 11.3, and that it is sharp."""
    rng, sharp = random.Random(4), 0
    for _ in range(300):
        n = rng.randint(1, 4)
        really, used, q = (law(rng, n) for _ in range(3))
        accept = [min(F(1), y / v) if v else F(1) for v, y in zip(used, q, strict=True)]
        mass = [w * a for w, a in zip(really, accept, strict=True)]
        rest = [y - min(y, v) for v, y in zip(used, q, strict=True)]
        residual = [x / sum(rest) if sum(rest) else y for x, y in zip(rest, q, strict=True)]
        output = [a + (1 - sum(mass)) * r for a, r in zip(mass, residual, strict=True)]
        assert distance(output, q) <= distance(really, used)
        sharp += distance(output, q) == distance(really, used) > 0
    assert sharp


def test_walk_and_keep_accepts_as_much_as_the_recursion_with_its_winner() -> None:
    """Theorem 14.5, for two paths of two tokens and the winners of optimal plans."""
    rng, more = random.Random(5), 0
    for _ in range(100):
        n = rng.randint(2, 3)
        first = OptimalPlan(otm.Problem(law(rng, n, full=True), law(rng, n), 2))
        accepted, by_recursion = F(0), F(0)
        for token in range(n):
            draft, target = law(rng, n, full=True), law(rng, n)
            ways = {count: wins_with(first, token, count) for count in (1, 2)}
            passed = sum(ways.values(), F(0))  # W
            assert passed == first.winner_distribution[token]
            kept = min(passed, first.problem.target[token])  # S
            accepted, by_recursion = accepted + kept, by_recursion + kept
            if not kept:
                continue
            winners = {
                count: OptimalPlan(otm.Problem(draft, target, count)).winner_distribution
                for count in ways
            }
            for z, of_target in enumerate(target):
                walked = sum((ways[count] * winners[count][z] for count in ways), F(0))
                accepted += min(kept * of_target, walked)
                by_recursion += sum(
                    ways[count] * kept / passed * min(winners[count][z], of_target)
                    for count in ways
                )
        assert accepted >= by_recursion
        more += accepted > by_recursion
    assert more > 10


def wins_with(plan: OptimalPlan, token: int, count: int) -> Fraction:
    """Probability that a token wins among two drafts if `count` drafts equal the token."""
    probs, found = plan.problem.draft, F(0)
    for drafts in product(range(plan.problem.n), repeat=2):
        if drafts.count(token) == count:
            wins = winning_probabilities([plan.slot_distribution(x) for x in drafts])
            won = sum((w for x, w in zip(drafts, wins, strict=True) if x == token), F(0))
            found += probs[drafts[0]] * probs[drafts[1]] * won
    return found


AFTER = {0: [F(1, 3), F(2, 3)], 1: [F(3, 4), F(1, 4)]}  # distribution of a draft after each token


@pytest.mark.parametrize(
    ("branching", "levels"), [(2, (2, 1)), ((2, 1), (2, 1)), ((1, 2), (1, 2))], ids=str
)
def test_chains_and_trees_are_drawn_from_the_draft_model(
    branching: Branching, levels: tuple[int, int]
) -> None:
    """Bug: line 5 of SpecTr's Algorithm 4, drafts of the target; siblings that depend."""
    model = TableModel({(): AFTER[0], (1,): AFTER[1]})

    def drawn(uniforms: Randomness) -> Any:
        (tree,) = ModelDrafter(model, branching).draft([(0,)], [2], None, [uniforms])
        return tuple(sorted(tree.repeated_leaf_paths()))

    expected: dict[Any, Fraction] = defaultdict(Fraction)
    roots, ends = levels
    for first in product((0, 1), repeat=roots):
        for second in product((0, 1), repeat=roots * ends):
            paths = [(first[i // ends], token) for i, token in enumerate(second)]
            expected[tuple(sorted(paths))] += math.prod(AFTER[0][token] for token in first) * (
                math.prod(AFTER[token][following] for token, following in paths)
            )
    assert output_distribution_of(drawn) == expected


def test_theorem_2_does_not_hold_given_the_number_of_tokens() -> None:
    """Bug: a claim of ours that conditions on how much was accepted, as SpecTr's Theorem 2 does."""
    target, draft = (TableModel({(): law}) for law in ([F(3, 4), F(1, 4)], [F(1, 2), F(1, 2)]))

    def output(uniforms: Randomness) -> tuple[int, ...]:
        drafter, verify = ModelDrafter(draft), spectr_verifier(KSeq)
        return next(stream(target, [(0,)], drafter, verify, gamma=1, uniforms=[uniforms])).output

    law = output_distribution_of(output)
    assert [tokens for tokens in law if len(tokens) == 1] == [(0,)]  # and never the second token
    assert continued_distribution(law, target, (0,), 2) == sequence_distribution(target, (0,), 2)
