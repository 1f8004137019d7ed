"""Planned shapes of certain and drawn drafts, against all shapes and against all draws."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarks.drawn_trees import Instance, accepted
from otm._core.probs.sparse import SparseProbs
from otm.decoding import (
    Drawn,
    ModelDrafter,
    Shape,
    StaticTreeDrafter,
    stream,
    verify_walk_and_keep,
)
from otm.errors import InvalidInputError, InvalidParameterError, ProblemTooLargeError
from otm.gain import best_drawn_tree, best_tree, drawn_hits, rank_hits, record
from otm.models import TableModel


@cache
def shapes(nodes: int) -> list[Shape]:
    """All shapes with this number of nodes, with marks."""
    return [(*certain, *drawn) for certain, drawn in _families(nodes)]


def _families(nodes: int) -> Iterator[tuple[Shape, Shape]]:
    for certain in _forests(nodes):
        yield certain, ()
    for below in range(nodes):
        for child in shapes(below):
            yield from ((certain, (Drawn(child),)) for certain in _forests(nodes - 1 - below))


@cache
def _forests(nodes: int) -> list[Shape]:
    if not nodes:
        return [()]
    return [
        (child, *rest)
        for first in range(nodes)
        for child in shapes(first)
        for rest in _forests(nodes - 1 - first)
    ]


def value(shape: Shape, hits: Any, drawn: Any) -> float:
    """Mean accepted drafts of a shape; impossible children count nothing."""
    if not shape or not len(hits):
        return 0.0
    total, certain = 0.0, len(shape) - isinstance(shape[-1], Drawn)
    for i, child in enumerate(shape):
        row, place = (drawn[0], certain) if isinstance(child, Drawn) else (hits[0], i)
        hit = row[place] if place < len(row) else 0.0
        total += hit * (1 + value(child, hits[1:], drawn[1:]))
    return total


def test_the_best_shape_is_that_of_enumeration() -> None:
    """Exactly, as all products are short binary numbers: every marked shape of at most 5 nodes."""
    rng = np.random.default_rng(0)
    marked = 0
    for _ in range(25):
        levels, k, m, nodes = (int(rng.integers(1, high)) for high in (4, 4, 5, 6))
        parts = rng.multinomial(16, np.ones(k + 2) / (k + 2), size=levels) / 16
        hits = parts[:, :k]
        left = 1 - np.cumsum(np.pad(hits, ((0, 0), (1, 0))), axis=1)[:, : min(m, k + 1)]
        drawn = np.floor(16 * left * rng.random(left.shape)) / 16
        best = max(value(shape, hits, drawn) for n in range(nodes + 1) for shape in shapes(n))
        planned = best_drawn_tree(hits, drawn, nodes)
        assert planned.accepted == best == value(planned.shape, hits, drawn)
        marked += "Drawn" in repr(planned.shape)
    assert 5 < marked < 25


def test_without_drawn_children_it_is_the_tree_of_ranks() -> None:
    hits = [[0.5, 0.25, 0.125], [0.25, 0.5, 0]]
    for nodes in (1, 4, 9):
        assert best_drawn_tree(hits, [[0.0], [0.0]], nodes).accepted == pytest.approx(
            best_tree(hits, nodes).accepted, abs=1e-15
        )


F = Fraction
TARGET, DRAFT = [F(3, 8), F(1, 8), F(4, 8)], [F(4, 8), F(2, 8), F(2, 8)]


def planned_pair() -> tuple[TableModel, TableModel, Any]:
    """Models without memory, and the best shape of four nodes."""
    target, draft = TableModel({(): TARGET}), TableModel({(): DRAFT})
    drawn = []
    for certain in range(3):
        left = sum(DRAFT[certain:])
        drawn.append(
            sum(min(d / left, t) for d, t in zip(DRAFT[certain:], TARGET[certain:], strict=True))
        )
    return target, draft, best_drawn_tree([float(t) for t in TARGET], [float(x) for x in drawn], 4)


def test_the_planned_value_is_the_mean_over_all_draws() -> None:
    """SpecTr's recursion has the planned mean, exactly; walk and keep has more."""
    _, _, planned = planned_pair()
    target, draft = (SparseProbs.from_dense(row) for row in (TARGET, DRAFT))
    found = Instance({}, {}, {}, {}, 4)

    def fill(shape: Shape, path: tuple[int, ...]) -> None:
        found.target[path] = target
        if shape:
            draws = isinstance(shape[-1], Drawn)
            certain = len(shape) - draws
            found.draft[path], found.draws[path] = draft, draws
            found.certain[path] = list(range(certain))
            for token in range(3 if draws else certain):
                fill(shape[min(token, len(shape) - 1)], (*path, token))

    fill(planned.shape, ())
    means = accepted(found)
    assert means.greedy == Fraction(planned.accepted)
    assert means.walk > means.greedy


