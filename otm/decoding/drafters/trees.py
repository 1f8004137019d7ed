"""Draft trees of common engines: best-first within a node budget, and trees of a fixed shape.

References
----------
.. [cai2024] Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding
   Heads", ICML 2024.
.. [chen2024] Chen et al., "Sequoia: Scalable, Robust, and Hardware-aware Speculative Decoding",
   NeurIPS 2024.
.. [li2024] Li et al., "EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees",
   EMNLP 2024.
.. [wang2025] Wang et al., "OPT-Tree: Speculative Decoding with Adaptive Draft Tree Structure",
   TACL 2025.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from heapq import nlargest, nsmallest
from typing import Any, NamedTuple, TypeAlias

from otm._core.arithmetic import Number
from otm._core.display.text import shown
from otm._core.numbers import as_positive, check_name
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.base import grow_by_levels
from otm.decoding.drafters.model import ReadingDrafter
from otm.decoding.reading import Context, LogitsProcessor, Path, ProbsAfter
from otm.decoding.sampling_parameters import SamplingParameters
from otm.drafts.top import most_probable
from otm.errors import InvalidParameterError, ProblemTooLargeError
from otm.models.base import LanguageModel

Shape: TypeAlias = "tuple[Shape, ...]"
"""A tree node as the tuple of its children: ((), ()) has two children, both leaves."""


class Drawn(tuple["Shape", ...]):
    """A node of a shape that is drawn, as the tuple of its children.

    A drawn node comes last among its siblings, and is drawn from the other tokens.

    Parameters
    ----------
    iterable : iterable of tuples, optional
        The children, as in a shape of `StaticTreeDrafter`.

    Examples
    --------
    >>> shape = ((), Drawn(((),)))  # a certain child, and a drawn one with a child
    >>> shape
    ((), Drawn(((),)))
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Drawn({tuple(self)!r})" if self else "Drawn()"


MAX_NODES = 2**12
"""Maximum number of nodes of a tree, far more than a target model can score at once."""

SHAPED = ("Top", "WithoutReplacement", "Greedy")
"""Kinds of draft sampling that a tree of fixed shape allows."""


class _Candidate(NamedTuple):
    """A candidate node, and the probability of its path under the draft model."""

    probability: Number
    parent: DraftNode
    node: DraftNode

    @property
    def rank(self) -> tuple[Number, int]:
        """Sort key: descending probability, then ascending path length."""
        return -self.probability, len(self.node.path)


class BestFirst:
    """Collector of the most probable paths of each sequence of a batch, while the trees grow."""

    def __init__(self, nodes: int, width: int | None, batch: int) -> None:
        self._nodes, self._width = nodes, width
        self._best: list[list[_Candidate]] = [[] for _ in range(batch)]
        # Path probability of each growing node, by the identity of the node.
        self._reached: list[dict[int, Number]] = [{} for _ in range(batch)]

    def expand(self, b: int, nodes: list[DraftNode], probs: ProbsAfter) -> list[DraftNode]:
        """Rank the children of a level's nodes, and return the best children that may grow."""
        offered: list[tuple[DraftNode, list[int], list[Number]]] = []
        for node in nodes:
            draft_probs = probs(b, node.path)
            reached = self._reached[b].get(id(node), 1 + 0 * draft_probs.probabilities.item(0))
            places = most_probable(draft_probs.probabilities, self._nodes)
            values = (reached * draft_probs.probabilities[places]).tolist()
            offered.append((node, draft_probs.tokens[places].tolist(), values))
        # Nodes are made only for paths that may be among the best.
        known = [candidate.probability for candidate in self._best[b]]
        every = itertools.chain(known, *(values for _, _, values in offered))
        least = min(nlargest(self._nodes, every), default=0)
        new = [
            _Candidate(value, node, DraftNode((*node.path, token)))
            for node, tokens, values in offered
            for token, value in zip(tokens, values, strict=True)
            if value >= least
        ]
        self._best[b] = nsmallest(self._nodes, self._best[b] + new, key=lambda each: each.rank)
        depth = len(nodes[0].path) + 1 if nodes else -1
        new = [each for each in self._best[b] if len(each.node.path) == depth][: self._width]
        self._reached[b] = {id(candidate.node): candidate.probability for candidate in new}
        return [candidate.node for candidate in new]

    def finish(self) -> None:
        """Attach the best nodes to their parents."""
        for candidate in itertools.chain.from_iterable(self._best):
            candidate.parent.children.append(candidate.node)
            candidate.parent.draft_kind = "Top"


