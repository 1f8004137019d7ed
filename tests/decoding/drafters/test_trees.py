"""Trees as engines draft them: exact distributions of loops, and bounds on their acceptance."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm import SparseProbs, alpha, solve_block
from otm.decoding import (
    BestFirstDrafter,
    Branching,
    Drafter,
    DraftNode,
    DynamicTreeDrafter,
    ModelDrafter,
    Randomness,
    SamplingParameters,
    Shape,
    StaticTreeDrafter,
    Verifier,
    autoregressive,
    spectr,
    spectr_verifier,
    stream,
    verify_chain,
    verify_target_only,
    verify_traversal,
    verify_walk_and_keep,
)
from otm.decoding.reading import Path
from otm.decoding.verifiers.by_rule import host_verifier, tree_rule
from otm.drafts import Top
from otm.errors import (
    InvalidDraftsError,
    InvalidInputError,
    InvalidParameterError,
    ProblemTooLargeError,
    UnknownMethodError,
)
from otm.gain import best_tree, block_efficiency, rank_hits, record
from otm.gain.tokens_given_drafts import tokens_by_rule, tokens_by_target_only
from otm.models import TableModel
from otm.testing.sequences import (
    by_conditional,
    continued_distribution,
    output_distribution_of,
    sequence_distribution,
)

F = Fraction
PROMPT = (0,)
WITHOUT = "recursive rejection without replacement"
SAMPLED = {WITHOUT: "WithoutReplacement", "greedy": "Greedy"}


pytestmark = pytest.mark.usefixtures("each_plan_once")


def models(vocabulary: int, seed: int) -> tuple[TableModel, TableModel]:
    """Two unrelated tables of order 2, with zeros."""
    rng = np.random.default_rng(seed)
    return TableModel.random(vocabulary, 2, rng), TableModel.random(vocabulary, 2, rng)


def step_law(
    target: TableModel, drafter: Drafter, verify: Verifier, gamma: int, end: int | None = None
) -> dict[Path, Fraction]:
    """Distribution of what the first step outputs."""

    def output(uniforms: Randomness) -> Path:
        steps = stream(
            target, [PROMPT], drafter, verify, gamma=gamma, eos_token_id=end, uniforms=[uniforms]
        )
        return next(steps).output

    return output_distribution_of(output)


def is_lossless(law: dict[Path, Fraction], target: TableModel, gamma: int, end: Any = None) -> bool:
    """Whether a step, continued by the target, has the target's distribution."""
    continued = continued_distribution(law, target, PROMPT, gamma + 1, end)
    return bool(continued == sequence_distribution(target, PROMPT, gamma + 1, end))


# Exact distributions of loops


@pytest.mark.parametrize("rule", SAMPLED)
@pytest.mark.parametrize(
    ("vocabulary", "branching", "gamma", "end"),
    [(3, 2, 1, None), (3, 2, 1, 1), (2, (1, 2), 2, None), (2, (2, 1), 2, 1), (3, 3, 1, None)],
    ids=str,
)
def test_sampled_siblings_keep_the_law(
    rule: str, vocabulary: int, branching: Branching, gamma: int, end: int | None
) -> None:
    """Catches a plan for other drafts than were drawn, and children in another order."""
    target, draft = models(vocabulary, seed=3)
    drafter = ModelDrafter(draft, branching, draft_kind=SAMPLED[rule])
    assert is_lossless(
        step_law(target, drafter, host_verifier(tree_rule(rule)), gamma, end), target, gamma, end
    )


@pytest.mark.parametrize("branching", [2, (2, 2), (1, 2), 3], ids=str)
@pytest.mark.parametrize("end", [None, 1])
def test_likeliest_tokens_keep_the_law(branching: Branching, end: int | None) -> None:
    target, draft = models(3, seed=5)
    drafter = ModelDrafter(draft, branching, draft_kind="Top")
    assert is_lossless(step_law(target, drafter, verify_target_only, 2, end), target, 2, end)


