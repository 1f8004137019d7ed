"""Greedy block verification: the most drafts of one block, paid for by later tokens.

A verifier that keeps a state may accept more of a block than block verification, which is optimal
for verifiers that begin each step anew.  In return the tokens behind the block have another
distribution than the target's, so that the text as a whole has the right one
(docs/theory/state.md).

References
----------
.. [sun2024block] Sun et al., "Block Verification Accelerates Speculative Decoding", 2024.
.. [zhou2026] Zhou et al., "Overcoming Joint Intractability with Lossless Hierarchical Speculative
   Decoding", ICLR 2026.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from otm._core.arithmetic import Number, Probs
from otm._core.probs.sampling import locate
from otm._core.probs.sparse import align
from otm.decoding.draft_tree import DraftNode, Randomness, one_chain
from otm.decoding.drafters.model import samples_one_chain
from otm.decoding.reading import Path, ProbsAfter
from otm.decoding.rounds import Batch, HostRounds, RoundsTask
from otm.decoding.verifiers.base import TargetProbs, drawn_from
from otm.errors import InvalidInputError


@dataclass(frozen=True)
class GreedyBlockVerifier:
    """Greedy block verification of one chain of a draft model, for `stream`.

    The whole text has the target's distribution, but a single step has not: it may leave a
    correction that the next steps make.  If a block begins without a pending correction, the mean
    number of its accepted drafts is the largest that any verifier can have, Σ (1 − TV) of the paths
    of i tokens (Theorem 19.1 of docs/theory/state.md).

    Examples
    --------
    >>> from otm.decoding import speculative
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.25, 0.75]}), TableModel({(): [0.75, 0.25]})
    >>> speculative(target, draft, [[0]], rule="greedy block", gamma=2, max_tokens=4, seed=0).tokens
    4
    """

    def rounds(self, task: RoundsTask) -> GreedyBlockRounds:
        """Make rounds that keep the pending corrections of each sequence.

        Parameters
        ----------
        task : RoundsTask
            The models and the settings of a batch.

        Returns
        -------
        Rounds
            The rounds that `stream` calls.

        Raises
        ------
        InvalidInputError
            If the drafter does not draw one chain from the distributions of a model.
        """
        return GreedyBlockRounds(task)


GREEDY_BLOCK = GreedyBlockVerifier()
"""What `speculative` takes by the name "greedy block"."""


Rows = list[Probs]
"""The rows [V] of a model along the drafts."""


class PendingCorrection(NamedTuple):
    """The correction that a step leaves: the next `horizon` tokens have another distribution.

    It is ∝ max(ratio · q − p, 0), where `ratio` is the probability of the tokens since that step
    began under its target, over that under the draft model; with ratio 1 there is no correction.
    """

    ratio: Number
    horizon: int


class GreedyBlockRounds(HostRounds):
    """Chains of a draft model on the host, with the pending corrections of each sequence."""

    def __init__(self, task: RoundsTask) -> None:
        super().__init__(task)
        if not samples_one_chain(task.drafter):
            raise InvalidInputError(
                "greedy block verification needs the distributions of a draft model for one chain, "
                "also behind its drafts; give a model, or a ModelDrafter of one sampled chain"
            )
        self._pending: list[list[PendingCorrection]] = []

    def follow(self, batch: Batch) -> None:
        """Take the pending corrections of the parents."""
        if batch.parents is None:
            self._pending = [[] for _ in batch.contexts]
        else:
            self._pending = [self._pending[parent] for parent in batch.parents]

    def draft(self, batch: Batch) -> list[DraftNode]:
        """Draft chains, and a token more if its distribution is needed; that token is cut off."""
        longer = [
            depth + any(each.horizon > depth for each in pending)
            for depth, pending in zip(batch.depths, self._pending, strict=True)
        ]
        roots = super().draft(batch._replace(depths=longer))
        for root, depth in zip(roots, batch.depths, strict=True):
            nodes = list(root.nodes())
            nodes[min(depth, len(nodes) - 1)].children = []
        return roots

    def verify(self, batch: Batch, trees: Sequence[DraftNode], probs: ProbsAfter) -> list[Path]:
        """Verify each chain against the pending corrections of its sequence."""
        vocabulary = self._reader.model.vocabulary
        outputs = []
        for b, root in enumerate(trees):
            nodes = list(root.nodes())
            laws = [node.draft_probs for node in nodes if node.draft_probs is not None]
            p = [law.dense(vocabulary) for law in laws]
            q = [probs(b, node.path).dense(vocabulary) for node in nodes]
            pending, uniforms = self._pending[b], batch.uniforms[b]
            output, self._pending[b] = _step(nodes[-1].path, p, q, pending, uniforms)
            outputs.append(output)
        return outputs


def _step(
    drafts: Path, p: Rows, q: Rows, pending: list[PendingCorrection], uniforms: Randomness
) -> tuple[Path, list[PendingCorrection]]:
    """Return the output of a step, and the corrections that it and earlier steps leave.

    `p` and `q` are the rows of draft model and target along the drafts, each [V].
    """
    gamma, made = len(drafts), []
    # the oldest first: each changes the target of those before it
    for correction in pending:
        ratios, changed = _changed(drafts, p, q, correction)
        made.append((correction.horizon, ratios, q))
        q = changed
    one = 1 + 0 * q[0].item(0)
    ratios = _ratios(drafts, p, q, one)
    accepted = gamma
    while accepted:  # from the end: is it these drafts and no more?
        longer = one - one
        if accepted < gamma:
            longer = np.minimum(p[accepted], ratios[accepted] * q[accepted]).sum()
        if uniforms(1)[0] * (one - longer) < min(one, ratios[accepted]) - longer:
            break
        accepted -= 1
    residual = q[gamma]
    if accepted < gamma:
        residual = np.maximum(ratios[accepted] * q[accepted] - p[accepted], 0 * p[accepted])
        made.append((gamma, ratios, q))
    token = int(locate(np.arange(residual.size), residual, uniforms(1)[0]))
    left = []
    for horizon, of_path, rows in made:
        more = horizon - accepted - 1
        # a token that the draft model never gives needs no correction
        if more > 0 and p[accepted].item(token) > 0:
            grown = rows[accepted].item(token) / p[accepted].item(token)
            left.append(PendingCorrection(of_path[accepted] * grown, more))
    return (*drafts[:accepted], token), left


def _ratios(drafts: Path, p: Rows, q: Rows, first: Number) -> list[Number]:
    """Probabilities of the paths of i drafts, under the target over those under the draft model."""
    ratios = [first]
    for token, draft, target in zip(drafts, p, q, strict=False):
        ratios.append(ratios[-1] * target.item(token) / draft.item(token))
    return ratios


def _changed(
    drafts: Path, p: Rows, q: Rows, correction: PendingCorrection
) -> tuple[list[Number], Rows]:
    """Ratios of a correction along the drafts, and the target's rows after it."""
    ratios, rows = _ratios(drafts, p, q, correction.ratio), list(q)
    for i in range(min(correction.horizon, len(q))):
        excess = np.maximum(ratios[i] * q[i] - p[i], 0 * p[i])
        if excess.any():  # else the text never comes here
            rows[i] = excess / excess.sum()
    return ratios, rows


