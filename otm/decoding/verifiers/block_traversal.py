"""Traversal verification: verify whole draft paths, from the leaves to the root.

On a single chain, traversal verification is block verification.
"""

from __future__ import annotations

import numpy as np

from otm._core.arithmetic import Number, Probs
from otm._core.probs.sampling import locate
from otm._core.probs.sparse import align
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs


def verify_traversal(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
    """Verify whole draft paths, from the leaves to the root ([weng2025]_).

    On a single chain, traversal verification is block verification ([sun2024block]_), which in
    expectation accepts at least as much as `verify_chain` (Theorem 12.2 of
    docs/theory/verification.md).  The verifier is lossless (Theorem 12.3).

    The output is a node of weight w, or one of its descendants, with probability w; the root has
    weight 1.  The drafts of a node are verified in order.  Draft x gets weight min(w t(x)/p(x), 1),
    where t is the target's distribution.  If the output is neither x nor below x, t becomes
    max(w t − p, 0)/Z and w becomes Z/(Z + 1 − w), where Z is the sum of max(w t − p, 0).  If no
    draft of a node is left, the output ends at the node with probability w, the current weight,
    and one more token is drawn from t.  A token that was drawn several times is verified each time;
    its first node gets all subtrees.

    Parameters
    ----------
    root : DraftNode
        Any draft tree in which the children of a node are i.i.d.
    target_probs : callable
        Function from a draft path to the target's distribution after it.
    uniforms : callable
        Source of independent uniforms in [0, 1); the verifier does not check them.

    Returns
    -------
    tuple of int
        The accepted drafts and one more token.

    Raises
    ------
    InvalidDraftsError
        If a node with children has no `draft_probs`, or a child has probability zero.

    References
    ----------
    .. [sun2024block] Sun et al., "Block Verification Accelerates Speculative Decoding", 2024.
    .. [weng2025] Weng et al., "Traversal Verification for Speculative Tree Decoding", 2025.

    Examples
    --------
    Chain verification would reject the first draft; verified together, both drafts are accepted.

    >>> from otm import SparseProbs
    >>> probs = {(): SparseProbs([0, 1], [0.25, 0.75]), (0,): SparseProbs([0], [1])}
    >>> root = DraftNode()
    >>> root.draw_children(SparseProbs([0, 1], [0.5, 0.5]), 1, lambda m: np.zeros(m))
    >>> root.children[0].draw_children(SparseProbs([0, 1], [0.25, 0.75]), 1, lambda m: np.zeros(m))
    >>> verify_traversal(root, lambda path: probs[path[:1]], lambda m: np.full(m, 0.75))
    (0, 0, 0)
    """
    one = 1 + 0 * target_probs(root.path).probabilities.item(0)
    opened = [OpenNode(root, one, target_probs)]
    while True:
        node = opened[-1]
        child = next(node.children, None)
        if child is not None:
            opened.append(OpenNode(child, node.weight_of(child), target_probs))
        elif not node.path or uniforms(1)[0] < node.weight:
            return (*node.path, locate(node.tokens, node.residual, uniforms(1)[0]))
        else:
            opened.pop()
            opened[-1].reject()


class OpenNode:
    """A node during traversal, after some of its drafts were rejected.

    `weight` is the probability w that the output is this node or one of its descendants.
    """

    def __init__(self, node: DraftNode, weight: Number, target_probs: TargetProbs) -> None:
        self.path = node.path
        self.weight = weight
        target = target_probs(node.path)
        # The residual starts as the target's distribution t; each rejection changes it.
        self.tokens, self.residual = target.tokens, target.probabilities
        if node.children:
            draft = node.checked_draft_probs()
            self.tokens, self._draft_probs, self.residual = align(draft, target)
        # The drafts that are not verified yet.
        self.children = iter(node.merged_children())

    def weight_of(self, child: DraftNode) -> Number:
        """Return the weight min(w t(x)/p(x), 1) of a draft x."""
        i = int(np.searchsorted(self.tokens, child.token))
        mass: Number = self.weight * self.residual.item(i)
        draft: Number = self._draft_probs.item(i)
        return mass / draft if mass < draft else 1 + 0 * self.weight

    def reject(self) -> None:
        """Update residual and weight after the last draft and its descendants were rejected."""
        draft = self._draft_probs
        excess: Probs = np.maximum(self.weight * self.residual - draft, 0 * draft)
        total: Number = excess.sum()
        if total > 0:
            self.residual = excess / total
            self.weight = total / (total + (1 - self.weight))
        elif self.path:
            self.weight = 0 * self.weight
