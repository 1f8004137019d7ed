"""Walk and keep: verify several drafts of several tokens, close to the optimum.

The walk starts at the root.  At each node the walk goes to one of the drafted tokens, and keeps the
drafts that agree with its path, until a path ends.  From the end of the walk upwards, each node is
kept with a probability that depends only on the distributions along the path.  On a single chain,
walk and keep is block verification; if every path has length 1, it is an optimal plan of OTM-k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Self

import numpy as np

from otm._core.arithmetic import Number, Probs, zeros
from otm._core.probs.sampling import locate
from otm._core.probs.sparse import SparseProbs, Tokens
from otm.coupling.optimal.agreeing import AgreeingDrafts
from otm.coupling.optimal.certain import CertainDrafts
from otm.coupling.optimal.winner import WinnerRule
from otm.decoding.draft_tree import DraftNode, Randomness, shared_draft_probs
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs
from otm.errors import InvalidDraftsError, ProblemTooLargeError

CERTAIN = ("Top", "Greedy")
"""Kinds of draft sampling in which the first children of a node are certain."""

MOST_DRAFTS = 2**8
"""Maximum number K of drafts of a node; counting agreeing drafts takes O(K²) time."""


class Walk:
    """A node of the walk, with all drafts that agree with its path.

    W(y) is the probability that a walk passes the path y.  S(y) is the probability that y is
    accepted, as the output or a prefix of the output.  With the target's distribution t,
    S(yz) = min(S(y) t(z), W(yz)).  `share` is S(y)/W(y).  Several drafts can have the same path y,
    and `counts` returns the distribution of their number.
    """

    def __init__(
        self,
        nodes: Sequence[DraftNode],
        share: Number,
        counts: Callable[[], Probs],
        target_probs: TargetProbs,
    ) -> None:
        self.path, self.share, self._target_probs = nodes[0].path, share, target_probs
        self._nodes, self._counts = nodes, counts
        # A node without share is never kept, and neither are nodes below it.
        self.drafts = [child for node in nodes for child in node.children] if share > 0 else []

    @classmethod
    def begin(cls, root: DraftNode, target_probs: TargetProbs) -> Self:
        """Return the walk at the root, which is always accepted."""
        one = 1 + 0 * target_probs(root.path).probabilities[:1]
        return cls([root], one.item(), lambda: np.append(0 * one, one), target_probs)

    def walk(self, uniforms: Randomness) -> Self:
        """Move to the winning draft."""
        token = self.drafts[0].token
        if any(child.token != token for child in self.drafts):
            winner = self._winner.winner(self._places, uniforms(len(self.drafts)))
            token = self.drafts[winner].token
        return self.to(token)

    def winning(self) -> dict[int, Number]:
        """Return each drafted token's probability of winning, given the drafts."""
        of_drafts = self._winner.winning(self._places).tolist()
        probabilities: dict[int, Number] = {}
        for child, probability in zip(self.drafts, of_drafts, strict=True):
            probabilities[child.token] = probabilities.get(child.token, 0) + probability
        return probabilities

    def to(self, token: int) -> Self:
        """Move to a drafted token, as if this token had won."""
        place = int(np.searchsorted(self._winner.tokens, token))
        nodes = [child for child in self.drafts if child.token == token]
        share = self._winner.accepted_share(place, self.share)
        counts = partial(self._winner.agreeing, place)
        return type(self)(nodes, share, counts, self._target_probs)

    @property
    def _places(self) -> list[int]:
        """Indices of the drafts among the tokens that can be drafted."""
        tokens = [child.token for child in self.drafts]
        places: list[int] = np.searchsorted(self._winner.tokens, tokens).tolist()
        return places

    @cached_property
    def _winner(self) -> WinnerRule:
        """Selection rule for the winning draft; the number of agreeing drafts may be random."""
        return self._winner_of(self._nodes)

    def _winner_of(self, nodes: Sequence[DraftNode]) -> WinnerRule:
        """Return the rule for the children of nodes with the same path."""
        node, counts = nodes[0], self._counts()
        target = self._target_probs(self.path)
        if node.draft_kind in CERTAIN:
            return CertainDrafts(*_certain_and_drawn(node, counts), target)
        draft = shared_draft_probs(nodes)
        return AgreeingDrafts(draft, target, drafts_of(counts, len(node.children)))

    @cached_property
    def _residual(self) -> tuple[Tokens, Probs]:
        """Tokens, and (S(y) t(z) − S(yz)) / W(y) for each token z; arrays [n]."""
        if self.drafts:
            return self._winner.residual_mass(self.share)
        target = self._target_probs(self.path)
        return target.tokens, target.probabilities * self.share

    @property
    def keep_probability(self) -> Number:
        """Probability of keeping the node if no deeper node was kept.

        The value is (S(y) − Σ S(yz)) / (W(y) − Σ S(yz)), in a form without cancellation; 0 for 0/0.
        """
        residual: Number = self._residual[1].sum()
        return residual / (residual + (1 - self.share)) if residual > 0 else 0 * self.share

    def token_after(self, uniforms: Randomness) -> int:
        """Draw the last token of the output, if this node is kept and no deeper node is."""
        tokens, weights = self._residual
        # By rounding, the residual of the root can be zero.
        if not weights.any():
            target = self._target_probs(self.path)
            tokens, weights = target.tokens, target.probabilities
        return locate(tokens, weights, uniforms(1)[0])


