"""A lossless verifier with a state that always accepts more than any memoryless one."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import pytest

import otm
from otm.decoding import ModelDrafter
from otm.gain import efficiency_bound, record
from otm.models import TableModel

F = Fraction
Law = Sequence[Fraction]
LENGTHS = {2: 8, 3: 6}
"""Of the texts whose distributions are compared, by the number of tokens."""

PAIRS = {
    "two tokens": ((F(2, 3), F(1, 3)), (F(1, 3), F(2, 3))),
    "three tokens": ((F(1, 2), F(1, 4), F(1, 4)), (F(1, 4), F(1, 2), F(1, 4))),
    "a flat target": ((F(1, 2), F(1, 3), F(1, 6)), (F(1, 3), F(1, 3), F(1, 3))),
}


class Outcome(NamedTuple):
    """A step's probability, tokens, accepted drafts, and whether it leaves a debt."""

    mass: Fraction
    tokens: tuple[int, ...]
    accepted: int
    debt: bool


def outcomes(p: Law, q: Law, debt: bool) -> list[Outcome]:
    """Enumerate a step of the verifier of Theorem 19.3 of docs/theory/state.md."""
    tokens = range(len(p))
    if debt:  # any draft is accepted, since p is the distribution that is owed
        return [Outcome(p[y] * q[z], (y, z), 1, False) for y in tokens for z in tokens]
    lost = [q[y] - min(p[y], q[y]) for y in tokens]
    accepted = [
        Outcome(q[y] * q[z] - lost[y] * p[z], (y, z), 1, False) for y in tokens for z in tokens
    ]
    return accepted + [Outcome(lost[y], (y,), 0, True) for y in tokens]


def texts(p: Law, q: Law, *, forgets: bool = False) -> dict[tuple[int, ...], Fraction]:
    """Distribution of the first tokens of a text; `forgets`: without what a rejection owes."""
    length = LENGTHS[len(q)]
    law: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    running = {((), False): F(1)}
    while running:
        following: dict[tuple[tuple[int, ...], bool], Fraction] = defaultdict(Fraction)
        for (text, debt), mass in running.items():
            for step in outcomes(p, q, debt):
                longer = (*text, *step.tokens)
                if len(longer) >= length:
                    law[longer[:length]] += mass * step.mass
                else:
                    following[longer, step.debt and not forgets] += mass * step.mass
        running = following
    return law


def law_of_target(q: Law) -> dict[tuple[int, ...], Fraction]:
    paths = itertools.product(range(len(q)), repeat=LENGTHS[len(q)])
    return {path: math.prod(q[token] for token in path) for path in paths}


def acceptance(p: Law, q: Law, steps: int) -> list[Fraction]:
    """Probability that each of the first steps of a text accepts its draft."""
    indebted, found = F(0), []
    for _ in range(steps):
        shares = {True: indebted, False: 1 - indebted}
        played = [(shares[debt], step) for debt in shares for step in outcomes(p, q, debt)]
        found.append(sum((share * step.mass * step.accepted for share, step in played), F(0)))
        indebted = sum((share * step.mass for share, step in played if step.debt), F(0))
    return found


@pytest.mark.parametrize("pair", PAIRS)
def test_texts_have_the_law_of_the_target(pair: str) -> None:
    """Bug: a counterexample that is not lossless, and so shows nothing."""
    p, q = PAIRS[pair]
    assert min(step.mass for debt in (True, False) for step in outcomes(p, q, debt)) >= 0
    assert texts(p, q) == law_of_target(q)


def test_without_its_state_it_is_not_lossless() -> None:
    """Negative control: the same steps, after which nothing is owed."""
    p, q = PAIRS["two tokens"]
    assert texts(p, q, forgets=True) != law_of_target(q)


def test_its_bonus_is_that_of_the_page() -> None:
    """An accepted 1 has the bonus 1, an accepted 0 one from q: nothing else is needed."""
    p, q = PAIRS["two tokens"]
    law = {step.tokens: step.mass for step in outcomes(p, q, debt=False)}
    assert law == {
        (0, 0): F(1, 9),
        (0, 1): F(2, 9),
        (1, 0): 0,
        (1, 1): F(1, 3),
        (0,): 0,
        (1,): F(1, 3),
    }


@pytest.mark.parametrize("pair", PAIRS)
def test_it_accepts_more_than_any_memoryless_verifier(pair: str) -> None:
    """Bug: "no lossless verifier exceeds", of bounds that hold for memoryless ones alone."""
    p, q = PAIRS[pair]
    best = otm.solve_block(lambda path: p, lambda path: q, k=1, length=1).accepted
    distance = sum((max(x - y, F(0)) for x, y in zip(p, q, strict=True)), F(0))
    assert best == otm.alpha(p, q, k=1) == 1 - distance
    steps = acceptance(p, q, 60)
    assert steps[0] == best
    assert all(step > best for step in steps[1:])
    assert abs(steps[-1] - 1 / (1 + distance)) < F(1, 10**12)
    if pair == "two tokens":
        assert (best, 1 / (1 + distance)) == (F(2, 3), F(3, 4))


def test_the_bound_of_recorded_drafts_is_for_memoryless_verifiers() -> None:
    """The same excess over `efficiency_bound`: 1.75 tokens a step, where it says 5/3."""
    p, q = PAIRS["two tokens"]
    target, draft = TableModel({(): list(q)}), TableModel({(): list(p)})
    recordings = record(target, ModelDrafter(draft), [[[0]], [[1]]], depth=1, seed=0)
    bound = efficiency_bound(recordings, ks=[1], gammas=[1])["bound", 1, 1]
    assert bound.mean == pytest.approx(5 / 3, abs=1e-12)
    assert 1 + acceptance(p, q, 60)[-1] > bound.mean


def test_a_state_gains_nothing_where_a_step_gives_one_token() -> None:
    """α_k is concave in the target, so targets that vary by state accept at most their mean."""
    for pair, k in itertools.product(PAIRS.values(), (1, 2, 5)):
        p, q = pair
        for share in (F(1, 5), F(1, 2)):
            mean = [share * x + (1 - share) * y for x, y in zip(p, q, strict=True)]
            of_states = share * otm.alpha(p, p, k=k) + (1 - share) * otm.alpha(p, q, k=k)
            assert of_states <= otm.alpha(p, mean, k=k)
