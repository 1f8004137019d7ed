"""Recorded drafts and distributions: those of the models, for all batch sizes."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np
import pytest

from otm._core.probs.sparse import SparseProbs
from otm.decoding import (
    BestFirstDrafter,
    Drafter,
    DraftNode,
    DrawnTreeDrafter,
    ModelDrafter,
    SamplingParameters,
    autoregressive,
    spectr,
)
from otm.errors import (
    InvalidDraftsError,
    InvalidInputError,
    InvalidParameterError,
    ProblemTooLargeError,
)
from otm.gain import block_efficiency, efficiency_bound
from otm.gain.recording import (
    Recording,
    contexts_from,
    prune_tree,
    record,
    recording_bytes,
    stream_recordings,
    tree_bytes,
)
from otm.models import Session, TableModel
from otm.models.base import PaddedTokens

RNG = np.random.default_rng(11)
TARGET, DRAFT = TableModel.random(3, 2, RNG), TableModel.random(3, 2, RNG)
CONTEXTS = [[(0,), (0, 1), (0, 1, 1, 2)], [], [(2, 2)], [(1,), (1, 0)]]


def trees(recordings: list[Recording]) -> list[list[tuple[int, ...]]]:
    return [[node.path for node in recording.tree.nodes()] for recording in recordings]


@pytest.mark.parametrize("branching", [3, (2, 2, 1)])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_laws_are_those_of_the_models(branching: int | tuple[int, ...], batch: int) -> None:
    """Catches distributions of another sequence of the batch, or after another path."""
    drafter = ModelDrafter(DRAFT, branching)
    recordings = record(TARGET, drafter, CONTEXTS, 3, batch=batch, seed=1)
    assert [(r.prompt, r.context) for r in recordings] == [
        (i, context) for i, group in enumerate(CONTEXTS) for context in group
    ]
    for recording in recordings:
        nodes = list(recording.tree.nodes())
        assert set(recording.target) == {node.path for node in nodes}
        for node in nodes:
            before = recording.context + node.path
            assert (recording.target[node.path].dense(3) == TARGET.probs(before)).all()
            if node.children:
                assert (node.checked_draft_probs().dense(3) == DRAFT.probs(before)).all()


def test_the_drafts_depend_on_the_seed_and_the_prompt_alone() -> None:
    """Catches uniforms that are shared across a batch, and prompts with the same drafts."""
    drafter = ModelDrafter(DRAFT, 4)
    one = record(TARGET, drafter, CONTEXTS, 3, batch=1, seed=2)
    assert trees(one) == trees(record(TARGET, drafter, CONTEXTS, 3, batch=8, seed=2))
    assert trees(one) != trees(record(TARGET, drafter, CONTEXTS, 3, seed=3))
    same = record(TARGET, drafter, [[(0,), (0,)], [(0,)]], 3, seed=2)
    assert len({tuple(paths) for paths in trees(same)}) == 3


def test_sampling_acts_on_its_own_model() -> None:
    """Catches the target's truncation applied to the drafts, or the other way round."""
    drafter = ModelDrafter(DRAFT, 2, SamplingParameters(top_k=1))
    sampling = SamplingParameters(top_k=2)
    (recording,) = record(TARGET, drafter, [[(1, 1)]], 1, sampling=sampling, seed=0)
    assert recording.tree.checked_draft_probs().tokens.size == 1
    assert recording.target[()].tokens.size == min(2, np.count_nonzero(TARGET.probs((1, 1))))


class CountingModel(TableModel):
    """A model that counts the tokens that it reads."""

    tokens = 0

    def start(self, rows: int) -> Session:
        session = super().start(rows)
        read = session.read

        def counted(tokens: PaddedTokens) -> None:
            self.tokens += np.count_nonzero(tokens >= 0)
            read(tokens)

        session.read = counted  # type: ignore[method-assign]
        return session


def test_what_contexts_of_a_prompt_share_is_read_once() -> None:
    """Catches a cache that goes to another prompt when one has no contexts left."""
    text = tuple(range(3)) * 10
    model = CountingModel({(): [0.5, 0.25, 0.25]})
    record(model, ModelDrafter(DRAFT), [[text[:1]], [text[:10], text[:20], text[:30]]], 2, seed=0)
    assert model.tokens <= 1 + 30 + 4 * 2


def test_progress_counts_every_context() -> None:
    """Bug: a batch that is not told, or a total that is not reached."""
    told: list[tuple[str, int, int]] = []
    record(
        TARGET, ModelDrafter(DRAFT), CONTEXTS, 1, batch=3, progress=lambda *line: told.append(line)
    )
    total = sum(map(len, CONTEXTS))
    assert told[-1] == ("recording: context", total, total)
    assert [done for _, done, _ in told] == sorted({done for _, done, _ in told})


