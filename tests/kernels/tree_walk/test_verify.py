"""Walk and keep over trees as a kernel: exact distributions, equal backends, bad input."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm.decoding.draft_tree import DraftNode
from otm.decoding.reading import Path
from otm.errors import InvalidDraftsError, InvalidUniformsError, UnknownMethodError
from otm.kernels import verify_tree_logits, verify_tree_probs
from otm.kernels.tree.checks import Trees
from otm.kernels.tree_walk import numpy as tree_walk
from otm.models import TableModel
from otm.testing.sequences import (
    continued_distribution,
    output_distribution_of,
    sequence_distribution,
)
from tests.decoding.verifiers.test_certain_and_drawn import (
    EXCLUDED,
    GENERIC,
    PROMPT,
    SHAPES,
    Planned,
)
from tests.decoding.verifiers.test_walk_and_keep import models

WALK = "walk and keep"


def arrays_of(root: DraftNode, target: TableModel) -> tuple[Any, Any, Trees[Any]]:
    """Rows and parents of one tree, in fractions; the uniforms are missing."""
    nodes = [node for node in root.nodes() if node.path]
    index = {node.path: i for i, node in enumerate(nodes)}
    drawn = {node.children[-1].path for node in root.nodes() if node.draft_kind == "Greedy"}
    rows = [target.probs(PROMPT + path) for path in ((), *index)]
    tokens = range(len(rows[0]))
    drafts = [
        [Fraction(1), *[Fraction(0)] * (len(tokens) - 1)] if node.draft_probs is None
        else [Fraction(node.draft_probs.of(x)) for x in tokens]
        for node in (root, *nodes)
    ]  # fmt: skip
    parents = [index.get(path[:-1], -1) for path in index]
    trees = Trees(
        np.array([[node.token for node in nodes]], dtype=np.int64).reshape(1, -1),
        np.array([parents], dtype=np.int64).reshape(1, -1),
        np.array([[path in drawn for path in index]]).reshape(1, -1),
        np.empty(0),
    )
    return np.array([rows], dtype=object), np.array([drafts], dtype=object), trees


def one_step(target: TableModel, draft: TableModel, shape: str, gamma: int, points: int) -> Any:
    """Return the distribution of a step's output: over all trees and all uniforms."""
    drafter, roots = Planned(draft, SHAPES[shape]), {}

    def drafts(uniforms: Any) -> tuple[Path, ...]:
        (root,) = drafter.draft([PROMPT], [gamma], None, [uniforms])
        nodes = tuple(node.path for node in root.nodes())
        roots[nodes] = root
        return nodes

    outputs: dict[Path, Fraction] = defaultdict(Fraction)
    for nodes, probability in output_distribution_of(drafts).items():
        rows, below, trees = arrays_of(roots[nodes], target)

        def verify(source: Any, rows: Any = rows, below: Any = below, trees: Any = trees) -> Path:
            uniforms = np.array([[source(4) for _ in range(gamma + 1)]], dtype=object)
            found = tree_walk.verify(rows, below, trees._replace(uniforms=uniforms), points)
            return tuple(found.tokens[0, : found.accepted.item(0) + 1].tolist())

        for output, chance in output_distribution_of(verify).items():
            outputs[output] += probability * chance
    return dict(outputs)


CASES = [(GENERIC, 1, "certain and drawn"), (EXCLUDED, 1, "certain and drawn")]
CASES += [(models(2, 5), 2, shape) for shape in SHAPES]


@pytest.mark.parametrize(("pair", "gamma", "shape"), CASES)
def test_the_output_has_the_law_of_the_target(pair: Any, gamma: int, shape: str) -> None:
    """Exactly, for any c; steps from more points accept more."""
    target, draft = pair
    expected = sequence_distribution(target, PROMPT, gamma + 1)
    accepted = []
    for points in (1, tree_walk.POINTS):
        law = one_step(target, draft, shape, gamma, points)
        assert continued_distribution(law, target, PROMPT, gamma + 1) == expected
        accepted.append(sum(p * (len(output) - 1) for output, p in law.items()))
    assert accepted[0] <= accepted[1]


