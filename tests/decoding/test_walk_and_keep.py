"""Walk and keep: exact laws, special cases, the plain reference, and broken variants."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import otm
from otm._core.arithmetic import Number, Probs, as_fractions
from otm._core.sampling import locate_in_rows
from otm._core.sparse import SparseProbs
from otm.coupling import OptimalPlan
from otm.coupling.agreeing import AgreeingDrafts
from otm.decoding import ModelDrafter, stream, verify_traversal
from otm.decoding.drafting import Branching, Drafter, DraftNode, Randomness
from otm.decoding.reading import Path
from otm.decoding.verification import TargetProbs, Verifier
from otm.decoding.walk_and_keep import Walk, verify_walk_and_keep
from otm.errors import InvalidDraftsError, ProblemTooLargeError
from otm.gain.efficiency import tokens_by_rule, tokens_by_traversal
from otm.models import TableModel
from otm.testing.sequences import (
    continued_distribution,
    output_distribution_of,
    sequence_distribution,
)
from tests.decoding import walk_reference as reference

PROMPT = (0,)
F = Fraction
BUILT: dict[Any, AgreeingDrafts] = {}


class ByConditional(AgreeingDrafts):
    """The winner drawn with one uniform by its law given the drafts: far fewer paths to follow."""

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
        key = (cls, *as_dict(draft).items(), None, *as_dict(target).items(), *numbers)
        if key not in BUILT:
            BUILT[key] = cls(draft, target, numbers)
        return BUILT[key]

    return build


@pytest.fixture
def by_conditional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otm.decoding.walk_and_keep.AgreeingDrafts", built_once(ByConditional))


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
    """Law of what a step outputs: all drafts, and for each of them all coins."""
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


@pytest.mark.usefixtures("by_conditional")
def test_whole_sequences_have_the_law_of_the_target() -> None:
    """Several steps, with other numbers of drafts, an end token and a limit inside of blocks."""
    target, draft = models(2, seed=8)

    def output(uniforms: Randomness) -> Path:
        gammas = itertools.cycle((2, 0, 1))
        steps = stream(
            target, [PROMPT], ModelDrafter(draft, 2), verify_walk_and_keep, max_tokens=3,
            gamma=lambda _: next(gammas), eos_token_id=1, uniforms=[uniforms],
        )  # fmt: skip
        return tuple(token for step in steps for token in step.output)

    assert output_distribution_of(output) == sequence_distribution(target, PROMPT, 3, end=1)


# Broken variants

GENERIC = (
    TableModel({(): [F(1, 3), F(2, 3)], (0, 0): [F(3, 7), F(4, 7)], (0, 1): [F(2, 5), F(3, 5)]}),
    TableModel({(): [F(3, 5), F(2, 5)], (0, 0): [F(1, 2), F(1, 2)], (0, 1): [F(5, 6), F(1, 6)]}),
)
"""Target and draft without zeros, of which every broken variant shows."""


class TiesByToken(ByConditional):
    """Of the drafts in the highest slot the one with the largest token wins."""

    def winner(self, places: Sequence[int], uniforms: Probs) -> int:
        won = [Fraction(0)] * len(places)
        for taken in itertools.product(*(zip(*self.slot_law(x), strict=True) for x in places)):
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
    monkeypatch.setattr("otm.decoding.walk_and_keep.AgreeingDrafts", built_once(broken))
    assert not is_lossless(*GENERIC, gamma, 2)


def _residual_of_the_wrong_node(root: DraftNode, target: TargetProbs, uniforms: Randomness) -> Path:
    """Draw the token that follows from what is left at the root."""
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


# Special cases


@pytest.mark.parametrize(("vocabulary", "gamma"), [(2, 3), (3, 2)])
def test_one_chain_is_block_verification(vocabulary: int, gamma: int) -> None:
    """The same law of what is accepted, exactly."""
    target, draft = models(vocabulary, seed=gamma)
    laws = [
        one_step(target, ModelDrafter(draft), verify, gamma)
        for verify in (verify_walk_and_keep, verify_traversal)
    ]
    assert laws[0] == laws[1]


def accepted(
    target: Callable[[Path], Any], draft: Callable[[Path], Any], branching: Branching, depth: int
) -> Number:
    """Mean number of accepted drafts Σ S(y), over paths and not over drafts."""

    def below(path: Path, share: Number, counts: Probs) -> Number:
        if len(path) == depth or not share:
            return 0 * share
        children = branching if isinstance(branching, int) and not path else 1
        if isinstance(branching, tuple):
            children = branching[len(path)]
        numbers = np.resize(0 * counts[:1], (counts.size - 1) * children + 1)
        numbers[::children] = counts
        winner = AgreeingDrafts(law(draft, path), law(target, path), numbers)
        kept = [winner.accepted_share(place, share) for place in range(winner.tokens.size)]
        return sum(
            (won * (kept[i] + below((*path, int(z)), kept[i], winner.agreeing(i)))
             for i, (z, won) in enumerate(zip(winner.tokens, winner.law, strict=True)) if won),
            0 * share,
        )  # fmt: skip

    def law(model: Callable[[Path], Any], path: Path) -> SparseProbs:
        return SparseProbs.from_dense(model(path))

    one = 1 + 0 * draft(())[0]
    kind = object if isinstance(one, Fraction) else np.float64
    return below((), one, np.array([0 * one, one], dtype=kind))


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_one_token_is_the_optimum(k: int) -> None:
    target, draft = models(4, seed=k)
    p, q = draft.probs(PROMPT), target.probs(PROMPT)
    assert accepted(lambda _: q, lambda _: p, k, 1) == otm.alpha(p, q, k)


TABLE = {
    (2, 1): F(11, 9), (2, 2): F(131, 81), (3, 2): F(1621, 729), (4, 2): F(17906, 6561),
    (2, 3): F(33538, 18225), (3, 3): F(475851869581, 187441373025),
}  # fmt: skip
"""Accepted drafts by length and number of paths, for laws (2/3, 1/3) and (1/3, 2/3)."""


@pytest.mark.parametrize(("depth", "k"), TABLE)
def test_accepted_drafts_for_constant_laws(depth: int, k: int) -> None:
    """The table of docs/theory/walk-and-keep.md, in fractions and in floats."""
    p, q = [F(2, 3), F(1, 3)], [F(1, 3), F(2, 3)]
    assert accepted(lambda _: q, lambda _: p, k, depth) == TABLE[depth, k]
    floats = accepted(lambda _: [1 / 3, 2 / 3], lambda _: [2 / 3, 1 / 3], k, depth)
    assert floats == pytest.approx(float(TABLE[depth, k]), abs=1e-14)


def by_path(laws: dict[Path, list[Any]]) -> Callable[[Path], Any]:
    """Law after a path: of the longest end of it that has one."""
    return lambda path: next(laws[path[i:]] for i in range(len(path) + 1) if path[i:] in laws)


def mean_of_tree_rule(
    means: Callable[..., Probs], target: Callable[[Path], Any], draft: Callable[[Path], Any]
) -> Number:
    """Mean accepted drafts of another rule, over all pairs of paths of two of two tokens."""
    chains = list(itertools.product(range(len(draft(()))), repeat=2))
    total = 0 * draft(())[0]
    for drafted in itertools.product(chains, repeat=2):
        root, probability = DraftNode(), total * 0 + 1
        for chain in drafted:
            node = root
            for z in chain:
                node.draft_probs = SparseProbs.from_dense(draft(node.path))
                probability = probability * draft(node.path)[z]
                node.children.append(DraftNode((*node.path, z)))
                node = node.children[-1]
        if probability:
            given = means(root, lambda path: SparseProbs.from_dense(target(path)), 2)
            total = total + probability * (given[2] - 1)
    return total


def test_traversal_is_rarely_better() -> None:
    """The first counterexample of docs/theory/walk-and-keep.md."""
    draft = by_path({(): [F(1, 7), F(6, 7)], (0,): [F(1, 3), F(2, 3)], (1,): [F(20, 21), F(1, 21)]})
    target = by_path(
        {(): [F(2, 21), F(19, 21)], (0,): [F(1, 21), F(20, 21)], (1,): [F(20, 21), F(1, 21)]}
    )
    assert accepted(target, draft, 2, 2) == F(872, 441)
    assert mean_of_tree_rule(tokens_by_traversal, target, draft) == F(292, 147)


def test_the_recursion_is_rarely_better() -> None:
    """The second: its optimal plan accepts the first token that goes on well more often."""
    zero, one = F(0), F(1)
    never = [one, zero, zero]
    draft = by_path(
        {
            (): [F(1, 2), F(1, 4), F(1, 4)],
            (0,): never,
            (1,): [zero, zero, one],
            (2,): [zero, F(2, 3), F(1, 3)],
        }
    )
    target = by_path(
        {
            (): [zero, F(1, 3), F(2, 3)],
            (0,): never,
            (1,): [zero, zero, one],
            (2,): [zero, one, zero],
        }
    )
    assert accepted(target, draft, 2, 2) == F(197, 144)
    recursion = partial(tokens_by_rule, OptimalPlan)
    assert mean_of_tree_rule(recursion, target, draft) == F(11, 8)


def test_random_trees_accept_more_than_by_the_other_rules() -> None:
    """Dirichlet laws after each path.  Catches a rule that is lossless and accepts too little."""
    rng = np.random.default_rng(20)
    gains = []
    for _ in range(30):
        draft, target = (
            by_path({path: rng.dirichlet([1, 1]) for path in [(), (0,), (1,)]}) for _ in range(2)
        )
        found = accepted(target, draft, 2, 2)
        others = partial(tokens_by_rule, OptimalPlan), tokens_by_traversal
        gains.append([found - mean_of_tree_rule(means, target, draft) for means in others])
    assert np.min(gains) > -0.01
    assert (np.mean(gains, axis=0) > [0.01, 0.08]).all()


def test_the_hull_beats_cap_and_floor() -> None:
    """The example of docs/theory/walk-and-keep.md."""
    half, rest = [F(1, 2), F(1, 2)], [F(0), F(1)]
    draft = by_path({(): [F(1), F(0)], (0,): [F(2, 5), F(3, 5)], (1,): [F(2, 5), F(3, 5)]})
    assert accepted(by_path({(): half, (0,): rest, (1,): rest}), draft, 2, 3) == F(3, 2)


# The plain reference


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
    """The proof covers them; no drafter makes them, and the verifier refuses them."""
    assert stopped_law(*GENERIC, k, reference.keep)
    assert not stopped_law(*GENERIC, k, _share_at_an_early_end)


# What is refused


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
