"""How drafts are judged: which of them the output begins with, and the token that follows them.

Every verifier takes the root of a tree of drafts, the target's law after each node, and uniforms;
it returns the output, a path of drafts and one token more.  Continued by the target, the output has
the law of the target ([sun2023]_, Theorem 2, which conditions on the number of tokens and is false
if that is taken literally).  So does what is left of it at an end token or a limit of the length.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from otm._core.arithmetic import Law
from otm._core.distribution import residual_weights
from otm._core.sampling import InverseCdf
from otm._core.sparse import SparseProbs, Tokens, align, of_one_kind
from otm.coupling.build import PlanBuilder, build_plan
from otm.coupling.k_seq import KSeq
from otm.coupling.optimal import OptimalPlan
from otm.coupling.plan import TransportPlan
from otm.coupling.recursive_rejection import RecursiveRejection
from otm.decoding.drafting import DraftNode, Randomness
from otm.decoding.reading import Path
from otm.drafts.iid import IID
from otm.errors import InvalidDraftsError, InvalidParameterError
from otm.problem import Problem

TargetProbs = Callable[[Path], SparseProbs]
"""The target's law of the token that follows a path of drafts."""

Verifier = Callable[[DraftNode, TargetProbs, Randomness], Path]
"""From a tree of drafts, the target's laws and uniforms to the output."""

OPTIMAL_FOR_ONE: tuple[PlanBuilder, ...] = (KSeq, OptimalPlan, RecursiveRejection)
"""Rules that are the maximal coupling for a single draft, which is done without building a plan."""