class BestFirstDrafter(ReadingDrafter):
    """Draft the N most probable paths under the draft model, as one tree.

    If the target agrees with the draft model, no other tree of N nodes has more accepted drafts on
    average (Theorem 18.2 of docs/theory/trees.md).  The tree depends only on the context.  So
    `verify_target_only` is lossless, and no rule accepts more (Theorem 18.1).

    EAGLE-2 ([li2024]_) and OPT-Tree ([wang2025]_) use such trees.

    Parameters
    ----------
    model : LanguageModel
        The draft model.
    nodes : int, optional
        The budget N: maximum number of drafts of a tree, which the target scores at once.
    width : int, optional
        Maximum number of nodes per level that the draft model reads, as in the expansion of
        EAGLE-2; the most probable nodes are read.  By default, all nodes among the best N are read.
    sampling : SamplingParameters, optional
        How the model's scores become probabilities.
    logits_processor : LogitsProcessor, optional
        Adjusts the model's scores before `sampling` applies.

    Raises
    ------
    InvalidParameterError
        If a number is not an integer of at least 1.
    ProblemTooLargeError
        If the budget exceeds 4,096 nodes.

    Notes
    -----
    Each level of the tree needs one call of the model; γ limits the number of levels.  Among
    equally probable paths, shorter paths and lower tokens come first.

    References
    ----------
    .. [li2024] Li et al., "EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees",
       EMNLP 2024.
    .. [wang2025] Wang et al., "OPT-Tree: Speculative Decoding with Adaptive Draft Tree Structure",
       TACL 2025.

    Examples
    --------
    >>> from otm.models import TableModel
    >>> drafter = BestFirstDrafter(TableModel({(): [0.5, 0.375, 0.125]}), nodes=4)
    >>> [root] = drafter.draft([(0,)], [3], None, [])
    >>> [node.path for node in root.nodes()]  # of probability 1, 1/2, 1/4, 3/16 and 3/8
    [(), (0,), (0, 0), (0, 1), (1,)]
    """

    def __init__(
        self,
        model: LanguageModel,
        nodes: int = 32,
        width: int | None = None,
        sampling: SamplingParameters | None = None,
        logits_processor: LogitsProcessor | None = None,
    ) -> None:
        self.nodes = as_nodes(nodes)
        self.width = None if width is None else as_positive(width, "width")
        super().__init__(model, sampling, logits_processor)

    def draft(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft a tree for every sequence of a batch, level by level; uses no uniforms."""
        best = BestFirst(self.nodes, self.width, len(contexts))
        roots = grow_by_levels(self._reader, contexts, depths, parents, best.expand)
        best.finish()
        return roots


class StaticTreeDrafter(ReadingDrafter):
    """Draft trees of one fixed shape.

    Medusa and EAGLE take the most probable tokens ([cai2024]_); Sequoia draws without replacement
    ([chen2024]_).  `otm.gain.best_tree` finds a shape.

    Parameters
    ----------
    model : LanguageModel
        The draft model.
    shape : tuple of tuples
        The root as the tuple of its children; each child is again a tuple.  In `(((),), ())` the
        root has two children, and the first child has one child.  A child `Drawn(…)` is drawn from
        the tokens that are not its siblings; it comes last.
    draft_kind : {"Top", "WithoutReplacement", "Greedy"}, optional
        Joint distribution of the children of a node: the name of a class of `otm.drafts`.  The rule
        "target-only" needs "Top", "recursive rejection without replacement" needs
        "WithoutReplacement", and "greedy" needs "Greedy".  If the shape has a `Drawn` child, the
        kind is "Greedy": only these children are drawn.  "walk and keep" verifies such trees.
    sampling : SamplingParameters, optional
        How to sample from the model.
    logits_processor : LogitsProcessor, optional
        Adjusts the model's scores before sampling.

    Raises
    ------
    InvalidParameterError
        If the shape is not a tuple of tuples, has only a root, has a `Drawn` child before another
        child, or has a `Drawn` child although the kind is not "Greedy".
    ProblemTooLargeError
        If the shape has more than 4,096 nodes.
    UnknownMethodError
        If there is no such kind of drafts.

    Notes
    -----
    Independent drafts raise an error, because they can repeat a token.  Nodes with the same path
    must have equally many children, or their drafts are not i.i.d.

    References
    ----------
    .. [cai2024] Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple
       Decoding Heads", ICML 2024.
    .. [chen2024] Chen et al., "Sequoia: Scalable, Robust, and Hardware-aware Speculative
       Decoding", NeurIPS 2024.

    Examples
    --------
    >>> from otm.models import TableModel
    >>> drafter = StaticTreeDrafter(TableModel({(): [0.5, 0.375, 0.125]}), (((), ()), ()))
    >>> [root] = drafter.draft([(0,)], [3], None, [lambda m: []])
    >>> [node.path for node in root.nodes()]
    [(), (0,), (0, 0), (0, 1), (1,)]
    """

    def __init__(
        self,
        model: LanguageModel,
        shape: Shape,
        draft_kind: str = "Top",
        sampling: SamplingParameters | None = None,
        logits_processor: LogitsProcessor | None = None,
    ) -> None:
        self.draft_kind = check_name("kind of drafts", draft_kind, SHAPED)
        self.shape = shape
        self.nodes = as_nodes(_count_nodes(shape))
        self._has_marks = _marks_draws(shape)
        if self._has_marks and draft_kind != "Greedy":
            raise InvalidParameterError(
                f"draft_kind = {shown(draft_kind)}, but the shape has drawn children; give "
                'draft_kind="Greedy", or a shape without `Drawn`'
            )
        super().__init__(model, sampling, logits_processor)

    def draft(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft a tree for every sequence of a batch, level by level."""
        shapes: dict[tuple[int, Path], Shape] = {(b, ()): self.shape for b in range(len(contexts))}

        def expand(b: int, nodes: list[DraftNode], probs: ProbsAfter) -> list[DraftNode]:
            growing = []
            for node in nodes:
                shape = shapes[b, node.path]
                draft_probs = probs(b, node.path)
                is_certain = self._has_marks and not isinstance(shape[-1], Drawn)
                kind = "Top" if is_certain else self.draft_kind
                node.draw_children(draft_probs, len(shape), uniforms[b], kind)
                # The distribution may have fewer tokens than the shape has children.
                for child, below in zip(node.children, shape, strict=False):
                    shapes[b, child.path] = below
                    if below:
                        growing.append(child)
            return growing

        return grow_by_levels(self._reader, contexts, depths, parents, expand)


def as_nodes(number: Any) -> int:
    """Return a number of nodes as an int; raise if it exceeds the limit."""
    if (nodes := as_positive(number, "nodes")) > MAX_NODES:
        raise ProblemTooLargeError(
            f"a tree of {nodes:,} drafts; the limit is {MAX_NODES:,}, and few models gain "
            "from more than a hundred"
        )
    return nodes


def _count_nodes(shape: Any) -> int:
    """Return the number of nodes of a shape without its root."""
    count, waiting = -1, [shape]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, tuple):
            raise InvalidParameterError(
                f"shape = {shown(shape)}; write each node as the tuple of its children, such as "
                "(((),), ()) for a root with two children whose first child has one child"
            )
        waiting.extend(node)
        count += 1
    return count


def _marks_draws(shape: Shape) -> bool:
    """Return whether a shape has drawn children; raise unless they come last."""
    waiting, marked = [shape], False
    while waiting:
        node = waiting.pop()
        marks = [isinstance(child, Drawn) for child in node]
        if any(marks[:-1]):
            raise InvalidParameterError(
                f"shape = {shown(shape)}; a node has at most one `Drawn` child, which comes after "
                "the certain ones"
            )
        marked |= any(marks)
        waiting.extend(node)
    return marked
