"""Block efficiency without decoding: the exact mean of what the loop outputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from otm._core.arithmetic import Number
from otm._core.means import PairedMeans, Setup
from otm._core.probs.sparse import SparseProbs
from otm.coupling import (
    KSeq,
    NaiveTargetSampling,
    OptimalPlan,
    RecursiveRejection,
    RecursiveRejectionWithoutReplacement,
)
from otm.coupling.build import PlanBuilder
from otm.coupling.plan import TransportPlan
from otm.decoding import (
    DraftNode,
    ModelDrafter,
    autoregressive,
    spectr,
    spectr_verifier,
    stream,
    verify_traversal,
    verify_walk_and_keep,
)
from otm.decoding.draft_tree import Randomness
from otm.decoding.drafters.base import Branching
from otm.decoding.reading import Path
from otm.errors import InvalidInputError, InvalidParameterError, UnknownMethodError
from otm.gain.efficiency import block_efficiency, first_step_acceptance
from otm.gain.recording import contexts_from, prune_tree, record
from otm.gain.tokens_given_drafts import tokens_by_rule, tokens_by_traversal, tokens_by_walk
from otm.models import TableModel
from otm.problem import Problem
from otm.testing import BUDGET, Control
from otm.testing.monte_carlo import Sampler
from otm.testing.sequences import by_conditional, output_distribution_of

PROMPT = (0,)
RULES: dict[str, type[TransportPlan]] = {
    "k-Seq": KSeq,
    "optimal": OptimalPlan,
    "recursive rejection": RecursiveRejection,
}
WHOLE_PATHS = {
    "traversal": (tokens_by_traversal, verify_traversal),
    "walk and keep": (tokens_by_walk, verify_walk_and_keep),
}
Rule = PlanBuilder | str
"""A rule for one token, or the name of one for whole paths."""


def models(seed: int) -> tuple[TableModel, TableModel]:
    rng = np.random.default_rng(seed)
    return TableModel.random(2, 2, rng), TableModel.random(2, 2, rng)


def mean_tokens_of_loop(
    rule: type[TransportPlan] | str,
    target: TableModel,
    draft: TableModel,
    k: Branching,
    gamma: int,
) -> Fraction:
    """Mean length of the first output, along every path of the loop's comparisons."""
    verify = (
        WHOLE_PATHS[rule][1] if isinstance(rule, str) else spectr_verifier(by_conditional(rule))
    )

    def output(uniforms: Randomness) -> Path:
        drafter = ModelDrafter(draft, k)
        steps = stream(target, [PROMPT], drafter, verify, gamma=gamma, uniforms=[uniforms])
        return next(steps).output

    law = output_distribution_of(output)
    assert sum(law.values()) == 1
    return sum((probability * len(path) for path, probability in law.items()), Fraction(0))


def all_chains(model: TableModel, k: int, gamma: int) -> Iterator[tuple[Number, DraftNode]]:
    """All trees of K chains with their probabilities."""
    chains = list(itertools.product(range(model.vocabulary), repeat=gamma))
    for drafted in itertools.product(chains, repeat=k):
        root, probability = DraftNode(), 1 + 0 * model.probs(()).item(0)
        for chain in drafted:
            node = root
            for token in chain:
                law = model.probs(PROMPT + node.path)
                probability = probability * law.item(token)
                child = DraftNode((*node.path, token))
                node.draft_probs = SparseProbs.from_dense(law)
                node.children.append(child)
                node = child
        if probability:
            yield probability, root


def mean_tokens(
    rule: Rule, target: TableModel, draft: TableModel, k: int, gamma: int
) -> npt.NDArray[Any]:
    """Mean over all drafts of the mean given the drafts, for each γ."""

    @cache
    def law(path: Path) -> SparseProbs:
        return SparseProbs.from_dense(target.probs(PROMPT + path))

    def given(root: DraftNode) -> npt.NDArray[Any]:
        if isinstance(rule, str):
            return WHOLE_PATHS[rule][0](root, law, gamma)
        return tokens_by_rule(rule, root, law, gamma)

    parts = [probability * given(root) for probability, root in all_chains(draft, k, gamma)]
    return np.sum(parts, axis=0)


@pytest.mark.parametrize(
    ("name", "gamma"), [("k-Seq", 1), ("optimal", 2), ("traversal", 2), ("walk and keep", 2)]
)
def test_the_mean_over_drafts_is_that_of_the_loop(name: str, gamma: int) -> None:
    """In fractions; catches survivors that are lost, and a last token that is not counted.

    All γ come from one tree, so that this also catches a cut that looks below itself.
    """
    target, draft = models(4)
    rule = RULES.get(name, name)
    means = mean_tokens(rule, target, draft, 2, gamma)
    assert means[0] == 1
    for length in range(1, gamma + 1):
        assert means[length] == mean_tokens_of_loop(rule, target, draft, 2, length)


