"""Record drafts and distributions at contexts, for computations without decoding.

A recording is a tree of drafts after a context, with the distributions of both models at every
node. These distributions determine the behaviour of any verifier on the drafts. So one recording
serves all verifiers, and also smaller numbers of drafts and shorter drafts.

Recordings are large: four chains of four drafts have 30 distributions, which take 63 MB with a
vocabulary of 262,144 tokens. `stream_recordings` holds only the recordings of one batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from otm._core.display.progress import Progress, watching
from otm._core.display.reprs import ShortRepr
from otm._core.display.text import shown
from otm._core.numbers import as_positive
from otm._core.probs.sparse import SparseProbs
from otm.decoding.checks import (
    as_paths,
    as_prompts,
    as_sources,
    check_draft,
    check_length,
    check_models,
)
from otm.decoding.draft_tree import DraftNode
from otm.decoding.drafters.base import Branching, Drafter, children_at
from otm.decoding.policies import as_gamma
from otm.decoding.reading import Context, Path, Reader
from otm.decoding.sampling_parameters import SamplingParameters, keeps_all_tokens
from otm.decoding.trace import Generation
from otm.errors import InvalidInputError, ProblemTooLargeError
from otm.models.base import LanguageModel

MOST_PROMPTS = 8
"""Default for the largest number of prompts that the models read together."""

BATCH_BYTES = 2**28
"""Approximate number of bytes of the distributions of a batch, if `batch` is not given."""

MOST_BYTES = 2**33
"""Largest number of bytes of all recordings that `record` keeps."""


@dataclass(frozen=True, eq=False)
class Recording(ShortRepr):
    """Drafts after one context, with the distributions of both models.

    Attributes
    ----------
    prompt : int
        Index of the context's prompt; contexts of one prompt are similar.
    context : tuple of int
        All tokens before the drafts.
    tree : DraftNode
        The drafts. Every node with children has the draft probabilities for its children.
    target : dict from tuple of int to SparseProbs
        The target's distribution after the path of every node.

    Examples
    --------
    >>> probs = SparseProbs([0, 1], [0.5, 0.5])
    >>> tree = DraftNode((), probs, [DraftNode((1,))])
    >>> Recording(0, (3,), tree, {(): probs, (1,): probs}).tree.leaf_paths()
    [(1,)]
    """

    prompt: int
    context: Context
    tree: DraftNode
    target: dict[Path, SparseProbs]


def stream_recordings(
    target: LanguageModel,
    drafter: Drafter,
    contexts: Sequence[Sequence[Sequence[int]]],
    depth: int,
    *,
    sampling: SamplingParameters | None = None,
    batch: int | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Recording]:
    """Sample drafts after each context, and yield the recordings one by one.

    Use this function instead of `record` if the recordings do not fit into memory.
    `block_efficiency` accepts the iterator, so each recording is freed when its tokens are counted.

    Parameters
    ----------
    target : LanguageModel
        The target model.
    drafter : Drafter
        The drafter.
    contexts : sequence, for each prompt, of sequences of int
        Contexts grouped by prompt, each with at least one token. If a context continues the
        previous one, the models read only its new tokens. `contexts_from` returns the contexts of a
        decoding run. A context that appears several times gets one recording for each appearance.
    depth : int
        Largest number of drafts γ in a path.
    sampling : SamplingParameters, optional
        Sampling parameters of the target model.
    batch : int, optional
        Number of prompts that the models read together; affects only time and memory. The default
        is 8, or fewer if the distributions of 8 contexts may take more than 256 MiB.
    seed : int, optional
        Seed of the drafts. Prompt i uses only child i of this seed.
    progress : callable, optional
        Function that receives a description, the number of the current context and the number of
        contexts. If omitted, a terminal shows a progress line after two seconds.

    Yields
    ------
    Recording
        One recording per context. The contexts of a prompt keep their order; those of the prompts
        of a batch alternate.

    Raises
    ------
    InvalidInputError, InvalidParameterError, InvalidDraftsError
        As for `record`. Errors in the arguments are raised by the call, before a model runs.

    Examples
    --------
    >>> from otm.decoding import ModelDrafter
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.75, 0.25]})
    >>> contexts = [[[0], [0, 1]], [[1]]]
    >>> stream = stream_recordings(target, ModelDrafter(draft), contexts, depth=1, seed=3)
    >>> [(recording.prompt, recording.context) for recording in stream]
    [(0, (0,)), (1, (1,)), (0, (0, 1))]
    """
    depth = as_gamma(depth)
    check_models(target, drafter)
    check_draft(drafter, Drafter)
    reader = Reader(target, sampling)
    groups = _as_groups(contexts, target.vocabulary)
    longest = max(len(context) for group in groups for context in group)
    check_length(target, drafter, longest, depth, "depth")
    sources = as_sources(seed, None, len(groups))
    size = _bytes_of(drafter, depth, target.vocabulary, sampling)
    together = prompts_of_batch(size) if batch is None else as_positive(batch, "batch")

    def recordings() -> Iterator[Recording]:
        done, total = [0] * len(groups), sum(map(len, groups))
        with watching(progress, "recording") as watch:
            for start in range(0, len(groups), together):
                active = [i for i in range(start, min(start + together, len(groups))) if groups[i]]
                parents: Sequence[int] | None = None
                while active:
                    watch.tell("context", sum(done) + len(active), total)
                    now, depths = [groups[i][done[i]] for i in active], [depth] * len(active)
                    # as in a loop, the target reads first: drafts may depend on its hidden states
                    reader.follow(now, parents)
                    trees = drafter.draft(now, depths, parents, [sources[i] for i in active])
                    paths = as_paths(trees, depths, target.vocabulary)
                    for node in itertools.chain(*(tree.nodes() for tree in trees)):
                        # drafts of the kind "Top" need no probabilities
                        if node.children and node.draft_kind != "Top":
                            node.checked_draft_probs(node.draft_kind)
                    probs = reader.read(now, paths, range(len(active)), whole=True)
                    for b, i in enumerate(active):
                        tree, trees[b] = trees[b], DraftNode()
                        distinct = dict.fromkeys(node.path for node in tree.nodes())
                        yield Recording(
                            i, now[b], tree, {path: probs(b, path) for path in distinct}
                        )
                        done[i] += 1
                    parents = [b for b, i in enumerate(active) if done[i] < len(groups[i])]
                    active = [active[b] for b in parents]

    return recordings()


def record(
    target: LanguageModel,
    drafter: Drafter,
    contexts: Sequence[Sequence[Sequence[int]]],
    depth: int,
    *,
    sampling: SamplingParameters | None = None,
    batch: int | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> list[Recording]:
    """Sample drafts after each context, and record the distributions of both models.

    Parameters
    ----------
    target, drafter, contexts, depth, sampling, batch, seed, progress
        As for `stream_recordings`.

    Returns
    -------
    list of Recording
        One recording per context, in the order of the prompts.

    Raises
    ------
    InvalidInputError
        If a context is empty, has invalid tokens, or is too long for a model. The same error is
        raised if the vocabularies differ, or the drafter is a model; wrap a model in
        `ModelDrafter`.
    InvalidParameterError
        If a number, the seed or the sampling parameters are outside their ranges.
    InvalidDraftsError
        If the drafter returns no trees, or trees that are too deep, or drafts with probability 0 or
        without a distribution.
    ProblemTooLargeError
        If the recordings may take more than 8 GiB.

    Examples
    --------
    >>> from otm.decoding import ModelDrafter
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.75, 0.25]})
    >>> (recording,) = record(target, ModelDrafter(draft, 2), [[[0]]], depth=3, seed=3)
    >>> recording.tree.leaf_paths()
    [(0, 1, 0), (0, 0, 0)]
    >>> recording.target[0, 1].probabilities.tolist()
    [0.5, 0.5]
    """
    stream = stream_recordings(
        target,
        drafter,
        contexts,
        depth,
        sampling=sampling,
        batch=batch,
        seed=seed,
        progress=progress,
    )
    count = sum(len(group) for group in contexts)
    size = count * _bytes_of(drafter, depth, target.vocabulary, sampling)
    if size > MOST_BYTES:
        raise ProblemTooLargeError(
            f"{count:,} recordings may take {size / 1e9:,.1f} GB, and `record` keeps at most "
            f"{MOST_BYTES / 1e9:.1f} GB; give `block_efficiency` the iterator of "
            "`stream_recordings`, which holds one batch, or record fewer contexts or drafts"
        )
    # a stable sort keeps the order of the contexts of a prompt
    return sorted(stream, key=lambda recording: recording.prompt)


def recording_bytes(
    branching: Branching,
    depth: int,
    vocabulary: int,
    sampling: SamplingParameters | None = None,
    draft_sampling: SamplingParameters | None = None,
) -> int:
    """Return approximately the largest number of bytes of a recording, before it is made."""
    nodes = [1]
    for level in range(depth):
        nodes.append(nodes[-1] * children_at(branching, level))
    of_draft = sum(above for above, below in itertools.pairwise(nodes) if below)
    bytes_of_draft = _bytes_of_probs(vocabulary, draft_sampling)
    return of_draft * bytes_of_draft + sum(nodes) * _bytes_of_probs(vocabulary, sampling)


def prompts_of_batch(size: int) -> int:
    """Return the default number of prompts of a batch, from the bytes of a recording."""
    return max(1, min(MOST_PROMPTS, BATCH_BYTES // max(size, 1)))


def tree_bytes(
    nodes: int,
    vocabulary: int,
    sampling: SamplingParameters | None = None,
    draft_sampling: SamplingParameters | None = None,
) -> int:
    """Return approximately the largest number of bytes of a recorded tree with `nodes` drafts."""
    of_draft = nodes * _bytes_of_probs(vocabulary, draft_sampling)
    return of_draft + (nodes + 1) * _bytes_of_probs(vocabulary, sampling)


def _bytes_of(
    drafter: Drafter, depth: int, vocabulary: int, sampling: SamplingParameters | None
) -> int:
    """Return the bytes of a recording; a drafter without `branching` or `nodes` drafts a chain."""
    branching, of_draft = getattr(drafter, "branching", 1), getattr(drafter, "sampling", None)
    if (nodes := getattr(drafter, "nodes", None)) is not None:
        return tree_bytes(nodes, vocabulary, sampling, of_draft)
    return recording_bytes(branching, depth, vocabulary, sampling, of_draft)


def _bytes_of_probs(vocabulary: int, sampling: SamplingParameters | None) -> int:
    """Return the largest size of a distribution; without truncation, all share their token ids."""
    if sampling is None or keeps_all_tokens(sampling):
        return 8 * vocabulary
    if sampling.temperature == 0:
        return 16
    return 16 * min(sampling.top_k or vocabulary, vocabulary)


def contexts_from(generation: Generation, *, every: int = 1) -> list[list[Context]]:
    """Return the contexts at which the steps of a decoding run began, grouped by prompt.

    In a decoding loop, steps begin rarely where drafts are accepted often, because steps are long
    there. The mean number of tokens over the steps is the block efficiency of the loop. The mean
    over all positions, which are the contexts of `autoregressive`, is larger. For example, let one
    half of a text have 5 tokens per step and the other half 1 token per step. Then the mean over
    positions is 3, but the block efficiency is 1/(0.5/5 + 0.5/1) = 1.67.

    Parameters
    ----------
    generation : Generation
        The decoding run.
    every : int, optional
        Return only every n-th context of each sequence, from the first; `every` is n.

    Returns
    -------
    list of list of tuple of int
        The contexts of each prompt.

    Raises
    ------
    InvalidParameterError
        If `every` is not an integer of at least 1.

    Examples
    --------
    >>> from otm.decoding import autoregressive
    >>> from otm.models import TableModel
    >>> generation = autoregressive(TableModel({(): [0, 1]}), [[0]], max_tokens=5)
    >>> contexts_from(generation, every=2)
    [[(0,), (0, 1, 1), (0, 1, 1, 1, 1)]]
    """
    taken = as_positive(every, "every")
    return [
        [
            (prompt + generation.sequences[b])[: step.position]
            for step in generation.steps_of(b)[::taken]
        ]
        for b, prompt in enumerate(generation.prompts)
    ]


def prune_tree(tree: DraftNode, branching: Branching, depth: int) -> DraftNode:
    """Copy a tree with only its first drafts, as if fewer had been sampled.

    Children are sampled one after another, so a smaller number would have given the same
    first children. Greedy drafts are an exception: only their last child is random.
    """
    level = len(tree.path)
    width = children_at(branching, level) if level < depth else 0
    if tree.draft_kind == "Greedy" and 0 < width < len(tree.children):
        raise InvalidInputError(
            f"the recording has {len(tree.children)} greedy drafts, and a part of them cannot "
            f"replace {width} greedy drafts, because only the last draft is random; "
            f"record {width} drafts"
        )
    children = [prune_tree(child, branching, depth) for child in tree.children[:width]]
    return DraftNode(tree.path, tree.draft_probs if children else None, children, tree.draft_kind)


def _as_groups(contexts: Any, vocabulary: int) -> list[tuple[Context, ...]]:
    """Return contexts as tuples of tokens, grouped by prompt; a group may be empty."""
    try:
        groups = [list(group) for group in contexts]
    except TypeError:
        groups = []
    if not any(groups):
        raise InvalidInputError(
            f"contexts = {shown(contexts)}; give at least one context, grouped by prompt: a single "
            "context is [[context]]"
        )
    return [as_prompts(group, vocabulary) if group else () for group in groups]