def verify_hierarchical(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
    """Verify one chain as the released code of hierarchical speculative decoding does: lossy.

    It is block verification with one change: the whole block is accepted with probability
    min(1, T/D) of its path.  This is too often if an earlier part of the path was likelier under
    the target than under the draft model (Theorem 19.2 of docs/theory/state.md).  After
    [zhou2026]_, in the mode that its authors recommend, for one draft.

    Parameters
    ----------
    root : DraftNode
        A chain of drafts.
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
        If a node has several children, no `draft_probs`, or a draft that these cannot give.

    References
    ----------
    .. [zhou2026] Zhou et al., "Overcoming Joint Intractability with Lossless Hierarchical
       Speculative Decoding", ICLR 2026.

    Examples
    --------
    >>> from otm import SparseProbs
    >>> q, p = SparseProbs([0, 1], [0.25, 0.75]), SparseProbs([0, 1], [0.75, 0.25])
    >>> root = DraftNode((), p, [DraftNode((1,))])
    >>> verify_hierarchical(root, lambda path: q, lambda m: np.full(m, 0.5))
    (1, 1)
    """
    nodes = one_chain(root, "hierarchical verification takes one chain of drafts")
    weight = ratio = 1 + 0 * target_probs(root.path).probabilities.item(0)
    residuals = []
    for node, child in pairwise(nodes):
        draft, target = node.checked_draft_probs(), target_probs(node.path)
        tokens, p, q = align(draft, target)
        excess = np.maximum(weight * q - p, 0 * p)
        residuals.append((node.path, tokens, excess, weight))
        grown = target.of(child.token) / draft.of(child.token)
        weight, ratio = min(weight * grown, 1 + 0 * grown), ratio * grown
    if uniforms(1)[0] < ratio:
        return (*nodes[-1].path, drawn_from(target_probs(nodes[-1].path), uniforms))
    while True:
        path, tokens, excess, left = residuals.pop()
        if not residuals or uniforms(1)[0] * (excess.sum() + 1 - left) < excess.sum():
            return (*path, locate(tokens, excess, uniforms(1)[0]))