def test_planned_trees_are_drafted_and_verified() -> None:
    target, draft, planned = planned_pair()
    drafter = StaticTreeDrafter(draft, planned.shape, "Greedy")
    (root,) = drafter.draft([(0,)], [6], None, [lambda m: np.full(m, 0.75)])

    def kinds(node: Any, shape: Shape) -> bool:
        kind = "Greedy" if shape and isinstance(shape[-1], Drawn) else "Top" if shape else "IID"
        same = node.draft_kind == kind and len(node.children) == len(shape)
        return same and all(map(kinds, node.children, shape))

    assert kinds(root, planned.shape)
    steps = stream(target, [(0,)], drafter, verify_walk_and_keep, gamma=6, max_tokens=20, seed=0)
    assert sum(len(step.output) for step in steps) == 20


def test_acceptance_beside_certain_drafts_is_measured() -> None:
    """Σ min(d', t) of both contexts, with fewer drafted tokens than asked for."""
    rows = {(): [0.5, 0.25, 0.25], (1,): [0, 0, 1]}
    target = TableModel({(): [0.25, 0.25, 0.5]})
    recorded = record(target, ModelDrafter(TableModel(rows)), [[[0]], [[1]]], 1, seed=0)
    expected = [(0.75 + 0.5) / 2, (0.25 + 0.5) / 2, 0.5 / 2, 0]
    assert drawn_hits(recorded, 3) == pytest.approx(expected)
    wrong: Any
    for wrong in (3, [3], iter([])):  # bug: errors of Python
        for measure in (drawn_hits, rank_hits):
            with pytest.raises(InvalidInputError, match="of recordings from `record`"):
                measure(wrong, 1)
    for measure in (drawn_hits, rank_hits):
        with pytest.raises(ProblemTooLargeError, match="1,000,000,000"):
            measure(recorded, 10**9)
    with pytest.raises(InvalidInputError, match="there are no recordings"):
        drawn_hits([], 2)


@pytest.mark.parametrize(
    ("hits", "drawn", "says"),
    [
        ([0.5], [1.5], "drawn ="), ([0.5], [-0.5], "drawn ="), ([0.5], ["a"], "drawn ="),
        ([0.75, 0.5], [0.5], "hits ="), ([[0.5]], [0.5], "or both per level"),
        ([[0.5], [0.5]], [[0.5]], "or both per level"),
        ([0.5], [0.5, 0.75], "on level 1, the probabilities of 1 certain children and a drawn"),
    ],
)  # fmt: skip
def test_wrong_probabilities_are_refused(hits: Any, drawn: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        best_drawn_tree(hits, drawn, 3)


def test_too_large_a_plan_is_refused() -> None:
    with pytest.raises(ProblemTooLargeError, match="4,000 nodes"):
        best_drawn_tree([0.1], [0.5], 4000)


def test_marks_that_cannot_be_drafted_are_refused() -> None:
    model = TableModel({(): DRAFT})
    with pytest.raises(InvalidParameterError, match="comes after the certain ones"):
        StaticTreeDrafter(model, (Drawn(), ()), "Greedy")
    with pytest.raises(InvalidParameterError, match='give draft_kind="Greedy"'):
        StaticTreeDrafter(model, ((), Drawn()))
