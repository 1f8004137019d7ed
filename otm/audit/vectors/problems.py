"""Choose the problems of the test vectors: rows, drafts, and uniforms away from the thresholds.

The function of a rule takes the problem's number within this rule (`turn`).  It returns None if the
random choices do not fit: if a residual mass is too small, or a tie is needed but impossible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from otm.audit.vectors.choices import (
    FACTOR,
    MARGIN,
    PROBABILITIES,
    UNIFORMS,
    Chooser,
    Row,
    draft_token,
    is_short,
    on,
    pair,
    ratio,
    sizes,
    uniform,
)

TIES, WEIGHTS = 8, 3
"""Every eighth problem has a tie; every third problem of block tests a weight below 1."""

SMALLEST_RESIDUAL = Fraction(1, 32)
"""A smaller residual mass would be lost in the rounding errors of float32."""

Problem = dict[str, Any]


def has_tie(turn: int) -> bool:
    """Whether problem number `turn` of a rule has a uniform on a threshold."""
    return turn % TIES == TIES - 1


def tie_on(threshold: Fraction, turn: int) -> int | None:
    """Return the uniform on a threshold, or None; every second tie must be above 0."""
    equal = on(threshold)
    return None if equal == 0 and turn % (2 * TIES) >= TIES else equal


def with_uniforms(problem: Problem, uniforms: list[int], tie: bool) -> Problem:
    """Return the problem with its uniforms, and a mark if one lies on a threshold."""
    return {**problem, "uniforms": uniforms, **({"tie": True} if tie else {})}


def chain_rows(chooser: Chooser, tie: bool) -> Problem:
    """Return rows [γ + 1, V] and [γ, V] and drafts [γ], with γ from 0 to 4."""
    size, parts = sizes(chooser, tie)
    gamma = chooser.of((1, 1, 2, 2, 3, 4)) if tie or chooser.unit() > 0.02 else 0
    target, draft = [], []
    for _ in range(gamma):
        rows = pair(chooser, size, parts)
        target.append(rows[0])
        draft.append(rows[1])
    target.append(pair(chooser, size, parts)[0])
    drafts = [draft_token(chooser, probs) for probs in draft]
    return {"target": target, "draft": draft, "drafts": drafts}


def chain(chooser: Chooser, turn: int) -> Problem | None:
    """Return a problem of chain verification, or None if the random choices do not fit."""
    tie = has_tie(turn)
    problem = chain_rows(chooser, tie)
    target, draft, drafts = problem["target"], problem["draft"], problem["drafts"]
    thresholds = [ratio(t[x], d[x]) for t, d, x in zip(target, draft, drafts, strict=False)]
    uniforms = [uniform(chooser, threshold) for threshold in thresholds]
    if tie:
        # A tie decides only if the drafts before it are accepted.
        place = chooser.below(len(drafts))
        equal = tie_on(thresholds[place], turn)
        if equal is None or not all(thresholds[:place]):
            return None
        uniforms[:place] = [0] * place
        uniforms[place] = equal
    return with_uniforms(problem, uniforms, tie)


def block_tests(
    target: Sequence[Row], draft: Sequence[Row], drafts: Sequence[int]
) -> tuple[list[Fraction], list[Fraction], list[Fraction]]:
    """Return lists [γ + 1] of weights w_i, residual masses Z_i (the last is w_γ), and tests h_i."""
    weights, masses, tests = [Fraction(1)], [], []
    for t, d, x in zip(target, draft, drafts, strict=False):
        weights.append(ratio(weights[-1] * t[x], d[x]))
    for weight, t, d in zip(weights, target, draft, strict=False):
        excess = sum((max(weight * a - b, Fraction(0)) for a, b in zip(t, d, strict=True)))
        mass = Fraction(excess) / PROBABILITIES
        masses.append(mass)
        # Where h is 0/0, the rule never reaches this test.
        tests.append(mass / (mass + 1 - weight) if mass else Fraction(0))
    return weights, [*masses, weights[-1]], [*tests, weights[-1]]


def block(chooser: Chooser, turn: int) -> Problem | None:
    """Return a problem of block verification, or None if the random choices do not fit."""
    tie = has_tie(turn)
    problem = chain_rows(chooser, tie)
    target, draft, drafts = problem["target"], problem["draft"], problem["drafts"]
    weights, masses, tests = block_tests(target, draft, drafts)
    if any(0 < mass < SMALLEST_RESIDUAL for mass in (*masses, *(1 - w for w in weights))):
        return None
    uniforms = [uniform(chooser, test) for test in tests[1:]]
    places = [*range(1, len(tests))]
    if tie:
        # Float32 computes the test exactly only if it computes all these numbers exactly.
        ratios = [Fraction(t[x], d[x]) for t, d, x in zip(target, draft, drafts, strict=False)]
        if not all(map(is_short, (*ratios, *weights, *masses))):
            return None
        places = [i for i in places if tie_on(tests[i], turn) is not None]
    elif turn % WEIGHTS == 0:
        # Random problems rarely stop in mid-chain where the weight changes the residual.
        places = [
            i
            for i in places[:-1]
            if weights[i] < 1
            and tests[i] * UNIFORMS >= MARGIN
            and sum(weights[i] * t > d for t, d in zip(target[i], draft[i], strict=True)) > 1
        ]
    else:
        return with_uniforms(problem, uniforms, tie)
    if not places:
        return None
    # A uniform decides only if the tests of longer prefixes fail.
    place = chooser.of(places)
    if max(tests[place + 1 :], default=0) * UNIFORMS + MARGIN > UNIFORMS - 1:
        return None
    chosen = on(tests[place]) if tie else None
    if chosen is None:
        chosen = chooser.below(int(tests[place] * UNIFORMS) - MARGIN + 1)
    longer = len(tests) - 1 - place
    uniforms[place - 1 :] = [chosen, *[UNIFORMS - 1] * longer]
    return with_uniforms(problem, uniforms, tie)


def several_drafts(chooser: Chooser, tie: bool) -> Problem:
    """Return one target row, one draft row, and k drafts with k from 1 to 4."""
    size, parts = sizes(chooser, tie)
    target, draft = pair(chooser, size, parts)
    k = chooser.of((1, 2, 2, 2, 2, 3, 3, 4))
    return {
        "target": target,
        "draft": draft,
        "drafts": [draft_token(chooser, draft) for _ in range(k)],
    }


def k_seq(chooser: Chooser, turn: int, factor_of: Callable[[Problem], int]) -> Problem | None:
    """Return a problem of k-Seq, or None; `factor_of` returns the smallest factor, in 1/16."""
    tie = has_tie(turn)
    problem = several_drafts(chooser, tie)
    target, draft, drafts = problem["target"], problem["draft"], problem["drafts"]
    # Sometimes the factor is k, which is valid for all rows, but not the smallest.
    factor = len(drafts) * FACTOR if chooser.unit() < 0.15 else factor_of(problem)
    rho = Fraction(factor, FACTOR)
    thresholds = [ratio(target[x], rho * draft[x]) for x in drafts]
    accepted = sum(d * ratio(t, rho * d) for t, d in zip(target, draft, strict=True) if d)
    if (1 - Fraction(accepted) / PROBABILITIES) ** len(drafts) < SMALLEST_RESIDUAL:
        return None
    uniforms = [uniform(chooser, threshold) for threshold in thresholds]
    if tie:
        place = chooser.below(len(drafts))
        equal = tie_on(thresholds[place], turn)
        # A tie decides only if the drafts before it are rejected.
        decided = any(u < UNIFORMS * t for u, t in zip(uniforms[:place], thresholds, strict=False))
        if equal is None or decided:
            return None
        uniforms[place] = equal
    return with_uniforms({**problem, "factor": factor}, uniforms, tie)


def recursive_rejection(chooser: Chooser, turn: int) -> Problem | None:
    """Return a problem of recursive rejection; it has no uniforms and so no ties."""
    problem = several_drafts(chooser, tie=False)
    left = [Fraction(x, PROBABILITIES) for x in problem["target"]]
    for _ in problem["drafts"]:
        draft = (Fraction(x, PROBABILITIES) for x in problem["draft"])
        left = [max(t - d, Fraction(0)) for t, d in zip(left, draft, strict=True)]
        mass = sum(left)
        if 0 < mass < SMALLEST_RESIDUAL:
            return None
        left = [x / mass for x in left] if mass else left
    return problem


def highest(target: Row, draft: Row, k: int) -> Row | None:
    """Return the winner's row if, of k drafts, the one with the largest target/draft wins."""
    order = sorted(
        (x for x in range(len(draft)) if draft[x]), key=lambda x: (Fraction(target[x], draft[x]), x)
    )
    winner, below = [0] * len(draft), Fraction(0)
    for x in order:
        above = below + Fraction(draft[x], PROBABILITIES)
        wins = (above**k - below**k) * PROBABILITIES
        if wins.denominator != 1:
            return None
        winner[x], below = int(wins), above
    return winner


def walk_and_keep(chooser: Chooser, turn: int) -> Problem | None:
    """Return a problem of walk and keep: target rows, winner rows, and the path of the walk."""
    size, parts = chooser.of((2, 3, 4, 5)), chooser.of((4, 8, 8, 16))
    target, winner = [], []
    agreeing = chooser.of((2, 3, 4))
    for _ in range(chooser.of((1, 2, 2, 3, 4))):
        rows = pair(chooser, size, parts)
        # Some drafts at a node agree with the winner, and continue at the next node.
        wins = highest(*rows, agreeing)
        if wins is None:
            return None
        target.append(rows[0])
        winner.append(wins)
        agreeing = 1 + chooser.below(agreeing)
    target.append(pair(chooser, size, parts)[0])
    drafts = [draft_token(chooser, probs) for probs in winner]
    weights, masses, _ = block_tests(target, winner, drafts)
    if any(0 < mass < SMALLEST_RESIDUAL for mass in (*masses, *(1 - w for w in weights))):
        return None
    return {"target": target, "winner": winner, "drafts": drafts}
