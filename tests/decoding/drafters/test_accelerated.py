"""An accelerated draft model: its chains have exactly the draft model's distribution."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm._core.probs.sparse import SparseProbs
from otm.coupling import KSeq
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.accelerated import AcceleratedDrafter
from otm.decoding.drafters.base import Branching, Drafter
from otm.decoding.drafters.heads import NonAutoregressiveDrafter
from otm.decoding.drafters.model import ModelDrafter
from otm.decoding.drafters.prompt_lookup import PromptLookup
from otm.decoding.loop import stream
from otm.decoding.reading import Path
from otm.decoding.sampling_parameters import SamplingParameters
from otm.decoding.verifiers.base import Verifier
from otm.decoding.verifiers.block_traversal import verify_traversal
from otm.decoding.verifiers.chain import verify_chain
from otm.decoding.verifiers.recursion import spectr_verifier
from otm.decoding.verifiers.walk_and_keep import verify_walk_and_keep
from otm.errors import InvalidInputError
from otm.models.table import TableModel, UniformModel
from otm.testing.sequences import output_distribution_of, sequence_distribution

CONTEXT = (1, 0)


def table(vocabulary: int, seed: int, order: int = 2) -> TableModel:
    return TableModel.random(vocabulary, order, np.random.default_rng(seed), max_weight=3)


def assert_chain_law(drafter: Callable[[], Drafter], model: TableModel, depth: int) -> None:
    """Assert that chains have exactly a model's distribution, and that nodes carry it."""

    def chain(uniforms: Randomness) -> Path:
        [root] = drafter().draft([CONTEXT], [depth], [0], [uniforms])
        nodes = list(root.nodes())
        for node in nodes[:-1]:
            assert len(node.children) == 1
            law = node.checked_draft_probs().dense(model.vocabulary)
            assert (law == model.probs(CONTEXT + node.path)).all()
        assert nodes[-1].draft_probs is None
        return nodes[-1].path

    assert output_distribution_of(chain) == sequence_distribution(model, CONTEXT, depth)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("vocabulary", "depth"), [(2, 1), (2, 3), (3, 2)])
def test_a_chain_has_the_law_of_the_draft_model(vocabulary: int, depth: int, seed: int) -> None:
    """Bug: inner drafts taken as they come, or judged twice, or their distribution on the nodes."""
    model, inner = table(vocabulary, seed), table(vocabulary, seed + 50)
    assert_chain_law(lambda: AcceleratedDrafter(model, ModelDrafter(inner)), model, depth)


@pytest.mark.parametrize(
    ("verify", "branching"),
    [
        (verify_traversal, 1),
        (verify_traversal, 2),
        (verify_walk_and_keep, 2),
        (spectr_verifier(KSeq), 2),
    ],
)
def test_any_lossless_verifier_may_judge_the_inner_drafts(
    verify: Verifier, branching: Branching
) -> None:
    """Bug: some leaves of the inner tree are not read, or a node gets a wrong distribution."""
    model, inner = table(2, 1), table(2, 2)
    assert_chain_law(
        lambda: AcceleratedDrafter(model, ModelDrafter(inner, branching), verify), model, 2
    )


def test_an_accelerated_drafter_may_be_accelerated_again() -> None:
    """Bug: the distribution on the nodes of the middle model is that of the smallest one."""
    large, middle, small = (table(2, seed) for seed in (11, 12, 13))
    assert_chain_law(
        lambda: AcceleratedDrafter(large, AcceleratedDrafter(middle, ModelDrafter(small))),
        large,
        3,
    )


def test_inner_drafts_may_end_early_or_be_none() -> None:
    """Bug: a loop that relies on as many inner drafts as it asked for."""
    model, first = table(2, 3), SparseProbs([0, 1], [Fraction(1, 3), Fraction(2, 3)])
    inner = NonAutoregressiveDrafter(lambda contexts, most: [[first]])
    assert_chain_law(lambda: AcceleratedDrafter(model, inner), model, 3)
    context = (0, 1, 2)  # nothing to copy
    [root] = AcceleratedDrafter(table(3, 4), PromptLookup()).draft(
        [context], [1], [0], [np.random.default_rng(0).random]
    )
    assert [len(path) for path in root.leaf_paths()] == [1]


def test_a_broken_inner_law_is_seen() -> None:
    """Negative control: inner drafts with a false draft distribution must fail the check."""

    class Greedy(ModelDrafter):
        def draft(self, contexts: Any, depths: Any, parents: Any, uniforms: Any) -> Any:
            zeros = [lambda m: np.full(m, Fraction(0), dtype=object)] * len(contexts)
            return super().draft(contexts, depths, parents, zeros)

    model = TableModel({(): [Fraction(1, 4), Fraction(3, 4)]})
    inner = TableModel({(): [Fraction(1, 2), Fraction(1, 2)]})
    with pytest.raises(AssertionError):
        assert_chain_law(lambda: AcceleratedDrafter(model, Greedy(inner)), model, 2)


