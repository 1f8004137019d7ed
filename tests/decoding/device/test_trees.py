"""Trees on a device: the host's trees, an exact distribution, and one way to the host."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otm.decoding import (
    BestFirstDrafter,
    DeviceVerifier,
    Drafter,
    DraftNode,
    DrawnTreeDrafter,
    ModelDrafter,
    PromptLookup,
    SamplingParameters,
    StaticTreeDrafter,
    stream,
)
from otm.decoding.generate import autoregressive, decode
from otm.decoding.reading import Path
from otm.decoding.rounds import Batch, RoundsTask
from otm.decoding.verifiers.by_rule import tree_verifier
from otm.errors import InvalidDraftsError, InvalidParameterError, UnknownMethodError
from otm.kernels.common.distributions.numpy import locate, mass
from otm.kernels.tree.numpy import Trees
from otm.kernels.tree_walk import numpy as reference
from otm.models.gpt.model import GPT
from otm.models.gpt.transformer import GPTConfig
from otm.models.table import TableModel

torch = pytest.importorskip("torch")

from otm.decoding.device import grown_trees, tree_drafts, trees  # noqa: E402
from tests.decoding.device.ways_to_host import counted_by_step  # noqa: E402

SIZES = {"layers": 1, "width": 8, "heads": 2, "vocabulary": 7}


def model(seed: int) -> GPT:
    """Return a random model whose distributions are far from uniform."""
    made = GPT.random(GPTConfig(**SIZES), seed=seed)
    weights = {name: tensor * 3 for name, tensor in made.weights.items()}
    return GPT(made.config, weights)


TARGET, DRAFT = model(0), model(1)
SHAPE = (((), ((),)), ((),), ())
CONTEXTS = [(1, 2, 3), (4,), (5, 0)]
DEPTHS = [4, 3, 1]
WITHOUT = "recursive rejection without replacement"


def of_kind(kind: str) -> list[Drafter]:
    """Return drafters with trees of a fixed shape and of a kind of drafts."""
    return [ModelDrafter(DRAFT, (3, 2, 1), draft_kind=kind), StaticTreeDrafter(DRAFT, SHAPE, kind)]


CERTAIN = [BestFirstDrafter(DRAFT, 12), BestFirstDrafter(DRAFT, 12, width=2), *of_kind("Top")]
DRAWN = [DrawnTreeDrafter(DRAFT, 10), *of_kind("Greedy")]
CASES = [
    *(("target-only", drafter) for drafter in CERTAIN),
    *(("walk and keep", drafter) for drafter in (*DRAWN, CERTAIN[0])),
    *(("greedy", drafter) for drafter in DRAWN[1:]),
    *((WITHOUT, drafter) for drafter in of_kind("WithoutReplacement")),
]


def label(value: Any) -> str:
    """Return a name of a rule or a drafter, the same in each process."""
    kind = getattr(value, "draft_kind", getattr(value, "width", ""))
    return value if isinstance(value, str) else f"{type(value).__name__} {kind}"


def sources(seed: int = 0, count: int = len(CONTEXTS)) -> list[Callable[[int], Any]]:
    """Return a source of uniforms for each sequence."""
    return [np.random.default_rng([seed, b]).random for b in range(count)]


def grown(drafter: Any) -> tree_drafts.DraftedTrees:
    """Return the trees that grow after the contexts."""
    with torch.no_grad():
        return tree_drafts.GrownTrees(drafter).draft(Batch(CONTEXTS, DEPTHS, None, sources()))


def texts(drafted: tree_drafts.DraftedTrees, b: int) -> list[Path]:
    """Return the path of each node of a tree; unused nodes have the path of their number."""
    found: list[Path] = []
    for token, parent in zip(drafted.tokens[b].tolist(), drafted.parents[b].tolist(), strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found


def probs_after(of: GPT, text: Path) -> Any:
    """Return the distribution after a text, which a new session reads as one row."""
    return of.start(1).append(np.array([text]))[0, -1].double().softmax(-1).numpy()


@pytest.mark.parametrize("drafter", CERTAIN, ids=label)
def test_certain_trees_are_those_of_the_host(drafter: Any) -> None:
    """Catches other depths, widths and rankings, and parents that a new order moves."""
    found = grown(drafter)
    roots = drafter.draft(CONTEXTS, DEPTHS, None, sources())
    for b, root in enumerate(roots):
        used = [path for path in texts(found, b) if path[-1] >= 0]
        assert sorted(used) == sorted(node.path for node in root.nodes())[1:]
    assert not found.sampled.any()
    assert found.probs is None


@pytest.mark.parametrize("drafter", [*DRAWN, *of_kind("WithoutReplacement")], ids=label)
def test_drawn_tokens_have_the_rows_that_verification_gets(drafter: Any) -> None:
    """Catches coins of other nodes, certain tokens that are drawn again, and rows that moved."""
    found = grown(drafter)
    nodes, most = found.tokens.shape[1], found.drawn
    for b, source in enumerate(sources()):
        coins, paths = source((nodes + 1) * most).reshape(-1, most), texts(found, b)
        depths = {0: 0, **{i + 1: len(path) for i, path in enumerate(paths)}}
        assert max(depths.values()) == DEPTHS[b] or len(paths[-1]) <= DEPTHS[b]
        for place in range(nodes + 1):
            children = [
                i
                for i in np.flatnonzero(found.parents[b] == place - 1).tolist()
                if found.tokens[b, i] >= 0
            ]
            drawn = [i for i in children if found.sampled[b, i]]
            if not drawn:
                continue
            row = found.probs[b, place].numpy()
            text = CONTEXTS[b] + (paths[place - 1] if place else ())
            expected = probs_after(DRAFT, text)
            expected[[paths[i][-1] for i in children if i not in drawn]] = 0
            np.testing.assert_allclose(row, expected, atol=1e-5)
            masses = mass(row.astype(np.float64))
            for coin, i in zip(coins[place], drawn, strict=False):
                assert locate(masses, coin) == paths[i][-1]
                masses[paths[i][-1]] = 0
    assert found.sampled.any()


def test_a_drawn_tree_has_the_shape_of_the_host_where_nothing_was_drawn_before() -> None:
    """Catches another threshold: the first level of a tree depends on no draw."""
    drafter = DrawnTreeDrafter(DRAFT, 10)
    found, roots = grown(drafter), drafter.draft(CONTEXTS, DEPTHS, None, sources())
    for b, root in enumerate(roots):
        first = (found.parents[b] == -1) & (found.tokens[b] >= 0)
        certain = root.children[:-1] if root.draft_kind == "Greedy" else root.children
        assert int(first.sum()) == len(root.children)
        tokens = found.tokens[b][first & ~found.sampled[b]].tolist()
        assert sorted(tokens) == sorted(node.token for node in certain)
        assert (found.tokens[b] >= 0).sum() <= 10


@pytest.mark.parametrize(("rule", "drafter"), CASES, ids=label)
def test_a_step_decides_as_the_reference_on_rows_read_alone(
    rule: str, drafter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches rows of other nodes, a mask that lets a node see others, and lost coins."""
    calls: list[Any] = []
    real = trees.verify_tree_probs

    def spy(*arguments: Any, **options: Any) -> Any:
        made = real(*arguments, **options)
        calls.append((*arguments, options["sampled"], made))
        return made

    monkeypatch.setattr(trees, "verify_tree_probs", spy)
    options: Any = {"max_tokens": 9, "uniforms": sources(3)}
    steps = list(stream(TARGET, CONTEXTS, drafter, DeviceVerifier(rule), gamma=3, **options))
    assert any(step.accepted for step in steps)
    live = [list(context) for context in CONTEXTS]
    for _, draft, tokens, parents, coins, sampled, made in calls:
        running = [b for b, text in enumerate(live) if len(text) < len(CONTEXTS[b]) + 9]
        drafted = tree_drafts.DraftedTrees(tokens, parents, sampled)
        rows = np.zeros((len(running), tokens.shape[1] + 1, TARGET.vocabulary))
        for i, b in enumerate(running):
            for place, path in enumerate([(), *texts(drafted, i)]):
                rows[i, place] = probs_after(TARGET, tuple(t for t in (*live[b], *path) if t >= 0))
        flags = np.zeros(tokens.shape, np.bool_) if sampled is None else sampled.numpy()
        arguments = Trees(tokens.numpy(), parents.numpy(), flags, coins.numpy())
        below = None if draft is None else draft.numpy()
        if rule == "walk and keep":
            expected = reference.verify(rows, below, arguments)
        else:
            options = {"sampled": None if below is None else flags, "validate": False}
            expected = real(rows, below, *arguments[:2], arguments.uniforms, **options)
        np.testing.assert_array_equal(made.tokens.numpy(), expected.tokens)
        for i, b in enumerate(running):
            live[b] += [t for t in made.tokens[i].tolist() if t >= 0]
            del live[b][len(CONTEXTS[b]) + 9 :]


