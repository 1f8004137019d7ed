"""Ways to draft the tree of an audit.

A tree is a list of nodes: node n has a token and a parent, −1 for children of the root.  A node
comes after its parent and after the siblings that were drawn before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from otm._core.arithmetic import Probs
from otm._core.numbers import check_name
from otm._core.probs.sampling import InverseCdf
from otm.audit.adapters.base import Instance
from otm.audit.adapters.chains import PAIRS_OF_CHAINS
from otm.audit.adapters.drafts import locate_drafts, models_for
from otm.audit.instances import INSTANCES, pair
from otm.decoding.draft_tree import Randomness
from otm.decoding.drafters.base import as_branching
from otm.decoding.reading import Path
from otm.errors import InvalidParameterError

WAYS = 81
"""Largest number of possible trees if more than one level has nodes with k children."""


FIRST_EXCLUDED = pair([0, 1, 3], [4, 3, 1], k=2)
"""An instance whose target excludes the most probable draft, but not the drawn ones."""

SELDOM_DRAWN = pair(
    {(): [1, 2, 4], (0, 0): [3, 1, 1]}, {(): [5, 3, 2], (0, 0): [1, 2, 3]}, gamma=2, k=2
)
"""An instance in which a draft is drawn less often than the target has it."""


class Nodes(NamedTuple):
    """A draft tree as lists with one entry for each node."""

    # Tokens from the root's child to the node.
    paths: list[Path]
    parents: list[int]
    # Number of draws that gave each node.
    counts: list[int]
    # Whether each node was drawn.
    sampled: list[bool]

    def add(self, parent: int, tokens: Mapping[int, int] | list[int], drawn: int) -> range:
        """Add children to a node, the last `drawn` of them drawn; return their indices."""
        first = len(self.paths)
        self.sampled.extend(i >= len(tokens) - drawn for i in range(len(tokens)))
        above = self.paths[parent] if parent >= 0 else ()
        for token in tokens:
            self.paths.append((*above, token))
            self.parents.append(parent)
            self.counts.append(tokens[token] if isinstance(tokens, Mapping) else 1)
        return range(first, len(self.paths))

    def shown(self) -> dict[str, Path]:
        """Return the tokens and parents, for reports."""
        return {
            "tokens": tuple(path[-1] for path in self.paths),
            "parents": tuple(self.parents),
        }


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


def certain_and_drawn(
    probs: Probs, count: int, below_drawn: bool, source: Randomness
) -> tuple[list[int], int]:
    """Choose certain children, and draw one from the other tokens; return the number drawn, too.

    Children of a drawn node are all certain.  The value of this node's own draw does not matter, so
    walk and keep is lossless (Theorem 23.5 of docs/theory/certain-and-drawn.md).
    """
    tokens, others = most_probable(probs, count - (not below_drawn)), probs.copy()
    others[tokens] *= 0
    if below_drawn or not others.any():
        return tokens, 0
    return [*tokens, *independent(others, 1, source)], 1


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

CERTAIN_AND_DRAWN = "certain and drawn"

SIBLINGS: dict[str, Siblings | None] = {
    "independent": independent,
    "merged": merged,
    "without replacement": without_replacement,
    "top-k": most_probable,
    "dynamic": None,
    CERTAIN_AND_DRAWN: None,
}
"""Functions that choose the children of a node; None if other nodes of the tree matter too."""

DETERMINISTIC = ("top-k", "dynamic")
"""Ways to choose children without randomness."""


@dataclass(frozen=True)
class TreeDrafts:
    """A way to draft trees, with the number of children at each level if it is stated."""

    drafts: str
    branching: tuple[int, ...] | None

    @classmethod
    def checked(cls, drafts: Any, branching: Any) -> TreeDrafts:
        """Check the arguments of an adapter."""
        name = check_name("way to draft", drafts, SIBLINGS)
        return cls(name, None if branching is None else _levels(branching))

    @property
    def more(self) -> tuple[Instance, ...]:
        """Instances that the audit tries in addition to its own."""
        if self.branching is not None:
            gamma, k = len(self.branching), max(self.branching)
            names = ("two drafts, two tokens", "two drafts")
            return tuple(replace(INSTANCES[name], gamma=gamma, k=k) for name in names)
        return (
            PAIRS_OF_CHAINS,
            replace(INSTANCES["two tokens"], gamma=3, k=2),
            # With three drafts, the order in which drafts are tried changes the output.
            replace(INSTANCES["pairs, both rejected"], k=3),
            *((FIRST_EXCLUDED, SELDOM_DRAWN) if self.drafts == CERTAIN_AND_DRAWN else ()),
        )

    def supports(self, instance: Instance) -> bool:
        """Return whether the instance is as deep and as wide as a stated branching."""
        shape = self.branching
        return shape is None or (len(shape), max(shape)) == (instance.gamma, instance.k)

    def draw(self, instance: Instance, source: Randomness) -> Nodes:
        """Draw a tree level by level."""
        nodes = Nodes([], [], [], [])
        if self.drafts == "dynamic":
            for path in dynamic(instance):
                nodes.add(nodes.paths.index(path[:-1]) if path[1:] else -1, [path[-1]], 0)
            return nodes
        _, draft = models_for(instance, source)
        level = range(-1, 0)
        for count in self.branching or _branching(instance):
            start = len(nodes.paths)
            for parent in level:
                path = nodes.paths[parent] if parent >= 0 else ()
                probs = draft.probs(instance.prompt + path)
                draw = SIBLINGS[self.drafts]
                if draw is None:
                    below_drawn = parent >= 0 and nodes.sampled[parent]
                    tokens, drawn = certain_and_drawn(probs, count, below_drawn, source)
                    nodes.add(parent, tokens, drawn)
                else:
                    chosen = draw(probs, count, source)
                    nodes.add(parent, chosen, 0 if self.drafts in DETERMINISTIC else len(chosen))
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