def test_another_rule_has_another_mean() -> None:
    """The negative control of the test above."""
    target, draft = models(4)
    rules: list[Rule] = [*RULES.values(), *WHOLE_PATHS]
    assert len({mean_tokens(rule, target, draft, 2, 2)[2] for rule in rules}) == len(rules)


def test_one_chain_is_algorithm_1() -> None:
    """Every rule that is optimal for one draft gives 1 + Σ Π min(1, q/p)."""
    target, draft = models(5)
    for _, root in all_chains(draft, 1, 3):
        expected, passed, node = [Fraction(1)], Fraction(1), root
        while node.children:
            (child,) = node.children
            context = PROMPT + node.path
            passed *= min(1, target.probs(context)[child.token] / draft.probs(context)[child.token])
            expected.append(expected[-1] + passed)
            node = child

        def law(path: Path) -> SparseProbs:
            return SparseProbs.from_dense(target.probs(PROMPT + path))

        for rule in (KSeq, OptimalPlan, RecursiveRejection):
            assert tokens_by_rule(rule, root, law, 3).tolist() == expected


def test_no_more_levels_are_looked_at_than_asked_for() -> None:
    target, draft = models(5)
    _, root = next(all_chains(draft, 2, 3))

    def law(path: Path) -> SparseProbs:
        return SparseProbs.from_dense(target.probs(PROMPT + path))

    for depth in range(4):
        assert (tokens_by_rule(KSeq, root, law, depth)
                == tokens_by_rule(KSeq, root, law, 3)[: depth + 1]).all()  # fmt: skip
        for means, _ in WHOLE_PATHS.values():
            assert (means(root, law, depth) == means(root, law, 3)[: depth + 1]).all()


def test_block_verification_is_at_least_chain_verification() -> None:
    """Theorem of Sun et al. (2024), for every γ; it holds on average, not for every chain."""
    target, draft = models(6)
    block, chain = (mean_tokens(rule, target, draft, 1, 3) for rule in ("traversal", KSeq))
    assert (block >= chain).all()
    assert block[3] > chain[3]
    assert (mean_tokens("walk and keep", target, draft, 1, 3) == block).all()


def test_fewer_drafts_of_a_recording_are_as_good_as_new_ones() -> None:
    """Catches pruning that selects drafts by what they are."""
    target, draft = models(7)

    def law(path: Path) -> SparseProbs:
        return SparseProbs.from_dense(target.probs(PROMPT + path))

    found = sum(
        probability * tokens_by_rule(OptimalPlan, prune_tree(root, 1, 2), law, 2)
        for probability, root in all_chains(draft, 3, 2)
    )
    assert (found == mean_tokens(OptimalPlan, target, draft, 1, 2)).all()


def test_a_prefix_tree_is_judged_as_in_the_loop() -> None:
    """Catches children of one node that are judged one by one."""
    target, draft = models(8)

    def drafted(uniforms: Randomness) -> Path:
        (root,) = ModelDrafter(draft, (1, 2)).draft([PROMPT], [2], [], [uniforms])
        return tuple(node.token for node in list(root.nodes())[1:])

    def law(path: Path) -> SparseProbs:
        return SparseProbs.from_dense(target.probs(PROMPT + path))

    mean = Fraction(0)
    for (a, b, c), probability in output_distribution_of(drafted).items():
        first = DraftNode((a,), children=[DraftNode((a, b)), DraftNode((a, c))])
        root = DraftNode(children=[first])
        for node in (root, first):
            node.draft_probs = SparseProbs.from_dense(draft.probs(PROMPT + node.path))
        mean += probability * tokens_by_rule(KSeq, root, law, 2)[2]
    assert mean == mean_tokens_of_loop(KSeq, target, draft, (1, 2), 2)


# Over recordings, in floats

DRAFT = TableModel({(): [0.25, 0.25, 0.25, 0.25]})
TARGET = TableModel({(): [0.4, 0.4, 0.1, 0.1]})


def exact(rule: PlanBuilder) -> float:
    return float(mean_tokens(rule, TARGET, DRAFT, 2, 2)[2])