def law_of_two(seed: int, drafter: Drafter, rule: str) -> float:
    """Return the largest deviation of two tokens' frequencies, in standard deviations."""
    count = 2000
    options: Any = {"max_tokens": 2, "seed": seed}
    made = decode(
        TARGET, [[1, 2, 3]] * count, drafter, DeviceVerifier(rule), gamma=2, options=options
    )
    found = np.zeros((7, 7))
    np.add.at(found, tuple(np.array(made.sequences).T), 1)
    first = probs_after(TARGET, (1, 2, 3))
    law = np.array([first[x] * probs_after(TARGET, (1, 2, 3, x)) for x in range(7)])
    return float((np.abs(found - count * law) / np.sqrt(count * law * (1 - law) + 1)).max())


@pytest.mark.parametrize(
    ("rule", "drafter"),
    [
        ("walk and keep", DRAWN[0]),
        ("greedy", DRAWN[1]),
        (WITHOUT, of_kind("WithoutReplacement")[0]),
    ],
    ids=["walk and keep", "greedy", "without replacement"],
)
def test_two_tokens_have_the_targets_distribution(rule: str, drafter: Drafter) -> None:
    """Catches drafts whose draws depend on each other or on their own values."""
    assert law_of_two(5, drafter, rule) < 4.5


