"""How drafts are verified: how many of them are accepted, and the token that follows them.

A verifier takes the root of a tree of drafts, the target's distribution after each node, and
uniforms.  It returns the accepted drafts and one token more.  Continued by the target, the output
has the target's distribution ([sun2023]_, Theorem 2, which conditions on the number of tokens and
is false if that is taken literally).  So does what is left of it at an end token or a limit of the
length.

The loop calls `verify_batch` once in each step, with all sequences of the batch.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pkgutil import resolve_name

import numpy as np

from otm._core.arithmetic import Number, Probs
from otm._core.display.text import shown
from otm._core.distribution import residual_weights
from otm._core.sampling import locate
from otm._core.sparse import SparseProbs, Tokens, align, of_one_kind
from otm.coupling.build import PlanBuilder, build_plan, plan_builder
from otm.coupling.k_seq import KSeq
from otm.coupling.optimal.plan import OptimalPlan
from otm.coupling.plan import TransportPlan
from otm.coupling.recursive_rejection import RecursiveRejection
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.reading import Path
from otm.errors import InvalidDraftsError, InvalidParameterError
from otm.problem import Problem
from otm.rules import Rule, named, names

TargetProbs = Callable[[Path], SparseProbs]
"""The target's distribution of the token that follows a path of drafts."""

Verifier = Callable[[DraftNode, TargetProbs, Randomness], Path]
"""From a tree of drafts, the target's distributions and uniforms to the output."""

OPTIMAL_FOR_ONE: tuple[PlanBuilder, ...] = (KSeq, OptimalPlan, RecursiveRejection)
"""Rules that are the maximal coupling for a single draft, which needs no plan."""


def verify_batch(
    verifier: Verifier,
    trees: Sequence[DraftNode],
    target_probs: Iterable[TargetProbs],
    uniforms: Sequence[Randomness],
) -> list[Path]:
    """Verify the trees of B sequences; refuse an output of no token, which would never end."""
    outputs = [verifier(*parts) for parts in zip(trees, target_probs, uniforms, strict=True)]
    if not all(outputs):
        raise InvalidDraftsError(
            "the verifier returned no token; it must return the accepted drafts and one token more"
        )
    return outputs


