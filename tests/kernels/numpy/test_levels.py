"""Slots and swaps between levels: exactly lossless on any grid, nearly optimal on a fine one."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import otm
from otm.kernels.numpy import levels
from otm.kernels.numpy.distributions import UNIT
from otm.kernels.numpy.levels import Table, at_node, power_slopes, select, winner
from otm.testing import paths

F = Fraction

PAIRS = [  # weights of draft and target
    ([1, 1, 2], [0, 1, 3]),
    ([1, 0, 0], [0, 0, 1]),  # disjoint
    ([1, 2, 3], [1, 2, 3]),  # equal
    ([4, 1, 1], [1, 2, 3]),
    ([0, 1, 0], [1, 1, 1]),
    ([9, 1], [1, 9]),
    ([3, 3, 1], [1, 3, 4]),
    ([1], [1]),
]


def law_of(weights: list[int]) -> np.ndarray:
    return np.array([F(w, sum(weights)) for w in weights], dtype=object)


def law_of_output(
    target: np.ndarray, draft: np.ndarray, count: int, steps: int
) -> tuple[list[Fraction], Fraction]:
    """Law of the output at a node, and the probability that a draft is accepted."""
    law, accepted = [F(0)] * target.size, F(0)
    for drafts in itertools.product(np.flatnonzero(draft).tolist(), repeat=count):
        drawn = math.prod((draft[x] for x in drafts), start=F(1))
        tokens = np.array(drafts)

        def choose(uniforms: np.ndarray, tokens: np.ndarray = tokens) -> Any:
            index, residual = select(target, draft, tokens, uniforms, steps)
            return index, tuple(residual)

        for path in paths(choose, 2 * count + 1):
            index, residual = path.outcome
            mass = drawn * path.probability
            if index >= 0:
                assert target[drafts[index]] > 0, "an impossible token, if only at u = 0"
                law[drafts[index]] += mass
                accepted += mass
                continue
            for x, left in enumerate(residual):
                law[x] += mass * left / sum(residual)
    return law, accepted


@pytest.mark.parametrize(
    ("draft", "target", "steps"), [*((*pair, 1) for pair in PAIRS), (*PAIRS[3], 3)]
)
def test_the_law_is_exactly_the_target_s(draft: list[int], target: list[int], steps: int) -> None:
    for count in (1, 2):
        q, p = law_of(target), law_of(draft)
        law, accepted = law_of_output(q, p, count, steps)
        assert law == q.tolist()
        assert accepted <= otm.alpha(p, q, count)


def test_ratios_on_the_grid_lose_nothing() -> None:
    # q/p is 0, 1/2, 1 and 2 here, and each of them is a level
    draft, target = law_of([1, 2, 1, 2]), law_of([0, 1, 1, 4])
    for count in (1, 2, 3):
        accepted = law_of_output(target, draft, count, 1)[1] if count < 3 else None
        node = at_node(target, draft, count, count, 1)
        by_table = sum(np.minimum(target, winner(draft, *node)))
        assert by_table == otm.alpha(draft, target, count)
        assert accepted in {None, by_table}


@pytest.mark.parametrize("slip", ["no swaps in the law", "no swaps"])
def test_the_exact_law_sees_a_slip(slip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = levels.make_table

    def wrong(masses: np.ndarray, ratios: np.ndarray, count: int) -> Table:
        table = right(masses, ratios, count)
        if slip == "no swaps":
            return table._replace(last=table.first)
        return table._replace(win=power_slopes(np.cumsum(masses), count))

    monkeypatch.setattr(levels, "make_table", wrong)
    draft, target = law_of([1, 2, 1, 2]), law_of([0, 1, 1, 4])
    law, _ = law_of_output(target, draft, 2, 1)
    assert law != target.tolist()


def laws_like_real_ones(rng: np.random.Generator, size: int, noise: float) -> list[np.ndarray]:
    logits = 3 * rng.normal(size=size)
    laws = [np.exp(logits), np.exp(logits + noise * rng.normal(size=size))]
    return [law / law.sum() for law in laws]


@pytest.mark.parametrize("count", [2, 4, 8])
def test_a_finer_grid_comes_closer_to_the_optimum(count: int) -> None:
    rng = np.random.default_rng(count)
    for noise in (0.3, 1.0, 2.0):
        draft, target = laws_like_real_ones(rng, 20_000, noise)
        best = float(otm.alpha(draft, target, count))
        for steps, largest in ((8, 1e-3), (32, 1e-4), (128, 1e-5)):
            law = winner(draft, *at_node(target, draft, count, count, steps))
            assert abs(law.sum() - 1) < 1e-12
            assert -1e-12 < best - np.minimum(law, target).sum() < largest


def test_the_law_of_the_winner_is_that_of_the_slots() -> None:
    # summed swap by swap, and not by the differences of cumulative sums that the table uses
    rng = np.random.default_rng(5)
    for count in (1, 2, 5):
        draft, target = laws_like_real_ones(rng, 400, 1.0)
        _, table = at_node(target, draft, count, count, 16)
        slots = power_slopes(np.cumsum(table.masses), count)
        law = table.masses / UNIT * slots
        for swap, low, high in zip(np.diff(table.swapped), table.low, table.high, strict=True):
            law[low] += swap / UNIT * (slots[high] - slots[low])
            law[high] -= swap / UNIT * (slots[high] - slots[low])
        assert abs(law - table.win * table.masses / UNIT).sum() < 1e-13
        inside = [table.swapped[b] - table.swapped[a] for a, b in zip(*table[-2:], strict=True)]
        assert (np.array(inside) <= table.masses).all()
