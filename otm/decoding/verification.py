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
.. [sun2024block] Sun et al., "Block Verification Accelerates Speculative Decoding", 2024.
.. [weng2025] Weng et al., "Traversal Verification for Speculative Tree Decoding", 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from otm.arithmetic import Law, Number
from otm.coupling.k_seq import KSeq
from otm.coupling.optimal import OptimalPlan
from otm.coupling.recursive_rejection import RecursiveRejection
from otm.coupling.rules import Rule
from otm.decoding.drafting import DraftNode, Randomness
from otm.decoding.reading import Path
from otm.distribution import residual_weights
from otm.draft_laws.iid import IID
from otm.errors import InvalidDraftsError, InvalidParameterError
from otm.problem import MembershipProblem
from otm.sampling import InverseCdf
from otm.sparse import SparseLaw, Tokens, align

__all__ = [
    "OpenNode",
    "TargetLaws",
    "Verifier",
    "spectr_verifier",
    "verify_chain",
    "verify_traversal",
]

TargetLaws = Callable[[Path], SparseLaw]
"""The target's law of the token that follows a path of drafts."""

Verifier = Callable[[DraftNode, TargetLaws, Randomness], Path]
"""From a tree of drafts, the target's laws and uniforms to the output."""

OPTIMAL_FOR_ONE: tuple[Rule, ...] = (KSeq, OptimalPlan, RecursiveRejection)
"""Rules that are the maximal coupling for a single draft, which is done without building a plan."""


def verify_chain(root: DraftNode, target: TargetLaws, uniforms: Randomness) -> Path:
    """Accept drafts one after another, up to the first that is rejected.

    Draft x is accepted with probability min(1, q(x)/p(x)); in place of the first that is rejected
    comes a token from the residual law ∝ max(q − p, 0), and behind the last one from the target
    ([leviathan2023]_, Algorithm 1).

    Parameters
    ----------
    root : DraftNode
        A chain of drafts.
    target : callable
        The target's law after each path of drafts; asked along the accepted drafts only.
    uniforms : callable
        Source of independent uniforms.

    Returns
    -------
    tuple of int
        The accepted drafts and one token.

    Raises
    ------
    InvalidDraftsError
        If a node has several children.

    Examples
    --------
    >>> draft, q = SparseLaw([0, 1], [0.75, 0.25]), SparseLaw([0, 1], [0.25, 0.75])
    >>> root = DraftNode()
    >>> root.grow(draft, 1, lambda m: np.full(m, 0.5))
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
        output = _judge(child.token, node.offered(), target(node.path), uniforms)
        if output != child.token:
            return (*node.path, output)
        node = child
    return (*node.path, _last(target(node.path), uniforms))


def _judge(draft: int, offered: SparseLaw, wanted: SparseLaw, uniforms: Randomness) -> int:
    """Output one draft or, never equal to it, a token of the residual: the maximal coupling."""
    for_draft, for_residual = uniforms(2)
    if for_draft * offered.of(draft) < wanted.of(draft):
        return draft
    tokens, law, aim = align(offered, wanted)
    return _locate(tokens, residual_weights(aim, np.minimum(law, aim)), for_residual)


def spectr_verifier(rule: Rule) -> Verifier:
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
        A function of the root, the target's laws and uniforms, which raises `InvalidParameterError`
        if the rule is for drafts that are not i.i.d.

    Notes
    -----
    The drafts of a node are its children, each of them a draw.  In a prefix tree these, and not the
    sequences that Algorithm 3 speaks of, are independent: sequences that share a node share its
    draw.

    Examples
    --------
    >>> from otm.coupling import KSeq
    >>> draft, q = SparseLaw([0, 1], [0.75, 0.25]), SparseLaw([0, 1], [0.25, 0.75])
    >>> root = DraftNode()
    >>> root.grow(draft, 2, lambda m: np.array([0.5, 0.9]))
    >>> spectr_verifier(KSeq)(root, lambda path: q, lambda m: np.full(m, 0.5))
    (1, 1)
    """

    def verify(root: DraftNode, target: TargetLaws, uniforms: Randomness) -> Path:
        path: Path = root.path
        nodes = [root]
        while drafts := [child for node in nodes for child in node.children]:
            offered, wanted = _shared_law(nodes), target(path)
            if len(drafts) == 1 and rule in OPTIMAL_FOR_ONE:
                path = (*path, _judge(drafts[0].token, offered, wanted, uniforms))
            else:
                path = (*path, _select(rule, drafts, offered, wanted, uniforms))
            nodes = [child for child in drafts if child.token == path[-1]]
            if not nodes:
                return path
        return (*path, _last(target(path), uniforms))

    return verify


def _shared_law(nodes: Sequence[DraftNode]) -> SparseLaw:
    """Law of the drafts of nodes with one path: the same, or they are not i.i.d."""
    law = nodes[0].offered()
    for node in nodes[1:]:
        other = node.offered()
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