def verify_chain(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
    """Accept drafts one after another, up to the first that is rejected.

    Draft x is accepted with probability min(1, q(x)/p(x)); in place of the first that is rejected
    comes a token from the residual ∝ max(q − p, 0), and behind the last one from the target
    ([leviathan2023]_, Algorithm 1).

    Parameters
    ----------
    root : DraftNode
        A chain of drafts.
    target_probs : callable
        The target's distribution after each path of drafts; called along the accepted drafts only.
    uniforms : callable
        Source of independent uniforms in [0, 1), which are not checked here.

    Returns
    -------
    tuple of int
        The accepted drafts and one token.

    Raises
    ------
    InvalidDraftsError
        If a node has several children, no `draft_probs`, or a draft that these cannot give.

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
        draft, target = node.checked_draft_probs(), target_probs(node.path)
        output = _accept_or_recover(child.token, draft, target, uniforms)
        if output != child.token:
            return (*node.path, output)
        node = child
    return (*node.path, drawn_from(target_probs(node.path), uniforms))


def _accept_or_recover(
    token: int, draft: SparseProbs, target: SparseProbs, uniforms: Randomness
) -> int:
    """Return one draft or, never equal to it, a token of the residual: the maximal coupling."""
    draft, target = of_one_kind(draft, target)
    for_draft, for_residual = uniforms(2)
    if for_draft * draft.of(token) < target.of(token):
        return token
    return residual_of(draft, target, for_residual)


def residual_of(draft: SparseProbs, target: SparseProbs, uniform: Number) -> int:
    """Draw from the residual ∝ max(q − p, 0), in place of a rejected draft."""
    return locate(*residual_on(draft, target), uniform)


def residual_on(draft: SparseProbs, target: SparseProbs) -> tuple[Tokens, Probs]:
    """Tokens of either support, and the weights max(q − p, 0) of the residual on them."""
    tokens, draft_probs, target_probs = align(draft, target)
    return tokens, residual_weights(target_probs, np.minimum(draft_probs, target_probs))


def spectr_verifier(rule: PlanBuilder) -> Verifier:
    """Verify several drafts at each node by a selection rule ([sun2023]_, Algorithm 3).

    At every node the rule looks at the drafts behind all nodes that agree with the output so far.
    If it selects one of them, the nodes of this token go on, and k is their number; otherwise the
    selected token ends the output.

    Parameters
    ----------
    rule : callable
        From a problem to a plan for drafts of the law that the tree has: for i.i.d. ones `KSeq`,
        `OptimalPlan`, `RecursiveRejection`, a lenient one, or one's own.

    Returns
    -------
    Verifier
        A function of the root, the target's distributions and uniforms to the output;
        lossless if the rule is (Theorem 12.4 of docs/theory/verification.md).

    Raises
    ------
    InvalidParameterError
        In the returned function, if the rule returns no plan, or is for drafts of another law.
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
            law = nodes[0].law
            draft, target = shared_draft_probs(nodes, law), target_probs(path)
            if len(drafts) == 1 and rule in OPTIMAL_FOR_ONE:
                token = _accept_or_recover(drafts[0].token, draft, target, uniforms)
            else:
                plan = plan_of_tree(rule, draft, target, len(drafts), law)
                tokens = [child.token for child in drafts]
                token = int(plan.select(tokens, uniforms(plan.uniforms_per_selection)).token)
            path = (*path, token)
            nodes = [child for child in drafts if child.token == token]
            if not nodes:
                return path
        return (*path, drawn_from(target_probs(path), uniforms))

    return verify


def shared_draft_probs(nodes: Sequence[DraftNode], law: str = "IID") -> SparseProbs:
    """Distribution of the drafts of nodes with one path: the same, or they are not i.i.d."""
    probs = nodes[0].checked_draft_probs(law)
    for node in nodes[1:]:
        other = node.checked_draft_probs("IID")
        same = other is probs or (
            np.array_equal(other.tokens, probs.tokens)
            and np.array_equal(other.probabilities, probs.probabilities)
        )
        if not same or len(node.children) != len(nodes[0].children):
            raise InvalidDraftsError(
                f"two nodes of the path {node.path} have different distributions, or different "
                "numbers of children; both must follow from the path, or their drafts are not "
                "i.i.d."
            )
    return probs


def plan_of_tree(
    rule: PlanBuilder,
    draft_probs: SparseProbs,
    target_probs: SparseProbs,
    k: int,
    law: str = "IID",
) -> TransportPlan:
    """Build the plan of a rule for k drafts of a node, on the tokens of both supports."""
    plan = build_plan(rule, Problem(draft_probs, target_probs, k))
    of_rule = type(plan.drafts).__name__
    if of_rule != law or plan.drafts.k != k:
        raise InvalidParameterError(
            f"{type(plan).__name__} is a rule for {plan.drafts.k} {of_rule} drafts, and those of "
            f"this tree are {k} {law} drafts; use a rule for {law} drafts (`Rule.drafts` in "
            f"`otm.rules.RULES`), or draft otherwise (`ModelDrafter(…, law=…)`)"
        )
    return plan


def drawn_from(probs: SparseProbs, uniforms: Randomness) -> int:
    """Draw a token, such as the bonus token that follows when all drafts are accepted."""
    return locate(probs.tokens, probs.probabilities, uniforms(1)[0])


def tree_rules() -> tuple[str, ...]:
    """List the rules that verify several drafts of a token: those that `spectr` takes by name.

    Most are for i.i.d. drafts; `otm.rules.Rule.drafts` says how the drafts of a rule are drawn.

    Returns
    -------
    tuple of str
        Names in `otm.rules.RULES`.

    Examples
    --------
    >>> tree_rules()[:3]
    ('optimal', 'k-Seq', 'recursive rejection')
    """
    return names("verifier", several=True)


def chain_verifier(rule: str) -> Verifier:
    """Return the verifier of chains that a name stands for; refuse other rules."""
    return _verifier(named(rule, "verifier", several=False))


def tree_verifier(rule: str | PlanBuilder) -> Verifier:
    """Return the verifier of trees by a name, or by a function from a problem to a plan."""
    if callable(rule):
        return spectr_verifier(rule)
    if not isinstance(rule, str):
        raise InvalidParameterError(
            f"rule = {shown(rule)}; give a name, one of {', '.join(tree_rules())}, or a function "
            "from a problem to a plan"
        )
    return _verifier(named(rule, "verifier", several=True))


def law_of(rule: str | PlanBuilder) -> str:
    """How the drafts of a rule must be drawn; independently, for a function."""
    return named(rule, "verifier").drafts if isinstance(rule, str) else "IID"


def _verifier(rule: Rule) -> Verifier:
    """Return the function of a rule; SpecTr's recursion over its plan if it has no other."""
    if not rule.verifier:
        return spectr_verifier(plan_builder(rule.name))
    verifier: Verifier = resolve_name(rule.verifier)
    return verifier
