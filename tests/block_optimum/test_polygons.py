"""Polygons below the curve of g: what they let S take, and what their prices prove."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otm import Interval, solve_block
from otm.block_optimum.hull import PathDrafts
from otm.block_optimum.polygons import PolygonProgram, antichains_from_prices, solve_by_polygons
from otm.block_optimum.tree import Path, as_next_probs, build_tree
from otm.errors import SolverError
from otm.testing.strategies import Block, blocks
from tests.block_optimum.oracles import antichains, random_law

several = blocks(max_tokens=3, max_paths=3, exact=True, max_ways=3**6).filter(lambda b: b.k > 1)


def drafts_of(draft: Any, target: Any, k: int, length: int) -> PathDrafts:
    """Drafts on the tree in floats."""

    def rows(path: Path) -> Any:
        return as_next_probs(
            *(np.array(law(path), dtype=np.float64) for law in (draft, target)), path
        )

    return PathDrafts(build_tree(rows, length, k, None, 1_000), k)


def two_laws(seed: int, k: int = 2, length: int = 3) -> PathDrafts:
    rng = np.random.default_rng(seed)
    return drafts_of(*(random_law(2, length, rng) for _ in range(2)), k, length)


@settings(max_examples=2 * settings.default.max_examples)
@given(several)
def test_they_meet_the_exact_optimum(block: Block) -> None:
    """Bug: ties and zeros in which a node seems clear, an edge that is lost, or a wrong price."""
    exact = solve_block(block.draft, block.target, block.k, block.length)
    drafts = drafts_of(block.draft.probs, block.target.probs, block.k, block.length)
    if len(drafts.tree.parents) > 1:
        found = solve_by_polygons(drafts, drafts.tree.worth(rests=True), 1e-9, 50)
        assert float(found.lower) <= float(exact.certificate.lower) + 1e-12
        assert float(found.upper) >= float(exact.certificate.lower) - 1e-12
        assert found.gap <= 1e-8


@pytest.mark.parametrize("seed", range(12))
def test_s_is_below_the_polygon_at_every_antichain(seed: int) -> None:
    """Bug: an edge of the polygon that some antichain is not held to."""
    drafts = two_laws(seed, k=3)
    tree = drafts.tree
    program = PolygonProgram(drafts, tree.worth(rests=True))
    vertices = np.array([0, 0.1, 0.35, 0.7, 1.0])
    heights = 1 - (1 - vertices) ** 3
    found, _ = program.solve(vertices, [np.array(tree.target_reach)], np.inf)
    place = {path: y for y, path in enumerate(tree.paths)}
    for chosen in antichains(tree.paths[1:]):
        nodes = [place[path] for path in chosen]
        reach = sum(float(tree.reach[y]) for y in nodes)
        assert found[nodes].sum() <= np.interp(reach, vertices, heights) + 1e-9
    # and it is the largest such S, which one vertex more can only raise
    more, _ = program.solve(np.sort([*vertices, 0.5]), [found], np.inf)
    assert more.sum() >= found.sum() - 1e-9


@pytest.mark.parametrize("seed", range(12))
def test_a_narrow_width_asks_no_more_than_a_wide_one(seed: int) -> None:
    """Bug: a node is skipped because one reference decides it, though the other does not."""
    drafts = two_laws(seed)
    program = PolygonProgram(drafts, drafts.tree.worth(rests=True))
    vertices = np.linspace(0, 1, 9)
    reference = np.array(drafts.tree.target_reach)
    wide, _ = program.solve(vertices, [reference], np.inf)
    narrow, _ = program.solve(vertices, [reference], 0.1)
    assert narrow.sum() >= wide.sum() - 1e-9
    both, _ = program.solve(vertices, [reference, wide], 0.1)
    assert both.sum() >= wide.sum() - 1e-9
    # a program whose own S is its reference, and nothing unclear but ties, gives no more
    again, _ = program.solve(vertices, [wide, both], 0.5)
    assert again.sum() <= both.sum() + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_levels_are_antichains_of_the_same_prices_that_cost_least(seed: int) -> None:
    """Bug: a level that is not an antichain, or prices that get lost."""
    rng = np.random.default_rng(seed)
    drafts = two_laws(seed)
    tree = drafts.tree
    place = {path: y for y, path in enumerate(tree.paths)}
    every = [sorted(place[path] for path in chosen) for chosen in antichains(tree.paths[1:])]
    chosen = [every[i] for i in rng.integers(len(every), size=3)]
    multipliers = rng.random(3) / 10  # below what any node is worth
    prices = np.zeros(len(tree.parents))
    for nodes, multiplier in zip(chosen, multipliers, strict=True):
        prices[nodes] += multiplier
    program = PolygonProgram(drafts, tree.worth(rests=True))
    levels = antichains_from_prices(program, prices)
    assert all(sorted(nodes) in every for nodes in map(list, levels))
    again = np.zeros_like(prices)
    for antichain, multiplier in levels.items():
        again[list(antichain)] += multiplier
    np.testing.assert_allclose(again, prices, rtol=0, atol=1e-12)
    cost = sum(m * float(drafts.hit(U)) for U, m in zip(chosen, multipliers, strict=True))
    assert sum(m * float(drafts.hit(list(U))) for U, m in levels.items()) <= cost + 1e-12


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=settings.default.max_examples // 4)
def test_skewed_probabilities(seed: int) -> None:
    """Bug: nodes as unlikely as 2^−60 that spoil the program, or vertices that are one."""
    rng = np.random.default_rng(seed)
    rows = {
        path: rng.dirichlet([float(rng.choice([1.0, 0.05]))] * 3, 2) + 2.0**-60
        for depth in range(3)
        for path in itertools.product(range(3), repeat=depth)
    }
    rows = {path: row / row.sum(1, keepdims=True) for path, row in rows.items()}
    k = int(rng.choice([2, 3, 8, 64]))
    drafts = drafts_of(lambda path: rows[path][0], lambda path: rows[path][1], k, 3)
    found = solve_by_polygons(drafts, drafts.tree.worth(rests=True), 1e-9, 50)
    expected = solve_block(lambda path: rows[path][0], lambda path: rows[path][1], k, 3)
    assert found.gap <= 1e-7
    assert expected.certificate.lower <= found.upper + 1e-12
    assert found.lower <= expected.certificate.upper + Fraction(1, 10**12)


def dirichlet(vocabulary: int, length: int) -> dict[Path, Any]:
    rng = np.random.default_rng(0)
    return {
        path: rng.dirichlet(np.ones(vocabulary), 2)
        for depth in range(length)
        for path in itertools.product(range(vocabulary), repeat=depth)
    }


def test_what_is_proved_stays_where_a_later_program_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: bounds of several rounds lost with the last one."""
    drafts, solve, tried = two_laws(3, k=3), PolygonProgram.solve, []

    def fail_after(most: int) -> Any:
        def solve_or_fail(*arguments: Any) -> Any:
            tried.append(most)
            if tried.count(most) > most:
                raise SolverError("no end")
            return solve(*arguments)

        return solve_or_fail

    worth = drafts.tree.worth(rests=True)
    whole = solve_by_polygons(drafts, worth, 0.0, 50)
    monkeypatch.setattr(PolygonProgram, "solve", fail_after(1))
    once = solve_by_polygons(drafts, worth, 0.0, 50)
    assert float(once.lower) <= float(whole.lower) + 1e-9 <= float(once.upper) + 2e-9
    assert float(once.upper) < sum(worth)
    monkeypatch.setattr(PolygonProgram, "solve", fail_after(0))
    with pytest.raises(SolverError):
        solve_by_polygons(drafts, worth, 0.0, 50)


