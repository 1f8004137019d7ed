"""How much walk and keep accepts: special cases, and other rules on the same trees."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

import otm
from otm._core.arithmetic import Number, Probs
from otm._core.probs.sparse import SparseProbs
from otm.coupling import OptimalPlan
from otm.coupling.optimal.agreeing import AgreeingDrafts
from otm.decoding.draft_tree import DraftNode
from otm.decoding.drafters.base import Branching
from otm.decoding.reading import Path
from otm.gain.tokens_given_drafts import tokens_by_rule, tokens_by_traversal
from otm.models import TableModel

F = Fraction
PROMPT = (0,)


def models(vocabulary: int, seed: int) -> tuple[TableModel, TableModel]:
    """Two unrelated tables of order 2, with zeros."""
    rng = np.random.default_rng(seed)
    return TableModel.random(vocabulary, 2, rng), TableModel.random(vocabulary, 2, rng)


def accepted(
    target: Callable[[Path], Any], draft: Callable[[Path], Any], branching: Branching, depth: int
) -> Number:
    """Mean number of accepted drafts Σ S(y), over paths and not over drafts."""

    def below(path: Path, share: Number, counts: Probs) -> Number:
        if len(path) == depth or not share:
            return 0 * share
        children = branching if isinstance(branching, int) and not path else 1
        if isinstance(branching, tuple):
            children = branching[len(path)]
        numbers = np.resize(0 * counts[:1], (counts.size - 1) * children + 1)
        numbers[::children] = counts
        winner = AgreeingDrafts(law(draft, path), law(target, path), numbers)
        kept = [winner.accepted_share(place, share) for place in range(winner.tokens.size)]
        wins = enumerate(zip(winner.tokens, winner.winner_probs, strict=True))
        return sum(
            (won * (kept[i] + below((*path, int(z)), kept[i], winner.agreeing(i)))
             for i, (z, won) in wins if won),
            0 * share,
        )  # fmt: skip

    def law(model: Callable[[Path], Any], path: Path) -> SparseProbs:
        return SparseProbs.from_dense(model(path))

    one = 1 + 0 * draft(())[0]
    kind = object if isinstance(one, Fraction) else np.float64
    return below((), one, np.array([0 * one, one], dtype=kind))


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_one_token_is_the_optimum(k: int) -> None:
    target, draft = models(4, seed=k)
    p, q = draft.probs(PROMPT), target.probs(PROMPT)
    assert accepted(lambda _: q, lambda _: p, k, 1) == otm.alpha(p, q, k)


TABLE = {
    (2, 1): F(11, 9), (2, 2): F(131, 81), (3, 2): F(1621, 729), (4, 2): F(17906, 6561),
    (2, 3): F(33538, 18225), (3, 3): F(475851869581, 187441373025),
}  # fmt: skip
"""Accepted drafts by length and number of paths, for distributions (2/3, 1/3) and (1/3, 2/3)."""


@pytest.mark.parametrize(("depth", "k"), TABLE)
def test_accepted_drafts_for_constant_laws(depth: int, k: int) -> None:
    """The table of docs/theory/walk-and-keep.md, in fractions and in floats."""
    p, q = [F(2, 3), F(1, 3)], [F(1, 3), F(2, 3)]
    assert accepted(lambda _: q, lambda _: p, k, depth) == TABLE[depth, k]
    floats = accepted(lambda _: [1 / 3, 2 / 3], lambda _: [2 / 3, 1 / 3], k, depth)
    assert floats == pytest.approx(float(TABLE[depth, k]), abs=1e-14)


def by_path(laws: dict[Path, list[Any]]) -> Callable[[Path], Any]:
    """Distribution after a path: of the longest end of it that has one."""
    return lambda path: next(laws[path[i:]] for i in range(len(path) + 1) if path[i:] in laws)


def mean_of_tree_rule(
    means: Callable[..., Probs], target: Callable[[Path], Any], draft: Callable[[Path], Any]
) -> Number:
    """Mean accepted drafts of another rule, over all pairs of paths of two of two tokens."""
    chains = list(itertools.product(range(len(draft(()))), repeat=2))
    total = 0 * draft(())[0]
    for drafted in itertools.product(chains, repeat=2):
        root, probability = DraftNode(), total * 0 + 1
        for chain in drafted:
            node = root
            for z in chain:
                node.draft_probs = SparseProbs.from_dense(draft(node.path))
                probability = probability * draft(node.path)[z]
                node.children.append(DraftNode((*node.path, z)))
                node = node.children[-1]
        if probability:
            given = means(root, lambda path: SparseProbs.from_dense(target(path)), 2)
            total = total + probability * (given[2] - 1)
    return total


def test_traversal_joins_what_is_drawn_twice() -> None:
    """The table of docs/theory/walk-and-keep.md; apart, its copies would accept 38/27."""
    draft, target = (lambda _, row=row: row for row in ([F(2, 3), F(1, 3)], [F(1, 3), F(2, 3)]))
    assert mean_of_tree_rule(tokens_by_traversal, target, draft) == F(115, 81)


def test_traversal_is_rarely_better() -> None:
    """The first counterexample of docs/theory/walk-and-keep.md."""
    draft = by_path({(): [F(1, 7), F(6, 7)], (0,): [F(1, 3), F(2, 3)], (1,): [F(20, 21), F(1, 21)]})
    target = by_path(
        {(): [F(2, 21), F(19, 21)], (0,): [F(1, 21), F(20, 21)], (1,): [F(20, 21), F(1, 21)]}
    )
    assert accepted(target, draft, 2, 2) == F(872, 441)
    assert mean_of_tree_rule(tokens_by_traversal, target, draft) == F(292, 147)


def test_the_recursion_is_rarely_better() -> None:
    """The second: its optimal plan accepts the first token that goes on well more often."""
    zero, one = F(0), F(1)
    never = [one, zero, zero]
    draft = by_path(
        {
            (): [F(1, 2), F(1, 4), F(1, 4)],
            (0,): never,
            (1,): [zero, zero, one],
            (2,): [zero, F(2, 3), F(1, 3)],
        }
    )
    target = by_path(
        {
            (): [zero, F(1, 3), F(2, 3)],
            (0,): never,
            (1,): [zero, zero, one],
            (2,): [zero, one, zero],
        }
    )
    assert accepted(target, draft, 2, 2) == F(197, 144)
    recursion = partial(tokens_by_rule, OptimalPlan)
    assert mean_of_tree_rule(recursion, target, draft) == F(11, 8)


def test_random_trees_accept_more_than_by_the_other_rules() -> None:
    """Catches a lossless rule that accepts too little; each path has Dirichlet distributions."""
    rng = np.random.default_rng(20)
    gains = []
    for _ in range(30):
        draft, target = (
            by_path({path: rng.dirichlet([1, 1]) for path in [(), (0,), (1,)]}) for _ in range(2)
        )
        found = accepted(target, draft, 2, 2)
        others = partial(tokens_by_rule, OptimalPlan), tokens_by_traversal
        gains.append([found - mean_of_tree_rule(means, target, draft) for means in others])
    assert np.min(gains) > -0.01
    assert (np.mean(gains, axis=0) > [0.01, 0.08]).all()


def test_the_hull_beats_cap_and_floor() -> None:
    """The example of docs/theory/walk-and-keep.md."""
    half, rest = [F(1, 2), F(1, 2)], [F(0), F(1)]
    draft = by_path({(): [F(1), F(0)], (0,): [F(2, 5), F(3, 5)], (1,): [F(2, 5), F(3, 5)]})
    assert accepted(by_path({(): half, (0,): rest, (1,): rest}), draft, 2, 3) == F(3, 2)
