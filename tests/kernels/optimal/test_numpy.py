"""The optimum of bins: exactly lossless on any grid, nearly optimal on a fine one."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import otm
from otm.kernels.common.distributions.numpy import UNIT
from otm.kernels.optimal import numpy as grid_optimal
from otm.kernels.optimal.numpy import (
    LEAST,
    Places,
    Table,
    bin_tokens,
    choose_slots,
    deterministic_count,
    mean_slopes,
    ratio_grid,
    select,
    swap_partners,
    winner_probs,
)
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


def winner_of(target: np.ndarray, draft: np.ndarray, count: int, steps: int) -> Any:
    numbers = deterministic_count(count)
    return winner_probs(draft, *bin_tokens(target, draft, numbers, count, steps))


def law_of_output(
    target: np.ndarray, draft: np.ndarray, count: int, steps: int
) -> tuple[list[Fraction], Fraction]:
    """Distribution of the output at a node, and the probability that a draft is accepted."""
    law, accepted = [F(0)] * target.size, F(0)
    for drafts in itertools.product(np.flatnonzero(draft).tolist(), repeat=count):
        drawn = math.prod((draft[x] for x in drafts), start=F(1))
        tokens = np.array(drafts)

        def choose(uniforms: np.ndarray, tokens: np.ndarray = tokens) -> Any:
            index, residual = select(target, draft, tokens, uniforms, steps)
            return index, tuple(residual)

        for path in paths(choose, count + 1):
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
    # q/p is 0, 1/2, 1 and 2 here, each of them an edge of another bin
    draft, target = law_of([1, 2, 1, 2]), law_of([0, 1, 1, 4])
    for count in (1, 2, 3):
        accepted = law_of_output(target, draft, count, 2)[1] if count < 3 else None
        by_table = sum(np.minimum(target, winner_of(target, draft, count, 2)))
        assert by_table == otm.alpha(draft, target, count)
        assert accepted in {None, by_table}


SLIPPERY = law_of([1, 5, 4, 5]), law_of([3, 3, 5, 4])

SLIPS = {
    "no swaps": lambda table: table._replace(lack=0 * table.lack, excess=0 * table.excess),
    "one ratio a bin": lambda table: table._replace(rise=0 * table.rise),
    "swaps of other amounts": lambda table: table._replace(
        lack=np.append(table.lack[:1], table.lack[:-1])
    ),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_the_exact_law_sees_a_slip(slip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = grid_optimal.make_table

    def wrong(*arguments: Any) -> Table:
        return SLIPS[slip](right(*arguments))

    monkeypatch.setattr(grid_optimal, "make_table", wrong)
    draft, target = SLIPPERY
    law, _ = law_of_output(target, draft, 2, 1)
    assert law != target.tolist()


def winner_without_swaps(draft: np.ndarray, places: Places, table: Table) -> np.ndarray:
    return draft * table.slopes[places.bin]


def never_a_partner(table: Table, places: Places, uniforms: np.ndarray) -> np.ndarray:
    return places.bin


def always_a_partner(table: Table, places: Places, uniforms: np.ndarray) -> np.ndarray:
    return choose_slots(table._replace(win=table.win + 10), places, uniforms)


def by_other_ratios(table: Table, places: Places, uniforms: np.ndarray) -> np.ndarray:
    return choose_slots(table, places._replace(share=1 - places.share), uniforms)


@pytest.mark.parametrize(
    "slip", [winner_without_swaps, never_a_partner, always_a_partner, by_other_ratios]
)
def test_the_exact_law_sees_a_slip_beside_the_table(
    slip: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts must move as often as their own ratios say, not as often as is right on the mean."""
    name = "winner_probs" if slip is winner_without_swaps else "choose_slots"
    monkeypatch.setattr(grid_optimal, name, slip)
    draft, target = SLIPPERY
    law, _ = law_of_output(target, draft, 2, 1)
    assert law != target.tolist()