def _select(
    rule: Rule,
    drafts: Sequence[DraftNode],
    offered: SparseLaw,
    wanted: SparseLaw,
    uniforms: Randomness,
) -> int:
    """Select a token by a rule for i.i.d. drafts."""
    tokens, draft, aim = align(offered, wanted)
    plan = rule(MembershipProblem(draft, aim, len(drafts)))
    if not isinstance(plan.drafts, IID) or plan.drafts.k != len(drafts):
        raise InvalidParameterError(
            f"{type(plan).__name__} is not a rule for k independent drafts, and those of a tree "
            "are; use KSeq, OptimalPlan, RecursiveRejection or another rule for i.i.d. drafts"
        )
    places = np.searchsorted(tokens, [child.token for child in drafts])
    chosen, _ = plan.select(places, uniforms(plan.uniforms_per_selection))
    return int(tokens[chosen])


def verify_traversal(root: DraftNode, target: TargetLaws, uniforms: Randomness) -> Path:
    """Judge whole paths of drafts, from the leaves to the root ([weng2025]_).

    On a single chain this is block verification ([sun2024block]_), and in expectation it accepts
    at least as much as `verify_chain`.

    A node of weight w shall be output, or something below it, with probability w; the root has
    weight 1.  Its first draft x gets weight min(w t(x)/p(x), 1), t being the target's law.  If
    nothing there is output, the node goes on with weight Z/(Z + 1 − w) and with the residual
    max(w t − p, 0)/Z in place of t, where Z is the sum of max(w t − p, 0); and so for each draft.
    Then the node itself is output with the weight that it has, followed by a token drawn from t.
    A draft that was drawn more than once is looked at as often, the first time with all that grew
    below it.

    Parameters
    ----------
    root : DraftNode
        Any tree of drafts, the children of each node i.i.d.
    target : callable
        The target's law after each path of drafts.
    uniforms : callable
        Source of independent uniforms.

    Returns
    -------
    tuple of int
        The accepted drafts and one token.

    Examples
    --------
    The first draft alone would be rejected; both together pass.

    >>> laws = {(): SparseLaw([0, 1], [0.25, 0.75]), (0,): SparseLaw([0], [1])}
    >>> root = DraftNode()
    >>> root.grow(SparseLaw([0, 1], [0.5, 0.5]), 1, lambda m: np.zeros(m))
    >>> root.children[0].grow(SparseLaw([0, 1], [0.25, 0.75]), 1, lambda m: np.zeros(m))
    >>> verify_traversal(root, lambda path: laws[path[:1]], lambda m: np.full(m, 0.75))
    (0, 0, 0)
    """
    one = 1 + 0 * target(root.path).probabilities.item(0)
    opened = [OpenNode(root, one, target)]
    while True:
        node = opened[-1]
        child = node.next_child()
        if child is not None:
            opened.append(OpenNode(child, node.weight_of(child), target))
        elif not node.path or uniforms(1)[0] < node.weight:
            return (*node.path, _locate(node.tokens, node.left, uniforms(1)[0]))
        else:
            opened.pop()
            opened[-1].reject()


class OpenNode:
    """A node that traversal looks at, some of its drafts being rejected already.

    Parameters
    ----------
    node : DraftNode
        The node.
    weight : float or Fraction
        Probability w with which it, or something below it, shall be output.
    target : callable
        The target's law after each path of drafts.

    Attributes
    ----------
    left : array [m]
        The target's law t, or what the rejected drafts have left of it, on `tokens`.
    """

    def __init__(self, node: DraftNode, weight: Number, target: TargetLaws) -> None:
        self.path = node.path
        self.weight = weight
        wanted = target(node.path)
        self.tokens, self.left = wanted.tokens, wanted.probabilities
        if node.children:
            self.tokens, self._offered, self.left = align(node.offered(), wanted)
        self._children = iter(node.merged())

    def next_child(self) -> DraftNode | None:
        """Return the draft to be looked at next, if there is one."""
        return next(self._children, None)

    def weight_of(self, child: DraftNode) -> Number:
        """Weight min(w t(x)/p(x), 1) of a draft x."""
        i = int(np.searchsorted(self.tokens, child.token))
        mass: Number = self.weight * self.left.item(i)
        offered: Number = self._offered.item(i)
        return mass / offered if mass < offered else 1 + 0 * self.weight

    def reject(self) -> None:
        """Go on to what is left when nothing at or below a draft is output."""
        rest: Law = np.maximum(self.weight * self.left - self._offered, 0 * self._offered)
        excess: Number = rest.sum()
        if excess > 0:
            self.left = rest / excess
            self.weight = excess / (excess + (1 - self.weight))
        elif self.path:  # nothing is left to be output here
            self.weight = 0 * self.weight


def _last(law: SparseLaw, uniforms: Randomness) -> int:
    """Draw the token that follows when all drafts are accepted, the bonus token."""
    return _locate(law.tokens, law.probabilities, uniforms(1)[0])


def _locate(tokens: Tokens, weights: Law, uniform: object) -> int:
    return int(tokens[InverseCdf.from_weights(weights).locate(np.array([uniform]))[0]])
