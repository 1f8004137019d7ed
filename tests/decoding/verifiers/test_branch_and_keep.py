"""Branch and keep: exact distributions of its output, what it accepts, and broken variants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given

import otm
from otm._core.arithmetic import Number, Probs, zeros
from otm._core.probs.sparse import SparseProbs
from otm.coupling.optimal.agreeing import AgreeingDrafts
from otm.coupling.optimal.certain import CertainDrafts
from otm.decoding import ModelDrafter
from otm.decoding.draft_tree import DraftNode
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs
from otm.decoding.verifiers.block_traversal import verify_traversal
from otm.decoding.verifiers.branch_and_keep import Branch, verify_branch_and_keep
from otm.errors import InvalidDraftsError
from otm.gain.tokens_given_drafts import (
    tokens_by_branches,
    tokens_by_target_only,
    tokens_by_walk,
)
from otm.testing.sequences import continued_distribution, sequence_distribution
from otm.testing.strategies import Block, blocks
from tests.decoding.verifiers.test_certain_and_drawn import (
    SHAPES,
    Plan,
    Planned,
    certain_below_chains,
    law_of,
    mean_tokens,
    positive,
)
from tests.decoding.verifiers.test_walk_acceptance import by_path, mean_of_tree_rule
from tests.decoding.verifiers.test_walk_and_keep import (
    GENERIC,
    PROMPT,
    UNEQUAL,
    Stopping,
    built_once,
    fewer,
    is_lossless,
    models,
    one_step,
    sequences_are_lossless,
)

F = Fraction
lossless = partial(is_lossless, verify=verify_branch_and_keep)
WINNERS = "otm.decoding.verifiers.walk_and_keep.AgreeingDrafts"


@pytest.fixture(autouse=True)
def each_winner_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WINNERS, built_once(AgreeingDrafts))


@pytest.mark.parametrize(
    ("gamma", "k", "end", "drafter"),
    [
        (3, 2, None, ModelDrafter),
        (2, 3, None, ModelDrafter),
        (2, 2, 1, ModelDrafter),
        (2, 2, None, Stopping),
    ],
    ids=["three tokens", "three paths", "an end token", "paths of unequal length"],
)
def test_chains_continued_by_the_target_have_its_law(
    gamma: int, k: int, end: int | None, drafter: type[ModelDrafter]
) -> None:
    assert lossless(*models(2, 5), gamma, k, end=end, drafter=drafter)


@pytest.mark.parametrize("branching", [(1, 2), (2, 1)], ids=str)
def test_prefix_trees(branching: tuple[int, ...]) -> None:
    assert lossless(*models(2, 6), 2, branching)


@pytest.mark.parametrize("plan", SHAPES.values(), ids=SHAPES)
def test_trees_of_certain_and_drawn_children(plan: Plan) -> None:
    """The shape of a branch may depend on values that were drawn in another branch."""
    target, draft = models(3, 5)
    law = one_step(target, Planned(draft, plan), verify_branch_and_keep, 2)
    found = continued_distribution(law, target, PROMPT, 3)
    assert found == sequence_distribution(target, PROMPT, 3)


@fewer
@given(blocks(max_tokens=3, exact=True, max_ways=9))
def test_any_block_is_verified_without_loss(block: Block) -> None:
    """Bug: ties, zeros and certain tokens at one depth and not at the next."""
    assert lossless(block.target, block.draft, block.length, block.k, end=block.end)


def test_whole_sequences_have_the_law_of_the_target() -> None:
    assert sequences_are_lossless(*UNEQUAL, verify_branch_and_keep)


# Broken variants


class TiesToTheSmallerToken(AgreeingDrafts):
    """The drafts are sorted before the first of several in the highest slot wins."""

    def chosen(self, places: Sequence[int], weight: Number) -> dict[int, Number]:
        return CertainDrafts.__mro__[1].chosen(self, sorted(places), weight)


def _without_division(self: Branch) -> Iterator[tuple[Number, Branch]]:
    """Yield later branches without a larger share, although earlier branches have failed."""
    if self.drafts:
        left = 1 + 0 * self.share
        for place, probability in self._winner.chosen(self._places, self.share).items():
            yield left, self._child(place, probability)
            left = left - probability


def test_broken_variants_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lossless(*GENERIC, 2, 2)
    with monkeypatch.context() as broken:
        broken.setattr(WINNERS, built_once(TiesToTheSmallerToken))
        assert not lossless(*GENERIC, 2, 2)
    with monkeypatch.context() as broken:
        broken.setattr(Branch, "branches", _without_division)
        assert not lossless(*GENERIC, 2, 2)


class WithoutTheRejected(CertainDrafts):
    """The certain drafts are not scaled by how often the drawn draft is rejected."""

    def chosen(self, places: Sequence[int], weight: Number) -> dict[int, Number]:
        right = super().chosen(places, weight)
        left = 1 - right[places[-1]]
        certain = {place: weight * self._of_target.item(place) * left for place in places[:-1]}
        return {**certain, places[-1]: right[places[-1]]}


def test_broken_shares_of_certain_drafts_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otm.decoding.verifiers.walk_and_keep.CertainDrafts", WithoutTheRejected)
    target, draft = positive(1), positive(2)
    law = one_step(target, Planned(draft, lambda *_: (1, True)), verify_branch_and_keep, 1)
    found = continued_distribution(law, target, PROMPT, 2)
    assert found != sequence_distribution(target, PROMPT, 2)


# How much it accepts


def test_one_chain_is_block_verification() -> None:
    target, draft = models(3, 2)
    laws = [
        one_step(target, ModelDrafter(draft), verify, 3)
        for verify in (verify_branch_and_keep, verify_traversal)
    ]
    assert laws[0] == laws[1]


def random_pair(rng: np.random.Generator) -> list[Callable[[Path], list[Fraction]]]:
    """Draft and target distributions of two tokens after each path of up to one token."""
    pairs = []
    for _ in range(2):
        ones = rng.integers(1, 12, 3).tolist()
        rows = [[F(one, 12), F(12 - one, 12)] for one in ones]
        pairs.append(by_path(dict(zip([(), (0,), (1,)], rows, strict=True))))
    return pairs


def recursion(root: DraftNode, target_probs: TargetProbs, depth: int) -> Probs:
    """Mean output tokens of SpecTr's recursion with the same winner: each share is 1 again."""
    reached = zeros(depth + 1, target_probs(()).probabilities)

    def visit(node: Branch, probability: Number) -> None:
        reached[len(node.path)] += probability
        if len(node.path) < depth:
            for left, child in node.branches():
                again = Branch.at(list(child._nodes), child.share / child.share, target_probs)
                visit(again, probability * left * child.share)

    one = 1 + 0 * reached.item(0)
    visit(Branch.at([root], one, target_probs), one)
    return np.cumsum(reached)


