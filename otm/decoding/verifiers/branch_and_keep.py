"""Branch and keep: verify several drafts of several tokens, and try every drafted branch.

Walk and keep goes down one branch of the drafts and never tries another.  Branch and keep gives
each drafted child of a node its own probability, tries the branches of the children one after
another, and decides from the leaves up.  If nothing in a branch is kept, it tries the next branch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from otm._core.arithmetic import Number
from otm.coupling.optimal.certain import CertainDrafts
from otm.coupling.optimal.winner import WinnerRule
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs
from otm.decoding.verifiers.walk_and_keep import Walk


class Branch(Walk):
    """A node whose branch is tried, with all drafts that have its path.

    `share` is the probability that this node or a node below it is kept, given everything that is
    known when the branch is tried: the drafts up to here, and that the earlier branches failed.
    """

    def branches(self) -> Iterator[tuple[Number, Branch]]:
        """Yield each child to try, and the probability that all earlier children fail.

        Both are conditional on the drafts after this node, but not on deeper drafts.
        """
        if not self.drafts:
            return
        chosen = self._winner.chosen(self._places, self.share)
        copies = Counter(self._places)
        # A later branch is tried less often and with a larger share, which suits a branch with
        # more drafts below it.
        order = sorted(chosen.items(), key=lambda item: (copies[item[0]], item[1]))
        left = 1 + 0 * self.share
        for place, probability in order:
            if probability > 0 and left > 0:
                share = min(probability / left, 1 + 0 * left)
                yield left, self._child(place, share)
                left = left - probability

    def _child(self, place: int, share: Number) -> Branch:
        """Return the child with a drafted token, with its share."""
        token = self._winner.tokens.item(place)
        nodes = [child for child in self.drafts if child.token == token]
        return Branch.at(nodes, share, self._target_probs)

    @classmethod
    def at(cls, nodes: list[DraftNode], share: Number, target_probs: TargetProbs) -> Branch:
        """Return the branch at nodes with the same path; their number is known."""
        one = 1 + 0 * target_probs(nodes[0].path).probabilities[:1]
        return cls(
            nodes, share, lambda: np.append(np.repeat(0 * one, len(nodes)), one), target_probs
        )

    def _winner_of(self, nodes: Sequence[DraftNode]) -> WinnerRule:
        """Return the rule of a node; one drawn child needs no slots."""
        if len(self.drafts) == 1 and nodes[0].draft_kind == "IID":
            draft = nodes[0].checked_draft_probs()
            return CertainDrafts(np.zeros(0, dtype=np.int64), draft, self._target_probs(self.path))
        return super()._winner_of(nodes)


def verify_branch_and_keep(
    root: DraftNode, target_probs: TargetProbs, uniforms: Randomness
) -> Path:
    """Verify whole paths of several drafts: try every drafted branch, and choose from leaves up.

    The share s of a node is the probability that the rule keeps this node or a node below it, once
    it tries the node's branch; the root has the share 1.  Let t be the target's distribution after
    the node.  Each distinct drafted child z gets a probability a(z) that depends on the children.
    The mean of a(z) over the drafts is min(s t(z), v(z)), where v is the best distribution of a
    winning child (Theorems 14.3 and 23.1).  The rule tries the branches of the children one after
    another.  The share of z is a(z) divided by the probability that all earlier branches fail.  If
    no branch keeps a node, the rule keeps the node itself with probability (s − Σ S) / (1 − Σ S),
    where S(z) = min(s t(z), v(z)).  If all branches of the root fail, it keeps the root.  The token
    after the kept node is drawn ∝ s t − S.

    On a single chain, branch and keep is block verification.  If every path has length 1, it
    accepts as often as an optimal plan.  On average it accepts at least as many drafts as SpecTr's
    recursion with the same winner.  Theorems 24.3 and 24.4 of docs/theory/several-paths.md prove
    this.  On the models of this package it accepted more drafts than walk and keep.

    Parameters
    ----------
    root : DraftNode
        A draft tree in which the children of a node are independent (kind "IID"), such as K chains
        or a prefix tree; certain (kind "Top"); or certain except for the last, which is drawn (kind
        "Greedy").
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
        If a drawn child has no `draft_probs` or the probability zero, drafts are of another kind,
        certain drafts repeat a token, or nodes with the same path have different distributions.
    ProblemTooLargeError
        If more than 256 drafts follow one path.

    Notes
    -----
    The order of decisions, and the division by the probability that earlier branches fail, are
    those of UniVer [weng2026univer]_, a rule for certain drafts and one drawn draft.  We know the
    probabilities a(z) of UniVer from the documentation of other people's code.  For independent
    drafts the probabilities a(z) are ours.

    References
    ----------
    .. [weng2026univer] Weng, Hu and Yairi, "UniVer: A Unified Perspective for Multi-step and
       Multi-draft Speculative Decoding", arXiv 2605.04543, 2026.

    Examples
    --------
    The target excludes the draft 0, so only the branch of the draft 1 can keep a node.

    >>> from otm import SparseProbs
    >>> target = SparseProbs([0, 1], [0.0, 1.0])
    >>> root = DraftNode()
    >>> root.draw_children(SparseProbs([0, 1], [0.5, 0.5]), 2, lambda m: np.array([0.1, 0.9]))
    >>> verify_branch_and_keep(root, lambda path: target, lambda m: np.full(m, 0.5))
    (1, 1)
    """
    one = 1 + 0 * target_probs(root.path).probabilities.item(0)
    node = Branch.at([root], one, target_probs)
    opened = [(node, node.branches())]
    while True:
        node, waiting = opened[-1]
        following = next(waiting, None)
        if following is not None:
            child = following[1]
            opened.append((child, child.branches()))
        elif len(opened) == 1 or uniforms(1)[0] < node.keep_probability:
            return (*node.path, node.token_after(uniforms))
        else:
            opened.pop()
