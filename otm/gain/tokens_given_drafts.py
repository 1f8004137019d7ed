"""Mean number of output tokens of a step, given its drafts, for each way to verify them.

For a selection rule ([sun2023]_, Algorithm 3) the mean is one plus the sum over levels of the
probability that the output gets there: at each node `TransportPlan.conditional` says how likely
each drafted token is.  For traversal verification ([weng2025]_) the weight of each node is known
given the tree, and one pass gives the probability that the output ends there.  For walk and keep
it is one plus the sum over levels of the share of the node that the walk passes.

References
----------
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
.. [weng2025] Weng et al., "Traversal Verification for Speculative Tree Decoding", 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from otm._core.arithmetic import Number, Probs, zeros
from otm.coupling.build import PlanBuilder
from otm.decoding.draft_tree import DraftNode, shared_draft_probs
from otm.decoding.verifiers.base import TargetProbs
from otm.decoding.verifiers.block_traversal import OpenNode
from otm.decoding.verifiers.recursion import plan_of_tree
from otm.decoding.verifiers.walk_and_keep import Walk

TreeMeans = Callable[[DraftNode, TargetProbs, int], Probs]
"""From drafts of depth L and the target's distributions to mean numbers of tokens [L + 1]."""


def tokens_by_rule(
    rule: PlanBuilder, root: DraftNode, target_probs: TargetProbs, depth: int
) -> Probs:
    """Mean number of output tokens of SpecTr's Algorithm 3, given drafts of depth L: [L + 1].

    Entry γ is the mean for paths cut to γ drafts; entry 0 is 1.  Fractions if the probs are.
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
        plan = plan_of_tree(rule, draft_probs, target_probs(path), len(drafts), draft_kind)
        outputs = plan.conditional([child.token for child in drafts])
        for token, agreeing in survivors.items():
            selected = outputs.item(int(np.searchsorted(plan.problem.tokens, token)))
            if selected > 0:
                visit(agreeing, probability * selected)

    visit([root], 1 + 0 * reached.item(0))
    return np.cumsum(reached)


def tokens_by_traversal(root: DraftNode, target_probs: TargetProbs, depth: int) -> Probs:
    """Mean number of output tokens of traversal verification, given drafts of depth L: [L + 1].

    Entry γ is the mean for paths cut to γ drafts; the tree is traversed anew for each γ, as what is
    accepted depends on what is below.
    """
    one: Number = 1 + 0 * target_probs(root.path).probabilities.item(0)

    def visit(node: DraftNode, weight: Number, levels: int) -> tuple[Number, Number]:
        """Probability that something at or below the node is output, and its mean length there."""
        opened = OpenNode(
            node if len(node.path) < levels else DraftNode(node.path), weight, target_probs
        )
        refused, length = one, 0 * one
        for child in opened.children:
            output, of_child = visit(child, opened.weight_of(child), levels)
            length, refused = length + refused * of_child, refused * (1 - output)
            opened.reject()
        accepted = refused * (opened.weight if node.path else one)
        return 1 - (refused - accepted), length + accepted * (len(node.path) + 1)

    means = zeros(depth + 1, target_probs(root.path).probabilities)
    for levels in range(depth + 1):
        means[levels] = visit(root, one, levels)[1]
    return means


def tokens_by_walk(root: DraftNode, target_probs: TargetProbs, depth: int) -> Probs:
    """Mean number of output tokens of walk and keep, given drafts of depth L: [L + 1].

    Entry γ is the mean for paths cut to γ drafts.  It is the mean over the coins and over what
    could have been drafted below the walk: a node that it passes is accepted with its `share`.
    Of one chain it is that of traversal, which then is the same rule.
    """
    if all(len(node.children) < 2 for node in root.nodes()):
        return tokens_by_traversal(root, target_probs, depth)
    reached = zeros(depth + 1, target_probs(root.path).probabilities)

    def visit(node: Walk, probability: Number) -> None:
        reached[len(node.path)] += probability * node.share
        if len(node.path) < depth and node.drafts:
            for token, won in node.winning().items():
                if won > 0:
                    visit(node.to(token), probability * won)

    visit(Walk.begin(root, target_probs), 1 + 0 * reached.item(0))
    return np.cumsum(reached)


def tokens_by_target_only(root: DraftNode, target_probs: TargetProbs, depth: int) -> Probs:
    """Mean number of output tokens of target-only verification, given drafts of depth L: [L + 1].

    One more than the sum of the target's probabilities of all paths of the tree.
    """
    reached = zeros(depth + 1, target_probs(root.path).probabilities)
    probability = {root.path: 1 + reached.item(0)}
    for node in root.nodes():  # parents before their children
        if node.path not in probability:
            above = node.path[:-1]
            probability[node.path] = probability[above] * target_probs(above).of(node.token)
    for path, mass in probability.items():
        reached[len(path)] += mass
    return np.cumsum(reached)


OF_WHOLE_PATHS: dict[str, TreeMeans] = {
    "target-only": tokens_by_target_only,
    "traversal": tokens_by_traversal,
    "walk and keep": tokens_by_walk,
}
"""Rules that verify whole trees, without a plan at each node."""