def test_the_loop_has_the_computed_block_efficiency() -> None:
    """A long run; distributions do not depend on the context, so that steps are independent."""

    def lengths(rule: PlanBuilder) -> Sampler:
        def sampler(rng: np.random.Generator, draws: int) -> npt.NDArray[Any]:
            steps = stream(
                TARGET, [PROMPT], ModelDrafter(DRAFT, 2), spectr_verifier(rule), gamma=2,
                max_tokens=3 * draws, uniforms=[rng.random],
            )  # fmt: skip
            return np.array([len(step.output) for step in itertools.islice(steps, draws)])

        return sampler

    BUDGET.check_mean(
        "block efficiency of the loop",
        lengths(KSeq),
        exact(KSeq),
        bounds=(1, 3),
        delta=0.7,
        control=Control(lengths(NaiveTargetSampling), exact(NaiveTargetSampling)),
    )


def test_recordings_have_the_computed_block_efficiency() -> None:
    """Catches recorded drafts that do not have the distribution of the draft model."""

    def tokens(rule: PlanBuilder) -> Sampler:
        def sampler(rng: np.random.Generator, draws: int) -> npt.NDArray[Any]:
            seed = int(rng.integers(2**31))
            recordings = record(TARGET, ModelDrafter(DRAFT, 2), [[PROMPT] * draws], 2, seed=seed)
            (setup,) = means = block_efficiency(recordings, {"rule": rule})
            return means.values[setup]

        return sampler

    BUDGET.check_mean(
        "block efficiency of recordings",
        tokens(KSeq),
        exact(KSeq),
        bounds=(1, 3),
        delta=0.7,
        control=Control(tokens(NaiveTargetSampling), exact(NaiveTargetSampling)),
    )


def test_contexts_of_steps_give_the_block_efficiency_of_their_loop() -> None:
    """With easy and hard stretches of text, as far as Azuma's inequality says.

    Catches contexts that are taken at all positions, which give the arithmetic mean over them.
    """
    easy, hard = [0.96, 0.04, 0.0], [0.04, 0.96, 0.0]
    target = TableModel({(): hard, (0,): easy})
    draft = TableModel({(): [0.0, 0.0, 1.0], (0,): easy})
    gamma = 8
    options: dict[str, Any] = {"k": 1, "gamma": gamma, "rule": "k-Seq", "max_tokens": 1000}
    loop = spectr(target, draft, [PROMPT], **options, seed=1)
    text = autoregressive(target, [PROMPT], max_tokens=1000, seed=2)
    means = {}
    for name, contexts in {
        "steps": contexts_from(loop),
        "positions": contexts_from(text, every=10),
    }.items():
        recordings = record(target, ModelDrafter(draft), contexts, gamma, seed=3)
        means[name] = block_efficiency(recordings, "k-Seq")["k-Seq", 1, gamma].mean
    # what the steps output, and the new drafts, deviate from their means by as much at most
    bound = 2 * gamma * math.sqrt(math.log(4 / BUDGET.level) / (2 * len(loop.steps)))
    assert means["steps"] == pytest.approx(loop.block_efficiency, abs=bound)
    assert means["positions"] > loop.block_efficiency + bound


@cache
def table() -> PairedMeans:
    target, draft = models(9)
    contexts = [[(0,), (0, 1)], [(1,)], [(1, 1), (1, 0, 0)]]
    recordings = record(target, ModelDrafter(draft, 4), contexts, 3, seed=4)
    return block_efficiency(recordings, ["k-Seq", *WHOLE_PATHS], [1, 2, 4], [1, 3])


def test_one_recording_gives_the_whole_table() -> None:
    """Catches values at the wrong context, K or γ: each is computed again by itself."""
    target, draft = models(9)
    contexts = [[(0,), (0, 1)], [(1,)], [(1, 1), (1, 0, 0)]]
    recordings = record(target, ModelDrafter(draft, 4), contexts, 3, seed=4)
    assert len(list(table())) == 3 * 3 * 2
    assert table().prompts.tolist() == [0, 0, 1, 2, 2]
    for setup in table():
        for r, recording in enumerate(recordings):
            tree = prune_tree(recording.tree, setup.k, setup.gamma)
            laws = recording.target.__getitem__
            if setup.rule == "k-Seq":
                expected = tokens_by_rule(KSeq, tree, laws, setup.gamma)[-1]
            else:
                expected = WHOLE_PATHS[setup.rule][0](tree, laws, setup.gamma)[-1]
            assert table().values[setup][r] == pytest.approx(float(expected), abs=1e-12)


def test_what_was_recorded_is_taken_by_default() -> None:
    recordings = record(TARGET, ModelDrafter(DRAFT, 2), [[PROMPT]], 3, seed=4)
    assert list(block_efficiency(recordings, "optimal")) == [("optimal", 2, 3)]
    recordings = record(TARGET, ModelDrafter(DRAFT, (2, 3)), [[PROMPT]], 3, seed=4)
    assert list(block_efficiency(recordings, "optimal")) == [("optimal", (2, 3), 2)]