def random_trees(seed: int, dtype: Any = np.float32) -> tuple[Any, Any, Trees[Any]]:
    """Rows and trees of eight sequences, with at most one drawn child a node."""
    rng = np.random.default_rng(seed)
    nodes, size, levels = int(rng.integers(0, 9)), int(rng.integers(2, 60)), 4
    target, draft = (rng.dirichlet(np.ones(size), (8, nodes + 1)).astype(dtype) for _ in range(2))
    tokens, parents = np.full((2, 8, nodes), -1)
    sampled = np.zeros((8, nodes), np.bool_)
    for b in range(8):
        depths = {-1: 0}
        for node in range(nodes - (b == 0)):  # one tree has an unused entry
            parent = int(rng.choice([place for place, depth in depths.items() if depth < levels]))
            siblings = (parents[b] == parent) & (tokens[b] >= 0)
            free = np.setdiff1d(np.arange(size), tokens[b, siblings])
            if free.size and not sampled[b, siblings].any():
                tokens[b, node], parents[b, node] = rng.choice(free), parent
                sampled[b, node] = rng.random() < 0.4
                depths[node] = depths[parent] + 1
    return target, draft, Trees(tokens, parents, sampled, rng.random((8, levels + 1, 4)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_torch_makes_the_decisions_of_numpy(dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    for seed in range(12):
        target, draft, trees = random_trees(seed, dtype)
        draft = None if seed % 4 == 3 else draft
        sampled = None if draft is None else trees.sampled
        arguments = [target, draft, trees.tokens, trees.parents, trees.uniforms]
        expected = verify_tree_probs(*arguments, sampled=sampled, rule=WALK)
        tensors = [None if each is None else torch.from_numpy(each) for each in arguments]
        marks = None if sampled is None else torch.from_numpy(sampled)
        found = verify_tree_probs(*tensors, sampled=marks, rule=WALK)
        for mine, theirs in zip(expected, found, strict=True):
            assert (mine == theirs.numpy()).all()


def test_large_rows_of_tensors_take_the_reference() -> None:
    """On a CPU, torch's rows of a large vocabulary are verified as arrays."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    rows = rng.dirichlet(np.ones(5000), (2, 2, 3))
    tokens, parents = np.array([[7, 9]] * 2), np.array([[-1, -1]] * 2)
    sampled = np.array([[False, True]] * 2)
    arguments = [*rows, tokens, parents, rng.random((2, 2, 4))]
    expected = verify_tree_probs(*arguments, sampled=sampled, rule=WALK)
    tensors = [torch.from_numpy(each) for each in arguments]
    found = verify_tree_probs(*tensors, sampled=torch.from_numpy(sampled), rule=WALK)
    assert (expected.tokens == found.tokens.numpy()).all()


def test_logits_and_greedy_sequences() -> None:
    """At temperature 0 all drafts are certain: the path of the largest logits is accepted."""
    target = np.log(np.array([[[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]]] * 2))
    drafts, parents = np.array([[0, 2]] * 2), np.array([[-1, 0]] * 2)
    uniforms = np.full((2, 3, 4), 0.99)
    options: dict[str, Any] = {"sampled": np.array([[True, True]] * 2), "rule": WALK}
    found = verify_tree_logits(
        target, target, drafts, parents, uniforms, temperature=np.array([0.0, 1.0]), **options
    )
    assert found.tokens[0].tolist() == [0, 2, 1]
    probs = np.exp(target)
    same = verify_tree_probs(probs, probs, drafts, parents, uniforms, **options)
    assert (found.tokens[1] == same.tokens[1]).all()
    assert same.accepted.tolist() == [2, 2], "equal models accept every drawn draft"


def test_bad_input() -> None:
    rows = np.full((1, 3, 3), 1 / 3)
    drafts, parents, uniforms = np.array([[0, 1]]), np.array([[-1, -1]]), np.full((1, 2, 4), 0.5)
    with pytest.raises(InvalidDraftsError, match="2 sampled children; this rule verifies at most"):
        verify_tree_probs(rows, rows, drafts, parents, uniforms, rule=WALK)
    with pytest.raises(InvalidUniformsError, match="needs \\[1, L \\+ 1, 4\\]"):
        verify_tree_probs(rows, None, drafts, parents, uniforms[..., :2], rule=WALK)
    with pytest.raises(UnknownMethodError, match="'optimal'"):
        verify_tree_probs(rows, None, drafts, parents, uniforms, rule="optimal")