def test_a_batch_drafts_as_each_sequence_alone() -> None:
    """Bug: sequences that wait or end separately share uniforms, distributions or cache rows.

    Over several calls in which sequences change places, end, and wait.
    """
    model, inner = table(4, 7, order=3), table(4, 8)
    rng = np.random.default_rng(0)
    batch = AcceleratedDrafter(model, ModelDrafter(inner))
    contexts = [(0, 1), (2,), (3, 1, 1)]
    for parents, depths in [
        ([0, 1, 2], [3, 0, 5]),
        ([2, 0, 1], [0, 0, 0]),
        ([1, 2, 0], [4, 2, 1]),
        ([2, 0], [3, 6]),
        ([1], [4]),
    ]:
        if len(parents) < len(contexts) or parents != [0, 1, 2]:
            tokens = rng.integers(0, 4, (len(parents), 2)).tolist()
            contexts = [(*contexts[p], *more) for p, more in zip(parents, tokens, strict=True)]
        seeds = rng.integers(0, 2**32, len(contexts)).tolist()
        sources = [np.random.default_rng(seed).random for seed in seeds]
        roots = batch.draft(contexts, depths, parents, sources)
        for context, depth, seed, root in zip(contexts, depths, seeds, roots, strict=True):
            single = AcceleratedDrafter(model, ModelDrafter(inner))
            source = np.random.default_rng(seed).random
            [expected] = single.draft([context], [depth], [0], [source])
            assert root.leaf_paths() == expected.leaf_paths()
            assert all(len(path) == depth for path in root.leaf_paths())


def test_a_good_inner_drafter_saves_runs_of_the_draft_model() -> None:
    """Bug: inner drafts are not used, so that there is a run of the model for each token."""
    model = table(3, 5, order=1)
    drafter = AcceleratedDrafter(model, ModelDrafter(model))  # everything is accepted
    source = np.random.default_rng(1).random
    drafter.draft([(0,)], [6], [0], [source])
    assert drafter.model_calls == 1
    assert drafter.seconds > 0


def test_laws_are_those_of_the_standardization() -> None:
    """Bug: nodes carry the model's distribution, but the tokens come from a truncated one."""
    model, sampling = table(4, 9), SamplingParameters(top_k=2)
    drafter = AcceleratedDrafter(model, ModelDrafter(UniformModel(4)), sampling=sampling)
    [root] = drafter.draft([CONTEXT], [4], [0], [np.random.default_rng(3).random])
    for node in root.nodes():
        if node.children:
            assert node.checked_draft_probs().tokens.size <= 2
            assert node.checked_draft_probs().of(node.children[0].token) > 0


def test_what_an_inner_drafter_needs_is_asked_for() -> None:
    """Bug: the outer loop runs into the inner model's limit, or tokens mean two things."""
    short, long = UniformModel(3), UniformModel(3)
    short.context_length, long.context_length = 10, 20
    for model, inner in ((short, long), (long, short)):
        assert AcceleratedDrafter(model, ModelDrafter(inner)).context_length == 10
    unlimited = AcceleratedDrafter(UniformModel(3), PromptLookup(), verify_chain)
    assert (unlimited.vocabulary, unlimited.context_length) == (3, None)
    with pytest.raises(InvalidInputError, match="vocabulary of 4 tokens"):
        AcceleratedDrafter(UniformModel(3), ModelDrafter(UniformModel(4)))


def test_the_outer_loop_is_lossless() -> None:
    """Bug: three models, each right for its neighbour, that together give another distribution."""
    target, model, inner = (table(2, seed) for seed in (21, 22, 23))

    def output(uniforms: Randomness) -> Path:
        drafter = AcceleratedDrafter(model, ModelDrafter(inner))
        steps = stream(target, [CONTEXT], drafter, gamma=2, max_tokens=3, uniforms=[uniforms])
        return tuple(token for step in steps for token in step.output)

    assert output_distribution_of(output) == sequence_distribution(target, CONTEXT, 3)


class Remembering(PromptLookup):
    """Prompt lookup that writes down what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[list[int], list[int]]] = []

    def draft(self, contexts: Any, depths: Any, parents: Any, uniforms: Any) -> list[DraftNode]:
        self.asked.append((list(depths), list(parents)))
        return super().draft(contexts, depths, parents, uniforms)


def test_the_inner_drafter_follows_the_batch() -> None:
    """Bug: after the first round of a call, or in one without drafts, caches are mixed up."""
    uniform = UniformModel(3)
    inner = Remembering()
    drafter = AcceleratedDrafter(uniform, inner)
    sources = [np.random.default_rng(b).random for b in range(2)]
    drafter.draft([(0, 1), (2, 1)], [0, 3], [0, 1], sources)
    assert inner.asked[0] == ([0, 2], [0, 1])
    inner.asked.clear()
    drafter.draft([(2, 1, 2, 0), (0, 1, 1)], [2, 2], [1, 0], sources)
    assert inner.asked[0] == ([1, 1], [1, 0])
    assert all(parents == [0, 1] for _, parents in inner.asked[1:])
    assert all(0 <= depth <= 1 for depths, _ in inner.asked for depth in depths)
    inner.asked.clear()
    drafter.draft([(0, 1, 1, 0)], [0], [1], sources[:1])
    assert inner.asked == [([0], [1])]
