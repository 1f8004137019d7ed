"""The loop: batches, endings, policies, and rejected arguments."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from otm._core.probs.sparse import SparseProbs
from otm.coupling import KSeq, OptimalPlan, RecursiveRejection
from otm.coupling.lossy import LenientPlan
from otm.decoding import (
    AcceleratedDrafter,
    DeviceVerifier,
    Drafter,
    DraftNode,
    Generation,
    ModelDrafter,
    SamplingParameters,
    Seconds,
    Step,
    autoregressive,
    spectr,
    spectr_verifier,
    speculative,
    stream,
    verify_chain,
    verify_traversal,
    verify_walk_and_keep,
)
from otm.decoding.loop import Prompts
from otm.decoding.verifiers.base import Verifier
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftsError,
    InvalidInputError,
    InvalidParameterError,
    InvalidUniformsError,
    UnknownMethodError,
)
from otm.kernels import verify_probs
from otm.models import LanguageModel, Session, TableModel
from otm.problem import Problem

RNG = np.random.default_rng(11)
TARGET = TableModel.random(5, 2, RNG)
DRAFT = TableModel.random(5, 2, RNG)
PROMPTS = [[0], [1, 2], [3, 4, 0], [2]]


def sources(prompts: Prompts) -> list[np.random.Generator]:
    return [np.random.default_rng([7, *prompt]) for prompt in prompts]


def decode(prompts: Prompts, way: str) -> Generation:
    uniforms = [rng.random for rng in sources(prompts)]
    if way == "autoregressive":
        return autoregressive(TARGET, prompts, max_tokens=20, eos_token_id=4, uniforms=uniforms)
    if way in {"chain", "block"}:
        return speculative(
            TARGET,
            DRAFT,
            prompts,
            gamma=lambda steps: (len(steps) * 2) % 5,
            rule=way,
            max_tokens=20,
            eos_token_id=4,
            uniforms=uniforms,
        )
    return spectr(
        TARGET,
        DRAFT,
        prompts,
        k=3,
        rule=way,
        gamma=3,
        max_tokens=20,
        eos_token_id=4,
        uniforms=uniforms,
    )


@pytest.mark.parametrize(
    "way", ["autoregressive", "chain", "block", "optimal", "traversal", "walk and keep"]
)
def test_a_sequence_does_not_depend_on_its_batch(way: str) -> None:
    """Catches uniforms that are shared, rows that are mixed up, and caches of finished rows."""
    together = decode(PROMPTS, way).sequences
    alone = tuple(decode([prompt], way).sequences[0] for prompt in PROMPTS)
    backwards = decode(PROMPTS[::-1], way).sequences[::-1]
    assert together == alone == backwards
    assert len({len(sequence) for sequence in together}) > 1  # they do not all end together


@pytest.mark.parametrize("rule", [KSeq, RecursiveRejection, "k-Seq"])
def test_one_chain_of_spectr_is_speculative_decoding(rule: type[KSeq] | str) -> None:
    """Decision for decision, from the same uniforms."""
    for seed in range(20):
        chain = speculative(TARGET, DRAFT, [[0]], gamma=3, max_tokens=30, seed=seed)
        one = spectr(TARGET, DRAFT, [[0]], k=1, rule=rule, gamma=3, max_tokens=30, seed=seed)
        assert [step.output for step in one.steps] == [step.output for step in chain.steps]


@pytest.mark.parametrize("seed", range(30))
def test_chain_and_block_decide_as_the_kernels_definitions(seed: int) -> None:
    """Two routines that share no code; catches a row or a coin that is off by one."""
    rng = np.random.default_rng(seed)
    gamma, vocabulary = 3, 4
    target = rng.dirichlet(np.full(vocabulary, 0.5), gamma + 1)
    draft = rng.dirichlet(np.full(vocabulary, 0.5), gamma)
    root = node = DraftNode()
    for row in draft:
        node.draw_children(SparseProbs.from_dense(row), 1, rng.random)
        node = node.children[0]
    drafts = np.array([node.path])
    uniforms = rng.random(gamma + 2)
    *coins, residual, bonus = uniforms.tolist()

    def law(path: Sequence[int]) -> SparseProbs:
        return SparseProbs.from_dense(target[len(path)])

    chain_coins = iter(coins)

    def for_chain(m: int) -> npt.NDArray[np.float64]:
        return np.array([next(chain_coins), residual] if m == 2 else [bonus])

    expected = verify_probs(target[None], draft[None], drafts, uniforms[None])
    tokens = expected.tokens[0][: expected.accepted[0] + 1]
    assert verify_chain(root, law, for_chain) == tuple(tokens.tolist())

    of_batch = (target[None], draft[None], drafts, uniforms[None])
    expected = verify_probs(*of_batch, rule="block")
    accepted = int(expected.accepted[0])
    tests = coins[::-1][: gamma - accepted + (accepted > 0)]
    last = bonus if accepted == gamma else residual
    taken = itertools.chain(tests, [last])
    output = verify_traversal(root, law, lambda m: np.array([next(taken)]))
    assert output == tuple(expected.tokens[0][: accepted + 1].tolist())


def test_every_ending_cuts_where_it_should() -> None:
    always = TableModel({(): [0, 1, 0], (1,): [0, 0, 1], (2,): [0, 1, 0]})
    options = {"gamma": 4, "seed": 0}
    generation = speculative(always, always, [[0], [1]], max_tokens=3, **options)  # type: ignore[arg-type]
    assert generation.sequences == ((1, 2, 1), (2, 1, 2))
    assert generation.finish_reasons == ("length", "length")
    assert [step.drafted for step in generation.steps] == [2, 2]  # no draft beyond the limit
    generation = speculative(always, always, [[0], [1]], max_tokens=9, eos_token_id=[2], **options)  # type: ignore[arg-type]
    assert generation.sequences == ((1, 2), (2,))
    assert [step.accepted for step in generation.steps] == [2, 1]
    generation = spectr(always, always, [[0]], stop=lambda new: len(new) == 7, **options)  # type: ignore[arg-type]
    assert len(generation.sequences[0]) == 7
    assert generation.finish_reasons == ("stop",)


def test_without_drafts_every_step_is_one_token() -> None:
    generation = speculative(TARGET, DRAFT, [[0]], gamma=0, max_tokens=10, seed=1)
    assert generation.sequences == autoregressive(TARGET, [[0]], max_tokens=10, seed=1).sequences
    assert generation.block_efficiency == 1
    assert np.isnan(generation.acceptance_rate)


def test_a_policy_sees_the_steps_of_its_own_sequence() -> None:
    seen: list[tuple[Step, ...]] = []

    def policy(steps: Sequence[Step]) -> int:
        seen.append(tuple(steps))
        return 2

    generation = speculative(TARGET, DRAFT, [[0], [1]], gamma=policy, max_tokens=8, seed=0)
    assert all(len({step.sequence for step in steps}) <= 1 for steps in seen)
    for b in (0, 1):
        whole = tuple(generation.steps_of(b))
        assert whole[:-1] in seen


def test_equal_models_accept_everything() -> None:
    for way in ("chain", "block"):
        generation = speculative(TARGET, TARGET, [[0]], gamma=4, rule=way, max_tokens=50, seed=0)
        assert generation.block_efficiency == 5
        assert generation.acceptance_rate == 1


def test_an_accepted_draft_that_is_cut_off_is_not_counted() -> None:
    generation = speculative(TARGET, TARGET, [[0]], gamma=4, max_tokens=4, seed=0)
    (step,) = generation.steps
    assert (step.gamma, step.drafted, step.accepted, len(step.output)) == (4, 3, 3, 4)


def test_lenient_decoding_accepts_more() -> None:
    """And with lenience off it is bit for bit the loop with the optimal rule."""

    def lenient(lenience: float) -> Generation:
        def rule(problem: Problem) -> LenientPlan:
            return LenientPlan(problem, lenience)

        return spectr(TARGET, DRAFT, [[0]], k=2, rule=rule, gamma=3, max_tokens=200, seed=3)

    def optimal(problem: Problem) -> OptimalPlan:
        return OptimalPlan(problem)

    lossless = spectr(TARGET, DRAFT, [[0]], k=2, rule=optimal, gamma=3, max_tokens=200, seed=3)
    assert lenient(1).sequences == lossless.sequences
    assert lenient(0.2).block_efficiency > lossless.block_efficiency


def test_the_draft_may_be_sampled_otherwise_than_the_target() -> None:
    """A temperature for one model only is lossless if the verifier knows it."""
    generation = speculative(
        TARGET,
        DRAFT,
        [[0]],
        sampling=SamplingParameters(temperature=0),
        draft_sampling=SamplingParameters(temperature=2.0),
        gamma=3,
        max_tokens=30,
        seed=5,
    )
    greedy = autoregressive(
        TARGET, [[0]], sampling=SamplingParameters(temperature=0), max_tokens=30
    )
    assert generation.sequences == greedy.sequences


class _Logits(LanguageModel):
    """A model that always returns the same logits."""

    def __init__(self, logits: Sequence[float], context_length: int | None = None) -> None:
        self.vocabulary = len(logits)
        self.context_length = context_length
        self.logits = np.array(logits)

    def start(self, rows: int) -> Session:
        return _Constant(self.logits)


class _Constant(Session):
    def __init__(self, logits: npt.NDArray[np.float64]) -> None:
        self.logits = logits

    def append(self, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return np.broadcast_to(self.logits, (*tokens.shape, self.logits.size))

    def keep(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        pass


GOOD = _Logits([0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("prompts", "options", "error", "words"),
    [
        ([], {}, InvalidInputError, "no prompt"),
        ([[]], {}, InvalidInputError, "prompt 0 is empty"),
        ([[0], [3]], {}, InvalidInputError, "prompt 1 has token 3"),
        ([[-1]], {}, InvalidInputError, "token -1"),
        ([0, 1], {}, InvalidInputError, "\\[prompt\\]"),
        ([[0.5]], {}, InvalidInputError, "float64"),
        (3, {}, InvalidInputError, "int"),
        ([[0]], {"gamma": -1}, InvalidParameterError, "γ = -1"),
        ([[0]], {"gamma": 1.5}, InvalidParameterError, "γ = 1.5"),
        ([[0]], {"gamma": lambda steps: None}, InvalidParameterError, "γ = None"),
        ([[0]], {"max_tokens": 0}, InvalidParameterError, "max_tokens = 0"),
        ([[0]], {"eos_token_id": 3}, InvalidParameterError, "eos_token_id = 3"),
        ([[0]], {"seed": -1}, InvalidParameterError, "seed = -1"),
        ([[0]], {"uniforms": []}, InvalidParameterError, "each of the 1"),
        ([[0]], {"seed": 1, "uniforms": [lambda m: 0]}, InvalidParameterError, "only one"),
        ([[0]], {"rule": "tree"}, UnknownMethodError, "chain, block"),
        ([[0]], {"rule": ["chain"]}, UnknownMethodError, "chain, block"),
        ([[0]], {"temperature": 0}, InvalidParameterError, "no option 'temperature'.*sampling="),
        ([[0]], {"sampling": 0.7}, InvalidParameterError, "sampling = 0.7.*SamplingParameters"),
        ([[0]], {"sampling": 0}, InvalidParameterError, "sampling = 0;"),
        ([[0]], {"draft_sampling": {}}, InvalidParameterError, "sampling = {}"),
        ([[0]], {"stop": 5}, InvalidParameterError, "stop = 5"),
        ([[0]], {"logits_processor": 5}, InvalidParameterError, "logits_processor = 5"),
        (
            [[0]],
            {"logits_processor": lambda tokens, scores: scores},
            InvalidParameterError,
            "does not take three arguments.*lambda tokens, scores, _",
        ),
        ([[0]], {"seed": True}, InvalidParameterError, "seed = True"),
        ([[0]], {"gamma": -(10**5000)}, InvalidParameterError, "γ = <a negative integer"),
        ([[0]], {"max_tokens": -(10**5000)}, InvalidParameterError, "max_tokens = <"),
        ([[0, [1, 2]]], {}, InvalidInputError, "rows of tokens"),
    ],
)
def test_bad_input_is_refused(
    prompts: Prompts, options: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        speculative(GOOD, GOOD, prompts, **options)  # type: ignore[arg-type]


def test_models_that_do_not_fit_are_refused_before_any_work() -> None:
    small = _Logits([0.0, 1.0])
    with pytest.raises(InvalidInputError, match=r"vocabulary of 2 tokens.* one of 3"):
        speculative(GOOD, small, [[0]])
    short = _Logits([0.0, 1.0, 2.0], context_length=10)
    for pair, name in (((short, GOOD), "target"), ((GOOD, short), "draft")):
        with pytest.raises(InvalidInputError, match=f"{name} model, whose limit is 10"):
            speculative(*pair, [[0, 1, 2]], max_tokens=8)
        assert speculative(*pair, [[0, 1, 2]], max_tokens=7, seed=0).tokens == 7


@pytest.mark.parametrize("bad", [[np.nan, 0.0, 1.0], [np.inf, 0.0, 1.0], [-np.inf] * 3])
@pytest.mark.parametrize("sampling", [SamplingParameters(), SamplingParameters(top_k=2)])
def test_logits_that_give_no_law_are_refused(
    bad: list[float], sampling: SamplingParameters
) -> None:
    """Catches NaN that a truncation by comparisons would drop."""
    for pair in ((_Logits(bad), GOOD), (GOOD, _Logits(bad))):
        with pytest.raises(InvalidDistributionError, match=r"NaN|∞"):
            speculative(*pair, [[0]], sampling=sampling)


def test_rules_for_other_drafts_are_refused() -> None:
    with pytest.raises(UnknownMethodError, match="it is for HubPairs drafts"):
        spectr(GOOD, GOOD, [[0]], k=2, rule="SpecHub")
    with pytest.raises(UnknownMethodError, match="k-Seq"):
        spectr(GOOD, GOOD, [[0]], rule="best")
    for branching in (0, (), (2, 0), 1.5, True):
        with pytest.raises(InvalidInputError):
            spectr(GOOD, GOOD, [[0]], k=branching)  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("wrong", [None, 0.5, KSeq])
def test_rules_without_a_plan_are_refused(wrong: object, k: int) -> None:
    """Catches an AttributeError from the depth of the loop."""
    with pytest.raises(InvalidParameterError, match=r"the rule .* returned .*a TransportPlan"):
        spectr(GOOD, GOOD, [[0]], k=k, rule=lambda problem: wrong)  # type: ignore[arg-type, return-value]


def test_a_tree_needs_a_verifier_for_trees_and_drafts_need_their_law() -> None:
    drafter = ModelDrafter(GOOD, 2)
    with pytest.raises(InvalidDraftsError, match="needs a single chain"):
        list(stream(GOOD, [[0]], drafter))
    root = DraftNode(children=[DraftNode((1,))])
    with pytest.raises(InvalidDraftsError, match="NoneType as `draft_probs`"):
        verify_chain(root, lambda path: SparseProbs([1], [1.0]), np.random.default_rng(0).random)


def test_a_step_is_yielded_as_soon_as_it_is_made() -> None:
    steps = stream(TARGET, [[0]], ModelDrafter(DRAFT), gamma=2, seed=0)
    first = next(steps)
    assert first.position == 1
    assert next(steps).position == 1 + len(first.output)


@pytest.mark.parametrize("rule", [OptimalPlan, KSeq])
def test_a_prefix_tree_is_no_deeper_than_its_levels(rule: type[KSeq]) -> None:
    generation = spectr(TARGET, DRAFT, [[0]], k=(3, 2), rule=rule, gamma=9, max_tokens=20, seed=0)
    assert max(step.drafted for step in generation.steps) == 2
    assert max(len(step.output) for step in generation.steps) == 3


class _Trees(Drafter):
    """A drafter that always returns the same trees."""

    def __init__(self, trees: object) -> None:
        self.trees = trees

    @property
    def seconds(self) -> float:
        return 0.0

    def draft(self, *_: object) -> list[DraftNode]:
        return self.trees  # type: ignore[return-value]


HALF = SparseProbs([0, 1], [0.5, 0.5])


def _chain(*tokens: int) -> DraftNode:
    root = node = DraftNode()
    for i in range(len(tokens)):
        node.draft_probs, node.children = HALF, [DraftNode(tokens[: i + 1])]
        node = node.children[0]
    return root


@pytest.mark.parametrize(
    ("trees", "words"),
    [
        (None, "a DraftNode for each of 1"),
        ([], "a DraftNode for each of 1"),
        ([None], "the root of a tree"),
        ([DraftNode((0,))], "the root of a tree"),
        ([DraftNode((), HALF, [DraftNode((-1,))])], "tokens 0 to 2"),
        ([DraftNode((), HALF, [DraftNode((7,))])], "tokens 0 to 2"),
        ([DraftNode((), HALF, [DraftNode((1.5,))])], "tokens 0 to 2"),  # type: ignore[arg-type]
        ([DraftNode((), HALF, [DraftNode(("a",))])], "tokens 0 to 2"),  # type: ignore[arg-type]
        ([DraftNode((), HALF, [DraftNode((2,))])], "positive probability"),
        ([DraftNode((), SparseProbs([0], [1.0]), [DraftNode((1,))])], "positive probability"),
        ([DraftNode((), None, [DraftNode((1,))])], "NoneType as `draft_probs`"),
        ([DraftNode((), np.ones(3), [DraftNode((1,))])], "ndarray as `draft_probs`"),  # type: ignore[arg-type]
        (
            [
                DraftNode(
                    (),
                    HALF,
                    [DraftNode((0,), HALF, [DraftNode((0, 0), HALF, [DraftNode((0, 0, 1))])])],
                )
            ],
            "at most 2",
        ),
        ([DraftNode((), HALF, [DraftNode((0,), HALF, [DraftNode((1, 0))])])], "extend the path"),
    ],
)
@pytest.mark.parametrize(
    "verify", [verify_chain, verify_traversal, verify_walk_and_keep, spectr_verifier(KSeq)]
)
def test_malformed_trees_are_refused(trees: object, words: str, verify: Verifier) -> None:
    """Catches tokens outside the vocabulary, and drafts that break losslessness without a word."""
    with pytest.raises(InvalidDraftsError, match=words):
        list(stream(SAME, [[0]], _Trees(trees), verify, gamma=2, max_tokens=30, seed=0))


SAME = _Logits([0.0, 0.0, 0.0])


def test_agreeing_nodes_must_have_one_law() -> None:
    """Catches drafts that are not i.i.d.: they would be judged by the distribution of the first."""
    other = SparseProbs([0, 1], [0.9, 0.1])
    for law, count in ((other, 1), (HALF, 2)):
        below = [DraftNode((0, 1)) for _ in range(count)]
        children = [DraftNode((0,), HALF, [DraftNode((0, 1))]), DraftNode((0,), law, below)]
        tree = DraftNode((), SparseProbs([0], [1.0]), children)
        with pytest.raises(InvalidDraftsError, match=r"not i\.i\.d\."):
            list(
                stream(
                    _Logits([0.0, -np.inf]),
                    [[0]],
                    _Trees([tree]),
                    spectr_verifier(KSeq),
                    gamma=2,
                    seed=0,
                )
            )


@pytest.mark.parametrize("wrong", [(1, 1, 4), (1, 1, 2), (2, 1, 3), (1, 2, 3), (3,)])
def test_scores_of_another_shape_are_refused(wrong: tuple[int, ...]) -> None:
    class Wrong(_Constant):
        def append(self, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
            return np.zeros(wrong)

    class Model(_Logits):
        def start(self, rows: int) -> Session:
            return Wrong(self.logits)

    with pytest.raises(InvalidDistributionError, match="array or a tensor \\(1, 1, 3\\)"):
        autoregressive(Model([0.0, 0.0, 0.0]), [[0]])


def test_a_verifier_that_outputs_nothing_does_not_hang() -> None:
    with pytest.raises(InvalidDraftsError, match="no token"):
        list(stream(GOOD, [[0]], ModelDrafter(GOOD), lambda *_: ()))


@pytest.mark.parametrize("rule", ["chain", "block"])
def test_very_long_chains_are_judged(rule: str) -> None:
    """Catches recursion over the depth of a tree."""
    one = TableModel({(): [1.0]})
    generation = speculative(one, one, [[0]], gamma=1500, rule=rule, max_tokens=1501, seed=0)
    assert [step.accepted for step in generation.steps] == [1500]


@pytest.mark.parametrize(
    "uniforms", [[np.nan], [1.0], [-0.5], [0.1, 0.2], 0.5, None, "half", [[0.5]]]
)
def test_uniforms_of_a_source_are_checked(uniforms: object) -> None:
    for rule in ("k-Seq", "traversal", "walk and keep"):
        with pytest.raises(InvalidUniformsError):
            spectr(GOOD, GOOD, [[0]], k=1, rule=rule, uniforms=[lambda m: uniforms])  # type: ignore[arg-type, return-value]


def test_prompts_may_come_from_a_generator() -> None:
    generation = speculative(GOOD, GOOD, ([token] for token in (0, 1)), max_tokens=3, seed=0)  # type: ignore[arg-type]
    assert generation.prompts == ((0,), (1,))


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="HuggingFaceModel"):
        autoregressive("gpt2", [[0]])  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="the draft is a str"):
        speculative(GOOD, "gpt2", [[0]])  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="no effect on a drafter"):
        spectr(GOOD, ModelDrafter(GOOD), [[0]], k=2)
    with pytest.raises(InvalidParameterError, match="no effect on a drafter"):
        speculative(GOOD, ModelDrafter(GOOD), [[0]], draft_sampling=SamplingParameters())
    with pytest.raises(InvalidParameterError, match="one of the names optimal, k-Seq"):
        spectr(GOOD, GOOD, [[0]], rule=3)  # type: ignore[arg-type]


def test_a_model_in_place_of_a_drafter_is_refused() -> None:
    """Bug: an AttributeError, since a model counts no seconds."""
    wrapped = r"the drafter is a _Logits; give a Drafter, such as ModelDrafter\(model\)"
    with pytest.raises(InvalidInputError, match=wrapped):
        stream(GOOD, [[0]], GOOD)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=wrapped):
        AcceleratedDrafter(GOOD, GOOD)  # type: ignore[arg-type]


def test_a_shorter_path_that_is_accepted_whole_is_no_rejection() -> None:
    """Catches an acceptance rate below one for equal models on uneven trees."""
    law = SparseProbs([0], [1.0])
    tree = DraftNode((), law, [DraftNode((0,))])
    step = next(stream(TableModel({(): [1.0]}), [[0]], _Trees([tree]), gamma=3, seed=0))
    assert (step.accepted, step.rejected) == (1, False)
    uneven = Step(0, 0, 1, 2, ((0, 1), (1,)), (1, 2), 1, None, Seconds(0, 0, 0))
    assert not uneven.rejected
    refused = Step(0, 0, 1, 2, ((0, 1), (1,)), (0, 2), 1, None, Seconds(0, 0, 0))
    assert refused.rejected


@pytest.mark.parametrize("verifier", [5, "chain", DeviceVerifier])
def test_no_verifier(verifier: Any) -> None:
    with pytest.raises(InvalidParameterError, match="give a function such as"):
        stream(TableModel({(): [0.5, 0.5]}), [[0]], None, verifier)
