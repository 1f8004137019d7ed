"""Best-first trees with a drawn child a node: budget, order of decisions, distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otm.decoding import DrawnTreeDrafter, SamplingParameters, spectr
from otm.errors import InvalidInputError, InvalidParameterError, ProblemTooLargeError
from otm.models import TableModel
from tests.decoding.verifiers.test_certain_and_drawn import is_lossless, positive
from tests.decoding.verifiers.test_walk_and_keep import PROMPT, models


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 8, 32])
@pytest.mark.parametrize("depth", [1, 3, 6])
def test_the_budget_is_never_exceeded(nodes: int, depth: int) -> None:
    rng = np.random.default_rng(nodes)
    for seed in range(5):
        drafter = DrawnTreeDrafter(models(4, seed)[0], nodes)
        roots = drafter.draft([PROMPT, (1,)], [depth, 1], None, [rng.random, rng.random])
        for root, most in zip(roots, (depth, 1), strict=True):
            sizes = [len(node.path) for node in root.nodes() if node.path]
            assert 1 <= len(sizes) <= nodes
            assert max(sizes) <= most


def test_most_of_the_budget_is_used() -> None:
    """Bug: a threshold that expects too many nodes below, or counts a level twice."""
    rng = np.random.default_rng(0)
    drafter = DrawnTreeDrafter(TableModel.random(16, 1, rng), 32)
    sizes = []
    for _ in range(20):
        (root,) = drafter.draft([PROMPT], [8], None, [rng.random])
        sizes.append(sum(1 for _ in root.nodes()) - 1)
    assert np.mean(sizes) > 26


@pytest.mark.parametrize(("nodes", "seed"), [(3, 5), (4, 11), (6, 5)])
def test_the_output_has_the_law_of_the_target(nodes: int, seed: int) -> None:
    """The cap binds at one depth for some drawn values, and not for others."""
    assert is_lossless(positive(seed), DrawnTreeDrafter(positive(seed + 1), nodes), 2)
    target, draft = models(3, seed)  # with zeros
    assert is_lossless(target, DrawnTreeDrafter(draft, nodes), 2)


def test_a_level_is_decided_before_any_of_its_nodes_draws() -> None:
    """Bug: a budget that one node's drawn value takes from its neighbour's certain children."""
    model = positive(3)

    def kinds(points: list[float]) -> list[tuple[int, str]]:
        uniforms = iter(points)
        drafter = DrawnTreeDrafter(model, 7)
        (root,) = drafter.draft([PROMPT], [2], None, [lambda m: np.array([next(uniforms)])])
        level = [node for node in root.nodes() if len(node.path) == 1]
        return [(len(node.children), node.draft_kind) for node in level]

    same_root = [kinds([0.5, *points]) for points in ([0.1] * 6, [0.9] * 6, [0.1, 0.9] * 3)]
    assert same_root[0] == same_root[1] == same_root[2]


def test_a_certain_model_drafts_one_path() -> None:
    """Bug: a drawn child from the rounding that certain tokens leave."""
    model = TableModel({(): [0.0, 1.0, 0.0]})
    (root,) = DrawnTreeDrafter(model).draft([PROMPT], [5], None, [np.zeros])
    assert [node.path for node in root.nodes()] == [(1,) * depth for depth in range(6)]


def test_a_loop_decodes_with_it() -> None:
    """Bug: the loop's limits at the last tokens, where the tree may have no level."""
    target, draft = TableModel({(): [0.5, 0.25, 0.25]}), TableModel({(): [0.25, 0.5, 0.25]})
    drafter = DrawnTreeDrafter(draft, 6, sampling=SamplingParameters(temperature=0.5))
    options = {"gamma": 3, "max_tokens": 100, "seed": 1}
    generation = spectr(target, drafter, [[0], [1]], rule="walk and keep", **options)
    assert [len(tokens) for tokens in generation.sequences] == [100, 100]
    assert generation.block_efficiency > 1.5


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"nodes": 0}, InvalidParameterError, "nodes = 0"),
        ({"nodes": 5000}, ProblemTooLargeError, "5,000 drafts"),
        ({"weight": 0}, InvalidParameterError, "weight = 0"),
        ({"weight": 1.5}, InvalidParameterError, "weight = 1.5"),
        ({"model": 3}, InvalidInputError, r"a int; give a LanguageModel, such as Hugging"),
        ({"logits_processor": 3}, InvalidParameterError, "give a function of token ids"),
    ],
)
def test_bad_input(arguments: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        DrawnTreeDrafter(**({"model": TableModel({(): [0.5, 0.5]})} | arguments))
