"""SpecTr's recursion: select one of the drafts of a node by a plan, and go on below it.

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
from otm.decoding.verifiers.base import TargetProbs, Verifier, drawn_from
from otm.decoding.verifiers.chain import accept_or_recover
from otm.errors import InvalidParameterError
from otm.problem import Problem
from otm.rules import own_rule


def spectr_verifier(rule: PlanBuilder) -> Verifier:
    """Verify several drafts at each node by a selection rule ([sun2023]_, Algorithm 3).

    At every node the rule looks at the drafts behind all nodes that agree with the output so far.
    If it selects one of them, the nodes of this token go on, and k is their number; otherwise the
    selected token ends the output.

    Parameters
    ----------
    rule : callable
        From a problem to a plan for the kind of drafts that the tree has: for i.i.d. ones `KSeq`,
        `OptimalPlan`, `RecursiveRejection`, a lenient one, or one's own.

    Returns
    -------
    Verifier
        A function of the root, the target's distributions and uniforms to the output;
        lossless if the rule is (Theorem 12.4 of docs/theory/verification.md).

    Raises
    ------
    InvalidParameterError
        In the returned function, if the rule returns no plan, or is for another kind of drafts.
    InvalidDraftsError
        There too, if a node has no `draft_probs`, drafts that these cannot give, or nodes that
        agree with the output so far have different ones.

    Notes
    -----
    The drafts of a node are its children, each of them a draw.  In a prefix tree these, and not the
    sequences that Algorithm 3 speaks of, are independent: sequences that share a node share its
    draw.

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
    listed = own_rule(rule)

    def verify(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
        path: Path = root.path
        nodes = [root]
        while drafts := [child for node in nodes for child in node.children]:
            draft_kind = nodes[0].draft_kind
            draft, target = shared_draft_probs(nodes, draft_kind), target_probs(path)
            if len(drafts) == 1 and listed.maximal_for_one:
                token = accept_or_recover(drafts[0].token, draft, target, uniforms)
            else:
                plan = plan_of_tree(rule, draft, target, len(drafts), draft_kind)
                tokens = [child.token for child in drafts]
                token = int(plan.select(tokens, uniforms(plan.uniforms_per_selection)).token)
            path = (*path, token)
            nodes = [child for child in drafts if child.token == token]
            if not nodes:
                return path
        return (*path, drawn_from(target_probs(path), uniforms))

    return verify


def plan_of_tree(
    rule: PlanBuilder,
    draft_probs: SparseProbs,
    target_probs: SparseProbs,
    k: int,
    draft_kind: str = "IID",
) -> TransportPlan:
    """Build the plan of a rule for k drafts of a node, on the tokens of both supports."""
    plan = build_plan(rule, Problem(draft_probs, target_probs, k))
    of_rule = type(plan.drafts).__name__
    if of_rule != draft_kind or plan.drafts.k != k:
        raise InvalidParameterError(
            f"{type(plan).__name__} is a rule for {plan.drafts.k} {of_rule} drafts, and those of "
            f"this tree are {k} {draft_kind} drafts; use a rule for {draft_kind} drafts "
            "(`Rule.drafts` in `otm.rules.RULES`), or draft otherwise "
            "(`ModelDrafter(…, draft_kind=…)`)"
        )
    return plan
