"""Mean number of output tokens of a step, conditioned on its drafts, by verifier.

For a selection rule ([sun2023]_, Algorithm 3) the mean is one plus a sum over levels: the
probability that the output reaches the level. `TransportPlan.conditional` gives the probability of
each drafted token at a node. For traversal verification ([weng2025]_) the tree determines the
weight of each node, and one pass gives the probability that the output ends at each node. For walk
and keep, the mean is one plus a sum over levels: the probability that the walk passes a node of the
level. For branch and keep, it is a sum over the nodes: the probability that a branch is tried.

References
----------
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
.. [weng2025] Weng et al., "Traversal Verification for Speculative Tree Decoding", 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from otm._core.arithmetic import Number, Probs, zeros
from otm.coupling.build import PlanBuilder
from otm.decoding.draft_tree import DraftNode, shared_draft_probs
from otm.decoding.verifiers.base import TargetProbs
from otm.decoding.verifiers.block_traversal import OpenNode
from otm.decoding.verifiers.branch_and_keep import Branch
from otm.decoding.verifiers.greedy_paths import GreedyWalk
from otm.decoding.verifiers.recursion import build_tree_plan
from otm.decoding.verifiers.walk_and_keep import Walk

TreeMeans = Callable[[DraftNode, TargetProbs, int], Probs]
"""Function from drafts of depth L and the target's distributions to mean tokens [L + 1]."""


def tokens_by_rule(
    rule: PlanBuilder, root: DraftNode, target_probs: TargetProbs, depth: int
) -> Probs:
    """Return the mean output tokens of SpecTr's Algorithm 3, given drafts of depth L: [L + 1].

    Entry γ is the mean for paths cut to γ drafts; entry 0 is 1. Exact for fractions.
    """
    reached = zeros(depth + 1, target_probs(root.path).probabilities)

    def visit(nodes: Sequence[DraftNode], probability: Number) -> None:
        path = nodes[0].path
        reached[len(path)] += probability
        drafts = [child for node in nodes for child in node.children]
        if len(path) >= depth or not drafts:
            return
        survivors: dict[int, list[DraftNode]] = {}
        for child in drafts:
            survivors.setdefault(child.token, []).append(child)
        draft_kind = nodes[0].draft_kind
        draft_probs = shared_draft_probs(nodes, draft_kind)
        plan = build_tree_plan(rule, draft_probs, target_probs(path), len(drafts), draft_kind)
        outputs = plan.conditional([child.token for child in drafts])
        for token, agreeing in survivors.items():
            selected = outputs.item(int(np.searchsorted(plan.problem.tokens, token)))
            if selected > 0:
                visit(agreeing, probability * selected)

    visit([root], 1 + 0 * reached.item(0))
    return np.cumsum(reached)


def tokens_by_traversal(root: DraftNode, target_probs: TargetProbs, depth: int) -> Probs:
    """Return the mean output tokens of traversal verification, given drafts of depth L: [L + 1].

    Entry γ is the mean for paths cut to γ drafts. Each γ needs a new pass, because acceptance of a
    node depends on the nodes below it.
    """
    one: Number = 1 + 0 * target_probs(root.path).probabilities.item(0)

    def visit(node: DraftNode, weight: Number, levels: int) -> tuple[Number, Number]:
        """Return the probability that the output ends in this subtree, and its mean length."""
        opened = OpenNode(
            node if len(node.path) < levels else DraftNode(node.path), weight, target_probs
        )
        rejected, length = one, 0 * one
        for child in opened.children:
            output, of_child = visit(child, opened.weight_of(child), levels)
            length, rejected = length + rejected * of_child, rejected * (1 - output)
            opened.reject()
        accepted = rejected * (opened.weight if node.path else one)
        return 1 - (rejected - accepted), length + accepted * (len(node.path) + 1)

    means = zeros(depth + 1, target_probs(root.path).probabilities)
    for levels in range(depth + 1):
        means[levels] = visit(root, one, levels)[1]
    return means


def tokens_by_walk(
    root: DraftNode, target_probs: TargetProbs, depth: int, walk: type[Walk] = Walk
) -> Probs:
    """Return the mean output tokens of walk and keep, given drafts of depth L: [L + 1].

    Entry γ is the mean for paths cut to γ drafts. This mean averages over the random numbers and
    over possible drafts below the walk: a node on the walk is accepted with probability `share`.
    For one sampled chain, walk and keep is the same rule as traversal. `walk` can be another walk.
    """
    # A tree of certain and drawn drafts that happens to be a chain is averaged as the other trees
    # that could have been drawn: a part of the draws with another average would bias the mean.
    if all(len(node.children) < 2 and node.draft_kind == "IID" for node in root.nodes()):
        return tokens_by_traversal(root, target_probs, depth)
    reached = zeros(depth + 1, target_probs(root.path).probabilities)

    def visit(node: Walk, probability: Number) -> None:
        reached[len(node.path)] += probability * node.share
        if len(node.path) < depth and node.drafts:
            for token, probability_of_token in node.winning().items():
                if probability_of_token > 0:
                    visit(node.to(token), probability * probability_of_token)

    visit(walk.begin(root, target_probs), 1 + 0 * reached.item(0))
    return np.cumsum(reached)


def tokens_by_branches(root: DraftNode, target_probs: TargetProbs, depth: int) -> Probs:
    """Return the mean output tokens of branch and keep, given drafts of depth L: [L + 1].

    Entry γ is the mean for paths cut to γ drafts. Whether a branch is tried depends on the drafts
    of earlier branches; this mean averages over possible drafts there: a branch is tried with the
    probability `left` of its node, and accepted with its `share`.
    For one sampled chain, branch and keep is the same rule as traversal.
    """
    if all(len(node.children) < 2 and node.draft_kind != "Top" for node in root.nodes()):
        return tokens_by_traversal(root, target_probs, depth)
    reached = zeros(depth + 1, target_probs(root.path).probabilities)

    def visit(node: Branch, probability: Number) -> None:
        reached[len(node.path)] += probability * node.share
        if len(node.path) < depth:
            for left, child in node.branches():
                visit(child, probability * left)

    one = 1 + 0 * reached.item(0)
    visit(Branch.at([root], one, target_probs), one)
    return np.cumsum(reached)


def tokens_by_target_only(root: DraftNode, target_probs: TargetProbs, depth: int) -> Probs:
    """Return the mean output tokens of target-only verification, given drafts of depth L: [L + 1].

    The mean is one plus the target's probabilities of all paths in the tree.
    """
    reached = zeros(depth + 1, target_probs(root.path).probabilities)
    probability = {root.path: 1 + reached.item(0)}
    # `nodes` yields parents before their children
    for node in root.nodes():
        if node.path not in probability:
            above = node.path[:-1]
            probability[node.path] = probability[above] * target_probs(above).of(node.token)
    for path, mass in probability.items():
        reached[len(path)] += mass
    return np.cumsum(reached)


OF_WHOLE_PATHS: dict[str, TreeMeans] = {
    "branch and keep": tokens_by_branches,
    "greedy multi-path": partial(tokens_by_walk, walk=GreedyWalk),
    "target-only": tokens_by_target_only,
    "traversal": tokens_by_traversal,
    "walk and keep": tokens_by_walk,
}
"""Rules that verify whole trees and have no plan for single nodes."""
