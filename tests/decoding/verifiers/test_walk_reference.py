"""Walk and keep, decision for decision as the plain reference; and paths that end at random."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from otm._core.arithmetic import as_fractions
from otm._core.probs.sparse import SparseProbs
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.reading import Path
from otm.decoding.verifiers.walk_and_keep import verify_walk_and_keep
from otm.models import TableModel
from otm.testing.sequences import (
    continued_distribution,
    output_distribution_of,
    sequence_distribution,
)
from tests.decoding.verifiers import walk_reference as reference
from tests.decoding.verifiers.test_walk_and_keep import GENERIC

F = Fraction
PROMPT = (0,)


def random_tree(rng: np.random.Generator) -> tuple[DraftNode, Callable[[Path], SparseProbs]]:
    """Drafts and the target's distributions, in fractions with zeros and ties."""
    n, depth = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    branchings: list[tuple[int, ...]] = [(2, 1, 1), (3, 1, 1), (4, 1, 1), (2, 2), (3, 2), (2, 1, 2)]
    branching = branchings[rng.integers(len(branchings))]
    laws: dict[tuple[str, Path], SparseProbs] = {}

    def law(model: str, path: Path) -> SparseProbs:
        if (model, path) not in laws:
            weights = rng.integers(0, 9, n) * (rng.random(n) < 0.8)
            weights[rng.integers(n)] += 1
            laws[model, path] = SparseProbs(
                range(n), as_fractions(weights) / Fraction(int(weights.sum()))
            )
        return laws[model, path]

    root = DraftNode()
    level = [root]
    for children in branching[:depth]:
        for node in level:
            node.draw_children(law("draft", node.path), children, rng.random)
        level = [child for node in level for child in node.children]
    return root, lambda path: law("target", path)


def in_floats(probs: SparseProbs | None) -> SparseProbs | None:
    return probs and SparseProbs(probs.tokens, probs.probabilities.astype(float))


def copied(node: DraftNode, make: Callable[..., Any], law: Callable[[Any], Any]) -> Any:
    return make(node.path, law(node.draft_probs), [copied(c, make, law) for c in node.children])


def as_dict(probs: SparseProbs | None) -> dict[int, Fraction]:
    return {x: probs.of(x) for x in probs.tokens.tolist()} if probs else {}


def source(uniforms: npt.NDArray[Any]) -> Randomness:
    left: Iterator[Any] = iter(uniforms)
    return lambda m: np.array(list(itertools.islice(left, m)), dtype=uniforms.dtype)


def decided_alike(
    root: DraftNode, law: Callable[[Path], SparseProbs], uniforms: npt.NDArray[Any]
) -> Path:
    """Output by the package in fractions and in floats, and by the reference: the same."""
    exact = as_fractions(uniforms)
    found = verify_walk_and_keep(root, law, source(exact))
    rounded = verify_walk_and_keep(
        copied(root, DraftNode, in_floats), lambda path: in_floats(law(path)), source(uniforms)
    )
    plain = reference.verify(
        copied(root, reference.Node, as_dict), lambda path: as_dict(law(path)), source(exact)
    )
    assert found == rounded == plain
    return found


def test_every_decision_is_that_of_the_plain_reference() -> None:
    """In fractions and in floats, on trees of up to six tokens and four paths."""
    rng = np.random.default_rng(20)
    lengths = set()
    for _ in range(150):
        lengths.add(len(decided_alike(*random_tree(rng), rng.random(64))))
    assert lengths == {1, 2, 3, 4}


def stopped_law(target: TableModel, draft: TableModel, k: int, keep: reference.Keep) -> bool:
    """Whether K paths of up to two tokens that end at random are verified without loss."""
    stop = F(1, 3)

    def law_of_target(path: Path) -> dict[int, Fraction]:
        return dict(enumerate(target.probs(PROMPT + path)))

    def law_of_draft(path: Path) -> dict[int, Fraction]:
        law = dict(enumerate(draft.probs(PROMPT + path)))
        return {z: x * (1 - stop) for z, x in law.items()} if path else law

    paths = {(): F(1)}
    for _ in range(2):
        paths = {
            (*path, z): probability * x
            for path, probability in paths.items()
            for z, x in law_of_draft(path).items()
        } | {path: probability * stop for path, probability in paths.items() if path}
    output: dict[Path, Fraction] = {}
    for drafted in itertools.product(paths, repeat=k):
        root = reference.Node((), law_of_draft(()))
        for path in drafted:
            node = root
            for i in range(len(path)):
                law = law_of_draft(path[: i + 1]) if i == 0 else {}
                child = reference.Node(path[: i + 1], law)
                node.children.append(child)
                node = child
        probability = np.prod([paths[path] for path in drafted])
        if probability:
            given = output_distribution_of(
                lambda source, root=root: reference.verify(root, law_of_target, source, keep)
            )
            for path, chance in given.items():
                output[path] = output.get(path, F(0)) + probability * chance
    found = continued_distribution(output, target, PROMPT, 3)
    return found == sequence_distribution(target, PROMPT, 3)


def _share_at_an_early_end(
    accepted: Fraction, passed: Fraction, below: Fraction, ended: bool
) -> Fraction:
    """Keep a path that ended as if no other could go on."""
    return accepted / passed if ended else reference.keep(accepted, passed, below, ended)


@pytest.mark.parametrize("k", [1, 2])
def test_paths_that_end_at_random(k: int) -> None:
    """The proof covers such paths, but no drafter makes them and the verifier rejects them."""
    assert stopped_law(*GENERIC, k, reference.keep)
    assert not stopped_law(*GENERIC, k, _share_at_an_early_end)
