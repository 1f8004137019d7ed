"""Walk and keep: verify several drafts of several tokens, close to the optimum.

From the root, always go to one of the drafted tokens, and keep the drafts that agree, until the end
of a path.  Then, from there upwards, keep a node with a probability that depends only on laws along
the path.  For one draft this is block verification; for one token, an optimal plan of OTM-k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np

from otm._core.arithmetic import Number, Probs, zeros
from otm._core.probs.sampling import locate
from otm._core.probs.sparse import Tokens
from otm.coupling.optimal.agreeing import AgreeingDrafts
from otm.decoding.draft_tree import DraftNode, Randomness, shared_draft_probs
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs
from otm.errors import ProblemTooLargeError

MOST_DRAFTS = 2**8
"""Most drafts of a node: counting those that agree takes time quadratic in it."""


class Walk:
    """A node of the walk, with all drafts that agree so far.

    Let W(y) be the probability that a walk passes a path y, and S(y) that y is accepted, as the
    output or a part of it: S(yz) = min(S(y) t(z), W(yz)), where t is the target's distribution.
    `share` is S(y)/W(y), and `counts` gives the law of the number of nodes that agree.
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
        # what has no share is not kept, and nothing below it
        self.drafts = [child for node in nodes for child in node.children] if share > 0 else []

    @classmethod
    def begin(cls, root: DraftNode, target_probs: TargetProbs) -> Walk:
        """Stand at the root, which is accepted for sure."""
        one = 1 + 0 * target_probs(root.path).probabilities[:1]
        return cls([root], one.item(), lambda: np.append(0 * one, one), target_probs)

    def walk(self, uniforms: Randomness) -> Walk:
        """Go to the draft that wins."""
        token = self.drafts[0].token
        if any(child.token != token for child in self.drafts):
            winner = self._winner.winner(self._places, uniforms(len(self.drafts)))
            token = self.drafts[winner].token
        return self.to(token)

    def winning(self) -> dict[int, Number]:
        """Probability that each drafted token wins, given the drafts."""
        of_drafts = self._winner.winning(self._places).tolist()
        won: dict[int, Number] = {}
        for child, probability in zip(self.drafts, of_drafts, strict=True):
            won[child.token] = won.get(child.token, 0) + probability
        return won

    def to(self, token: int) -> Walk:
        """Go to a drafted token that wins."""
        place = int(np.searchsorted(self._winner.tokens, token))
        nodes = [child for child in self.drafts if child.token == token]
        share = self._winner.accepted_share(place, self.share)
        counts = partial(self._winner.agreeing, place)
        return Walk(nodes, share, counts, self._target_probs)

    @property
    def _places(self) -> list[int]:
        """Places of the drafts among the tokens that can be drafted."""
        tokens = [child.token for child in self.drafts]
        places: list[int] = np.searchsorted(self._winner.tokens, tokens).tolist()
        return places

    @cached_property
    def _winner(self) -> AgreeingDrafts:
        """Which draft wins, whatever the number of those that agree."""
        draft, target = shared_draft_probs(self._nodes), self._target_probs(self.path)
        numbers = _drafts_of(self._counts(), len(self._nodes[0].children))
        return AgreeingDrafts(draft, target, numbers)

    @cached_property
    def _left(self) -> tuple[Tokens, Probs]:
        """Tokens, and S(y) t(z) − S(yz) over W(y): array [n] each."""
        if self.drafts:
            return self._winner.residual_mass(self.share)
        target = self._target_probs(self.path)
        return target.tokens, target.probabilities * self.share

    @property
    def keep_probability(self) -> Number:
        """Probability of keeping the node if nothing deeper was kept.

        It is (S(y) − Σ S(yz)) / (W(y) − Σ S(yz)), written so that nothing cancels; 0 for 0/0.
        """
        left: Number = self._left[1].sum()
        return left / (left + (1 - self.share)) if left > 0 else 0 * self.share

    def token_after(self, uniforms: Randomness) -> int:
        """Draw the token that follows if the node is kept, and no draft below it."""
        tokens, left = self._left
        if not left.any():  # the root, by rounding
            target = self._target_probs(self.path)
            tokens, left = target.tokens, target.probabilities
        return locate(tokens, left, uniforms(1)[0])


def verify_walk_and_keep(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
    """Verify whole paths of several drafts: walk to the end of one, keep from there upwards.

    At each node y one of the drafts wins, by a rule in which the number of drafts that agree is
    random (`otm.coupling.optimal.agreeing`), and the walk goes there: it passes y with a known
    probability W(y).  With S(yz) = min(S(y) t(z), W(yz)) and S = 1 at the root, where t is the
    target's distribution after y, a node is kept with probability (S(y) − Σ S(yz)) / (W(y) − Σ
    S(yz)) if nothing below it was, the root for sure.  The token that follows is drawn
    ∝ S(y) t(z) − S(yz).

    On a single chain this is block verification; for paths of one draft, an optimal plan of OTM-k.
    The mean number of accepted drafts is Σ S(y) (Theorem 14.2 of docs/theory/walk-and-keep.md;
    Theorem 14.1: it is lossless).

    Parameters
    ----------
    root : DraftNode
        K chains or a prefix tree: any tree of drafts, the children of each node i.i.d.
    target_probs : callable
        The target's distribution after each path of drafts; called along the walk only.
    uniforms : callable
        Source of independent uniforms in [0, 1), which are not checked here.

    Returns
    -------
    tuple of int
        The accepted drafts and one token.

    Raises
    ------
    InvalidDraftsError
        If a node has drafts but no `draft_probs`, drafts that these cannot give, or nodes of one
        path have different ones.
    ProblemTooLargeError
        If more than 256 drafts may agree at a node.

    References
    ----------
    Our own; docs/theory/walk-and-keep.md has the proofs.

    Examples
    --------
    The first draft alone would be rejected; both together pass.

    >>> from otm._core.probs.sparse import SparseProbs
    >>> probs = {(): SparseProbs([0, 1], [0.25, 0.75]), (0,): SparseProbs([0], [1])}
    >>> root = DraftNode()
    >>> root.draw_children(SparseProbs([0, 1], [0.5, 0.5]), 1, lambda m: np.zeros(m))
    >>> root.children[0].draw_children(SparseProbs([0, 1], [0.25, 0.75]), 1, lambda m: np.zeros(m))
    >>> verify_walk_and_keep(root, lambda path: probs[path[:1]], lambda m: np.full(m, 0.75))
    (0, 0, 0)
    """
    walked = [Walk.begin(root, target_probs)]
    while walked[-1].drafts:
        walked.append(walked[-1].walk(uniforms))
    node = walked.pop()
    while walked and not uniforms(1)[0] < node.keep_probability:
        node = walked.pop()
    return (*node.path, node.token_after(uniforms))


def _drafts_of(counts: Probs, children: int) -> Probs:
    """Law of the number of drafts, from that of nodes with so many children each."""
    most = (counts.size - 1) * children
    if most > MOST_DRAFTS:
        raise ProblemTooLargeError(
            f"{most:,} drafts may agree at a node; walk and keep takes at most {MOST_DRAFTS}: "
            "draft fewer paths, or take the rule 'optimal' or 'traversal'"
        )
    numbers = zeros(most + 1, counts)
    numbers[::children] = counts
    return numbers
