"""Drafts judged by whole paths, from the leaves of their tree to the root.

References
----------
.. [sun2024block] Sun et al., "Block Verification Accelerates Speculative Decoding", 2024.
.. [weng2025] Weng et al., "Traversal Verification for Speculative Tree Decoding", 2025.
"""

from __future__ import annotations

import numpy as np

from otm._core.arithmetic import Law, Number
from otm._core.sparse import align
from otm.decoding.drafting import DraftNode, Randomness
from otm.decoding.reading import Path
from otm.decoding.verification import TargetProbs, locate


def verify_traversal(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
    """Judge whole paths of drafts, from the leaves to the root ([weng2025]_).

    On a single chain this is block verification ([sun2024block]_), and in expectation it accepts
    at least as much as `verify_chain` (Theorem 12.2 of docs/theory/verification.md; Theorem 12.3:
    it is lossless).

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
    target_probs : callable
        The target's law after each path of drafts.
    uniforms : callable
        Source of independent uniforms in [0, 1), which are not checked here.

    Returns
    -------
    tuple of int
        The accepted drafts and one token.

    Raises
    ------
    InvalidDraftsError
        If a node has drafts but no law, or drafts that its law cannot give.

    References
    ----------
    .. [sun2024block] Sun et al., "Block Verification Accelerates Speculative Decoding", 2024.
    .. [weng2025] Weng et al., "Traversal Verification for Speculative Tree Decoding", 2025.

    Examples
    --------
    The first draft alone would be rejected; both together pass.

    >>> from otm._core.sparse import SparseProbs
    >>> laws = {(): SparseProbs([0, 1], [0.25, 0.75]), (0,): SparseProbs([0], [1])}
    >>> root = DraftNode()
    >>> root.draw_children(SparseProbs([0, 1], [0.5, 0.5]), 1, lambda m: np.zeros(m))
    >>> root.children[0].draw_children(SparseProbs([0, 1], [0.25, 0.75]), 1, lambda m: np.zeros(m))
    >>> verify_traversal(root, lambda path: laws[path[:1]], lambda m: np.full(m, 0.75))
    (0, 0, 0)
    """
    one = 1 + 0 * target_probs(root.path).probabilities.item(0)
    opened = [OpenNode(root, one, target_probs)]
    while True:
        node = opened[-1]
        child = node.next_child()
        if child is not None:
            opened.append(OpenNode(child, node.weight_of(child), target_probs))
        elif not node.path or uniforms(1)[0] < node.weight:
            return (*node.path, locate(node.tokens, node.left, uniforms(1)[0]))
        else:
            opened.pop()
            opened[-1].reject()


class OpenNode:
    """A node during traversal, with some of its drafts already rejected.

    `weight` is the probability w that it, or something below it, is output.
    """

    def __init__(self, node: DraftNode, weight: Number, target_probs: TargetProbs) -> None:
        self.path = node.path
        self.weight = weight
        wanted = target_probs(node.path)
        # the target's distribution t, or what rejected drafts have left of it, on these tokens
        self.tokens, self.left = wanted.tokens, wanted.probabilities
        if node.children:
            self.tokens, self._offered, self.left = align(node.checked_draft_probs(), wanted)
        self._children = iter(node.merged_children())

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