def verify_walk_and_keep(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
    """Verify whole paths of several drafts: walk to the end of a path, then choose a node upwards.

    At each node y, one of the drafts after y wins.  The number of drafts after y is random, and the
    choice of the winner allows for this (`otm.coupling.optimal.agreeing`).  The walk goes to the
    winner, and passes y with a known probability W(y).  Let t be the target's distribution after y,
    S = 1 at the root, and S(yz) = min(S(y) t(z), W(yz)).  If no node below y was kept, y is kept
    with probability (S(y) − Σ S(yz)) / (W(y) − Σ S(yz)); the root is always kept.  The token after
    the kept node is drawn ∝ S(y) t(z) − S(yz).

    On a single chain, walk and keep is block verification; if every path has length 1, it is an
    optimal plan of OTM-k; if all drafts are certain, it accepts as often as `verify_target_only`.
    The mean number of accepted drafts is Σ S(y) (Theorem 14.2 of docs/theory/walk-and-keep.md).
    The verifier is lossless (Theorems 14.1 and 23.5), also if the number of certain children and
    the decision to draw another depend on anything that was known before this draw.

    Parameters
    ----------
    root : DraftNode
        A draft tree in which the children of a node are independent (kind "IID"), such as K chains
        or a prefix tree; certain (kind "Top"); or certain except for the last, which is drawn (kind
        "Greedy").
    target_probs : callable
        Function from a draft path to the target's distribution after it; called only along the
        walk.
    uniforms : callable
        Source of independent uniforms in [0, 1); the verifier does not check them.

    Returns
    -------
    tuple of int
        The accepted drafts and one more token.

    Raises
    ------
    InvalidDraftsError
        If drawn children have no `draft_probs` or probability zero, drafts are of another kind,
        certain drafts repeat a token, or nodes with the same path have different distributions.
    ProblemTooLargeError
        If more than 256 drafts of a node can agree with the path.

    References
    ----------
    A method of this project; docs/theory/walk-and-keep.md and certain-and-drawn.md have the proofs.

    Examples
    --------
    Chain verification would reject the first draft; verified together, both drafts are accepted.

    >>> from otm._core.probs.sparse import SparseProbs
    >>> probs = {(): SparseProbs([0, 1], [0.25, 0.75]), (0,): SparseProbs([0], [1])}
    >>> root = DraftNode()
    >>> root.draw_children(SparseProbs([0, 1], [0.5, 0.5]), 1, lambda m: np.zeros(m))
    >>> root.children[0].draw_children(SparseProbs([0, 1], [0.25, 0.75]), 1, lambda m: np.zeros(m))
    >>> verify_walk_and_keep(root, lambda path: probs[path[:1]], lambda m: np.full(m, 0.75))
    (0, 0, 0)
    """
    return walk_then_keep(Walk.begin(root, target_probs), uniforms)


def walk_then_keep(root: Walk, uniforms: Randomness) -> Path:
    """Walk to the end of a path, choose a node upwards, and draw the token after it."""
    walked = [root]
    while walked[-1].drafts:
        walked.append(walked[-1].walk(uniforms))
    node = walked.pop()
    while walked and not uniforms(1)[0] < node.keep_probability:
        node = walked.pop()
    return (*node.path, node.token_after(uniforms))


def _certain_and_drawn(node: DraftNode, counts: Probs) -> tuple[Tokens, SparseProbs | None]:
    """Return the certain drafts of a node, and the distribution of its drawn draft, if any."""
    tokens = np.array([child.token for child in node.children])
    if counts.size > 2 or np.unique(tokens).size < tokens.size:
        raise InvalidDraftsError(
            f"the {node.draft_kind} drafts {tokens.tolist()} after {node.path} repeat a token, or "
            "follow several independent drafts; certain drafts must be different tokens, after "
            "certain drafts or one drawn draft"
        )
    if node.draft_kind == "Top":
        return tokens, None
    return tokens[:-1], node.checked_draft_probs("Greedy")


def drafts_of(counts: Probs, children: int) -> Probs:
    """Return the distribution of the number of drafts; each agreeing node has `children` drafts."""
    most = (counts.size - 1) * children
    if most > MOST_DRAFTS:
        raise ProblemTooLargeError(
            f"{most:,} drafts may agree at a node; walk and keep allows at most {MOST_DRAFTS}: "
            "draft fewer paths, or use the rule 'optimal' or 'traversal'"
        )
    numbers = zeros(most + 1, counts)
    numbers[::children] = counts
    return numbers
