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
from otm.decoding.traversal import OpenNode
from otm.decoding.verification import TargetProbs, plan_of_tree


def tokens_by_rule(
    rule: PlanBuilder, root: DraftNode, target_probs: TargetProbs, depth: int
) -> Law:
    """Mean number of tokens that Algorithm 3 of SpecTr outputs, given the drafts.

    Parameters
    ----------
    rule : callable
        From a problem to a plan for i.i.d. drafts.
    root : DraftNode
        The drafts.
    target_probs : callable
        The target's law after each path of drafts.
    depth : int
        L, how many levels of the tree to look at.

    Returns
    -------
    array [L + 1]
        Entry γ is the mean where the paths are cut to γ drafts; the first is 1.  Fractions if the
        laws are.

    Raises
    ------
    InvalidParameterError
        If the rule is for drafts that are not i.i.d., or for another number of them.

    Examples
    --------
    >>> from otm.coupling import KSeq
    >>> from otm._core.sparse import SparseProbs
    >>> draft, q = SparseProbs([0, 1], [0.75, 0.25]), SparseProbs([0, 1], [0.25, 0.75])
    >>> root = DraftNode()
    >>> root.draw_children(draft, 1, lambda m: np.full(m, 0.5))
    >>> tokens_by_rule(KSeq, root, lambda path: q, 1).round(12)  # 1 + q(0)/p(0)
    array([1.        , 1.33333333])
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
    """Mean number of tokens that traversal verification outputs, given the drafts.

    Parameters
    ----------
    root : DraftNode
        The drafts.
    target_probs : callable
        The target's law after each path of drafts.
    depth : int
        L, how many levels of the tree to look at.

    Returns
    -------
    array [L + 1]
        Entry γ is the mean where the paths are cut to γ drafts, for each of which the tree is gone
        through again, as what is accepted depends on what is below.

    Examples
    --------
    Both drafts pass together, with the third token; the first alone has q(0)/p(0) = 1/2.

    >>> from otm._core.sparse import SparseProbs
    >>> laws = {(): SparseProbs([0, 1], [0.25, 0.75]), (0,): SparseProbs([0], [1])}
    >>> root = DraftNode()
    >>> root.draw_children(SparseProbs([0, 1], [0.5, 0.5]), 1, lambda m: np.zeros(m))
    >>> root.children[0].draw_children(SparseProbs([0, 1], [0.25, 0.75]), 1, lambda m: np.zeros(m))
    >>> tokens_by_traversal(root, lambda path: laws[path[:1]], 2).tolist()
    [1.0, 1.5, 3.0]
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
