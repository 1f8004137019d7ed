"""Drafts and distributions, recorded at contexts, for all that can be computed without decoding.

A recording is a tree of drafts after a context, with the distributions of both models at every
node.  Whatever a verifier would do with these drafts follows from it, and so one recording serves
all verifiers, fewer drafts and shorter ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from otm._core.display.progress import Progress, watching
from otm._core.display.reprs import Brief
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
from otm.decoding.sampling_parameters import SamplingParameters
from otm.decoding.trace import Generation
from otm.errors import InvalidInputError
from otm.models.base import LanguageModel


@dataclass(frozen=True, eq=False)
class Recording(Brief):
    """Drafts after one context, and the distributions of both models.

    Attributes
    ----------
    prompt : int
        Number of the prompt that the context belongs to; contexts of one prompt are alike.
    context : tuple of int
        All tokens before the drafts.
    tree : DraftNode
        The drafts; every node that has children has the draft probs.
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


def record(
    target: LanguageModel,
    drafter: Drafter,
    contexts: Sequence[Sequence[Sequence[int]]],
    depth: int,
    *,
    sampling: SamplingParameters | None = None,
    batch: int = 8,
    seed: int | None = None,
    progress: Progress | None = None,
) -> list[Recording]:
    """Draft after each context, and let the target read the drafts.

    Parameters
    ----------
    target : LanguageModel
        The target model.
    drafter : Drafter
        What drafts.
    contexts : sequence, for each prompt, of sequences of int
        Contexts grouped by prompt, each of at least one token; where one continues the one before
        it, only what is new is read.  `contexts_from` takes them from what was decoded; a context
        that is given several times has as many drafts.
    depth : int
        Most drafts γ of a path.
    sampling : SamplingParameters, optional
        How to sample from the target model.
    batch : int, optional
        Number of prompts that are read at a time; changes nothing but time and memory.
    seed : int, optional
        Seed of the drafts; prompt i draws from child i of the seed alone.
    progress : callable, optional
        Takes what is worked on, its number and how many there are: the contexts.  If left out,
        what takes more than two seconds says so in a line on standard error, on terminals
        only.

    Returns
    -------
    list of Recording
        One for each context, in the order of the prompts.

    Raises
    ------
    InvalidInputError
        If a context is empty, holds no tokens, or does not fit a model with its drafts, or the
        vocabularies differ; or the drafter is a model, of which `ModelDrafter` makes one.
    InvalidParameterError
        If a number, the seed or the sampling is outside its range.
    InvalidDraftsError
        If the drafter returns no trees, trees that are too deep, or drafts without a distribution
        that they can come from.

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
    depth, together = as_gamma(depth), as_positive(batch, "batch")
    check_models(target, drafter)
    check_draft(drafter, Drafter)
    reader = Reader(target, sampling)
    groups = _as_groups(contexts, target.vocabulary)
    longest = max(len(context) for group in groups for context in group)
    check_length(target, drafter, longest, depth, "depth")
    sources = as_sources(seed, None, len(groups))
    recordings: list[list[Recording]] = [[] for _ in groups]
    total = sum(map(len, groups))
    with watching(progress, "recording") as watch:
        for start in range(0, len(groups), together):
            active = [i for i in range(start, min(start + together, len(groups))) if groups[i]]
            parents: Sequence[int] = [0] * len(active)  # which have little in common with any
            while active:
                watch.tell("context", sum(map(len, recordings)) + len(active), total)
                now, depths = [groups[i][len(recordings[i])] for i in active], [depth] * len(active)
                trees = drafter.draft(now, depths, parents, [sources[i] for i in active])
                paths = as_paths(trees, depths, target.vocabulary)
                nodes = [list(tree.nodes()) for tree in trees]
                for node in itertools.chain(*nodes):
                    if node.children and node.draft_kind != "Top":  # which needs no probs
                        node.checked_draft_probs(node.draft_kind)
                probs = reader.read(now, paths, parents, whole=True)
                for b, i in enumerate(active):
                    of_target = {
                        path: probs(b, path)
                        for path in dict.fromkeys(node.path for node in nodes[b])
                    }
                    recordings[i].append(Recording(i, now[b], trees[b], of_target))
                parents = [b for b, i in enumerate(active) if len(recordings[i]) < len(groups[i])]
                active = [active[b] for b in parents]
    return [recording for group in recordings for recording in group]


def contexts_from(generation: Generation, *, every: int = 1) -> list[list[Context]]:
    """Contexts at which the steps of a decoding began, grouped by prompt.

    Steps of a loop with drafts begin rarely where drafting is easy, since they are long there.  So
    the mean over them is the block efficiency of such a loop, while the mean over all positions,
    which are the contexts of `autoregressive`, is larger: where half of a text is drafted at 5
    tokens a step and the other half at 1, it is 3, and the block efficiency 1/(0.5/5 + 0.5/1) =
    1.67.

    Parameters
    ----------
    generation : Generation
        What was decoded.
    every : int, optional
        Take the first context of each sequence and then each of so many.

    Returns
    -------
    list of list of tuple of int
        For each prompt its contexts.

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


def pruned(tree: DraftNode, branching: Branching, depth: int) -> DraftNode:
    """Return the first drafts of a tree, as if fewer had been drafted: a new tree, same probs.

    Children are drawn one after another, so the first of them are what would have been drafted; but
    for greedy ones, of which the last alone is random.
    """
    level = len(tree.path)
    width = children_at(branching, level) if level < depth else 0
    if tree.draft_kind == "Greedy" and 0 < width < len(tree.children):
        raise InvalidInputError(
            f"{width} of {len(tree.children)} greedy drafts are asked for, and the first of these "
            "are no greedy drafts; record as many as are asked for"
        )
    children = [pruned(child, branching, depth) for child in tree.children[:width]]
    return DraftNode(tree.path, tree.draft_probs if children else None, children, tree.draft_kind)


def _as_groups(contexts: Any, vocabulary: int) -> list[tuple[Context, ...]]:
    """Return contexts as tuples of tokens, grouped by prompt; a group may be empty."""
    try:
        groups = [list(group) for group in contexts]
    except TypeError:
        groups = []
    if not any(groups):
        raise InvalidInputError(
            f"contexts = {shown(contexts)}; give at least one, as a sequence for each prompt of "
            "sequences of tokens: a single context is [[context]]"
        )
    return [as_prompts(group, vocabulary) if group else () for group in groups]
