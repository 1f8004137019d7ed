"""Adapter of functions that verify a draft tree, and ways to draft the tree.

A tree is a list of nodes: node n has a token and a parent, −1 for children of the root.  A node
comes after its parent and after the siblings that were drawn before it.
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
"""Largest number of possible trees if more than one level has nodes with k children."""


class Nodes(NamedTuple):
    """A draft tree as lists with one entry for each node."""

    # Tokens from the root's child to the node.
    paths: list[Path]
    parents: list[int]
    # Number of draws that gave each node.
    counts: list[int]

    def add(self, parent: int, tokens: Mapping[int, int] | list[int]) -> range:
        """Add children to a node; return their indices."""
        first = len(self.paths)
        above = self.paths[parent] if parent >= 0 else ()
        for token in tokens:
            self.paths.append((*above, token))
            self.parents.append(parent)
            self.counts.append(tokens[token] if isinstance(tokens, Mapping) else 1)
        return range(first, len(self.paths))


def independent(probs: Probs, count: int, source: Randomness) -> list[int]:
    """Draw children independently; a token may occur twice."""
    cdf = InverseCdf.from_weights(probs)
    tokens: list[int] = locate_drafts(cdf, source(count)).tolist()
    return tokens


def merged(probs: Probs, count: int, source: Randomness) -> dict[int, int]:
    """Draw children independently, and return the count of each distinct token."""
    drawn = independent(probs, count, source)
    return {token: drawn.count(token) for token in drawn}


def without_replacement(probs: Probs, count: int, source: Randomness) -> list[int]:
    """Draw distinct children in sequence without replacement, in the order of Gumbel top-k."""
    weights, drawn = probs.copy(), list[int]()
    for uniform in source(min(count, int((probs > 0).sum()))):
        cdf = InverseCdf.from_weights(weights)
        drawn.append(int(locate_drafts(cdf, np.array([uniform]))[0]))
        weights[drawn[-1]] *= 0
    return drawn


def most_probable(probs: Probs, count: int, _: Randomness | None = None) -> list[int]:
    """Return the most probable tokens with positive probability; ties go to the smaller token."""
    order: list[int] = np.argsort(-probs, kind="stable").tolist()
    return [token for token in order[:count] if probs[token] > 0]


@lru_cache(maxsize=256)
def dynamic(instance: Instance) -> list[Path]:
    """Return the k γ most probable paths of at most γ tokens, by level; nodes have ≤ k children.

    EAGLE-2 also drafts the most probable paths; the probability of a path is the product of its
    tokens' probabilities.  The computation uses fractions, because ties must not depend on
    rounding.
    """
    chosen: list[Path] = []
    values: dict[Path, Any] = {(): 1}
    while len(chosen) < instance.k * instance.gamma:
        above = chosen[-1] if chosen else ()
        if len(above) < instance.gamma:
            probs = instance.draft.probs(instance.prompt + above)
            for token in most_probable(probs, instance.k):
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
    "top-k": most_probable,
    "dynamic": None,
}
"""Functions that choose the children of a node; None if the tree is chosen as a whole."""


class tree(FunctionAdapter):
    """Audit a verifier f(target_probs, draft_probs, tokens, parents, uniforms) of a draft tree.

    Parameters
    ----------
    function : callable
        Function of target probabilities [N + 1, V], draft probabilities [N + 1, V], the tokens [N]
        and parents [N] of the nodes, and uniforms [N + 2].  The target probabilities are those
        after the root and after each node; the draft probabilities determine the children of the
        root and of each node.  The parent is −1 for children of the root; parents come before
        children, and siblings are in drawing order.  The function returns the accepted drafts and
        one more token, as for `chain`; its randomness may be another parameter, as for `chain`.  A
        parameter `counts`, if the function has it, is the number of draws that gave each node [N].
    drafts : str, optional
        How children are chosen: "independent" (the default; a token drawn twice has two nodes),
        "merged" (the same, with one node for each token), "without replacement" (in the order of
        Gumbel top-k), "top-k" (the most probable tokens) or "dynamic" (the k γ most probable paths,
        as in EAGLE-2).
    branching : tuple of int, optional
        Number of children at each level, such as (2, 1); by default the audit chooses it.
    **options
        As for `chain`; `uniforms` is a function of the number N of nodes.

    Raises
    ------
    InvalidParameterError, InvalidDraftCountError
        If the function has other parameters, or they cannot be read, or the branching is not a
        tuple of numbers of children.
    ProblemTooLargeError
        If the branching makes a tree with too many nodes.
    UnknownMethodError
        If the way to draft is unknown.
    MissingDependencyError
        If the function has a parameter `generator`, and torch is not installed.

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
            # With three drafts, the order in which drafts are tried changes the output.
            replace(INSTANCES["pairs, both rejected"], k=3),
        )
        if self.branching is not None:
            gamma, k = len(self.branching), max(self.branching)
            names = ("two drafts, two tokens", "two drafts")
            self.more = tuple(replace(INSTANCES[name], gamma=gamma, k=k) for name in names)

    def supports(self, instance: Instance) -> bool:
        """Return whether the instance is as deep and as wide as a stated branching."""
        shape = self.branching
        return shape is None or (len(shape), max(shape)) == (instance.gamma, instance.k)

    def drafted(self, instance: Instance, source: Randomness) -> dict[str, Path]:
        """Draw the same drafts as `output`."""
        nodes = self._draw(instance, source)
        drafts = {
            "tokens": tuple(path[-1] for path in nodes.paths),
            "parents": tuple(nodes.parents),
        }
        return drafts | ({"counts": tuple(nodes.counts)} if self.counts else {})

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draw drafts, then verify them."""
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
    """Choose k children on one level, or on more levels while at most `WAYS` trees can occur."""
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