def test_contexts_are_where_the_steps_began() -> None:
    """Catches contexts that lack the prompt, or hold what the step itself added."""
    alone = autoregressive(TARGET, [[0], [1, 2]], max_tokens=4, seed=0)
    for prompt, sequence, contexts in zip(
        alone.prompts, alone.sequences, contexts_from(alone), strict=True
    ):
        assert contexts == [prompt + sequence[:i] for i in range(4)]
        assert contexts[::3] == contexts_from(alone, every=3)[len(prompt) - 1]
    drafted = spectr(TARGET, DRAFT, [[0]], k=2, gamma=3, max_tokens=20, seed=0)
    (contexts,) = contexts_from(drafted)
    ends = np.cumsum([0, *(len(step.output) for step in drafted.steps)])
    assert [len(context) - 1 for context in contexts] == ends[:-1].tolist()


def test_pruned_chains_are_the_first_ones() -> None:
    """Catches chains that are cut to their first token, and trees that are changed in place."""
    (recording,) = record(TARGET, ModelDrafter(DRAFT, 4), [[(0,)]], 3, seed=7)
    whole = [node.path for node in recording.tree.nodes()]
    tree = prune_tree(recording.tree, 2, 2)
    chains = [whole[1 + 3 * i : 3 + 3 * i] for i in range(2)]
    assert [node.path for node in tree.nodes()] == [(), *chains[0], *chains[1]]
    assert [node.path for node in recording.tree.nodes()] == whole
    assert all((node.draft_probs is None) == (not node.children) for node in tree.nodes())


def test_pruned_trees_keep_the_first_children_at_each_level() -> None:
    (recording,) = record(TARGET, ModelDrafter(DRAFT, (3, 2, 2)), [[(0,)]], 3, seed=7)

    def shape(node: DraftNode) -> list[object]:
        return [shape(child) for child in node.children]

    assert shape(prune_tree(recording.tree, (2, 1), 3)) == [[[]], [[]]]
    assert shape(prune_tree(recording.tree, (1, 2, 2), 2)) == [[[], []]]
    assert shape(prune_tree(recording.tree, 2, 3)) == [[[[]]], [[[]]]]
    assert shape(prune_tree(recording.tree, 3, 0)) == []


class Short(TableModel):
    """A model of four tokens."""

    context_length = 4


@pytest.mark.parametrize("contexts", [[], [[]], 3, [3], [[[]]], [[[0.5]]], [[[3]]], [[[0], [-1]]]])
def test_wrong_contexts_are_refused(contexts: object) -> None:
    with pytest.raises(InvalidInputError):
        record(TARGET, ModelDrafter(DRAFT), contexts, 2)  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused() -> None:
    """Before the models run, which would fail in their own words, or not at all."""
    short = Short({(): [0.5, 0.25, 0.25]})
    assert record(short, ModelDrafter(DRAFT), [[(0, 1)]], 2)
    with pytest.raises(InvalidInputError, match="target model, whose limit is 4 tokens"):
        record(short, ModelDrafter(DRAFT), [[(0, 1)]], 3)
    with pytest.raises(InvalidInputError, match="depth to at most 2"):
        record(TARGET, ModelDrafter(short), [[(0, 1)]], 3)
    with pytest.raises(InvalidInputError, match="vocabulary"):
        record(TARGET, ModelDrafter(TableModel({(): [0.5, 0.5]})), [[(0, 1)]], 3)
    with pytest.raises(InvalidParameterError):
        record(TARGET, ModelDrafter(DRAFT), [[(0, 1)]], 3, batch=0)
    with pytest.raises(InvalidParameterError, match="SamplingParameters"):
        record(TARGET, ModelDrafter(DRAFT), [[(0, 1)]], 3, sampling=0.7)  # type: ignore[arg-type]
    for drafter in (DRAFT, None):
        with pytest.raises(InvalidInputError, match=r"give a Drafter, such as ModelDrafter"):
            record(TARGET, drafter, [[(0, 1)]], 3)  # type: ignore[arg-type]


class Given(Drafter):
    """Returns the same tree for every sequence."""

    seconds = 0.0

    def __init__(self, tree: object) -> None:
        self.tree = tree

    def draft(self, contexts: Sequence[object], *_: object) -> list[DraftNode]:
        return [self.tree for _ in contexts]  # type: ignore[misc]


