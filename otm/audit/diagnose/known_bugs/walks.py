"""Mistakes of walk and keep over trees of certain drafts and one drawn draft a node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from otm._core.arithmetic import Probs
from otm.audit.adapters.base import Instance
from otm.audit.adapters.tree_drafts import CERTAIN_AND_DRAWN, Nodes, TreeDrafts
from otm.audit.diagnose.known_bugs.steps import Steps, normalised
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.kernels.common.distributions.numpy import locate

DRAFTS = TreeDrafts(CERTAIN_AND_DRAWN, None)


class Family(NamedTuple):
    """The children of a node, and the rows after it."""

    # Indices of the children.
    certain: list[int]
    drawn: list[int]
    # Whether each token is a certain child [V].
    is_certain: Probs
    target: Probs
    # The distribution of the drawn child [V]; zeros without one.
    draft: Probs


def best_winner(family: Family) -> Probs:
    """Return the best distribution v of the winner (Theorem 23.2, lines three and four)."""
    target, draft, is_certain = family.target, family.draft, family.is_certain
    of_certain = np.where(is_certain, target, 0 * target)
    if not draft.any():
        # Without a chance of the certain children, the walk ends there, and any of them wins.
        return normalised(of_certain if of_certain.any() else is_certain + 0 * target)
    if not of_certain.any():
        return draft
    return _filled(family, slope=_slope(of_certain.sum(), np.where(is_certain, 0, target), draft))


def _slope(certain: Any, target: Probs, draft: Probs) -> Any:
    """Return the c at which c · certain + Σ min(draft, c · target) is 1."""
    capped = np.ones(target.size, dtype=np.bool_)
    while True:
        slope = draft[capped].sum() / (certain + target[capped].sum())
        fewer = capped & (draft > slope * target)
        if (fewer == capped).all():
            return slope
        capped = fewer


def _filled(family: Family, slope: Any) -> Probs:
    """Return min(d, c t) outside the certain children, and the rest on them, ∝ t."""
    of_certain = np.where(family.is_certain, family.target, 0 * family.target)
    outside = np.where(family.is_certain, 0, np.minimum(family.draft, slope * family.target))
    if not of_certain.any():
        return np.asarray(outside)
    return np.asarray(outside + (1 - outside.sum()) * normalised(of_certain))


def _unchanged(nodes: Nodes, family: Family) -> Family:
    return family


def _restricted(draft: Probs, is_certain: Probs) -> Probs:
    return normalised(np.where(is_certain, 0 * draft, draft))


@dataclass(frozen=True, eq=False)
class Walk(Steps):
    """Walk and keep over trees of certain drafts and a drawn one, in replaceable steps."""

    name: str = "walk and keep of trees"
    several = True
    # Change the children of a node after their values are known.
    children: Callable[[Nodes, Family], Family] = _unchanged
    # Map from the draft row and the certain children to the distribution of the drawn child.
    drawn_from: Callable[[Probs, Probs], Probs] = _restricted
    # Distribution v of the winner in weights and residuals; the winner itself follows the best v.
    stated: Callable[[Family], Probs] = best_winner
    # Largest weight of a node.
    most: int | None = 1
    # Weights of the token after a node, from its weight s and v.
    residual: Callable[[Any, Family, Probs], Probs] = lambda share, family, wins: np.maximum(
        share * family.target - wins, 0
    )

    def supports(self, instance: Instance) -> bool:
        """Whether nodes have several children."""
        return instance.k > 1

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draw a tree and verify it."""
        nodes = DRAFTS.draw(instance, source)
        share: Any = 1
        node, walked = -1, list[Any]()
        path: Path = ()
        while True:
            family = self._family(instance, nodes, node, path)
            if not (family.certain or family.drawn) or not share > 0:
                walked.append((share, 1, family.target))
                break
            wins = self.stated(family)
            left = self.residual(share, family, wins)
            walked.append((left.sum(), left.sum() + 1 - share, left))
            node = _child(nodes, family, best_winner(family), source)
            x = nodes.paths[node][-1]
            path, mass = (*path, x), share * family.target[x]
            share = mass / wins[x] if wins[x] else 0 * mass + (mass > 0)
            share = share if self.most is None else min(share, self.most)
        while len(walked) > 1:
            chance, divisor, _ = walked[-1]
            if source(1)[0] * divisor < chance:
                break
            walked.pop()
        weights = walked[-1][2]
        weights = weights if weights.any() else instance.target.probs(instance.prompt)
        return (*path[: len(walked) - 1], locate(weights, source(1)[0]))

    def _family(self, instance: Instance, nodes: Nodes, node: int, path: Path) -> Family:
        """Return the children of a node, and the rows after it."""
        children = [i for i, parent in enumerate(nodes.parents) if parent == node]
        certain = [i for i in children if not nodes.sampled[i]]
        drawn = [i for i in children if nodes.sampled[i]]
        target, draft = (
            model.probs(instance.prompt + path) for model in (instance.target, instance.draft)
        )
        is_certain = np.isin(np.arange(target.size), [nodes.paths[i][-1] for i in certain])
        below = self.drawn_from(draft, is_certain) if drawn else 0 * draft
        return self.children(nodes, Family(certain, drawn, is_certain, target, below))


def _child(nodes: Nodes, family: Family, wins: Probs, source: Randomness) -> int:
    """Return the child that wins."""
    if family.drawn:
        x = nodes.paths[family.drawn[0]][-1]
        if source(1)[0] * family.draft[x] < wins[x] or not family.certain:
            return family.drawn[0]
    weights = np.array([wins[nodes.paths[i][-1]] for i in family.certain])
    return family.certain[locate(weights, source(1)[0]) if weights.any() else 0]


def _pruned(nodes: Nodes, family: Family) -> Family:
    """Leave out a drawn child that is not the most probable of the tokens that it can be."""
    tokens = [nodes.paths[i][-1] for i in family.drawn]
    if any(family.draft[x] < family.draft.max() for x in tokens):
        return family._replace(drawn=[], draft=0 * family.draft)
    return family


def _capped_at_one(family: Family) -> Probs:
    excluded = family.certain and not family.target[family.is_certain].any()
    if not (excluded and family.draft.any()):
        return best_winner(family)
    return np.minimum(family.draft, family.target)


WALKS = (
    Walk(
        "residual without the certain drafts",
        residual=lambda share, family, wins: np.maximum(
            share * family.target - np.where(family.is_certain, 0, wins), 0
        ),
    ).as_bug(
        mistake="biased residual",
        summary="The residual subtracts only the drawn draft, and not the certain ones.",
    ),
    Walk("weights above one", most=None).as_bug(
        mistake="missing clamp",
        summary="The weight s t/v of a node is passed on even where it is above 1.",
    ),
    Walk("winner of excluded certain drafts", stated=_capped_at_one).as_bug(
        mistake="wrong distribution of the winner",
        summary="Where the target excludes all certain drafts, v stays min(d, t) without its rest.",
    ),
    Walk("drawn draft pruned by its value", children=_pruned).as_bug(
        mistake="drafts chosen by their values",
        summary="A drawn draft is left out of the tree if its token is not probable enough.",
    ),
    Walk("drawn draft's row with the certain drafts", drawn_from=lambda draft, _: draft).as_bug(
        mistake="draft not sampled from its stated distribution",
        summary="A draft is drawn outside the certain ones, and verified by the whole draft row.",
    ),
)