def test_an_edge_belongs_to_the_bin_above_it() -> None:
    """Catches a grid in another order, places off by one, and ratios beyond the end outside it."""
    for chains in (1, 2, 3, 8, 64):
        edges = ratio_grid(chains, 4)
        assert edges == sorted(set(edges))
        assert edges[:2] == [0, F(2) ** LEAST]
        assert edges[-1] >= chains
        assert len(edges).bit_count() == 1
        assert all(b <= 2 * a for a, b in itertools.pairwise(edges[1:])), "Theorem 11.4 needs it"
        draft = np.array([F(1)] * (len(edges) + 1) + [F(0)], dtype=object)
        target = np.array([*edges, 2 * edges[-1], F(1)], dtype=object)
        places = grid_optimal.find_places(target, draft, np.array(edges))
        last = len(edges) - 2
        assert places.bin.tolist() == [*range(len(edges) - 1), *[last] * 3]
        assert places.share.tolist() == [*[0] * (len(edges) - 1), 1, 1, 1]


def test_what_the_bins_cost_is_bounded() -> None:
    """Theorem 11.4 in fractions: all is matched, no draft moves too often, and little is lost."""
    rng, split = np.random.default_rng(9), 0
    for _ in range(300):
        size, count, steps = (
            int(rng.integers(1, 9)),
            int(rng.integers(1, 5)),
            int(rng.choice(4) + 1),
        )
        weights = rng.integers(0, 1 + rng.choice([1, 9, 99], (2, 1)), (2, size))
        weights[:, 0] += 1
        draft, target = (law_of(row.tolist()) for row in weights)
        edges = np.array(ratio_grid(count, steps))
        places = grid_optimal.find_places(target, draft, edges)
        masses, uppers = (np.zeros(edges.size - 1, dtype=object) + F(0) for _ in range(2))
        np.add.at(masses, places.bin, draft)
        np.add.at(uppers, places.bin, draft * places.share)
        table = grid_optimal.make_table(masses, uppers, edges, deterministic_count(count))
        capped = edges[:-1] * masses + np.diff(edges) * uppers
        cuts = zip(np.append(0, capped.cumsum()), np.append(0, masses.cumsum()), strict=True)
        best = min(below + 1 - mass**count for below, mass in cuts)

        cap = grid_optimal.find_cap(masses, uppers, edges, deterministic_count(count))
        floor = grid_optimal.find_floor(masses, uppers, edges, cap)
        ratios = np.maximum(np.minimum(edges, cap), floor)
        inside = (edges[:-1] < cap) & (cap < edges[1:])
        inside |= (ratios[:-1] < table.slopes) & (table.slopes < ratios[1:])
        won = winner_probs(draft, places, table)
        assert (won == winner_of(target, draft, count, steps)).all(), (
            "edges that no token is beside change nothing"
        )
        accepted = np.minimum(target, won).sum()
        assert won.sum() == 1
        assert best - (np.diff(edges) * masses)[inside].sum() <= accepted
        assert accepted <= otm.alpha(draft, target, count) <= best

        assert table.lack[-1] == table.excess[-1]
        poor, start, amount = swap_partners(table.lack, table.excess, np.arange(masses.size))
        assert (amount == np.diff(table.lack, prepend=0) + np.diff(table.excess, prepend=0)).all()
        change = won / np.where(draft > 0, draft, 1) - table.slopes[places.bin]
        for x in np.flatnonzero((draft > 0) & (amount[places.bin] > 0)):
            b = places.bin[x]
            nearest = np.searchsorted(table.excess if poor[b] else table.lack, start[b], "right")
            last = np.searchsorted(table.lack, start[b] + amount[b], "left")
            partner = nearest if poor[b] else last
            gain = table.slopes[partner] - table.slopes[b]
            assert 0 <= change[x] / gain <= 1
            split += 0 < change[x] / gain < 1
    assert split > 100


def laws_like_real_ones(rng: np.random.Generator, size: int, noise: float) -> list[np.ndarray]:
    logits = 3 * rng.normal(size=size)
    laws = [np.exp(logits), np.exp(logits + noise * rng.normal(size=size))]
    return [law / law.sum() for law in laws]


