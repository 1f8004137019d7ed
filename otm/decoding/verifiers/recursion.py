"""SpecTr's recursion: a plan selects one of the drafts of a node, and verification continues below.

References
----------
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
"""

from __future__ import annotations

from otm._core.probs.sparse import SparseProbs
from otm.coupling.build import PlanBuilder, build_plan
from otm.coupling.plan import TransportPlan
from otm.decoding.draft_tree import DraftNode, Randomness, shared_draft_probs
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs, Verifier, draw_token
from otm.decoding.verifiers.chain import accept_or_recover
from otm.errors import InvalidParameterError
from otm.problem import Problem
from otm.rules import rule_from_plan


def spectr_verifier(rule: PlanBuilder) -> Verifier:
    """Return a verifier that selects a draft at each node by a rule ([sun2023]_, Algorithm 3).

    At each level, the k drafts are the children of all nodes whose path is the output so far.  If
    the rule selects a draft, verification continues at all nodes with this token.  If the rule
    selects another token, this token ends the output.

    Parameters
    ----------
    rule : callable
        Function from a problem to a plan for the kind of drafts in the tree.  For i.i.d. drafts:
        `KSeq`, `OptimalPlan`, `RecursiveRejection`, a lenient rule, or a custom function.

    Returns
    -------
    Verifier
        Function from the root, the target's distributions and uniforms to the output.  The
        verifier is lossless if the rule is lossless (Theorem 12.4 of docs/theory/verification.md).

    Raises
    ------
    InvalidParameterError
        When the verifier runs, if the rule returns no plan, or a plan for another kind of drafts.
    InvalidDraftsError
        When the verifier runs, if a node has no `draft_probs` or a child of probability zero, or if
        nodes with the same path have different distributions.

    Notes
    -----
    The drafts of a node are its children; each child is a separate draw.  In a prefix tree, the
    children are independent, but the sequences of Algorithm 3 are not, because sequences that
    share a node share its draw.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS
       2023.

    Examples
    --------
    >>> import numpy as np
    >>> from otm.coupling import KSeq
    >>> draft, q = SparseProbs([0, 1], [0.75, 0.25]), SparseProbs([0, 1], [0.25, 0.75])
    >>> root = DraftNode()
    >>> root.draw_children(draft, 2, lambda m: np.array([0.5, 0.9]))
    >>> spectr_verifier(KSeq)(root, lambda path: q, lambda m: np.full(m, 0.5))
    (1, 1)
    """
    listed = rule_from_plan(rule)

    def verify(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
        path: Path = root.path
        nodes = [root]
        while drafts := [child for node in nodes for child in node.children]:
            draft_kind = nodes[0].draft_kind
            draft, target = shared_draft_probs(nodes, draft_kind), target_probs(path)
            if len(drafts) == 1 and listed.maximal_for_one:
                token = accept_or_recover(drafts[0].token, draft, target, uniforms)
            else:
                plan = build_tree_plan(rule, draft, target, len(drafts), draft_kind)
                tokens = [child.token for child in drafts]
                token = int(plan.select(tokens, uniforms(plan.uniforms_per_selection)).token)
            path = (*path, token)
            nodes = [child for child in drafts if child.token == token]
            if not nodes:
                return path
        return (*path, draw_token(target_probs(path), uniforms))

    return verify


def build_tree_plan(
    rule: PlanBuilder,
    draft_probs: SparseProbs,
    target_probs: SparseProbs,
    k: int,
    draft_kind: str = "IID",
) -> TransportPlan:
    """Build the plan of a rule for k drafts of a node, from draft and target distributions."""
    plan = build_plan(rule, Problem(draft_probs, target_probs, k))
    plan_kind = type(plan.drafts).__name__
    if plan_kind != draft_kind or plan.drafts.k != k:
        raise InvalidParameterError(
            f"{type(plan).__name__} is a rule for {plan.drafts.k} {plan_kind} drafts, but this "
            f"tree has {k} {draft_kind} drafts; use a rule for {draft_kind} drafts "
            "(`Rule.drafts` in `otm.rules.RULES`), or another kind of drafts "
            "(`ModelDrafter(…, draft_kind=…)`)"
        )
    return plan
