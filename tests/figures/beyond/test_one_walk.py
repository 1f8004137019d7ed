"""The picture of a walk shows what the verifier does, and numbers that the rule has."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from figures.beyond import one_walk
from figures.beyond.one_walk import DRAFT, TARGET, TOKENS
from otm._core.probs.sparse import SparseProbs
from otm.decoding import verify_walk_and_keep


@pytest.mark.parametrize("seed", range(one_walk.SEED, one_walk.SEED + 12))
def test_the_output_is_that_of_the_verifier(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a coin that the rule does not throw, or a walk of another tree."""
    monkeypatch.setattr(one_walk, "SEED", seed)
    table = one_walk.one_walk()
    draft, target = (SparseProbs.from_dense(np.array(row)) for row in (DRAFT, TARGET))
    root, uniforms = one_walk._chains(draft), np.random.default_rng(seed).random
    output = verify_walk_and_keep(root, lambda path: target, uniforms)
    (follows,) = table.where(fate="follows")["path"].tolist()
    assert follows == "".join(TOKENS[token] for token in output)


def test_the_numbers_of_the_walk() -> None:
    """Bug: a W or an S of another node."""
    table = one_walk.one_walk()
    every: list[dict[str, Any]] = list(table.records())
    walk = [row for row in every if row["W"]]
    assert [row["fate"] for row in walk] == ["above", "above", "kept", "not kept"]
    assert (walk[0]["W"], walk[0]["S"], walk[-1]["below"]) == (1, 1, 0)
    for row, below in itertools.pairwise(walk):
        token = TOKENS.index(below["path"][-1])
        assert below["S"] == pytest.approx(min(row["S"] * TARGET[token], below["W"]), abs=1e-15)
        assert below["S"] <= row["below"] <= row["S"] <= row["W"]
    for row in walk:
        h = (row["S"] - row["below"]) / (row["W"] - row["below"])
        assert row["h"] == pytest.approx(h, abs=1e-12)
    # the hull of (0, 0), (0.2, 0.5^3), (0.5, 0.8^3) and (1, 1) goes from the first to the third
    assert walk[1]["W"] == pytest.approx(0.3 * 0.8**3 / 0.5, abs=1e-15)
