"""Packed rows and lists in fractions: the output has exactly the distribution of the target."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm.kernels import SparseDrafts, verify_probs
from otm.testing import paths

F = Fraction
Law = list[Fraction]

TARGETS = {
    (): [F(1, 4), F(1, 4), F(1, 2)],
    (0,): [F(0), F(2, 3), F(1, 3)],
    (1,): [F(1, 5), F(1, 5), F(3, 5)],
    (2,): [F(1), F(0), F(0)],
}
"""Distribution of the next token after each prefix; of the second token alone after others."""

DRAFTS = {
    (): [F(1, 3), F(0), F(2, 3)],
    (0,): [F(1, 3), F(1, 3), F(1, 3)],
    (2,): [F(1, 2), F(1, 2), F(0)],
}


def listed(law: Law, slip: bool) -> tuple[list[int], Law]:
    """List the tokens of a row in reverse, to three of them with padding."""
    tokens = [x for x in reversed(range(len(law))) if law[x]]
    probs = [law[x] for x in tokens]
    more = 3 - len(tokens)
    return [*tokens, *[-1] * more], [*(probs[::-1] if slip else probs), *[F(9)] * more]


def of_target(tokens: tuple[int, ...]) -> Law:
    return TARGETS[tokens] if tokens in TARGETS else [F(1, 2), F(1, 2), F(0)]


def as_objects(rows: list[Any], width: int = 3) -> np.ndarray:
    array = np.empty((len(rows), width), dtype=object)
    array[:] = rows
    return array


def law_of_output(
    rule: str, *, sparse: bool, slip: bool = False
) -> dict[tuple[int, ...], Fraction]:
    """Distribution of three tokens: the output for two drafts, continued by the target.

    The drafts are packed between those of two other sequences, one of them without any.
    """
    law = dict.fromkeys(itertools.product(range(3), repeat=3), F(0))
    first, second = ([F(1, 3)] * 3, [F(1, 7), F(2, 7), F(4, 7)])
    for drafts in itertools.product((0, 2), range(3)):
        drawn = DRAFTS[()][drafts[0]] * DRAFTS[drafts[:1]][drafts[1]]
        if not drawn:
            continue
        prefixes = [drafts[:i] for i in range(3)]
        target = as_objects([first, second, *map(of_target, prefixes), first])
        rows: Any = [second, *(DRAFTS[x] for x in prefixes[:2])]
        draft: Any = as_objects(rows)
        if sparse:
            lists = [listed(row, slip) for row in rows]
            draft = SparseDrafts(np.array([x for x, _ in lists]), as_objects([p for _, p in lists]))
        packed = (target, draft, np.array([1, *drafts]))
        ends = np.array([0, 1, 3, 3])

        def verify(uniforms: np.ndarray, packed: Any = packed, ends: Any = ends) -> Any:
            others = np.full(4, F(1, 2))
            every = np.stack([others, uniforms, others])
            validate = not slip
            outcome = verify_probs(*packed, every, rule=rule, offsets=ends, validate=validate)
            alone = outcome.tokens[[0, 2]].tolist()
            assert alone == [[1, 2, -1], [1, -1, -1]] or slip
            return tuple(outcome.tokens[1].tolist()), int(outcome.accepted[1])

        for path in paths(verify, 4):
            tokens, accepted = path.outcome
            output = tokens[: accepted + 1]
            for rest in itertools.product(range(3), repeat=2 - accepted):
                chance = drawn * path.probability
                for i in range(len(rest)):
                    chance *= of_target((*output, *rest[:i]))[rest[i]]
                law[(*output, *rest)] += chance
    return law


def target_law() -> dict[tuple[int, ...], Fraction]:
    law = {}
    for tokens in itertools.product(range(3), repeat=3):
        chances = [of_target(tokens[:i])[tokens[i]] for i in range(3)]
        law[tokens] = chances[0] * chances[1] * chances[2]
    return law


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "lists"])
@pytest.mark.parametrize("rule", ["chain", "block"])
def test_the_law_of_packed_rows_is_exactly_the_target_s(rule: str, sparse: bool) -> None:
    """Bugs: the row of a neighbour; padding that takes part."""
    assert law_of_output(rule, sparse=sparse) == target_law()


def test_the_exact_law_sees_a_list_in_the_wrong_order() -> None:
    assert law_of_output("chain", sparse=True, slip=True) != target_law()
