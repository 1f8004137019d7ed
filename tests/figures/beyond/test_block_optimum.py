"""How near rules come to the exact optimum of blocks: orders that are theorems."""

from __future__ import annotations

import numpy as np
import pytest

from figures.beyond import block_optimum
from figures.beyond.block_optimum import accepted, all_drafts, between, random_laws


def test_all_drafts_are_there_with_their_probabilities() -> None:
    """Bug: chains that are drafted twice as one, or rows of another path."""
    draft = random_laws(np.random.default_rng(1), 2)
    trees = list(all_drafts(draft, 2, 2))
    assert len(trees) == 16
    assert sum(probability for probability, _ in trees) == pytest.approx(1, abs=1e-12)
    assert all(len(tree.repeated_leaf_paths()) == 2 for _, tree in trees)


@pytest.mark.parametrize(("k", "length"), [(2, 2), (2, 3)])
def test_no_rule_is_above_the_optimum_and_walk_and_keep_is_near_it(k: int, length: int) -> None:
    """Bug: an optimum of other distributions, or tokens of a step in place of accepted drafts."""
    rng = np.random.default_rng(4)
    target, other = (random_laws(rng, 3) for _ in range(2))
    found = accepted(target, between(target, other, 1.0), k, length)
    best = found.pop("optimum")
    assert max(found.values()) <= best + 1e-8
    assert found["walk and keep"] > 0.95 * best
    alike = accepted(target, between(target, other, 0.0), k, length)
    assert list(alike.values()) == pytest.approx([length] * 5, abs=1e-8)


def test_the_table_has_each_case() -> None:
    """Bug: a share of another size."""
    table = block_optimum.block_optimum(instances=1, sizes=[(2, 2)])
    assert len(table.rows) == len(block_optimum.STRANGENESS) * len(block_optimum.RULES)
    assert (table["share"] <= 1 + 1e-8).all()