def pairs(rng: np.random.Generator, size: int) -> list[list[np.ndarray]]:
    """Return pairs like those of language models, random pairs, and a pair in reverse order."""
    random = np.sort(rng.dirichlet(np.ones(size), 2))
    real = [laws_like_real_ones(rng, size, noise) for noise in (0.3, 1.0, 2.0)]
    return [*real, [random[0], rng.permutation(random[1])], [random[0], random[0][::-1]]]


@pytest.mark.parametrize("count", [2, 4, 8, 64])
def test_a_finer_grid_comes_closer_to_the_optimum(count: int) -> None:
    rng = np.random.default_rng(count)
    for draft, target in pairs(rng, 20_000):
        best = float(otm.alpha(draft, target, count))
        for steps, largest in ((8, 3e-3), (32, 1e-4), (256, 1e-6)):
            law = winner_of(target, draft, count, steps)
            assert abs(law.sum() - 1) < 1e-12
            assert -1e-12 < best - np.minimum(law, target).sum() < largest


@pytest.mark.parametrize("steps", [16, 256])
def test_the_law_of_the_winner_is_that_of_the_slots(steps: int) -> None:
    """Summed piece by piece, from what drafts do at the edges of their decisions."""
    rng = np.random.default_rng(5)
    for count in (1, 2, 5):
        draft, target = laws_like_real_ones(rng, 400, 1.0)
        places, table = bin_tokens(target, draft, deterministic_count(count), count, steps)
        bins = np.arange(table.win.size)
        poor, start, amount = swap_partners(table.lack, table.excess, bins)
        held, won = np.zeros(bins.size), np.zeros(draft.size)
        change = table.win[places.bin] + places.share * table.rise[places.bin]
        moves = []
        for x, b in enumerate(places.bin):
            others, sign = (table.excess, 1) if poor[b] else (table.lack, -1)
            ends = np.append(0, others)
            overlap = np.minimum(ends[1:], start[b] + amount[b]) - np.maximum(ends[:-1], start[b])
            partners = np.flatnonzero((overlap > 0) & (amount[b] > 0))
            gain = table.slopes[partners] - table.slopes[b]
            assert (sign * gain > 0).all()
            chance = (change[x] - table.slopes[b]) / gain
            assert ((chance > -1e-12) & (chance < 1 + 1e-9)).all()
            probs = overlap[partners] / amount[b] * chance if partners.size else np.zeros(0)
            np.add.at(held, partners, draft[x] * probs)
            held[b] += draft[x] * (1 - probs.sum())
            moves.append((partners, probs))
        slots = mean_slopes((held * UNIT).cumsum(), deterministic_count(count))
        for x, (partners, probs) in enumerate(moves):
            slot = slots[places.bin[x]]
            won[x] = draft[x] * (slot + (probs * (slots[partners] - slot)).sum())
        assert abs(won - winner_probs(draft, places, table)).sum() < 1e-12
        assert count == 1 or any(partners.size for partners, _ in moves)


def test_drafts_move_as_often_as_the_law_says() -> None:
    """The slots of a million even uniforms, against the probabilities of `GridOptimal`."""
    rng = np.random.default_rng(7)
    draft, target = laws_like_real_ones(rng, 30, 1.0)
    plan = otm.coupling.GridOptimal(otm.Problem(draft, target, 2), steps=4)
    places, table = plan._node
    uniforms, moved = (np.arange(100_000) + 0.5) / 100_000, 0
    for x in range(draft.size):
        drafted = Places(*(np.full(uniforms.size, values[x]) for values in places))
        taken = np.bincount(choose_slots(table, drafted, uniforms), minlength=table.win.size)
        slots, probs = plan._slot_distribution(x)
        assert abs(taken[slots] / uniforms.size - probs).max() < 1e-4
        assert taken[slots].sum() == uniforms.size
        moved += slots.size > 1
    assert moved > 10
