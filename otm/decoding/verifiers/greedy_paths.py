"""Greedy multi-path block verification: select one path greedily, and verify it as a block.

References
----------
.. [thomas2026gbv] Thomas and Pal, "Greedy Multi-Path Block Verification for Faster Decoding in
   Speculative Sampling", arXiv 2602.16961, 2026.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otm._core.arithmetic import Probs, zeros
from otm.coupling.optimal.agreeing import AgreeingDrafts
from otm.coupling.optimal.swaps import Swaps
from otm.coupling.optimal.winner import WinnerRule
from otm.decoding.draft_tree import DraftNode, Randomness, shared_draft_probs
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs
from otm.decoding.verifiers.walk_and_keep import Walk, drafts_of, walk_then_keep


class HighestRatio(AgreeingDrafts):
    """Rule by which the draft with the largest q/p wins; of equal ratios, the larger token.

    The winner is the highest slot of `AgreeingDrafts`, and no token changes its slot.
    """

    def _swap(self, target: Probs) -> tuple[Swaps, Probs]:
        """Return no swaps, and the win probability of each slot."""
        none = np.zeros(0, dtype=np.int64)
        return Swaps(none, none, zeros(0, target)), self._slope * self._mass


class GreedyWalk(Walk):
    """A walk that always goes to the drafted token with the largest q/p."""

    def _winner_of(self, nodes: Sequence[DraftNode]) -> WinnerRule:
        """Return the rule for the children of nodes with the same path."""
        draft = shared_draft_probs(nodes)
        numbers = drafts_of(self._counts(), len(nodes[0].children))
        return HighestRatio(draft, self._target_probs(self.path), numbers)


def verify_greedy_paths(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
    """Verify K independent paths by greedy multi-path block verification ([thomas2026gbv]_).

    At each node, the draft with the largest ratio of target to draft probability is selected, so
    that the selected path is the largest in lexicographic order.  Block verification then
    verifies this path against the distribution of selected paths.  That is walk and keep with
    another walk (Theorem 24.1 of docs/theory/several-paths.md), so the rule is lossless.  The
    selection is not the best for the next token: walk and keep can accept more drafts.

    Parameters
    ----------
    root : DraftNode
        A draft tree in which the children of a node are independent (kind "IID"), such as K chains
        or a prefix tree.
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
        If a node has no `draft_probs` or a child of probability zero, drafts are of another kind,
        or nodes with the same path have different distributions.
    ProblemTooLargeError
        If more than 256 drafts of a node can agree with the path.

    Notes
    -----
    We have the paper's abstract and reviews, and know the selection from other people's code.  The
    order of equal ratios is theirs.  If a distribution has more than 8,192 tokens, tokens whose
    ratios agree in ten bits share a place in the order.

    References
    ----------
    .. [thomas2026gbv] Thomas and Pal, "Greedy Multi-Path Block Verification for Faster Decoding in
       Speculative Sampling", arXiv 2602.16961, 2026.

    Examples
    --------
    >>> from otm import SparseProbs
    >>> target = SparseProbs([0, 1], [0.25, 0.75])
    >>> root = DraftNode()
    >>> root.draw_children(SparseProbs([0, 1], [0.5, 0.5]), 2, lambda m: np.array([0.1, 0.9]))
    >>> verify_greedy_paths(root, lambda path: target, lambda m: np.full(m, 0.5))
    (1, 1)
    """
    return walk_then_keep(GreedyWalk.begin(root, target_probs), uniforms)