def test_the_mean_is_between_the_recursion_and_the_optimum() -> None:
    """Theorems 24.4 and 13.1, in fractions."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(12):
        draft, target = random_pair(rng)
        low, mean = (mean_of_tree_rule(f, target, draft) for f in (recursion, tokens_by_branches))
        best = otm.solve_block(draft, target, 2, 2).accepted
        assert low <= mean <= best
        found.append([float(low / best), float(mean / best)])
    # A rule that accepts too little would be lossless, too.
    of_recursion, of_branches = np.mean(found, axis=0)
    assert of_recursion < 0.992 < of_branches


def test_the_computed_mean_is_that_of_the_verifier() -> None:
    """Bug: a share that is counted although an earlier branch was kept."""
    target, draft = models(2, 7)
    law = one_step(target, ModelDrafter(draft, 3), verify_branch_and_keep, 2)
    rows = [
        (lambda path, model=model: model.probs(PROMPT + path).tolist()) for model in (target, draft)
    ]
    assert sum(p * len(output) for output, p in law.items()) == mean_of_three(*rows)


def mean_of_three(
    target: Callable[[Path], list[Fraction]], draft: Callable[[Path], list[Fraction]]
) -> Fraction:
    """Mean output tokens for three paths of two tokens, over all paths."""
    total = F(0)
    for nodes in np.ndindex(*(2,) * 6):
        root, probability = DraftNode(), F(1)
        for chain in np.reshape(nodes, (3, 2)).tolist():
            node = root
            for z in chain:
                node.draft_probs = SparseProbs.from_dense(draft(node.path))
                probability *= draft(node.path)[z]
                node.children.append(DraftNode((*node.path, z)))
                node = node.children[-1]
        if probability:
            means = tokens_by_branches(root, lambda path: SparseProbs.from_dense(target(path)), 2)
            total += probability * means[2]
    return total


def test_certain_children_alone_are_target_only_sampling() -> None:
    """The same mean given each tree, to the last digit of a fraction."""
    for seed in range(6):
        target, draft = models(3, seed)
        (root,) = Planned(draft, SHAPES["certain only"]).draft([PROMPT], [3], None, [np.zeros])
        law = law_of(target)
        assert (tokens_by_branches(root, law, 3) == tokens_by_target_only(root, law, 3)).all()


def test_more_of_certain_and_drawn_children_than_walk_and_keep() -> None:
    for seed in range(5):
        drafter = Planned(positive(seed + 100), SHAPES["certain and drawn"])
        rules = {"walk": tokens_by_walk, "branch": tokens_by_branches}
        means = mean_tokens(positive(seed), drafter, rules)
        assert means["branch"] >= means["walk"]


def test_certain_drafts_below_chains_are_refused() -> None:
    law = SparseProbs([0, 1], [0.5, 0.5])
    root = certain_below_chains()
    root.children[1] = DraftNode((0,), law, [DraftNode((0, 0))], "Top")
    with pytest.raises(InvalidDraftsError, match="must be different tokens"):
        verify_branch_and_keep(root, lambda path: law, lambda m: np.full(m, 0.9))
