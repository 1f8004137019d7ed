"""The bound on the tokens of a step for every memoryless lossless verifier."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest

from otm._core.probs.sparse import SparseProbs
from otm.decoding import DraftNode, ModelDrafter
from otm.decoding.drafters.base import Branching, children_at
from otm.decoding.reading import Path
from otm.errors import InvalidDraftCountError, InvalidInputError, InvalidParameterError
from otm.gain import PairedMeans, block_efficiency, efficiency_bound, record
from otm.gain.efficiency_bound import cut_terms, thresholds
from otm.models import TableModel
from otm.models.base import LanguageModel

PROMPT = (0,)
CONSTANT = TableModel({(): [1 / 3, 2 / 3]}), TableModel({(): [2 / 3, 1 / 3]})


def random_models(seed: int, size: int = 2) -> tuple[TableModel, TableModel]:
    rng = np.random.default_rng(seed)
    return TableModel.random(size, 2, rng), TableModel.random(size, 2, rng)


def all_trees(
    draft: LanguageModel, branching: Branching, depth: int
) -> list[tuple[float, DraftNode]]:
    """All trees of drafts with their probabilities, by the definition."""

    def grown(path: Path) -> list[tuple[float, DraftNode]]:
        if len(path) == depth:
            return [(1.0, DraftNode(path))]
        probs = draft.probs(PROMPT + path)
        below = [
            (float(probs[token]) * chance, child)
            for token in range(draft.vocabulary)
            for chance, child in grown((*path, token))
        ]
        width = children_at(branching, len(path))
        return [
            (
                math.prod(chance for chance, _ in children),
                DraftNode(path, SparseProbs.from_dense(probs), [child for _, child in children]),
            )
            for children in itertools.product(below, repeat=width)
        ]

    return grown(())


def path_probs(model: LanguageModel, depth: int) -> dict[Path, float]:
    paths = itertools.product(range(model.vocabulary), repeat=depth)
    return {
        path: math.prod(float(model.probs(PROMPT + path[:i])[path[i]]) for i in range(depth))
        for path in paths
    }


def least_cut(target: LanguageModel, draft: LanguageModel, k: int, depth: int) -> float:
    """Minimum over all sets of paths: α_K of paths of this length, by enumeration."""
    of_target, of_draft = path_probs(target, depth), path_probs(draft, depth)
    subsets = itertools.product((False, True), repeat=len(of_target))
    return min(
        sum(of_target[path] for path, inside in zip(of_target, chosen, strict=True) if inside)
        + 1
        - sum(of_draft[path] for path, inside in zip(of_target, chosen, strict=True) if inside) ** k
        for chosen in subsets
    )


@pytest.mark.parametrize(("k", "depth"), [(1, 3), (2, 2), (3, 2), ((2, 2), 2), ((1, 3), 2)])
def test_the_two_terms_are_those_of_the_cut_in_the_mean(k: Branching, depth: int) -> None:
    """Catches weights of the wrong depth, chains taken twice, and H that differs between terms."""
    target, draft = random_models(3)
    trees = all_trees(draft, k, depth)
    tried = np.array([0, 0.1, 0.45, 0.9, 1.3, 2.0, math.inf])

    @cache
    def law(path: Path) -> SparseProbs:
        return SparseProbs.from_dense(target.probs(PROMPT + path))

    of_target, of_draft = path_probs(target, depth), path_probs(draft, depth)
    ratios = {path: of_target[path] / of_draft[path] for path in of_target}
    inside, outside = np.zeros(tried.size), np.zeros(tried.size)
    for probability, tree in trees:
        terms = cut_terms(tree, law, depth - 1, tried)
        inside, outside = inside + probability * terms[0], outside + probability * terms[1]
    for threshold, of_inside, of_outside in zip(tried, inside, outside, strict=True):
        chosen = {path for path, ratio in ratios.items() if ratio <= threshold}
        assert of_inside == pytest.approx(sum(of_target[path] for path in chosen), abs=1e-12)
        missed = sum(
            probability
            for probability, tree in trees
            if any(node.path not in chosen for node in tree.nodes() if len(node.path) == depth)
        )
        assert of_outside == pytest.approx(missed, abs=1e-12)


@pytest.mark.parametrize(("depth", "k", "bound"), [(2, 1, 1.3333), (2, 2, 1.6543), (3, 3, 2.6640)])
def test_the_bound_is_the_sum_of_the_optima_by_depth(depth: int, k: int, bound: float) -> None:
    """Catches thresholds that miss the best cut, and a depth that is left out."""
    target, draft = CONSTANT
    assert sum(least_cut(target, draft, k, i + 1) for i in range(depth)) == pytest.approx(
        bound, abs=5e-5
    )
    contexts = [[[0]] * 25] * 16
    recordings = record(target, ModelDrafter(draft, k), contexts, depth, seed=5)
    means = efficiency_bound(recordings)
    assert list(means) == [("bound", k, depth)]
    mean = means["bound", k, depth]
    assert mean.low - 1e-4 < 1 + bound < mean.high + 1e-4


def test_one_draft_token_has_the_optimum_itself() -> None:
    """Catches a first depth that depends on what was drafted."""
    target, draft = random_models(11, 3)
    recordings = record(target, ModelDrafter(draft, 3), [[[0]], [[1]], [[2]]], 2, seed=1)
    bound = efficiency_bound(recordings, [2, 3], [1])
    optimum = block_efficiency(recordings, "optimal", [2], [1])
    assert list(bound) == [("bound", 2, 1), ("bound", 3, 1)]
    for recording, value in zip(recordings, bound.values["bound", 3, 1], strict=True):
        probs = [model.probs(recording.context) for model in (draft, target)]
        cuts = [
            probs[1][list(chosen)].sum() + 1 - probs[0][list(chosen)].sum() ** 3
            for size in range(4)
            for chosen in itertools.combinations(range(3), size)
        ]
        assert value == pytest.approx(1 + min(cuts), abs=1e-12)
    assert optimum.quantity == bound.quantity


def test_nothing_exceeds_it_and_it_stands_beside_the_rules() -> None:
    """Catches a bound that is clearly below what rules reach."""
    rng = np.random.default_rng(2)
    target = TableModel.random(4, 2, rng)
    draft = TableModel({(): np.full(4, 0.25)})
    contexts = [[[token]] * 5 for token in range(4)] * 2
    recordings = record(target, ModelDrafter(draft, 4), contexts, 3, seed=3)
    both = block_efficiency(recordings, ["optimal", "traversal"], [1, 4], [1, 3])
    both = both | efficiency_bound(recordings, [1, 4], [1, 3])
    assert isinstance(both, PairedMeans)
    assert str(both).count("bound") == 2
    for k, gamma, rule in itertools.product([1, 4], [1, 3], ["optimal", "traversal"]):
        assert both.difference(("bound", k, gamma), (rule, k, gamma)).high >= -0.01


def test_drafts_that_end_early_and_models_that_never_meet() -> None:
    """Catches a share of what was not drafted, and a ratio of nothing by nothing."""
    target, draft = TableModel({(): [0.0, 1.0]}), TableModel({(): [1.0, 0.0]})
    recordings = record(target, ModelDrafter(draft, 2), [[[0]], [[1]]], 3, seed=0)
    assert efficiency_bound(recordings)["bound", 2, 3].mean == 1
    same = record(target, ModelDrafter(target, (2, 1)), [[[0]], [[1]]], 3, seed=0)
    assert efficiency_bound(same, [(2, 1)])["bound", (2, 1), 2].mean == 3


def test_bad_input_is_refused() -> None:
    target, draft = CONSTANT
    one = record(target, ModelDrafter(draft, 2), [[[0]] * 4], 2, seed=0)
    with pytest.raises(InvalidInputError, match="have only one prompt"):
        efficiency_bound(one)
    two = record(target, ModelDrafter(draft, 2), [[[0]], [[1]]], 2, seed=0)
    with pytest.raises(InvalidInputError, match="record more"):
        efficiency_bound(two, [3])
    with pytest.raises(InvalidInputError, match="record with a larger depth"):
        efficiency_bound(two, gammas=[3])
    with pytest.raises(InvalidDraftCountError):
        efficiency_bound(two, [0])
    with pytest.raises(InvalidParameterError, match="is empty; give at least one"):
        efficiency_bound(two, [])
    with pytest.raises(InvalidParameterError, match="differ in their quantity, level or contexts"):
        _ = efficiency_bound(two) | efficiency_bound(two, level=0.9)


def test_thresholds_ascend_from_nothing_to_everything() -> None:
    tried = thresholds(8)
    assert tried[0] == 0
    assert tried[-1] == math.inf
    assert (np.diff(tried) > 0).all()
    assert tried[-2] == pytest.approx(8)