def verify_chain(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
    """Accept drafts one after another, up to the first that is rejected.

    Draft x is accepted with probability min(1, q(x)/p(x)); in place of the first that is rejected
    comes a token from the residual law ∝ max(q − p, 0), and behind the last one from the target
    ([leviathan2023]_, Algorithm 1).

    Parameters
    ----------
    root : DraftNode
        A chain of drafts.
    target_probs : callable
        The target's law after each path of drafts; asked along the accepted drafts only.
    uniforms : callable
        Source of independent uniforms in [0, 1), which are not checked here.

    Returns
    -------
    tuple of int
        The accepted drafts and one token.

    Raises
    ------
    InvalidDraftsError
        If a node has several children, no law, or a draft that its law cannot give.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> draft, q = SparseProbs([0, 1], [0.75, 0.25]), SparseProbs([0, 1], [0.25, 0.75])
    >>> root = DraftNode()
    >>> root.draw_children(draft, 1, lambda m: np.full(m, 0.5))
    >>> root.children[0].path
    (0,)
    >>> verify_chain(root, lambda path: q, lambda m: np.full(m, 0.5))
    (1,)
    """
    node = root
    while node.children:
        if len(node.children) > 1:
            raise InvalidDraftsError(
                f"{len(node.children)} drafts after {node.path}; chain verification takes one "
                "chain, `spectr_verifier` and `verify_traversal` take trees"
            )
        (child,) = node.children
        output = _judge(child.token, node.checked_draft_probs(), target_probs(node.path), uniforms)
        if output != child.token:
            return (*node.path, output)
        node = child
    return (*node.path, _last(target_probs(node.path), uniforms))


def _judge(draft: int, offered: SparseProbs, wanted: SparseProbs, uniforms: Randomness) -> int:
    """Output one draft or, never equal to it, a token of the residual: the maximal coupling."""
    offered, wanted = of_one_kind(offered, wanted)
    for_draft, for_residual = uniforms(2)
    if for_draft * offered.of(draft) < wanted.of(draft):
        return draft
    tokens, law, aim = align(offered, wanted)
    return locate(tokens, residual_weights(aim, np.minimum(law, aim)), for_residual)


def spectr_verifier(rule: PlanBuilder) -> Verifier:
    """Verify several drafts at each node by a selection rule ([sun2023]_, Algorithm 3).

    At every node the rule looks at the drafts behind all nodes that agree with the output so far.
    If it selects one of them, the nodes of this token go on, and k is their number; otherwise the
    selected token ends the output.

    Parameters
    ----------
    rule : callable
        From a problem to a plan for i.i.d. drafts: `KSeq`, `OptimalPlan`, `RecursiveRejection`, a
        lenient one, or one's own.

    Returns
    -------
    Verifier
        A function of the root, the target's laws and uniforms to the accepted drafts and one token;
        lossless if the rule is (Theorem 12.4 of docs/theory/verification.md).

    Raises
    ------
    InvalidParameterError
        In the returned function, if the rule returns no plan, or is for drafts that are not i.i.d.
    InvalidDraftsError
        There too, if a node has no law, drafts that its law cannot give, or nodes that agree with
        the output so far have different laws.

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
    >>> from otm.coupling import KSeq
    >>> draft, q = SparseProbs([0, 1], [0.75, 0.25]), SparseProbs([0, 1], [0.25, 0.75])
    >>> root = DraftNode()
    >>> root.draw_children(draft, 2, lambda m: np.array([0.5, 0.9]))
    >>> spectr_verifier(KSeq)(root, lambda path: q, lambda m: np.full(m, 0.5))
    (1, 1)
    """

    def verify(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
        path: Path = root.path
        nodes = [root]
        while drafts := [child for node in nodes for child in node.children]:
            offered, wanted = _shared_law(nodes), target_probs(path)
            if len(drafts) == 1 and rule in OPTIMAL_FOR_ONE:
                path = (*path, _judge(drafts[0].token, offered, wanted, uniforms))
            else:
                path = (*path, _select(rule, drafts, offered, wanted, uniforms))
            nodes = [child for child in drafts if child.token == path[-1]]
            if not nodes:
                return path
        return (*path, _last(target_probs(path), uniforms))

    return verify


def _shared_law(nodes: Sequence[DraftNode]) -> SparseProbs:
    """Law of the drafts of nodes with one path: the same, or they are not i.i.d."""
    law = nodes[0].checked_draft_probs()
    for node in nodes[1:]:
        other = node.checked_draft_probs()
        same = other is law or (
            np.array_equal(other.tokens, law.tokens)
            and np.array_equal(other.probabilities, law.probabilities)
        )
        if not same or len(node.children) != len(nodes[0].children):
            raise InvalidDraftsError(
                f"two nodes of the path {node.path} have different laws, or different numbers of "
                "children; both must follow from the path, or their drafts are not i.i.d."
            )
    return law


def plan_of_tree(
    rule: PlanBuilder, draft_probs: SparseProbs, target_probs: SparseProbs, k: int
) -> TransportPlan:
    """Build the plan of a rule for k i.i.d. drafts of a tree, on the tokens of both supports."""
    plan = build_plan(rule, Problem(draft_probs, target_probs, k))
    if not isinstance(plan.drafts, IID) or plan.drafts.k != k:
        raise InvalidParameterError(
            f"{type(plan).__name__} is not a rule for k independent drafts, and those of a tree "
            "are; use KSeq, OptimalPlan, RecursiveRejection or another rule for i.i.d. drafts"
        )
    return plan


def _select(
    rule: PlanBuilder,
    drafts: Sequence[DraftNode],
    draft_probs: SparseProbs,
    target_probs: SparseProbs,
    uniforms: Randomness,
) -> int:
    """Select a token by a rule for i.i.d. drafts."""
    plan = plan_of_tree(rule, draft_probs, target_probs, len(drafts))
    tokens = [child.token for child in drafts]
    return int(plan.select(tokens, uniforms(plan.uniforms_per_selection)).token)


def _last(law: SparseProbs, uniforms: Randomness) -> int:
    """Draw the token that follows when all drafts are accepted, the bonus token."""
    return locate(law.tokens, law.probabilities, uniforms(1)[0])


def locate(tokens: Tokens, weights: Law, uniform: object) -> int:
    """Draw a token by weights along the tokens."""
    return int(tokens[InverseCdf.from_weights(weights).locate(np.array([uniform]))[0]])
