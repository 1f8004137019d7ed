"""Walk and keep: exact distributions of its output, and broken variants that lack them."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from otm._core.arithmetic import Number, Probs, as_fractions
from otm._core.probs.sampling import locate_in_rows
from otm._core.probs.sparse import SparseProbs
from otm.coupling.optimal.agreeing import AgreeingDrafts
from otm.decoding import ModelDrafter, stream, verify_traversal
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.base import Branching, Drafter
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs, Verifier
from otm.decoding.verifiers.walk_and_keep import Walk, verify_walk_and_keep
from otm.errors import InvalidDraftsError, ProblemTooLargeError
from otm.models import TableModel
from otm.testing.sequences import (
    continued_distribution,
    output_distribution_of,
    sequence_distribution,
)
from otm.testing.strategies import Block, blocks

fewer = settings(max_examples=settings.default.max_examples // 4)
PROMPT = (0,)
F = Fraction
BUILT: dict[Any, AgreeingDrafts] = {}


class ByConditional(AgreeingDrafts):
    """Draws the winner with one uniform, given the drafts; so far fewer paths are explored."""

    def winner(self, places: Sequence[int], uniforms: Probs) -> int:
        return int(locate_in_rows(once(self, "winning", *places)[None], uniforms[:1])[0])

    def agreeing(self, place: int) -> Probs:
        return once(self, "agreeing", place)


def once(winner: AgreeingDrafts, method: str, *places: int) -> Probs:
    """Call a method of the class once for each argument."""
    known = winner.__dict__.setdefault("_known", {})
    if (method, *places) not in known:
        argument = places if method == "winning" else places[0]
        known[method, *places] = getattr(AgreeingDrafts, method)(winner, argument)
    result: Probs = known[method, *places]
    return result


def built_once(cls: type[AgreeingDrafts]) -> Callable[..., AgreeingDrafts]:
    """Build each winner once: the paths of a loop meet the same few a thousand times."""

    def build(draft: SparseProbs, target: SparseProbs, numbers: Probs) -> AgreeingDrafts:
        laws = [(*zip(law.tokens, law.probabilities, strict=True),) for law in (draft, target)]
        key = (cls, *laws, *numbers)
        if key not in BUILT:
            BUILT[key] = cls(draft, target, numbers)
        return BUILT[key]

    return build


@pytest.fixture
def by_conditional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "otm.decoding.verifiers.walk_and_keep.AgreeingDrafts", built_once(ByConditional)
    )


class Stopping(ModelDrafter):
    """Paths that end at one token, wherever it comes."""

    def draft(
        self,
        contexts: Any,
        depths: Any,
        parents: Any,
        uniforms: Any,
    ) -> list[DraftNode]:
        roots = super().draft(contexts, depths, parents, uniforms)
        for node in [node for root in roots for node in root.nodes()]:
            if node.path and node.token == 0:
                node.children, node.draft_probs = [], None
        return roots


def models(vocabulary: int, seed: int) -> tuple[TableModel, TableModel]:
    """Two unrelated tables of order 2, with zeros."""
    rng = np.random.default_rng(seed)
    return TableModel.random(vocabulary, 2, rng), TableModel.random(vocabulary, 2, rng)


def one_step(
    target: TableModel, drafter: Drafter, verify: Verifier, gamma: int, end: int | None = None
) -> dict[Path, Fraction]:
    """Distribution of what a step outputs: all drafts, and for each of them all coins."""
    trees: dict[tuple[Path, ...], DraftNode] = {}

    def drafts(uniforms: Randomness) -> Any:
        (root,) = drafter.draft([PROMPT], [gamma], None, [uniforms])
        nodes = tuple(node.path for node in root.nodes())
        trees[nodes] = root
        return nodes

    @cache
    def law(path: Path) -> SparseProbs:
        return SparseProbs.from_dense(target.probs(PROMPT + path))

    outputs: dict[Path, Fraction] = defaultdict(Fraction)
    for nodes, probability in output_distribution_of(drafts).items():
        given = output_distribution_of(partial(verify, trees[nodes], law))
        for path, chance in given.items():
            cut = path[: path.index(end) + 1] if end in path else path
            outputs[cut] += probability * chance
    return dict(outputs)


def is_lossless(
    target: TableModel,
    draft: TableModel,
    gamma: int,
    branching: Branching,
    *,
    end: int | None = None,
    drafter: type[ModelDrafter] = ModelDrafter,
    verify: Verifier = verify_walk_and_keep,
) -> bool:
    law = one_step(target, drafter(draft, branching), verify, gamma, end)
    found = continued_distribution(law, target, PROMPT, gamma + 1, end)
    return found == sequence_distribution(target, PROMPT, gamma + 1, end)


SIZES = [(2, 2, 2), (3, 2, 2), (2, 3, 2), (2, 2, 3)]


@pytest.mark.usefixtures("by_conditional")
@pytest.mark.parametrize(
    ("end", "drafter"), [(None, ModelDrafter), (1, ModelDrafter), (None, Stopping)]
)
@pytest.mark.parametrize(("vocabulary", "gamma", "k"), SIZES)
def test_chains_continued_by_the_target_have_its_law(
    vocabulary: int, gamma: int, k: int, end: int | None, drafter: type[ModelDrafter]
) -> None:
    """Also with an end token, and with paths of unequal length."""
    assert is_lossless(*models(vocabulary, 5), gamma, k, end=end, drafter=drafter)


@pytest.mark.usefixtures("by_conditional")
@pytest.mark.parametrize("branching", [(1, 2), (2, 1), (2, 2), (3, 1)], ids=str)
def test_prefix_trees(branching: tuple[int, ...]) -> None:
    """Catches nodes that are counted in place of their children."""
    assert is_lossless(*models(2, 6), 2, branching)


@pytest.mark.parametrize(("gamma", "k"), [(1, 3), (2, 2)])
def test_with_the_rule_s_own_uniforms(gamma: int, k: int) -> None:
    assert is_lossless(*models(2, 3), gamma, k)


def sequences_are_lossless(
    loop: tuple[Sequence[int], int, type[ModelDrafter]],
    seed: int,
    tokens: int,
    end: int | None,
    verify: Verifier = verify_walk_and_keep,
) -> bool:
    """Several steps of a loop (γ of each, K, drafter): all drafts and coins of all of them."""
    (gammas, k, drafter), (target, draft) = loop, models(2, seed)

    def output(uniforms: Randomness) -> Path:
        gamma = itertools.cycle(gammas)
        steps = stream(
            target, [PROMPT], drafter(draft, k), verify, max_tokens=tokens,
            gamma=lambda _: next(gamma), eos_token_id=end, uniforms=[uniforms],
        )  # fmt: skip
        return tuple(token for step in steps for token in step.output)

    return output_distribution_of(output) == sequence_distribution(target, PROMPT, tokens, end=end)


UNEQUAL = ((2,), 3, Stopping), 17, 3, None
"""Three paths of up to two tokens that end at a token, in steps that begin anywhere."""


@pytest.mark.usefixtures("by_conditional")
@pytest.mark.parametrize(
    ("loop", "seed", "tokens", "end"),
    [
        (((2, 0, 1), 2, ModelDrafter), 8, 3, 1),
        (((3,), 2, ModelDrafter), 8, 4, 1),
        (((2,), 3, ModelDrafter), 9, 3, 1),
        UNEQUAL,
    ],
    ids=["other numbers of drafts", "three tokens", "three paths", "of unequal length"],
)
def test_whole_sequences_have_the_law_of_the_target(
    loop: Any, seed: int, tokens: int, end: int | None
) -> None:
    """With an end token and a limit inside of blocks."""
    assert sequences_are_lossless(loop, seed, tokens, end)


# Broken variants

GENERIC = (
    TableModel({(): [F(1, 3), F(2, 3)], (0, 0): [F(3, 7), F(4, 7)], (0, 1): [F(2, 5), F(3, 5)]}),
    TableModel({(): [F(3, 5), F(2, 5)], (0, 0): [F(1, 2), F(1, 2)], (0, 1): [F(5, 6), F(1, 6)]}),
)
"""Target and draft without zeros; every broken variant fails on them."""


class TiesByToken(ByConditional):
    """Of the drafts in the highest slot the one with the largest token wins."""

    def winner(self, places: Sequence[int], uniforms: Probs) -> int:
        won = [Fraction(0)] * len(places)
        for taken in itertools.product(
            *(zip(*self.slot_distribution(x), strict=True) for x in places)
        ):
            slots = [slot for slot, _ in taken]
            first = max(range(len(places)), key=lambda i: (slots[i], places[i]))
            won[first] += math.prod(chance for _, chance in taken)
        return int(locate_in_rows(as_fractions(won)[None], uniforms[:1])[0])


class WithoutTheMinimum(ByConditional):
    """S(yz) = W(yz) although the target gives less."""

    def accepted_share(self, place: int, weight: Number) -> Number:
        return Fraction(1)


class AllAgree(ByConditional):
    """As many agree as could."""

    def agreeing(self, place: int) -> Probs:
        return as_fractions([0] * (self.numbers.size - 1) + [1])


@pytest.mark.parametrize(
    ("broken", "gamma"), [(TiesByToken, 2), (WithoutTheMinimum, 1), (AllAgree, 2)]
)
def test_broken_winners_are_rejected(
    broken: type[AgreeingDrafts], gamma: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otm.decoding.verifiers.walk_and_keep.AgreeingDrafts", built_once(broken))
    assert not is_lossless(*GENERIC, gamma, 2)


def _residual_of_the_wrong_node(root: DraftNode, target: TargetProbs, uniforms: Randomness) -> Path:
    """Draw the next token from the residual at the root."""
    walked = [Walk.begin(root, target)]
    while walked[-1].drafts:
        walked.append(walked[-1].walk(uniforms))
    for node in reversed(walked):
        if not node.path or uniforms(1)[0] < node.keep_probability:
            return (*node.path, walked[0].token_after(uniforms))
    raise AssertionError


def _share_at_every_node(root: DraftNode, target: TargetProbs, uniforms: Randomness) -> Path:
    """Keep nodes with drafts below as if they were the last."""
    walked = [Walk.begin(root, target)]
    while walked[-1].drafts:
        walked.append(walked[-1].walk(uniforms))
    for node in reversed(walked):
        if not node.path or uniforms(1)[0] < node.share:
            return (*node.path, node.token_after(uniforms))
    raise AssertionError


@pytest.mark.usefixtures("by_conditional")
def test_the_broken_variants_are_tried_where_the_rule_is_lossless() -> None:
    assert is_lossless(*GENERIC, 1, 2)
    assert is_lossless(*GENERIC, 2, 2)


@pytest.mark.usefixtures("by_conditional")
@pytest.mark.parametrize("verify", [_residual_of_the_wrong_node, _share_at_every_node])
def test_broken_verifiers_are_rejected(verify: Verifier) -> None:
    assert not is_lossless(*GENERIC, 2, 2, verify=verify)


@pytest.mark.usefixtures("by_conditional")
def test_whole_sequences_show_a_broken_verifier() -> None:
    assert not sequences_are_lossless(*UNEQUAL, _residual_of_the_wrong_node)


# Special cases


@fewer
@given(blocks(max_tokens=3, max_paths=1, exact=True, max_ways=9))
def test_one_chain_is_block_verification(block: Block) -> None:
    """The same distribution of what is accepted, exactly."""
    laws = [
        one_step(block.target, ModelDrafter(block.draft), verify, block.length, block.end)
        for verify in (verify_walk_and_keep, verify_traversal)
    ]
    assert laws[0] == laws[1]


@fewer
@given(blocks(max_tokens=3, exact=True, max_ways=9))
def test_any_block_is_verified_without_loss(block: Block) -> None:
    """Bug: ties, zeros and certain tokens at one depth and not at the next."""
    assert is_lossless(block.target, block.draft, block.length, block.k, end=block.end)


# Rejected input


def test_nodes_that_do_not_go_on_alike_are_refused() -> None:
    probs = SparseProbs([0, 1], [0.5, 0.5])
    root = DraftNode()
    root.draw_children(probs, 2, np.zeros)
    for node, children in zip(root.children, (1, 2), strict=True):
        node.draw_children(probs, children, np.zeros)
    with pytest.raises(InvalidDraftsError, match="numbers of children"):
        verify_walk_and_keep(root, lambda path: probs, np.zeros)


def test_too_many_drafts_are_refused() -> None:
    probs = SparseProbs([0, 1], [0.5, 0.5])
    root = DraftNode()
    root.draw_children(probs, 257, np.zeros)
    with pytest.raises(ProblemTooLargeError, match="at most 256"):
        verify_walk_and_keep(root, lambda path: probs, np.zeros)
