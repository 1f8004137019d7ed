"""Drafts from several heads at once: exact distributions of trees, and one call per batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from otm._core.probs.sparse import SparseProbs
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.base import Branching
from otm.decoding.drafters.heads import NonAutoregressiveDrafter, skip_gram_heads
from otm.decoding.loop import stream
from otm.decoding.reading import Context, Path
from otm.decoding.verifiers.target_only import verify_target_only
from otm.errors import InvalidDraftsError, InvalidInputError, InvalidParameterError
from otm.models.ngram import NGramModel
from otm.models.table import TableModel
from otm.testing.sequences import (
    continued_distribution,
    output_distribution_of,
    sequence_distribution,
)

LAWS = [
    SparseProbs([0, 1], [Fraction(1, 3), Fraction(2, 3)]),
    SparseProbs([0, 2], [Fraction(3, 4), Fraction(1, 4)]),
    SparseProbs([1, 2], [Fraction(1, 5), Fraction(4, 5)]),
]


def heads(contexts: Sequence[Context], most: int) -> list[list[SparseProbs]]:
    return [LAWS[:most] for _ in contexts]


@pytest.mark.parametrize(
    ("branching", "depth", "nodes_by_level"),
    [(1, 3, [1, 1, 1]), (2, 2, [2, 2]), ((2, 1), 3, [2, 2]), ((1, 2), 2, [1, 2])],
)
def test_children_at_a_depth_are_drawn_from_its_law(
    branching: Branching, depth: int, nodes_by_level: list[int]
) -> None:
    """Bug: distributions of the next level, one draw for all nodes of a level, or unused levels."""
    drafter = NonAutoregressiveDrafter(heads, 3, branching)

    def tree(uniforms: Randomness) -> Any:
        [root] = drafter.draft([(0,)], [depth], [0], [uniforms])
        nodes = sorted(root.nodes(), key=lambda node: len(node.path))
        for node in nodes:
            if node.children:
                assert node.checked_draft_probs() is LAWS[len(node.path)]
        return tuple(node.path for node in nodes[1:])

    law = output_distribution_of(tree)
    for paths, probability in law.items():
        assert [len(path) for path in paths] == [
            level for level, count in enumerate(nodes_by_level, start=1) for _ in range(count)
        ]
        assert probability == math.prod(LAWS[len(path) - 1].of(path[-1]) for path in paths)
    assert len(law) == 2 ** sum(nodes_by_level)
    assert sum(law.values()) == 1


def test_the_heads_are_called_once_for_all_sequences_that_draft() -> None:
    """Bug: a call for each sequence or level, contexts mixed up, or waiting ones asked about."""
    asked = []

    def certain(contexts: Sequence[Context], most: int) -> list[list[SparseProbs]]:
        asked.append((list(contexts), most))
        return [[SparseProbs([context[0] + i], [1]) for i in range(most)] for context in contexts]

    drafter = NonAutoregressiveDrafter(certain)
    roots = drafter.draft([(10,), (20,), (30,)], [2, 0, 3], [1, 0, 2], [np.zeros] * 3)
    assert asked == [([(10,), (30,)], 3)]
    assert [root.leaf_paths() for root in roots] == [[(10, 11)], [()], [(30, 31, 32)]]
    assert [r.leaf_paths() for r in drafter.draft([(1,)], [0], [2], [np.zeros])] == [[()]]
    assert len(asked) == 1
    assert drafter.seconds > 0


def test_drafts_are_as_long_as_there_are_heads() -> None:
    """Bug: a model with three heads cannot be asked for five drafts."""
    [root] = NonAutoregressiveDrafter(heads).draft([(0,)], [5], [0], [np.zeros])
    assert root.leaf_paths() == [(0, 0, 1)]


def test_output_has_the_target_law() -> None:
    """Bug: drafts are judged by a distribution that they were not drawn from."""
    model = TableModel.random(3, order=1, rng=np.random.default_rng(2))

    def output(uniforms: Randomness) -> Path:
        drafter = NonAutoregressiveDrafter(heads, 3)
        return next(stream(model, [(1,)], drafter, gamma=2, uniforms=[uniforms])).output

    assert continued_distribution(
        output_distribution_of(output), model, (1,), 3
    ) == sequence_distribution(model, (1,), 3)


def test_skip_gram_heads_look_ahead_by_one_place_more_each() -> None:
    """Bug: all heads predict the next token, or the order or the context is ignored."""
    text = np.random.default_rng(0).integers(0, 4, 60)
    given = skip_gram_heads(text, 3, 4, gamma=3)
    contexts = [(0, 3, 1), (2,)]
    for context, laws in zip(contexts, given(contexts, 2), strict=True):
        assert len(laws) == 2
        for distance, law in enumerate(laws, start=1):
            model = NGramModel.witten_bell(text, 3, 4, distance=distance)
            np.testing.assert_allclose(law.dense(4), model.probs(context), rtol=1e-14)
    assert len(given([(0,)], 5)[0]) == 3


def test_skip_gram_heads_draft_what_a_chain_of_bigrams_would() -> None:
    """Bug: heads that are good for nothing: in 0 1 2 0 1 2 … all drafts should be right."""
    period = [0, 1, 2] * 200
    drafter = NonAutoregressiveDrafter(skip_gram_heads(period, 2, 3, gamma=4), 3)
    [root] = drafter.draft([(2, 0)], [4], [0], [lambda m: np.full(m, 0.5)])
    assert root.leaf_paths() == [(1, 2, 0, 1)]
    assert all(
        n.checked_draft_probs().of(n.children[0].token) > 0.95 for n in root.nodes() if n.children
    )


def test_bad_parameters_are_refused() -> None:
    """Bug: a mistake shows up in the middle of decoding."""
    with pytest.raises(InvalidParameterError, match="heads = None"):
        NonAutoregressiveDrafter(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="vocabulary = "):
        NonAutoregressiveDrafter(heads, 0)
    with pytest.raises(InvalidParameterError, match="branching"):
        NonAutoregressiveDrafter(heads, 3, ())
    with pytest.raises(InvalidParameterError, match="gamma = "):
        skip_gram_heads([0, 1], 2, 2, gamma=0)
    with pytest.raises(InvalidInputError, match="at least 3 entries"):
        skip_gram_heads([0, 1], 2, 2, gamma=2)


def test_heads_must_answer_for_every_context() -> None:
    """Bug: sequences behind the last answer silently go without drafts."""
    drafter = NonAutoregressiveDrafter(lambda contexts, most: [LAWS])
    with pytest.raises(InvalidDraftsError, match="distributions for 1 contexts"):
        drafter.draft([(0,), (1,)], [2, 2], [0, 1], [np.zeros] * 2)


def test_a_node_without_children_has_no_law() -> None:
    """Bug: leaves carry distributions, and look to a verifier as if drafts had been drawn there."""
    [root] = NonAutoregressiveDrafter(heads).draft([(0,)], [2], [0], [np.zeros])
    leaves: list[DraftNode] = [node for node in root.nodes() if not node.children]
    assert [leaf.draft_probs for leaf in leaves] == [None]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: None, "the heads returned None"),
        (lambda: (laws for laws in [LAWS]), "the heads returned <generator"),
        (lambda: LAWS[:1], "a list for each context"),
        (lambda: [[np.array([0.5, 0.5])]], "as a distribution; return a SparseProbs"),
        (lambda: np.full((1, 2, 2), 0.5), "a list for each context"),
    ],
)
def test_heads_that_return_no_laws_are_refused(answer: Any, message: str) -> None:
    """Bug: the loop fails somewhere behind, in words that nobody can trace to the heads."""
    drafter = NonAutoregressiveDrafter(lambda contexts, most: answer())
    with pytest.raises(InvalidDraftsError, match=message):
        drafter.draft([(0,)], [2], [0], [np.zeros])


@pytest.mark.parametrize("nodes", [1, 3, 6])
def test_a_budget_drafts_the_likeliest_paths_under_the_product(nodes: int) -> None:
    """Against all paths in order.  Bug: a level read as another, siblings that share a parent."""
    rng = np.random.default_rng(nodes)
    row = [SparseProbs.from_dense(rng.dirichlet(np.ones(3))) for _ in range(3)]
    drafter = NonAutoregressiveDrafter(lambda contexts, gamma: [row] * len(contexts), nodes=nodes)
    first, none, second = drafter.draft([(0,), (1,), (0, 2)], [3, 0, 2], None, [])
    assert not none.children
    for root, depth in ((first, 3), (second, 2)):
        paths = [path for i in range(depth) for path in product(range(3), repeat=i + 1)]
        chance = {
            path: np.prod([probs.of(token) for probs, token in zip(row, path, strict=False)])
            for path in paths
        }
        best = sorted(paths, key=lambda path: -chance[path])[:nodes]
        assert {node.path for node in root.nodes()} == {(), *best}
        assert {node.draft_kind for node in root.nodes() if node.children} == {"Top"}


def test_a_tree_of_heads_keeps_the_law() -> None:
    target = TableModel.random(3, 2, np.random.default_rng(4))
    drafter = NonAutoregressiveDrafter(heads, nodes=3)

    def decode(uniforms: Randomness) -> Path:
        steps = stream(
            target, [(0,)], drafter, verify_target_only, gamma=2, max_tokens=3, uniforms=[uniforms]
        )
        return tuple(token for step in steps for token in step.output)

    assert output_distribution_of(decode) == sequence_distribution(target, (0,), 3)


def test_a_budget_and_chains_are_refused_together() -> None:
    with pytest.raises(InvalidParameterError, match="set `nodes` for a tree"):
        NonAutoregressiveDrafter(lambda contexts, gamma: [], branching=2, nodes=4)
