"""Greedy block verification: accept as many drafts of a block as possible, and correct later.

Block verification is optimal among verifiers whose steps are independent.  A verifier with a state
may accept more drafts than block verification.  The tokens after the block then have a changed
distribution, so that the whole text has the target's distribution (docs/theory/state.md).

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
from otm.decoding.verifiers.base import TargetProbs, draw_token
from otm.errors import InvalidInputError


@dataclass(frozen=True)
class GreedyBlockVerifier:
    """Greedy block verification of one chain of a draft model, for `stream`.

    The whole text has the target's distribution, but the output of a single step has another
    distribution: a step may leave a correction for the next steps.  If a block begins without a
    pending correction, no verifier has a larger mean number of accepted drafts.  The largest mean
    is Σ_i (1 − TV_i), where TV_i is the total variation between the distributions of i tokens
    under target and draft model (Theorem 19.1 of docs/theory/state.md).

    Examples
    --------
    >>> from otm.decoding import speculative
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.25, 0.75]}), TableModel({(): [0.75, 0.25]})
    >>> speculative(target, draft, [[0]], rule="greedy block", gamma=2, max_tokens=4, seed=0).tokens
    4
    """

    def rounds(self, task: RoundsTask) -> GreedyBlockRounds:
        """Return an object that runs the steps of one batch and stores corrections for later steps.

        Parameters
        ----------
        task : RoundsTask
            The models and settings of a batch.

        Returns
        -------
        Rounds
            The object whose steps `stream` calls.

        Raises
        ------
        InvalidInputError
            If the drafter does not draw one chain from the distributions of a model.
        """
        return GreedyBlockRounds(task)


GREEDY_BLOCK = GreedyBlockVerifier()
"""The verifier of the rule "greedy block" in `speculative`."""


Rows = list[Probs]
"""The probability rows [V] of a model along the drafts."""


class PendingCorrection(NamedTuple):
    """The correction that a step leaves: it changes the distribution of the next `horizon` tokens.

    The changed distribution is ∝ max(ratio · q − p, 0).  `ratio` is T/D, where T and D are the
    probabilities of all tokens since the start of the step that left the correction: T under this
    step's target, D under the draft model.  With ratio 1 there is no correction.
    """

    ratio: Number
    horizon: int


class GreedyBlockRounds(HostRounds):
    """Steps on the host with one draft chain per sequence, and its pending corrections."""

    def __init__(self, task: RoundsTask) -> None:
        super().__init__(task)
        if not samples_one_chain(task.drafter):
            raise InvalidInputError(
                "greedy block verification needs one chain, with the draft model's distribution "
                "also after the last draft; give a model, or a ModelDrafter of one sampled chain"
            )
        self._pending: list[list[PendingCorrection]] = []

    def follow(self, batch: Batch) -> None:
        """Copy the pending corrections of each parent to its continuation."""
        if batch.parents is None:
            self._pending = [[] for _ in batch.contexts]
        else:
            self._pending = [self._pending[parent] for parent in batch.parents]

    def draft(self, batch: Batch) -> list[DraftNode]:
        """Draft chains, some with an extra token whose draft distribution verification needs.

        The extra token is removed before verification.
        """
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
        """Verify each chain, with the pending corrections of its sequence."""
        vocabulary = self._reader.model.vocabulary
        outputs = []
        for b, root in enumerate(trees):
            nodes = list(root.nodes())
            draft_probs = [node.draft_probs for node in nodes if node.draft_probs is not None]
            p = [each.dense(vocabulary) for each in draft_probs]
            q = [probs(b, node.path).dense(vocabulary) for node in nodes]
            pending, uniforms = self._pending[b], batch.uniforms[b]
            output, self._pending[b] = _step(nodes[-1].path, p, q, pending, uniforms)
            outputs.append(output)
        return outputs


def _step(
    drafts: Path, p: Rows, q: Rows, pending: list[PendingCorrection], uniforms: Randomness
) -> tuple[Path, list[PendingCorrection]]:
    """Return the output of a step, and all corrections that are pending after it.

    `p` and `q` are the rows [V] of draft model and target along the drafts.
    """
    gamma, candidates = len(drafts), []
    # The oldest correction comes first, because it changes the target of later corrections.
    for correction in pending:
        ratios, corrected = _corrected_rows(drafts, p, q, correction)
        candidates.append((correction.horizon, ratios, q))
        q = corrected
    one = 1 + 0 * q[0].item(0)
    ratios = _ratios(drafts, p, q, one)
    accepted = gamma
    # From the end, decide for each prefix whether exactly its drafts are accepted.
    while accepted:
        longer = one - one
        if accepted < gamma:
            longer = np.minimum(p[accepted], ratios[accepted] * q[accepted]).sum()
        if uniforms(1)[0] * (one - longer) < min(one, ratios[accepted]) - longer:
            break
        accepted -= 1
    residual = q[gamma]
    if accepted < gamma:
        residual = np.maximum(ratios[accepted] * q[accepted] - p[accepted], 0 * p[accepted])
        candidates.append((gamma, ratios, q))
    token = int(locate(np.arange(residual.size), residual, uniforms(1)[0]))
    still_pending = []
    for horizon, path_ratios, rows in candidates:
        remaining = horizon - accepted - 1
        # A token of draft probability zero needs no correction.
        if remaining > 0 and p[accepted].item(token) > 0:
            token_ratio = rows[accepted].item(token) / p[accepted].item(token)
            still_pending.append(PendingCorrection(path_ratios[accepted] * token_ratio, remaining))
    return (*drafts[:accepted], token), still_pending


def _ratios(drafts: Path, p: Rows, q: Rows, first: Number) -> list[Number]:
    """Return the probability ratio target/draft of each prefix of the drafts, times `first`."""
    ratios = [first]
    for token, draft, target in zip(drafts, p, q, strict=False):
        ratios.append(ratios[-1] * target.item(token) / draft.item(token))
    return ratios


def _corrected_rows(
    drafts: Path, p: Rows, q: Rows, correction: PendingCorrection
) -> tuple[list[Number], Rows]:
    """Return the ratios of a correction along the drafts, and the target's corrected rows."""
    ratios, rows = _ratios(drafts, p, q, correction.ratio), list(q)
    for i in range(min(correction.horizon, len(q))):
        excess = np.maximum(ratios[i] * q[i] - p[i], 0 * p[i])
        # A row without excess is never reached.
        if excess.any():
            rows[i] = excess / excess.sum()
    return ratios, rows


def verify_hierarchical(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
    """Verify one chain like the released code of hierarchical speculative decoding, which is lossy.

    The verifier is block verification with one change: the whole block is accepted with probability
    min(1, T/D).  T and D are the probabilities of the block's path under target and draft model.
    The block is accepted too often if a prefix of the path is more probable under the target than
    under the draft model (Theorem 19.2 of docs/theory/state.md).  The function implements the
    recommended mode of [zhou2026]_ for a single chain.

    Parameters
    ----------
    root : DraftNode
        A chain of drafts.
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
        If a node has several children, no `draft_probs`, or a child of probability zero.

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
    nodes = one_chain(root, "hierarchical verification needs a single chain")
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
        return (*nodes[-1].path, draw_token(target_probs(nodes[-1].path), uniforms))
    while True:
        path, tokens, excess, left = residuals.pop()
        if not residuals or uniforms(1)[0] * (excess.sum() + 1 - left) < excess.sum():
            return (*path, locate(tokens, excess, uniforms(1)[0]))