@pytest.mark.parametrize("width", [None, 1])
@pytest.mark.parametrize("nodes", [1, 4, 9])
def test_whole_texts_of_best_first_trees_have_the_targets_law(
    nodes: int, width: int | None
) -> None:
    """Several steps, an end token and a limit; catches a cache that keeps the wrong path."""
    target, draft = models(3, seed=7)

    def decode(uniforms: Randomness) -> Path:
        drafter = BestFirstDrafter(draft, nodes, width)
        steps = stream(
            target, [PROMPT], drafter, verify_target_only, gamma=2, max_tokens=4, eos_token_id=1,
            uniforms=[uniforms],
        )  # fmt: skip
        return tuple(itertools.chain.from_iterable(step.output for step in steps))

    assert output_distribution_of(decode) == sequence_distribution(target, PROMPT, 4, 1)


@pytest.mark.parametrize("shape", [(((),), ()), ((), ((), ()))], ids=["first", "second"])
@pytest.mark.parametrize(("rule", "law"), [*SAMPLED.items(), ("target-only", "Top")])
def test_fixed_shapes_keep_the_law(shape: Shape, rule: str, law: str) -> None:
    """Catches children that are counted for another sibling; a count by draw order is allowed."""
    target, draft = models(2, seed=11)
    verify = host_verifier(tree_rule(rule))
    if law != "Top":  # fewer comparisons
        verify = spectr_verifier(by_conditional(_plan_class(rule)))
    drafter = StaticTreeDrafter(draft, shape, law)
    assert is_lossless(step_law(target, drafter, verify, 2), target, 2)


def _plan_class(rule: str) -> Any:
    from otm.coupling import GreedyRule, RecursiveRejectionWithoutReplacement

    return {WITHOUT: RecursiveRejectionWithoutReplacement, "greedy": GreedyRule}[rule]


@pytest.mark.parametrize("rule", [*SAMPLED, "target-only"])
def test_spectr_drafts_as_the_rule_needs(rule: str) -> None:
    """Catches i.i.d. drafts under a rule for others: two equal siblings in some of 200 steps."""
    flat = TableModel({(): [0.25] * 4})
    generation = spectr(flat, flat, [[0]], k=3, gamma=1, rule=rule, max_tokens=200, seed=0)
    for step in generation.steps:
        assert len({path[0] for path in step.drafts}) == 3
    if rule == "target-only":
        assert {step.drafts for step in generation.steps if len(step.drafts) == 3} == {
            ((0,), (1,), (2,))
        }


# Negative controls


