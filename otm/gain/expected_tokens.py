"""How many tokens a verifier outputs on average, given the drafts: the mean over its coins alone.

For a selection rule ([sun2023]_, Algorithm 3) it is one plus the sum over levels of the probability
that the output gets there: at each node `TransportPlan.conditional` says how likely each drafted
token is.  For traversal verification ([weng2025]_) the weight of each node is known given the
tree, and one pass gives the probability that the output ends there.

References
----------
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
.. [weng2025] Weng et al., "Traversal Verification for Speculative Tree Decoding", 2025.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otm._core.arithmetic import Law, Number, zeros
from otm.coupling.build import PlanBuilder
from otm.decoding.drafting import DraftNode
from otm.decoding.verification import OpenNode, TargetProbs, plan_of_tree


def tokens_by_rule(
    rule: PlanBuilder, root: DraftNode, target_probs: TargetProbs, depth: int
) -> Law:
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
        draft_probs = nodes[0].checked_draft_probs()
        plan = plan_of_tree(rule, draft_probs, target_probs(path), len(drafts))
        law = plan.conditional([child.token for child in drafts])
        for token, agreeing in survivors.items():
            selected = law.item(int(np.searchsorted(plan.problem.tokens, token)))
            if selected > 0:
                visit(agreeing, probability * selected)

    visit([root], 1 + 0 * reached.item(0))
    return np.cumsum(reached)


def tokens_by_traversal(root: DraftNode, target_probs: TargetProbs, depth: int) -> Law:
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
        while (child := opened.next_child()) is not None:
            output, of_child = visit(child, opened.weight_of(child), levels)
            length, refused = length + refused * of_child, refused * (1 - output)
            opened.reject()
        accepted = refused * (opened.weight if node.path else one)
        return 1 - (refused - accepted), length + accepted * (len(node.path) + 1)

    means = zeros(depth + 1, target_probs(root.path).probabilities)
    for levels in range(depth + 1):
        means[levels] = visit(root, one, levels)[1]
    return means
