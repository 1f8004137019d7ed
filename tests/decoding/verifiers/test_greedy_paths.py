"""Greedy multi-path block verification: its exact distribution, and what it accepts."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given

import otm
from otm import SparseProbs
from otm._core.arithmetic import Number
from otm.decoding import DraftNode, ModelDrafter
from otm.decoding.reading import Path
from otm.decoding.verifiers.block_traversal import verify_traversal
from otm.decoding.verifiers.greedy_paths import GreedyWalk, HighestRatio, verify_greedy_paths
from otm.errors import InvalidDraftsError
from otm.gain.tokens_given_drafts import tokens_by_walk
from otm.models import TableModel
from otm.testing.strategies import Block, blocks
from tests.decoding.verifiers.test_walk_acceptance import by_path, mean_of_tree_rule
from tests.decoding.verifiers.test_walk_and_keep import (
    GENERIC,
    PROMPT,
    built_once,
    fewer,
    is_lossless,
    models,
    one_step,
)

F = Fraction
lossless = partial(is_lossless, verify=verify_greedy_paths)
WINNERS = "otm.decoding.verifiers.greedy_paths.HighestRatio"


@pytest.fixture(autouse=True)
def each_winner_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WINNERS, built_once(HighestRatio))


@pytest.mark.parametrize(("vocabulary", "gamma", "k"), [(2, 2, 2), (3, 2, 2), (2, 2, 3)])
def test_chains_continued_by_the_target_have_its_law(vocabulary: int, gamma: int, k: int) -> None:
    assert lossless(*models(vocabulary, 5), gamma, k)


@fewer
@given(blocks(max_tokens=3, exact=True, max_ways=9))
def test_any_block_is_verified_without_loss(block: Block) -> None:
    """Bug: equal ratios of tokens, whose order decides who is selected."""
    assert lossless(block.target, block.draft, block.length, block.k, end=block.end)


def test_one_path_is_block_verification() -> None:
    target, draft = models(3, 2)
    laws = [
        one_step(target, ModelDrafter(draft), verify, 2)
        for verify in (verify_greedy_paths, verify_traversal)
    ]
    assert laws[0] == laws[1]


class SmallestRatio(HighestRatio):
    """Selects the path with the smallest ratios, but computes with the largest."""

    def winner(self, places, uniforms):  # type: ignore[no-untyped-def]
        return min(range(len(places)), key=lambda i: self._slot[places[i]])


def test_another_path_than_the_selected_one_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lossless(*GENERIC, 1, 2)
    monkeypatch.setattr(WINNERS, built_once(SmallestRatio))
    assert not lossless(*GENERIC, 1, 2)


def accepted_by_the_paper(target: TableModel, draft: TableModel, k: int, length: int) -> Fraction:
    """Mean accepted drafts: select among all K paths, then Theorem 13.3 for the selected one."""

    def ratio(path: Path) -> list[tuple[Number, int]]:
        return [
            (target.probs(PROMPT + path[:i])[z] / draft.probs(PROMPT + path[:i])[z], z)
            for i, z in enumerate(path)
        ]

    selected = dict.fromkeys(itertools.product(range(2), repeat=length), F(0))
    chances = {
        path: np.prod([draft.probs(PROMPT + path[:i])[z] for i, z in enumerate(path)])
        for path in selected
    }
    possible = [path for path, chance in chances.items() if chance]
    for paths in itertools.product(possible, repeat=k):
        selected[max(paths, key=ratio)] += np.prod([chances[path] for path in paths])

    def below(path: Path, share: Number) -> Fraction:
        total = F(0)
        for z in range(2) if len(path) < length else ():
            after = (*path, z)
            walked = sum(p for whole, p in selected.items() if whole[: len(after)] == after)
            kept = min(share * target.probs(PROMPT + path)[z], walked)
            total += kept + below(after, kept)
        return total

    return below((), F(1))


@pytest.mark.parametrize(("k", "length"), [(2, 2), (3, 2), (2, 3)])
def test_the_mean_is_that_of_selection_and_block_verification(k: int, length: int) -> None:
    """Theorem 24.1: a walk to the largest ratio selects the largest path."""
    target, draft = GENERIC
    law = one_step(target, ModelDrafter(draft, k), verify_greedy_paths, length)
    mean = sum(chance * (len(output) - 1) for output, chance in law.items())
    assert mean == accepted_by_the_paper(target, draft, k, length)


def test_it_accepts_less_than_the_optimum_for_one_token() -> None:
    """The example of docs/theory/several-paths.md: 11/12 against 1."""
    p, q = [F(1, 2), F(1, 2)], [F(1, 3), F(2, 3)]
    draft, target = by_path({(): p}), by_path({(): q})
    law = one_step(
        TableModel({(): q}), ModelDrafter(TableModel({(): p}), 2), verify_greedy_paths, 1
    )
    assert sum(chance * (len(output) - 1) for output, chance in law.items()) == F(11, 12)
    assert otm.solve_block(draft, target, 2, 1).accepted == otm.alpha(p, q, 2) == 1


def test_the_computed_mean_is_that_of_the_verifier() -> None:
    target, draft = GENERIC
    rows = [(lambda path, model=m: model.probs(PROMPT + path).tolist()) for m in (target, draft)]
    law = one_step(target, ModelDrafter(draft, 2), verify_greedy_paths, 2)
    mean = mean_of_tree_rule(partial(tokens_by_walk, walk=GreedyWalk), *rows)
    assert sum(chance * (len(output) - 1) for output, chance in law.items()) == mean


def test_equal_paths_with_different_numbers_of_children_are_an_error() -> None:
    """Bug: the number of drafts was computed from a first node without children."""
    half = SparseProbs([0, 1], [0.5, 0.5])
    leaf, inner = DraftNode((0,)), DraftNode((0,), half, [DraftNode((0, 1))])
    root = DraftNode((), half, [leaf, inner])
    with pytest.raises(InvalidDraftsError, match="draft_probs"):
        verify_greedy_paths(root, lambda path: half, lambda m: np.full(m, 0.5))