def test_first_steps_in_the_order_of_the_theory() -> None:
    """Optimal ≥ k-Seq ≥ recursive rejection, all equal for one draft; more drafts accept more."""
    rng = np.random.default_rng(12)
    target, draft = (
        TableModel(
            {(c,): rng.dirichlet(np.full(9, 0.4)) for c in range(9)} | {(): np.full(9, 1 / 9)}
        )
        for _ in range(2)
    )
    contexts = [[(c,)] for c in range(9)]
    recordings = record(target, ModelDrafter(draft), contexts, 1, seed=0)
    names, ks = ["optimal", "k-Seq", "recursive rejection"], [1, 2, 4, 16]
    means = first_step_acceptance(recordings, names, ks)
    for r, (context,) in enumerate(contexts):
        for name in names:
            for k in ks:
                problem = Problem(draft.probs(context), target.probs(context), k)
                plan = {"optimal": OptimalPlan, "k-Seq": KSeq}.get(name, RecursiveRejection)(
                    problem
                )
                assert means.values[Setup(name, k, 1)][r] == pytest.approx(
                    plan.acceptance, abs=1e-12
                )
    best, k_seq, recursive = (
        np.array([means.values[Setup(name, k, 1)] for k in ks]) for name in names
    )
    assert (best >= k_seq - 1e-12).all()
    assert (k_seq >= recursive - 1e-12).all()
    assert np.allclose(best[0], recursive[0], atol=1e-12)
    assert (np.diff(best, axis=0) >= -1e-12).all()


def test_contexts_without_drafts_add_one_token() -> None:
    """Catches an empty tree that is looked up, or left out of the mean."""
    recordings = record(TARGET, ModelDrafter(DRAFT), [[PROMPT]], 0)
    recordings += record(TARGET, ModelDrafter(DRAFT), [[PROMPT]], 1)
    means = block_efficiency(recordings, ["k-Seq", *WHOLE_PATHS])
    assert all(means.values[setup][0] == 1 for setup in means)
    assert first_step_acceptance(recordings, ["k-Seq"], [1])["k-Seq", 1, 1].mean == 0.35


def test_what_was_not_recorded_is_refused() -> None:
    recordings = record(TARGET, ModelDrafter(DRAFT, (2, 1)), [[PROMPT]], 2)
    assert block_efficiency(recordings, "k-Seq", [(2, 1), (1, 1), 2], [2])
    with pytest.raises(InvalidInputError, match="record more"):
        block_efficiency(recordings, "k-Seq", [3])
    with pytest.raises(InvalidInputError, match="record more"):
        block_efficiency(recordings, "k-Seq", [(2, 2)])
    with pytest.raises(InvalidInputError, match="record with a larger depth"):
        block_efficiency(recordings, "k-Seq", gammas=[3])
    with pytest.raises(UnknownMethodError, match="traversal"):
        block_efficiency(recordings, ["no such"])
    with pytest.raises(InvalidParameterError, match="is empty; give at least one"):
        block_efficiency(recordings, "k-Seq", gammas=[])
    for none in ("abc", [1, 2]):
        for function in (block_efficiency, first_step_acceptance):
            with pytest.raises(InvalidInputError, match="recordings from `record`"):
                function(none, ["k-Seq"], [1])  # type: ignore[arg-type, operator]
    with pytest.raises(InvalidInputError, match="or a source such as"):
        first_step_acceptance(None, ["k-Seq"], [1])  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="have no drafts"):
        block_efficiency(record(TARGET, ModelDrafter(DRAFT), [[PROMPT]], 0))
    with pytest.raises(InvalidInputError, match="no recordings"):
        block_efficiency([])
    with pytest.raises(InvalidParameterError, match="give a function"):
        block_efficiency(recordings, {"mine": None})  # None says: what the name says
    with pytest.raises(InvalidParameterError, match="this tree has 2 IID drafts"):
        block_efficiency(recordings, {"without": RecursiveRejectionWithoutReplacement})
    for means in (block_efficiency, first_step_acceptance):
        with pytest.raises(InvalidParameterError, match="returned None"):
            means(recordings, {"no plan": lambda problem: None})


@pytest.mark.parametrize("level", [2, 0, 1, -1, np.nan, "0.95", None])
def test_levels_are_checked_before_any_work(level: Any) -> None:
    """Catches means that are computed for minutes and cannot be shown."""
    recordings = record(TARGET, ModelDrafter(DRAFT), [[PROMPT]], 1)
    unused = {"a rule that is never asked": pytest.fail}
    for means in (block_efficiency, first_step_acceptance):
        with pytest.raises(InvalidParameterError, match=r"level = .* \(0, 1\)"):
            means(recordings, unused, [1], level=level)