def test_a_draw_with_a_coin_that_verification_does_not_know_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: the likelier half of the draws, with the rows of all of them."""
    real = grown_trees.draw_outside

    def likely(probs: Any, tokens: Any, counts: Any, coins: Any) -> Any:
        return real(probs, tokens, counts, coins * 0.5)

    monkeypatch.setattr(grown_trees, "draw_outside", likely)
    assert law_of_two(5, DRAWN[0], "walk and keep") > 6


@pytest.mark.parametrize(("rule", "drafter"), [CASES[0], CASES[4], CASES[-1]], ids=label)
def test_a_step_sends_the_trees_once(
    rule: str, drafter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a copy of rows, and a wait for a size that only the device knows."""
    monkeypatch.setattr(tree_drafts, "sizes_are_known", lambda device: False)
    task = RoundsTask(TARGET, drafter, None, None, 3, "torch")
    assert grown_rounds(task, rule, monkeypatch)
    with counted_by_step(monkeypatch, trees.TreeKernelRounds) as rounds:
        options: Any = {"max_tokens": 8, "seed": 0}
        list(stream(TARGET, CONTEXTS, drafter, DeviceVerifier(rule), gamma=3, **options))
    nodes = getattr(drafter, "nodes", 3 + 6 + 6)
    assert rounds
    assert all(len(sizes) == 1 for sizes in rounds)
    assert max(itertools.chain(*rounds)) <= 3 * (2 * nodes + 3 + 1 + 2)


