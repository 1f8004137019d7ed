"""Traversal verification: whole paths of drafts, from the leaves to the root.

On a single chain it is block verification.
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
    """Verify whole paths of drafts, from the leaves to the root ([weng2025]_).

    On a single chain this is block verification ([sun2024block]_), and in expectation it accepts
    at least as much as `verify_chain` (Theorem 12.2 of docs/theory/verification.md; Theorem 12.3:
    it is lossless).

    The output is a node of weight w, or below it, with probability w; the root has weight 1.
    Take its drafts one after another. Draft x gets weight min(w t(x)/p(x), 1), where t is the
    target's distribution. If the output is not at x or below, then w becomes Z/(Z + 1 − w) and t
    becomes max(w t − p, 0)/Z, where Z is the sum of max(w t − p, 0). After the last draft the
    node itself is the output with the weight that it then has, and a token drawn from t follows.
    A draft that was drawn more than once is verified as often, the first time with all that grew
    below it.

    Parameters
    ----------
    root : DraftNode
        Any tree of drafts, the children of each node i.i.d.
    target_probs : callable
        The target's distribution after each path of drafts.
    uniforms : callable
        Source of independent uniforms in [0, 1), which are not checked here.

    Returns
    -------
    tuple of int
        The accepted drafts and one token.

    Raises
    ------
    InvalidDraftsError
        If a node has drafts but no `draft_probs`, or drafts that these cannot give.

    References
    ----------
    .. [sun2024block] Sun et al., "Block Verification Accelerates Speculative Decoding", 2024.
    .. [weng2025] Weng et al., "Traversal Verification for Speculative Tree Decoding", 2025.

    Examples
    --------
    The first draft alone would be rejected; both together pass.

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
            return (*node.path, locate(node.tokens, node.left, uniforms(1)[0]))
        else:
            opened.pop()
            opened[-1].reject()


class OpenNode:
    """A node during traversal, with some of its drafts already rejected.

    `weight` is the probability w that the output is this node or goes on below it.
    """

    def __init__(self, node: DraftNode, weight: Number, target_probs: TargetProbs) -> None:
        self.path = node.path
        self.weight = weight
        target = target_probs(node.path)
        # the target's distribution t, or what rejected drafts have left of it, on these tokens
        self.tokens, self.left = target.tokens, target.probabilities
        if node.children:
            self.tokens, self._draft_probs, self.left = align(node.checked_draft_probs(), target)
        self.children = iter(node.merged_children())  # those that are not rejected yet

    def weight_of(self, child: DraftNode) -> Number:
        """Weight min(w t(x)/p(x), 1) of a draft x."""
        i = int(np.searchsorted(self.tokens, child.token))
        mass: Number = self.weight * self.left.item(i)
        drawn: Number = self._draft_probs.item(i)
        return mass / drawn if mass < drawn else 1 + 0 * self.weight

    def reject(self) -> None:
        """Go on to what is left when the output is neither a draft nor below it."""
        draft = self._draft_probs
        rest: Probs = np.maximum(self.weight * self.left - draft, 0 * draft)
        excess: Number = rest.sum()
        if excess > 0:
            self.left = rest / excess
            self.weight = excess / (excess + (1 - self.weight))
        elif self.path:  # nothing is left here
            self.weight = 0 * self.weight
