"""Adapters of functions that verify a tree of drafts, with the ways to choose its nodes.

A tree is flat: node n has a token and a parent, −1 for children of the root, and comes after its
parent and after the siblings that were drawn before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from otm._core.arithmetic import Probs
from otm._core.numbers import check_name
from otm._core.probs.sampling import InverseCdf
from otm.audit.adapters.base import Instance
from otm.audit.adapters.chains import PAIRS_OF_CHAINS
from otm.audit.adapters.drafts import as_tokens, locate_drafts, models_for
from otm.audit.adapters.functions import FunctionAdapter, parameters_of
from otm.audit.instances import INSTANCES
from otm.decoding.draft_tree import Randomness
from otm.decoding.drafters.base import as_branching
from otm.decoding.reading import Path
from otm.errors import InvalidParameterError

WAYS = 81
"""Most ways to draft a tree whose nodes all have k children."""


class Nodes(NamedTuple):
    """A tree, node by node."""

    paths: list[Path]  # from the root's child to the node
    parents: list[int]
    counts: list[int]  # how often each node was drawn

    def add(self, parent: int, tokens: Mapping[int, int] | list[int]) -> range:
        """Add children below a node; return their indices."""
        first = len(self.paths)
        above = self.paths[parent] if parent >= 0 else ()
        for token in tokens:
            self.paths.append((*above, token))
            self.parents.append(parent)
            self.counts.append(tokens[token] if isinstance(tokens, Mapping) else 1)
        return range(first, len(self.paths))


def independent(probs: Probs, count: int, source: Randomness) -> list[int]:
    """Draw children independently; a token may come twice."""
    cdf = InverseCdf.from_weights(probs)
    tokens: list[int] = locate_drafts(cdf, source(count)).tolist()
    return tokens


def merged(probs: Probs, count: int, source: Randomness) -> dict[int, int]:
    """Draw children independently, one node a token, and count them."""
    drawn = independent(probs, count, source)
    return {token: drawn.count(token) for token in drawn}


def without_replacement(probs: Probs, count: int, source: Randomness) -> list[int]:
    """Draw different children, each from the remaining tokens, in the order of Gumbel top-k."""
    weights, drawn = probs.copy(), list[int]()
    for uniform in source(min(count, int((probs > 0).sum()))):
        cdf = InverseCdf.from_weights(weights)
        drawn.append(int(locate_drafts(cdf, np.array([uniform]))[0]))
        weights[drawn[-1]] *= 0
    return drawn


def likeliest(probs: Probs, count: int, _: Randomness | None = None) -> list[int]:
    """Take the likeliest tokens of those that can be drawn, the first of equal ones."""
    order: list[int] = np.argsort(-probs, kind="stable").tolist()
    return [token for token in order[:count] if probs[token] > 0]


@lru_cache(maxsize=256)
def dynamic(instance: Instance) -> list[Path]:
    """Find the k γ likeliest drafts of at most γ tokens, by levels, at most k below a node.

    What EAGLE-2 reranks its drafts to: a draft is as likely as its tokens together.  In fractions:
    ties must not depend on rounding.
    """
    chosen: list[Path] = []
    values: dict[Path, Any] = {(): 1}
    while len(chosen) < instance.k * instance.gamma:
        above = chosen[-1] if chosen else ()
        if len(above) < instance.gamma:
            probs = instance.draft.probs(instance.prompt + above)
            for token in likeliest(probs, instance.k):
                values[*above, token] = values[above] * probs[token]
        rest = values.keys() - {(), *chosen}
        if not rest:
            break
        chosen.append(min(rest, key=lambda path: (-values[path], len(path), path)))
    return sorted(chosen, key=lambda path: (len(path), chosen.index(path)))


Siblings = Callable[[Probs, int, Randomness], Mapping[int, int] | list[int]]

SIBLINGS: dict[str, Siblings | None] = {
    "independent": independent,
    "merged": merged,
    "without replacement": without_replacement,
    "top-k": likeliest,
    "dynamic": None,
}
"""How the children of a node are chosen; None: the tree as a whole."""


class tree(FunctionAdapter):
    """Audit a verifier f(target_probs, draft_probs, tokens, parents, uniforms) of a tree of drafts.

    Parameters
    ----------
    function : callable
        Takes the target's probabilities [N + 1, V], of the token after the root and after each
        node; the draft's [N + 1, V], from which the children of the root and of each node are
        chosen; the nodes' tokens [N] and parents [N], −1 for children of the root, parents before
        children and siblings in the order in which they were drawn; and uniforms [N + 2].  Returns
        the accepted drafts and one token more, as for `chain`; its randomness as there.  If it has
        a parameter `counts`, it is told how often each node was drawn, [N].
    drafts : str, optional
        How children are chosen: "independent" (the default; a token drawn twice has two nodes),
        "merged" (the same, one node a token), "without replacement" (each from the rest of the
        distribution, as the Gumbel top-k draws them), "top-k" (the likeliest tokens) or "dynamic"
        (the k γ likeliest nodes of all, as in EAGLE-2).
    branching : tuple of int, optional
        Number of children at each level, such as (2, 1); chosen by the audit if left out.
    **options
        As for `chain`, `uniforms` from the number N of nodes to the number of uniforms.

    Raises
    ------
    InvalidParameterError, InvalidDraftCountError
        If the parameters of the function are not these, or cannot be read, or the branching is no
        tuple of numbers of children.
    ProblemTooLargeError
        If the branching makes a tree of too many nodes.
    UnknownMethodError
        If there is no such way to draft.
    MissingDependencyError
        If the function takes a `generator`, and torch is not installed.

    Examples
    --------
    >>> from otm.audit import lossless
    >>> def first_path(target_probs, draft_probs, tokens, parents, uniforms):
    ...     return [tokens[0], 0]
    >>> print(lossless(tree(first_path, drafts="top-k"), examples=0).counterexample.drafts)
    {'tokens': (0,), 'parents': (-1,)}
    """

    before = 4
    beyond = 2
    several = True

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        drafts: str = "independent",
        branching: tuple[int, ...] | None = None,
        **options: Any,
    ) -> None:
        self.drafts = check_name("way to draft", drafts, SIBLINGS)
        self.counts = "counts" in parameters_of(function)
        self.before = 4 + self.counts
        super().__init__(function, **options)
        self.branching = None if branching is None else _levels(branching)
        self.more: tuple[Instance, ...] = (
            PAIRS_OF_CHAINS,
            replace(INSTANCES["two tokens"], gamma=3, k=2),
            replace(INSTANCES["pairs, both rejected"], k=3),  # whose order tells
        )
        if self.branching is not None:
            gamma, k = len(self.branching), max(self.branching)
            names = ("two drafts, two tokens", "two drafts")
            self.more = tuple(replace(INSTANCES[name], gamma=gamma, k=k) for name in names)

    def supports(self, instance: Instance) -> bool:
        """Any tree, or those as deep and as wide as the branching that was given."""
        shape = self.branching
        return shape is None or (len(shape), max(shape)) == (instance.gamma, instance.k)

    def drafted(self, instance: Instance, source: Randomness) -> dict[str, Path]:
        """Draw the drafts as `output` does."""
        nodes = self._draw(instance, source)
        drafts = {
            "tokens": tuple(path[-1] for path in nodes.paths),
            "parents": tuple(nodes.parents),
        }
        return drafts | ({"counts": tuple(nodes.counts)} if self.counts else {})

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draft, then verify."""
        nodes = self._draw(instance, source)
        contexts = [instance.prompt + path for path in ((), *nodes.paths)]
        models = models_for(instance, source)
        rows = (np.array([model.probs(context) for context in contexts]) for model in models)
        tokens = np.array([path[-1] for path in nodes.paths])
        arrays = (*rows, tokens, np.array(nodes.parents))
        more = {"counts": self.convert(np.array(nodes.counts))} if self.counts else {}
        return as_tokens(self._ask(source, tokens.size, *arrays, **more))

    def _draw(self, instance: Instance, source: Randomness) -> Nodes:
        """Draw a tree level by level."""
        nodes = Nodes([], [], [])
        draw = SIBLINGS[self.drafts]
        if draw is None:
            for path in dynamic(instance):
                nodes.add(nodes.paths.index(path[:-1]) if path[1:] else -1, [path[-1]])
            return nodes
        _, draft = models_for(instance, source)
        level = range(-1, 0)
        for count in self.branching or _branching(instance):
            start = len(nodes.paths)
            for parent in level:
                path = nodes.paths[parent] if parent >= 0 else ()
                nodes.add(parent, draw(draft.probs(instance.prompt + path), count, source))
            level = range(start, len(nodes.paths))
        return nodes


def _branching(instance: Instance) -> tuple[int, ...]:
    """Choose the numbers of children: k on as many levels as still allow trying all trees."""
    gamma, k = instance.gamma, instance.k
    shapes = [(k,) * levels + (1,) * (gamma - levels) for levels in range(gamma, 0, -1)]
    few = (s for s in shapes if instance.vocabulary ** np.cumprod(s).sum() <= WAYS)
    return next(few, shapes[-1])


def _levels(branching: Any) -> tuple[int, ...]:
    """Check the numbers of children at each level."""
    checked = as_branching(branching)
    if isinstance(checked, int):
        raise InvalidParameterError(
            f"branching = {checked}; give the number of children at each level, such as (2, 1)"
        )
    return checked