@pytest.mark.parametrize(("rule", "drafter"), CASES, ids=label)
def test_a_cpu_reads_only_the_nodes_that_grow(
    rule: str, drafter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches children below another node than on a device, which reads all nodes."""
    options: Any = {"max_tokens": 12, "seed": 3}
    found = []
    for known in (True, False):
        monkeypatch.setattr(tree_drafts, "sizes_are_known", lambda device, known=known: known)
        steps = stream(TARGET, CONTEXTS, drafter, DeviceVerifier(rule), gamma=3, **options)
        found.append([(step.drafts, step.output) for step in steps])
    assert found[0] == found[1]


def grown_rounds(task: RoundsTask, rule: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether the trees of a task grow on the device."""
    rounds = trees.TreeKernelRounds(task, rule)
    return isinstance(rounds._drafts, tree_drafts.GrownTrees)


@pytest.mark.parametrize(("rule", "drafter"), CASES, ids=label)
def test_greedy_texts_are_those_of_the_target(rule: str, drafter: Any) -> None:
    """Catches caches that keep rejected drafts, or the wrong path."""
    options: Any = {"max_tokens": 20, "sampling": SamplingParameters(temperature=0), "seed": 1}
    made = decode(TARGET, CONTEXTS, drafter, DeviceVerifier(rule), gamma=3, options=options)
    assert made.sequences == autoregressive(TARGET, CONTEXTS, **options).sequences


class Repeated(PromptLookup):
    """A drafter on the host, of a tree with a drawn child or with equal ones."""

    def __init__(self, kind: str, *tokens: int) -> None:
        super().__init__()
        self.kind, self.tokens = kind, tokens

    def draft(self, contexts: Any, depths: Any, parents: Any, uniforms: Any) -> list[DraftNode]:
        """Return one level of drafts."""
        return [
            DraftNode((), None, [DraftNode((t,)) for t in self.tokens[: 2 * depth]], self.kind)
            for depth in depths
        ]


def test_trees_of_the_host_are_copied_and_checked() -> None:
    """Catches drafts of another kind, and equal siblings."""
    options: Any = {"max_tokens": 5, "seed": 0}
    verifier = DeviceVerifier("target-only")
    made = decode(TARGET, CONTEXTS, Repeated("Top", 1, 2), verifier, gamma=2, options=options)
    assert made.steps[0].drafts == ((1,), (2,))
    with pytest.raises(InvalidDraftsError, match="same token"):
        decode(TARGET, CONTEXTS, Repeated("Top", 1, 1), verifier, gamma=2, options=options)
    greedy = DeviceVerifier("greedy")
    with pytest.raises(InvalidDraftsError, match="Top drafts"):
        decode(TARGET, CONTEXTS, Repeated("Top", 1, 2), greedy, gamma=2, options=options)


def test_says_what_it_needs() -> None:
    """Catches a processor that is ignored, and a target that cannot read trees."""
    verifier, drafter = DeviceVerifier("target-only"), CERTAIN[0]
    options: Any = {"max_tokens": 5, "seed": 0}
    processed = {**options, "logits_processor": lambda ids, scores, rows: scores}
    with pytest.raises(InvalidParameterError, match="without logits processors"):
        decode(TARGET, CONTEXTS, drafter, verifier, gamma=2, options=processed)
    table = TableModel({(): [0.5, 0.5]})
    with pytest.raises(InvalidParameterError, match="that reads trees"):
        decode(table, [[0]], BestFirstDrafter(table, 4), verifier, gamma=2, options=options)
    several = ModelDrafter(DRAFT, (2, 2), draft_kind="WithoutReplacement")
    walk = DeviceVerifier("walk and keep")
    with pytest.raises(InvalidParameterError, match="at most one drawn child"):
        decode(TARGET, CONTEXTS, several, walk, gamma=2, options=options)
    wrong: Any
    for wrong in ("traversal", ["walk and keep"], None):  # a list has no hash
        with pytest.raises(UnknownMethodError, match="for trees, target-only, greedy, "):
            DeviceVerifier(wrong)


class Flat(GPT):
    """A model that reads no trees."""

    reads_trees = False


def said(kind: type[GPT] = GPT, **attributes: Any) -> GPT:
    """Return a model that says something else of itself; its rounds are made, but do not run."""
    made = kind(TARGET.config, TARGET.weights)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def test_rules_take_the_kernel_where_it_is_faster() -> None:
    """Catches trees on a GPU that the host verifies, and the reverse where a kernel cannot."""
    gpu = torch.device("cuda")
    on_gpu, wide, flat = said(device=gpu), said(vocabulary=4096), said(Flat, device=gpu)
    drawn, chains = DrawnTreeDrafter(DRAFT, 10), ModelDrafter(on_gpu, 2)

    def rounds(rule: str | None, target: GPT, drafter: Any, processor: Any = None) -> Any:
        return tree_verifier(rule).rounds(RoundsTask(target, drafter, None, processor, 1, "auto"))

    made = rounds("walk and keep", on_gpu, drawn)
    assert isinstance(made._drafts, tree_drafts.GrownTrees)
    made = rounds("target-only", wide, CERTAIN[0])
    assert isinstance(made._drafts, tree_drafts.HostTrees)
    assert rounds("target-only", on_gpu, CERTAIN[0]).place == "device"
    for rule, *others in [
        ("walk and keep", wide, drawn),
        (None, wide, drawn),
        ("walk and keep", flat, drawn),
        ("walk and keep", on_gpu, drawn, lambda ids, scores, rows: scores),
        ("target-only", on_gpu, drawn),
        ("walk and keep", on_gpu, chains),
    ]:
        assert rounds(rule, *others).place == "host"
    by_default = rounds(None, on_gpu, chains)
    assert by_default.place == "device"
    assert by_default._rule.name == "grid walk and keep"