LAW = SparseProbs([0, 1], [0.5, 0.5])


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (DraftNode((), None, [DraftNode((1,))]), "NoneType as `draft_probs`"),
        (
            DraftNode((), LAW, [DraftNode((1,), None, [DraftNode((1, 0))])]),
            "NoneType as `draft_probs`",
        ),
        (DraftNode((), LAW, [DraftNode((2,))]), "positive probability"),
        (DraftNode((), LAW, [DraftNode((3,))]), "tokens 0 to 2"),
        (DraftNode((1,)), "root"),
        (None, "root"),
    ],
)
def test_drafts_that_are_no_draws_are_refused(tree: object, message: str) -> None:
    """Catches drafts without their distribution, which fail only when the recording is used."""
    with pytest.raises(InvalidDraftsError, match=message):
        record(TARGET, Given(tree), [[(0, 1)]], 2)


def test_a_stream_gives_the_numbers_of_a_list() -> None:
    """Catches values of a stream beside the prompts of other contexts: equal bit for bit."""
    many = [*CONTEXTS, [(0, 2, 1), (2,)]]
    ks, gammas = [1, 3], [1, 3]
    rules = ("optimal", "walk and keep")
    recordings = record(TARGET, ModelDrafter(DRAFT, 3), many, 3, batch=2, seed=4)
    one = block_efficiency(recordings, rules, ks, gammas) | efficiency_bound(recordings, ks, gammas)
    stream = stream_recordings(TARGET, ModelDrafter(DRAFT, 3), many, 3, batch=2, seed=4)
    other = block_efficiency(stream, rules, ks, gammas, bound=True)
    assert one.prompts.tolist() == other.prompts.tolist()
    assert set(one.values) == set(other.values)
    for setup, values in one.values.items():
        assert values.tolist() == other.values[setup].tolist()


def test_a_stream_holds_only_the_recordings_of_a_batch() -> None:
    """Catches trees or distributions that stay in memory until the end of the stream."""
    seen = []
    alive = 0
    contexts = [[(0,) * n for n in range(1, 40)]]
    for recording in stream_recordings(TARGET, ModelDrafter(DRAFT, 2), contexts, 2, seed=0):
        seen.append(weakref.ref(recording))
        alive = max(alive, sum(each() is not None for each in seen))
    assert alive <= 2


def test_a_stream_needs_its_numbers_of_drafts_and_checks_them() -> None:
    """Catches numbers that are taken from the first recording, or more drafts than recorded."""
    arguments = (TARGET, ModelDrafter(DRAFT, 2), CONTEXTS, 2)
    with pytest.raises(InvalidParameterError, match="give `ks` and `gammas`"):
        block_efficiency(stream_recordings(*arguments))
    for ks, gammas in (([3], [2]), ([2], [3])):
        with pytest.raises(InvalidInputError, match="have at most"):
            block_efficiency(stream_recordings(*arguments, seed=0), ["optimal"], ks, gammas)
    with pytest.raises(InvalidInputError, match="at least one context"):
        stream_recordings(TARGET, ModelDrafter(DRAFT), [], 2)


def test_a_list_that_would_fill_the_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an error only after hours of recording; the size must cover what is recorded."""
    drafter = ModelDrafter(DRAFT, (2, 2))
    recordings = record(TARGET, drafter, [[(0,)], [(1,)]], 2, seed=0)
    size = recording_bytes((2, 2), 2, TARGET.vocabulary)
    assert size == 8 * 3 * (1 + 2 + 7)
    for recording in recordings:
        assert sum(probs.probabilities.nbytes for probs in recording.target.values()) <= size
    monkeypatch.setattr("otm.gain.recording.MOST_BYTES", 2 * size - 1)
    with pytest.raises(ProblemTooLargeError, match="stream_recordings"):
        record(TARGET, drafter, [[(0,)], [(1,)]], 2, seed=0)
    assert recording_bytes(1, 1, 50, SamplingParameters(top_k=3)) == 8 * 50 + 2 * 16 * 3


@pytest.mark.parametrize("drafter", [BestFirstDrafter(DRAFT, 9), DrawnTreeDrafter(DRAFT, 9)])
def test_a_tree_of_many_nodes_is_not_a_chain(
    drafter: Drafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: trees with a budget counted as one chain, so they fill the memory without an error."""
    (recording,) = record(TARGET, drafter, [[(0,)]], 3, seed=0)
    size = tree_bytes(9, TARGET.vocabulary)
    assert size == 8 * 3 * (9 + 10)
    assert sum(probs.probabilities.nbytes for probs in recording.target.values()) <= size
    monkeypatch.setattr("otm.gain.recording.MOST_BYTES", size - 1)
    with pytest.raises(ProblemTooLargeError, match="stream_recordings"):
        record(TARGET, drafter, [[(0,)]], 3, seed=0)
