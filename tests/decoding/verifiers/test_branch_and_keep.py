"""Branch and keep: exact distributions of its output, what it accepts, and broken variants."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given

import otm
from otm._core.arithmetic import Number
from otm._core.probs.sparse import SparseProbs
from otm.decoding import ModelDrafter
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.base import Drafter
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs, Verifier
from otm.decoding.verifiers.block_traversal import verify_traversal
from otm.decoding.verifiers.branch_and_keep import Branch, verify_branch_and_keep
from otm.testing.strategies import Block, blocks
from tests.decoding.verifiers.test_certain_and_drawn import Planned
from tests.decoding.verifiers.test_walk_and_keep import (
    GENERIC,
    SIZES,
    UNEQUAL,
    Stopping,
    fewer,
    is_lossless,
    models,
    one_step,
    sequences_are_lossless,
)

F = Fraction
lossless = partial(is_lossless, verify=verify_branch_and_keep)


@pytest.mark.parametrize(
    ("end", "drafter"), [(None, ModelDrafter), (1, ModelDrafter), (None, Stopping)]
)
@pytest.mark.parametrize(("vocabulary", "gamma", "k"), SIZES)
def test_chains_continued_by_the_target_have_its_law(
    vocabulary: int, gamma: int, k: int, end: int | None, drafter: type[ModelDrafter]
) -> None:
    """Also with an end token, and with paths of unequal length."""
    assert lossless(*models(vocabulary, 5), gamma, k, end=end, drafter=drafter)


@pytest.mark.parametrize("branching", [(1, 2), (2, 1), (2, 2), (3, 1)], ids=str)
def test_prefix_trees(branching: tuple[int, ...]) -> None:
    assert lossless(*models(2, 6), 2, branching)


@fewer
@given(blocks(max_tokens=3, exact=True, max_ways=9))
def test_any_block_is_verified_without_loss(block: Block) -> None:
    """Bug: ties, zeros and certain tokens at one depth and not at the next."""
    assert lossless(block.target, block.draft, block.length, block.k, end=block.end)


@fewer
@given(blocks(max_tokens=3, max_paths=1, exact=True, max_ways=9))
def test_one_chain_is_block_verification(block: Block) -> None:
    laws = [
        one_step(block.target, ModelDrafter(block.draft), verify, block.length, block.end)
        for verify in (verify_branch_and_keep, verify_traversal)
    ]
    assert laws[0] == laws[1]


def test_whole_sequences_have_the_law_of_the_target() -> None:
    assert sequences_are_lossless(*UNEQUAL, verify_branch_and_keep)