def test_a_large_tree_meets_its_bound() -> None:
    """Bug: widths that leave something out, which small trees do not show."""
    rows = dirichlet(8, 3)
    solution = solve_block(lambda path: rows[path][0], lambda path: rows[path][1], 4, 3)
    assert (solution.method, len(solution.certificate.document["nodes"])) == ("polygons", 584)
    assert solution.certificate.gap <= 1e-9
    solution.certificate.check()


def test_both_ends_where_tokens_are_left_out() -> None:
    """Bug: rests that are worth nothing at the upper end, or something at the lower one."""
    rows = dirichlet(8, 3)
    laws = (lambda path: rows[path][0]), (lambda path: rows[path][1])
    whole = solve_block(*laws, 3, 3).accepted
    part = solve_block(*laws, 3, 3, top=6)
    assert (part.method, isinstance(part.accepted, Interval)) == ("polygons", True)
    part.certificate.check()
    assert float(part.certificate.lower) < float(whole) < float(part.certificate.upper)  # type: ignore[arg-type]


@pytest.mark.parametrize(("seed", "k"), [(15, 50), (22, 5), (100, 2)])
def test_rare_nodes_do_not_spoil_the_proof(seed: int, k: int) -> None:
    """Bug: a rounding error of S that is more than drafts give a node of probability 2^−60."""
    rng = np.random.default_rng(seed)

    def law() -> Any:
        known: dict[Path, Any] = {}

        def after(path: Path) -> Any:
            if path not in known:
                weights = rng.dirichlet(np.ones(3) * 0.6)
                weights[rng.random(3) < 0.5] = 2.0**-60
                known[path] = weights / weights.sum()
            return known[path]

        return after

    found = solve_block(law(), law(), k, 5).certificate
    assert found.upper - found.lower <= 1e-8
