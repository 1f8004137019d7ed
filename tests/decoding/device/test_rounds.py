"""Rounds on a device: the decisions of the definition in fractions, and one way to the host."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm._core.probs.sparse import SparseProbs
from otm._core.tensors import like
from otm.coupling import KSeq
from otm.decoding import (
    DeviceVerifier,
    DraftNode,
    ModelDrafter,
    NonAutoregressiveDrafter,
    PromptLookup,
    Randomness,
    SamplingParameters,
    Step,
    TargetProbs,
    Verifier,
    spectr,
    stream,
)
from otm.decoding.device.session import DeviceSession
from otm.decoding.reading import Path
from otm.decoding.rounds import RoundsTask
from otm.decoding.sampling_parameters import probs_on_device
from otm.decoding.verifiers.by_rule import kernel_rule, tree_rule
from otm.errors import InvalidDistributionError, InvalidDraftsError, UnknownMethodError
from otm.kernels import verify_probs
from otm.kernels.registry import uniforms_per_position
from otm.models import LanguageModel, Session, TableModel
from otm.models.gpt.model import GPT
from otm.models.gpt.transformer import GPTConfig
from otm.rules import RULES as RULES_BY_NAME

torch = pytest.importorskip("torch")

from tests.decoding.device.ways_to_host import counted_by_step  # noqa: E402

VOCABULARY = 5
RNG = np.random.default_rng(11)
TARGET = TableModel.random(VOCABULARY, 2, RNG)
DRAFT = TableModel.random(VOCABULARY, 2, RNG)
PROMPTS = [[0], [1, 2], [3, 4, 0], [2, 2, 0, 2]]
RULES = [("chain", 1), ("block", 1), ("grid k-Seq", 3), ("grid optimal", 3), ("grid optimal", 1)]
RULES += [("grid walk and keep", 3)]


def by_definition(rule: str, *, exact: bool = True) -> Verifier:
    """Verify a tree of chains by the kernel's definition, in fractions: no tensor, no batch."""
    kind = np.vectorize(Fraction, otypes=[object]) if exact else np.asarray

    def verify(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
        paths = root.repeated_leaf_paths() or [()]
        gamma, chains = len(paths[0]), len(paths)

        def row(probs: Any) -> Any:
            return kind(probs.dense(VOCABULARY))

        nodes = {id(node): node for node in root.nodes()}.values()
        drawn_from = {node.path: node.checked_draft_probs() for node in nodes if node.children}
        target = np.array([[row(target_probs(p[:i])) for i in range(gamma + 1)] for p in paths])
        draft = np.array([[row(drawn_from[p[:i]]) for i in range(gamma)] for p in paths])
        tokens = np.array(paths, np.int64).reshape(chains, gamma)
        used = rule if gamma else "chain"
        coins = kind(uniforms(gamma * uniforms_per_position(used, chains) + 2))
        if gamma == 0 or not rule.startswith("grid"):
            target, draft, tokens = target[0], draft[0], tokens[0]
        draft = draft.astype(target.dtype).reshape(*tokens.shape, VOCABULARY)
        made = verify_probs(target[None], draft[None], tokens[None], coins[None], rule=used)
        return tuple(made.tokens[0, : made.accepted[0] + 1].tolist())

    return verify


def outcomes(
    verifier: Verifier | DeviceVerifier,
    drafter: Callable[[], Any],
    prompts: Sequence[Sequence[int]] = PROMPTS,
    target: LanguageModel = TARGET,
    **options: Any,
) -> dict[int, list[tuple[Any, ...]]]:
    """All steps of each sequence: what was drafted, what came out, how it ended."""
    exact = not (isinstance(verifier, DeviceVerifier) or options.pop("floats", False))

    def source(prompt: Sequence[int]) -> Randomness:
        rng = np.random.default_rng([7, *prompt])
        if exact:
            return lambda m: np.array([Fraction(u) for u in rng.random(m)], object)
        return rng.random

    found: dict[int, list[tuple[Any, ...]]] = {b: [] for b in range(len(prompts))}
    options = {"max_tokens": 15, "uniforms": list(map(source, prompts)), **options}
    for step in stream(target, prompts, drafter(), verifier, **options):
        found[step.sequence].append(
            (step.gamma, step.drafts, step.output, step.accepted, step.finish_reason)
        )
    return found


def changing(steps: Sequence[Step]) -> int:
    """Choose another number in every step and sequence, 0 among them."""
    return (2 * len(steps) + sum(len(step.output) for step in steps)) % 5


@pytest.mark.parametrize(("rule", "chains"), RULES)
@pytest.mark.parametrize("gamma", [3, changing], ids=["fixed", "changing"])
def test_decides_as_the_definition_in_fractions(rule: str, chains: int, gamma: Any) -> None:
    """Catches rows, coins and caches of other sequences, drafts beyond an end, and rounding."""
    options = {"gamma": gamma, "eos_token_id": 4}

    def drafter() -> ModelDrafter:
        return ModelDrafter(DRAFT, chains)

    on_device = outcomes(DeviceVerifier(rule), drafter, **options)
    assert on_device == outcomes(by_definition(rule), drafter, **options)
    endings = {steps[-1][-1] for steps in on_device.values()}
    assert endings == {"eos"} or "length" in endings
    assert any(step[3] for steps in on_device.values() for step in steps)  # some are accepted


@pytest.mark.parametrize("rule", ["grid k-Seq", "grid optimal", "grid walk and keep"])
@pytest.mark.parametrize("branching", [(3, 2, 1), (1, 1, 2), (2, 1)], ids=str)
@pytest.mark.parametrize("gamma", [3, changing], ids=["fixed", "changing"])
def test_prefix_trees_are_those_of_the_host(
    rule: str, branching: tuple[int, ...], gamma: Any
) -> None:
    """Catches shared draws that count twice, coins of other nodes, and tokens read twice."""

    def drafter() -> ModelDrafter:
        return ModelDrafter(DRAFT, branching)

    options = {"gamma": gamma, "eos_token_id": 4, "floats": True}
    on_host = outcomes(RULES_BY_NAME[rule].load_verifier(), drafter, **options)
    options.pop("floats")
    assert outcomes(DeviceVerifier(rule), drafter, **options) == on_host
    assert any(step[3] for steps in on_host.values() for step in steps)


SEEN: set[tuple[int, ...]] = set()
"""Rows that were processed."""


def penalised(tokens: Any, scores: Any, prompts: Any) -> Any:
    """Lower what a row has had, by how often, and one token in each prompt's own way."""
    SEEN.update(map(tuple, tokens.tolist()))
    for token in range(VOCABULARY):
        scores[:, token] -= 0.7 * (tokens == token).sum(1)
    scores[:, 2] += like(scores, np.asarray(prompts))
    return scores


@pytest.mark.parametrize(("rule", "chains"), RULES)
@pytest.mark.parametrize("of_drafts", [penalised, None])
def test_processors_see_what_they_see_on_the_host(rule: str, chains: int, of_drafts: Any) -> None:
    """Catches prefixes of another row, position or prompt, when sequences end one by one."""
    target, draft = flat(TARGET), flat(DRAFT)
    options: dict[str, Any] = {
        "target": target, "logits_processor": penalised, "gamma": changing, "eos_token_id": 4,
    }  # fmt: skip

    def drafter() -> ModelDrafter:
        return ModelDrafter(draft, chains, None, of_drafts)

    SEEN.clear()
    found = outcomes(DeviceVerifier(rule), drafter, **options)
    drafted = {
        (*prompt, *before, *path[:i])
        for prompt, steps in zip(PROMPTS, found.values(), strict=True)
        for before, step in zip(accumulated(steps), steps, strict=True)
        for path in (*step[1], ())
        for i in range(len(path) + 1)
    }
    assert SEEN <= drafted, "rows after tokens that nobody drafted, where a grammar may raise"
    options["floats"] = True
    assert found == outcomes(by_definition(rule, exact=False), drafter, **options)
    without = outcomes(DeviceVerifier(rule), drafter, target=target, gamma=changing, eos_token_id=4)
    assert found != without


def accumulated(steps: Sequence[tuple[Any, ...]]) -> list[Path]:
    """List what stood before each step, behind the prompt."""
    return list(itertools.accumulate((step[2] for step in steps[:-1]), initial=()))


def flat(model: TableModel) -> TableModel:
    """Return a model in floats that gives every token."""
    rows = [
        (c, model.probs(c).astype(float)) for c in itertools.product(range(VOCABULARY), repeat=2)
    ]
    return TableModel(
        {(): np.full(VOCABULARY, 1 / VOCABULARY)}
        | {context: (row + 0.1) / (row + 0.1).sum() for context, row in rows}
    )


@pytest.mark.parametrize("stop", [None, lambda new: len(new) == 7])
def test_any_drafter_of_chains(stop: Any) -> None:
    """Chosen drafts, with no drafts for some sequences, and chains of heads."""
    first, second = (
        SparseProbs(tokens, [Fraction(1, 4), Fraction(3, 4)]) for tokens in ([0, 3], [1, 2])
    )

    def heads(contexts: Sequence[Any], gamma: int) -> list[list[SparseProbs]]:
        return [[first, second, first][:gamma] for _ in contexts]

    drafters: list[tuple[str, Callable[[], Any]]] = [
        ("chain", PromptLookup),
        ("block", PromptLookup),
        ("grid optimal", PromptLookup),  # a rule for several chains: none is chosen
        ("block", lambda: NonAutoregressiveDrafter(heads, VOCABULARY)),
        ("grid optimal", lambda: NonAutoregressiveDrafter(heads, VOCABULARY, branching=3)),
        ("chain", lambda: None),
    ]
    for rule, drafter in drafters:
        options = {"gamma": 3, "stop": stop}
        found = outcomes(DeviceVerifier(rule), drafter, **options)
        assert found == outcomes(by_definition(rule), drafter, **options)


@pytest.mark.parametrize(("rule", "chains"), RULES)
def test_a_sequence_does_not_depend_on_its_batch(rule: str, chains: int) -> None:
    """With a transformer and its cache; catches rows that are mixed up when they are kept."""
    target, draft = gpt(0, layers=2), gpt(1, layers=1)
    options: dict[str, Any] = {"target": target, "gamma": 3, "eos_token_id": 4}

    def drafter() -> ModelDrafter:
        return ModelDrafter(draft, chains, SamplingParameters(temperature=0.7))

    together = outcomes(DeviceVerifier(rule), drafter, **options)
    alone = [
        outcomes(DeviceVerifier(rule), drafter, prompts=[prompt], **options)[0]
        for prompt in PROMPTS
    ]
    assert list(together.values()) == alone


@pytest.mark.parametrize("first", [False, True])
def test_a_stream_may_enter_and_leave_the_inference_mode(first: bool) -> None:
    """Bug: memory of one round that the next one cannot write to, by an error of torch."""
    target, drafter = gpt(0, layers=2), ModelDrafter(gpt(1, layers=1))

    def decode(modes: Iterator[bool]) -> list[Path]:
        steps = stream(target, PROMPTS, drafter, DeviceVerifier("block"), max_tokens=9, seed=0)
        made: list[Path] = []
        for mode in modes:
            with torch.inference_mode(mode):
                step = next(steps, None)
                assert torch.is_inference_mode_enabled() == mode
            if step is None:
                break
            made.append(step.output)
        return made

    assert decode(itertools.cycle([first, first, not first])) == decode(itertools.repeat(False))
    assert torch.is_grad_enabled()


def gpt(seed: int, layers: int) -> GPT:
    """Make a small transformer in float64, whose distributions are not flat."""
    config = GPTConfig(layers, 12, 2, context_length=40, vocabulary=VOCABULARY)
    weights = {name: 4 * w.double() for name, w in GPT.random(config, seed=seed).weights.items()}
    return GPT(config, weights)


@pytest.mark.parametrize(("rule", "chains"), RULES)
@pytest.mark.parametrize(
    "sampling", [None, SamplingParameters(0.8, top_k=3, top_p=0.9, min_p=0.01)], ids=str
)
def test_one_copy_of_whole_numbers_a_round(
    rule: str, chains: int, sampling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches any other way to the host; a copy of scores would be V times as long."""
    target, draft = gpt(0, layers=2), gpt(1, layers=1)
    gamma = 3
    with counted_by_step(monkeypatch) as rounds:
        outcomes(
            DeviceVerifier(rule), lambda: ModelDrafter(draft, chains, sampling),
            target=target, gamma=gamma, sampling=sampling,
        )  # fmt: skip
    most = len(PROMPTS) * (chains * gamma + gamma + 3)
    assert len(rounds) > 5
    assert all(len(sizes) == 1 and sizes[0] <= most for sizes in rounds)


def test_a_further_way_to_the_host_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control of the test above."""
    from otm.decoding.device.session import DeviceSession

    probs = DeviceSession.probs
    for way in (
        lambda scores: scores.numpy(),
        lambda scores: scores.sum().item(),
        lambda scores: bool(scores.isfinite().all()),
        lambda scores: scores[scores > 0],
        np.asarray,
        lambda scores: scores.tolist(),
        lambda scores: scores.nonzero(),
        lambda scores: scores.to("cpu"),
        np.from_dlpack,
    ):

        def leaking(rows: DeviceSession, scores: Any, *more: Any, way: Any = way) -> Any:
            way(scores)
            return probs(rows, scores, *more)

        monkeypatch.setattr(DeviceSession, "probs", leaking)
        with counted_by_step(monkeypatch) as rounds:
            outcomes(
                DeviceVerifier(), lambda: ModelDrafter(gpt(1, 1)), target=gpt(0, 1), gamma=2,
                max_tokens=4,
            )  # fmt: skip
        assert all(len(sizes) > 1 for sizes in rounds[:1]), way


class Broken(LanguageModel):
    """Scores without a distribution after one token."""

    vocabulary = VOCABULARY

    def __init__(self, bad: Any, after: int) -> None:
        self.scores = torch.zeros(VOCABULARY, VOCABULARY, dtype=torch.float64)
        self.scores[after] = torch.tensor(bad)

    def start(self, rows: int) -> Session:
        scores = self.scores

        class Last(Session):
            def append(self, tokens: Any) -> Any:
                return scores[tokens]

            def keep(self, rows: Any, lengths: Any) -> None:
                pass

        return Last()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", ["target", "draft"])
def test_scores_without_a_distribution_are_refused(bad: float, place: str) -> None:
    """The error comes before the loop keeps a token of this step, and only for rows it reads."""
    models = {"target": Broken(0.0, 3), "draft": Broken(0.0, 3), place: Broken(bad, 3)}

    def decode(first: int, max_tokens: int, rule: str = "chain") -> None:
        drafter, verifier = ModelDrafter(models["draft"]), DeviceVerifier(rule)
        prompts = [[1], [first]]
        options: dict[str, Any] = {"max_tokens": max_tokens, "gamma": 2, "seed": 0}
        list(stream(models["target"], prompts, drafter, verifier, **options))

    tokens = 1 if place == "target" else 5  # with one token to go nothing is drafted
    decode(2, 1)
    for rule in ("chain", "block"):
        named = f"sequence 1 of the batch: the logits of the {place} model have NaN"
        with pytest.raises(InvalidDistributionError, match=named):
            decode(3, tokens, rule)


class Stated(LanguageModel):
    """The same scores after every token, as a tensor of some type."""

    device = torch.device("cpu")

    def __init__(self, scores: list[float], dtype: Any, *, probs: bool = False) -> None:
        self.vocabulary, self.returns_probs = len(scores), probs
        self.scores = torch.tensor(scores, dtype=dtype)

    def start(self, rows: int) -> Session:
        scores = self.scores

        class Alike(Session):
            def append(self, tokens: Any) -> Any:
                return scores.expand(*tokens.shape, -1)

            def keep(self, rows: Any, lengths: Any) -> None:
                pass

        return Alike()


@pytest.mark.parametrize("place", [0, 1], ids=["target", "draft"])
@pytest.mark.parametrize("wrong", [[3.0, 1.0, -2.0], [0.5, 0.5, 1.0], [0.0, 0.0, 0.0]])
def test_probabilities_that_are_none_are_refused(wrong: list[float], place: int) -> None:
    """Bug: logits that are called probabilities, decoded without a word."""
    models = [Stated([0.25, 0.5, 0.25], torch.float32, probs=True) for _ in range(2)]

    def decode() -> list[Step]:
        target, draft = models
        steps = stream(target, [[0]], ModelDrafter(draft), DeviceVerifier(), max_tokens=4, seed=0)
        return list(steps)

    assert decode()
    models[place] = Stated(wrong, torch.float32, probs=True)
    with pytest.raises(InvalidDistributionError, match=r"do not sum to one"):
        decode()


def test_processed_scores_keep_their_digits() -> None:
    """Bug: what a processor makes of bfloat16 was rounded to it again."""
    target = Stated([20.0] * 3, torch.bfloat16)

    def process(tokens: Any, scores: Any, prompts: Any) -> Any:
        return scores.float() / 1.1 + torch.tensor([0.0, 0.05, -0.05])

    rows = DeviceSession(target, None, process)
    rows.follow([(0,)], None)
    scores = rows.read_contexts([(0,)])[:, None]
    nothing = torch.zeros((1, 1, 0), dtype=torch.int64)
    out = rows.memory(scores, scores.shape)
    probs, _ = rows.probs(scores, nothing, np.ones((1, 1), bool), out)
    expected = process(None, target.scores[None], None).double().softmax(-1)
    np.testing.assert_allclose(probs[0].double(), expected, rtol=1e-6)


@dataclass
class Builder:
    """A rule that cannot be hashed."""

    def __call__(self, problem: Any) -> Any:
        return KSeq(problem)


class Own(ModelDrafter):
    """A drafter that may draft in another way, so the host runs it."""


def test_what_the_device_leaves_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a rule or a drafter that the loop took for one of its own."""
    target, draft = gpt(0, 1), gpt(1, 1)

    def placed(rule: Any, drafter: Any, model: Any = target, **parameters: Any) -> Any:
        listed = RULES_BY_NAME[rule] if rule in ("chain", "block") else tree_rule(rule)
        task = RoundsTask(model, drafter, SamplingParameters(**parameters), None, 1, "auto")
        kernel = kernel_rule(listed, task)
        return kernel and kernel.name

    assert placed("chain", ModelDrafter(draft)) is None, "few tokens, a CPU"
    monkeypatch.setattr("otm.decoding.rounds.LEAST_VOCABULARY", VOCABULARY)

    one, three = ModelDrafter(draft), ModelDrafter(draft, 3)
    assert placed("k-Seq", one) == placed(KSeq, one) == placed("chain", PromptLookup()) == "chain"
    assert placed("grid optimal", three) == placed("grid optimal", three, temperature=2)
    assert placed("block", None) == "block"
    assert placed("grid optimal", ModelDrafter(draft, (2, 1))) == "grid optimal"
    assert placed("optimal", PromptLookup()) == placed(KSeq, PromptLookup()) == "chain"
    for left in (
        placed("k-Seq", three), placed(Builder(), one), placed("block", Own(draft)),
        placed("grid optimal", Own(draft, (2, 1))), placed("block", one, TARGET),
        placed("k-Seq", ModelDrafter(draft, (2, 1))), placed("block", ModelDrafter(draft, (2, 1))),
        placed("block", ModelDrafter(DRAFT)), placed("block", one, top_k=3),
        placed("block", one, temperature=0),
    ):  # fmt: skip
        assert left is None
    options: dict[str, Any] = {"rule": Builder(), "k": 1, "max_tokens": 3, "seed": 0}
    assert spectr(target, draft, [[0]], **options).sequences


def test_what_is_refused() -> None:
    wide = NonAutoregressiveDrafter(lambda c, g: [[SparseProbs([0, 7], [0.5, 0.5])]] * len(c))
    with pytest.raises(InvalidDraftsError, match="gives token 7"):
        next(stream(TARGET, [[0]], wide, DeviceVerifier("chain"), uniforms=[np.zeros]))
    with pytest.raises(UnknownMethodError, match="traversal"):
        DeviceVerifier("traversal")
    several = ModelDrafter(DRAFT, 3)
    with pytest.raises(InvalidDraftsError, match="3 drafts of a token, but the rule 'chain'"):
        next(stream(TARGET, [[0]], several, DeviceVerifier("chain")))
    tree = Own(DRAFT, (1, 2))
    with pytest.raises(InvalidDraftsError, match="2 drafts after"):
        next(stream(TARGET, [[0]], tree, DeviceVerifier("grid optimal")))


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParameters(),
        SamplingParameters(0),
        SamplingParameters(0.3),
        SamplingParameters(1e-300),
        SamplingParameters(1.5, top_k=3),
        SamplingParameters(0.9, top_p=0.7),
        SamplingParameters(0.9, top_k=4, top_p=0.7, min_p=0.2),
    ],
    ids=str,
)
def test_sampling_on_a_device_is_that_on_the_host(sampling: SamplingParameters) -> None:
    logits = np.random.default_rng(3).normal(0, 3, (4, 7)).round(1)
    logits[0, 2:4] = -np.inf
    logits[1] = 1.0  # ties
    expected = sampling(logits)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        probs, good = probs_on_device(sampling, torch.tensor(logits, dtype=dtype))
        assert good.all()
        np.testing.assert_allclose(probs.double().numpy(), expected, atol=tolerance)