class _Reranked(Drafter):
    """Draw two i.i.d. tokens, and keep the likelier one: a dynamic tree of sampled drafts."""

    vocabulary = 2
    seconds = 0.0

    def __init__(self, law: SparseProbs) -> None:
        self.law = law

    def draft(
        self,
        contexts: Sequence[Path],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        root = DraftNode()
        root.draw_children(self.law, 2, uniforms[0])
        root.children = [max(root.children, key=lambda child: self.law.of(child.token))]
        return [root]


def test_sampled_drafts_that_are_ranked_lose_the_law() -> None:
    """The page's counterexample: TV 3/16 by the usual rule, and none by target-only sampling."""
    law = [F(3, 4), F(1, 4)]
    target = TableModel({(): law})
    drafter = _Reranked(SparseProbs([0, 1], law))
    first = {0: F(0), 1: F(0)}
    for path, mass in step_law(target, drafter, verify_chain, 1).items():
        first[path[0]] += mass
    assert first == {0: F(15, 16), 1: F(1, 16)}
    assert is_lossless(step_law(target, drafter, verify_target_only, 1), target, 1)


@pytest.mark.parametrize(
    ("verify", "law"),
    [
        (verify_walk_and_keep, "WithoutReplacement"),
        *itertools.product(
            (verify_traversal, verify_chain), ("WithoutReplacement", "Greedy", "Top")
        ),
    ],
)
def test_rules_refuse_drafts_of_another_kind(verify: Verifier, law: str) -> None:
    """Catches a silent loss: a rule for i.i.d. drafts on siblings that are not."""
    target, draft = (TableModel({(): [0.5, 0.25, 0.25]}) for _ in range(2))
    for branching in (2, (1, 2)):
        drafter = ModelDrafter(draft, branching, draft_kind=law)
        steps = stream(target, [PROMPT], drafter, verify, gamma=2, seed=0)
        with pytest.raises(InvalidDraftsError, match=rf"{law} drafts|needs a single chain"):
            next(steps)


def test_plans_for_other_drafts_are_refused() -> None:
    model = TableModel({(): [0.5, 0.25, 0.25]})
    drafter = ModelDrafter(model, 2, draft_kind="WithoutReplacement")
    with pytest.raises(InvalidParameterError, match="2 IID drafts, but this tree has 2 W"):
        spectr(model, drafter, [[0]], rule="k-Seq", seed=0)
    with pytest.raises(InvalidParameterError, match="2 Greedy drafts, but this tree has"):
        spectr(model, ModelDrafter(model, 2), [[0]], rule="greedy", seed=0)
    with pytest.raises(UnknownMethodError, match="no kind of drafts 'iid'"):
        ModelDrafter(model, draft_kind="iid")
    with pytest.raises(UnknownMethodError, match="there are Top, WithoutReplacement, Greedy"):
        StaticTreeDrafter(model, ((),), "IID")


@pytest.mark.parametrize(
    ("shape", "error", "says"),
    [
        ((), InvalidParameterError, "nodes = 0"),
        ((1, 2), InvalidParameterError, "as the tuple of its children"),
        (3, InvalidParameterError, "as the tuple of its children"),
        (((),) * 5000, ProblemTooLargeError, "5,000 drafts; the limit is 4,096"),
    ],
)
def test_wrong_shapes_are_refused(shape: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        StaticTreeDrafter(TableModel({(): [0.5, 0.5]}), shape)


def test_wrong_budgets_are_refused() -> None:
    model = TableModel({(): [0.5, 0.5]})
    for arguments in ({"nodes": 0}, {"nodes": 1.5}, {"width": 0}):
        with pytest.raises(InvalidParameterError):
            BestFirstDrafter(model, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ProblemTooLargeError, match="the limit is 4,096"):
        BestFirstDrafter(model, 10**9)


# Which tree


def path_probability(model: TableModel, path: Path) -> Fraction:
    """Probability of a path after the prompt."""
    mass = F(1)
    for i, token in enumerate(path):
        mass *= model.probs((*PROMPT, *path[:i])).item(token)
    return mass


def all_paths(vocabulary: int, depth: int) -> list[Path]:
    """List all paths of at least one token, the shorter and lower first."""
    lengths = range(1, depth + 1)
    return [path for n in lengths for path in itertools.product(range(vocabulary), repeat=n)]


def drafted(drafter: Drafter, depth: int) -> list[Path]:
    """Paths of a tree that takes no uniforms."""
    (root,) = drafter.draft([PROMPT], [depth], None, [np.zeros])
    return [node.path for node in root.nodes()][1:]


@pytest.mark.parametrize("seed", range(6))
def test_best_first_is_the_best_of_all_trees(seed: int) -> None:
    """Against the sorted list of all paths: catches a child that is kept without its parent."""
    draft = models(3, seed)[1]
    order = sorted(all_paths(3, 3), key=lambda path: -path_probability(draft, path))
    for nodes in (1, 3, 8, 20):
        likely = [path for path in order if path_probability(draft, path) > 0][:nodes]
        found = drafted(BestFirstDrafter(draft, nodes), 3)
        assert len(found) == len(likely)
        assert all(path[:-1] in {(), *found} for path in found)
        masses = (
            sorted(path_probability(draft, path) for path in each) for each in (found, likely)
        )
        assert next(masses) == next(masses)


def test_a_width_bounds_what_is_read() -> None:
    """Of two nodes of a level only the likelier one grows; the other one stays a draft."""
    draft = TableModel({(): [F(1, 2), F(3, 8), F(1, 8)]})
    narrow = drafted(BestFirstDrafter(draft, 5, width=1), 3)
    assert narrow == [(0,), (0, 0), (0, 1), (1,), (2,)]
    assert (1, 0) in drafted(BestFirstDrafter(draft, 5), 3)


def test_the_batch_does_not_matter() -> None:
    """Trees of three sequences of different depths at once are those of each alone."""
    draft = models(3, seed=2)[1]
    contexts, depths = [(0,), (1, 2), (2,)], [3, 0, 1]
    together = BestFirstDrafter(draft, 6).draft(contexts, depths, None, [])
    for context, depth, tree in zip(contexts, depths, together, strict=True):
        (alone,) = BestFirstDrafter(draft, 6).draft([context], [depth], None, [])
        assert [node.path for node in alone.nodes()] == [node.path for node in tree.nodes()]


@pytest.mark.parametrize("seed", range(5))
def test_no_rule_accepts_more_of_a_certain_tree(seed: int) -> None:
    """Theorem 18.1 against the exact optimum over all rules, by the maximum flow of a table."""
    target, draft = models(2 + seed % 2, seed)
    tree = drafted(BestFirstDrafter(draft, 5), 3)
    optimum = solve_block({tuple(tree): F(1)}, lambda path: target.probs((*PROMPT, *path)))
    attained = sum(path_probability(target, path) for path in tree)
    assert optimum.accepted == attained
    law = step_law(target, BestFirstDrafter(draft, 5), verify_target_only, 3)
    assert sum(mass * (len(path) - 1) for path, mass in law.items()) == attained


def test_drafts_for_sure_have_the_target_mass_of_them_as_optimum() -> None:
    p, q = [F(1, 2), F(1, 4), F(1, 4)], [F(1, 4), F(1, 8), F(5, 8)]
    for k in (1, 2, 3):
        assert alpha(Top(p, k), q) == sum(q[:k])


def test_sampled_drafts_can_beat_every_certain_tree() -> None:
    """The page's example: equal models, two nodes; one sampled chain has 2 drafts accepted."""
    fair = TableModel({(): [F(1, 2), F(1, 2)]})
    law = step_law(fair, ModelDrafter(fair), verify_chain, 2)
    assert sum(mass * (len(path) - 1) for path, mass in law.items()) == 2
    certain = [((0,), (1,)), ((0,), (0, 0))]
    values = [sum(path_probability(fair, path) for path in tree) for tree in certain]
    assert values == [1, F(3, 4)]


def shapes(nodes: int) -> list[Shape]:
    """List all ordered trees with `nodes` nodes below the root."""
    if nodes == 0:
        return [()]
    return [
        (first, *rest)
        for size in range(1, nodes + 1)
        for first in shapes(size - 1)
        for rest in shapes(nodes - size)
    ]


def value(shape: Shape, hits: Any, level: int = 0) -> float:
    """Count what a shape accepts by Sequoia's assumption; −1 if a node has no place."""
    if shape and (level == len(hits) or len(shape) > len(hits[level])):
        return -1.0
    below = [value(child, hits, level + 1) for child in shape]
    if min(below, default=0) < 0:
        return -1.0
    return (
        float(sum(hit * (1 + more) for hit, more in zip(hits[level], below, strict=False)))
        if (shape)
        else 0.0
    )


def test_the_best_shape_is_that_of_enumeration() -> None:
    """60 random instances, all ordered trees; catches a budget that is spent twice."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        levels, k, nodes = rng.integers(1, 5), rng.integers(1, 4), int(rng.integers(1, 7))
        hits = rng.dirichlet(np.ones(k + 1), size=levels)[:, :k]
        best = max(value(shape, hits) for n in range(nodes + 1) for shape in shapes(n))
        planned = best_tree(hits, nodes)
        assert planned.accepted == pytest.approx(best, abs=1e-12)
        assert value(planned.shape, hits) == pytest.approx(best, abs=1e-12)


def test_falling_hits_give_the_largest_products() -> None:
    """Theorem 18.4, by the sorted products."""
    hits = np.array([0.5, 0.25, 0.125])
    products = sorted((float(np.prod(hits[list(path)])) for path in all_paths(3, 6)), reverse=True)
    for nodes in (1, 5, 12):
        assert best_tree(hits, nodes, depth=6).accepted == pytest.approx(sum(products[:nodes]))


@pytest.mark.parametrize(
    ("hits", "says"),
    [
        ([0.75, 0.5], "hits ="), ([-0.1], "hits ="), ([], "hits ="), (["a"], "hits ="),
        ([np.nan], "hits ="), (0.5, "hits ="),
    ],
)  # fmt: skip
def test_wrong_hits_are_refused(hits: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        best_tree(hits, 3)


def test_too_large_a_plan_is_refused_at_once() -> None:
    with pytest.raises(ProblemTooLargeError, match="4,000 nodes on 4,000 levels"):
        best_tree([0.1] * 10, 4000)


# Reports


def test_recorded_trees_give_the_mean_of_the_loop() -> None:
    """The mean given the drafts, over all drafts, is that of the enumerated loop."""
    target, draft = models(2, seed=4)
    for rule, law in SAMPLED.items():
        drafter = ModelDrafter(draft, (2, 1), draft_kind=law)
        outputs = step_law(target, drafter, host_verifier(tree_rule(rule)), 2)
        enumerated = sum(mass * len(path) for path, mass in outputs.items())

        def tokens(uniforms: Randomness, drafter: Drafter = drafter, rule: str = rule) -> Any:
            (root,) = drafter.draft([PROMPT], [2], None, [uniforms])
            means = tokens_by_rule(_plan_class(rule), root, _rows(target), 2)
            return (means.item(2),)

        given = output_distribution_of(tokens)
        assert sum(mass * mean for (mean,), mass in given.items()) == enumerated


def _rows(target: TableModel) -> Any:
    return lambda path: SparseProbs.from_dense(target.probs((*PROMPT, *path)))


def test_target_only_is_counted_by_paths() -> None:
    """A path that was drafted twice counts once."""
    target, draft = models(2, seed=4)
    (root,) = ModelDrafter(draft, 3).draft([PROMPT], [2], None, [lambda m: np.linspace(0, 0.9, m)])
    paths: Iterable[Path] = {node.path for node in root.nodes()}
    means = tokens_by_target_only(root, _rows(target), 2)
    assert means.item(2) == sum(path_probability(target, path) for path in paths)


def test_efficiency_of_trees() -> None:
    """Best-first trees of the target itself are at least as good as those of another model."""
    target, draft = (TableModel({(): row}) for row in ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]))
    contexts = [[[0]], [[1]]]
    own, other = (
        block_efficiency(record(target, BestFirstDrafter(model, 6), contexts, 3), ["target-only"])
        for model in (target, draft)
    )
    best, worse = (means[next(iter(means))] for means in (own, other))
    assert best.mean == pytest.approx(1 + 0.5 + 0.3 + 0.25 + 0.2 + 0.15 + 0.15)
    assert worse.mean < best.mean
    recorded = record(target, ModelDrafter(draft), contexts, 1, seed=0)
    assert rank_hits(recorded, 4) == pytest.approx([0.2, 0.3, 0.5, 0])
    greedy = record(target, ModelDrafter(draft, 3, draft_kind="Greedy"), contexts, 1, seed=0)
    assert block_efficiency(greedy, ["greedy"])["greedy", 3, 1].mean == pytest.approx(2)
    with pytest.raises(InvalidInputError, match="cannot replace 2 greedy drafts"):
        block_efficiency(greedy, ["greedy"], ks=[2])
    with pytest.raises(InvalidParameterError, match="this tree has 3 Greedy drafts"):
        block_efficiency(greedy, ["k-Seq"])


def test_a_rule_says_how_its_drafts_are_drawn() -> None:
    assert [tree_rule(rule).drafts for rule in ("k-Seq", *SAMPLED, "target-only")] == [
        "IID", "WithoutReplacement", "Greedy", "Top",
    ]  # fmt: skip


def test_greedy_decoding_drafts_more_than_one_token_of_a_node() -> None:
    """Bug: the target's temperature of 0 applied to drafts that are ranked, not sampled."""
    target, draft = models(4, seed=2)
    greedy = SamplingParameters(temperature=0)
    options: dict[str, Any] = {"gamma": 2, "max_tokens": 6, "sampling": greedy, "seed": 0}
    made = spectr(target, draft, [PROMPT], k=3, rule="target-only", **options)
    assert len({path[0] for path in made.steps[0].drafts}) > 1
    assert (
        made.sequences
        == autoregressive(target, [PROMPT], max_tokens=6, sampling=greedy, seed=1).sequences
    )


# Trees whose shape follows from their own draws


@pytest.mark.parametrize(("vocabulary", "seed"), [(3, 1), (3, 4), (2, 6)])
@pytest.mark.parametrize("threshold", [F(1, 3), F(1, 8)])
def test_dynamic_trees_keep_the_law_of_rejection_without_replacement(
    vocabulary: int, seed: int, threshold: Fraction
) -> None:
    """Catches a number of siblings that looks at the sibling itself, and a mass not updated."""
    target, draft = models(vocabulary, seed)
    gamma = 2 if vocabulary == 2 else 1
    drafter = DynamicTreeDrafter(draft, nodes=6, threshold=threshold)
    law = step_law(target, drafter, host_verifier(tree_rule(WITHOUT)), gamma)
    assert is_lossless(law, target, gamma)


def test_a_sibling_that_is_kept_for_its_probability_loses_the_law() -> None:
    """Negative control: whether a draft stays is decided by the draft itself."""

    class Ranking(DynamicTreeDrafter):
        def draft(self, *arguments: Any) -> list[DraftNode]:
            roots = super().draft(*arguments)
            for root in roots:
                probs = root.checked_draft_probs("WithoutReplacement")
                root.children.sort(key=lambda child: -probs.of(child.token))
                del root.children[1:]
            return roots

    target = draft = TableModel({(): [F(1, 4), F(1, 2), F(1, 4)]})
    drafter = Ranking(draft, nodes=6, threshold=F(1, 8))
    law = step_law(target, drafter, host_verifier(tree_rule(WITHOUT)), 1)
    assert not is_lossless(law, target, 1)


def test_dynamic_trees_have_more_drafts_where_the_model_is_less_sure() -> None:
    """By hand; a threshold of one is a chain, and a budget is never passed."""
    sure, flat = [F(9, 10), F(1, 10), 0, 0], [F(1, 4)] * 4

    def children(row: Any, nodes: int, threshold: Any) -> int:
        drafter = DynamicTreeDrafter(TableModel({(): row}), nodes, threshold)
        [root] = drafter.draft([(0,)], [1], None, [lambda m: np.full(m, F(1, 2))])
        return len(root.children)

    assert [children(row, 9, F(1, 5)) for row in (sure, flat)] == [1, 4]
    assert [children(row, 9, 1) for row in (sure, flat)] == [1, 1]
    assert [children(row, 9, F(1, 100)) for row in (sure, flat)] == [2, 4]
    assert children(flat, 3, F(1, 100)) == 3


def test_the_probability_of_a_draft_is_not_that_of_its_acceptance() -> None:
    """DySpec's estimate, where the draft model is the target and a chain has all accepted."""
    model = TableModel({(): [F(1, 3), F(2, 3)]})

    def accepted(drafter: Drafter, rule: str) -> Fraction:
        law = step_law(model, drafter, host_verifier(tree_rule(rule)), gamma=2)
        return sum((len(output) * mass for output, mass in law.items()), -F(1))

    assert accepted(DynamicTreeDrafter(model, 2, F(1, 2)), WITHOUT) == F(5, 3)
    assert accepted(ModelDrafter(model, 1), "optimal") == 2


@pytest.mark.parametrize("threshold", [0, 1.5, "much", float("nan")])
def test_thresholds_that_are_no_probability_are_refused(threshold: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"a number in \(0, 1\]"):
        DynamicTreeDrafter(models(2, 0)[1], 4, threshold)
