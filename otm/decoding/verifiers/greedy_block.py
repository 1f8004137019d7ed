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
from otm._core.sampling import locate
from otm._core.sparse import align
from otm.decoding.checks import as_paths
from otm.decoding.draft_tree import DraftNode, Randomness, one_chain
from otm.decoding.drafters.model import Drafter, samples_one_chain
from otm.decoding.reading import Context, Path, Reader
from otm.decoding.rounds import Outcome, Rounds, RoundsTask
from otm.decoding.verifiers.verification import TargetProbs, drawn_from
from otm.errors import InvalidInputError


@dataclass(frozen=True)
class GreedyBlockVerifier:
    """Greedy block verification of one chain of a draft model, for `stream`.

    The whole text has the target's distribution, but a single step has not: it may leave a debt
    that the next steps make up for.  If a block begins without a debt, the mean number of its
    accepted drafts is the largest that any verifier can have, Σ (1 − TV) of the paths of i tokens
    (Theorem 19.1 of docs/theory/state.md).

    Examples
    --------
    >>> from otm.decoding import speculative
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.25, 0.75]}), TableModel({(): [0.75, 0.25]})
    >>> speculative(target, draft, [[0]], rule="greedy block", gamma=2, max_tokens=4, seed=0).tokens
    4
    """

    def rounds(self, task: RoundsTask) -> Rounds:
        """Make rounds that keep what each step owes to later ones."""
        return GreedyBlockRounds(task.reader(), task.drafter)


Rows = list[Probs]

GREEDY_BLOCK = GreedyBlockVerifier()
"""What `speculative` takes by the name "greedy block"."""


class _Debt(NamedTuple):
    """What one step leaves to later ones: the next `horizon` tokens have another distribution.

    It is ∝ max(ratio · q − p, 0), where `ratio` is the probability of the tokens since that step
    began under its target, over that under the draft model; there is no debt where it is 1.
    """

    ratio: Number
    horizon: int


class GreedyBlockRounds(Rounds):
    """Chains of a draft model on the host, with what earlier steps of a sequence have left."""

    def __init__(self, reader: Reader, drafter: Drafter | None) -> None:
        if not samples_one_chain(drafter):
            raise InvalidInputError(
                "greedy block verification needs the distributions of a draft model for one chain, "
                "also behind its drafts; give a model, or a ModelDrafter of one sampled chain"
            )
        self._reader, self._drafter = reader, drafter
        self._debts: list[list[_Debt]] = []

    def play(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[Outcome]:
        """Draft chains, read them, and verify each against what its earlier steps have left."""
        new = [[] for _ in contexts] if parents is None else [self._debts[p] for p in parents]
        # a token more than is verified, where its distribution is needed
        longer = [
            depth + any(debt.horizon > depth for debt in debts)
            for depth, debts in zip(depths, new, strict=True)
        ]
        roots = self._drafter.draft(contexts, longer, parents, uniforms)
        chains = [list(root.nodes()) for root in roots]
        for nodes, depth in zip(chains, depths, strict=True):
            nodes[min(depth, len(nodes) - 1)].children = []
        vocabulary = self._reader.model.vocabulary
        paths = as_paths(roots, depths, vocabulary)
        probs = self._reader.read(contexts, paths, parents, whole=True)
        outcomes, self._debts = [], []
        for b, (nodes, debts) in enumerate(zip(chains, new, strict=True)):
            (drafts,) = paths[b]
            p = [
                each.draft_probs.dense(vocabulary)
                for each in nodes[: len(drafts) + 1]
                if each.draft_probs is not None
            ]
            q = [probs(b, drafts[:i]).dense(vocabulary) for i in range(len(drafts) + 1)]
            output, left = _step(drafts, p, q, debts, uniforms[b])
            outcomes.append(Outcome((drafts,) if drafts else (), output))
            self._debts.append(left)
        return outcomes

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds of the drafter and of the target so far."""
        return self._drafter.seconds, self._reader.seconds


def _step(
    drafts: Path, p: Rows, q: Rows, debts: list[_Debt], uniforms: Randomness
) -> tuple[Path, list[_Debt]]:
    """Output of a step, and what it and earlier ones leave to later ones.

    `p` and `q` are the rows of draft model and target along the drafts, each [V].
    """
    gamma, paid = len(drafts), []
    for debt in debts:  # the oldest first: each changes what those before it have left
        ratios, changed = _changed(drafts, p, q, debt)
        paid.append((debt.horizon, ratios, q))
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
    rest = q[gamma]
    if accepted < gamma:
        rest = np.maximum(ratios[accepted] * q[accepted] - p[accepted], 0 * p[accepted])
        paid.append((gamma, ratios, q))
    token = int(locate(np.arange(rest.size), rest, uniforms(1)[0]))
    left = []
    for horizon, of_path, rows in paid:
        more = horizon - accepted - 1
        # what the draft model never gives needs no making up
        if more > 0 and p[accepted].item(token) > 0:
            grown = rows[accepted].item(token) / p[accepted].item(token)
            left.append(_Debt(of_path[accepted] * grown, more))
    return (*drafts[:accepted], token), left


def _ratios(drafts: Path, p: Rows, q: Rows, first: Number) -> list[Number]:
    """Probabilities of the paths of i drafts, under the target over those under the draft model."""
    ratios = [first]
    for token, draft, target in zip(drafts, p, q, strict=False):
        ratios.append(ratios[-1] * target.item(token) / draft.item(token))
    return ratios


def _changed(drafts: Path, p: Rows, q: Rows, debt: _Debt) -> tuple[list[Number], Rows]:
    """Ratios of a debt along the drafts, and the rows that it makes of those of the target."""
    ratios, rows = _ratios(drafts, p, q, debt.ratio), list(q)
    for i in range(min(debt.horizon, len(q))):
        excess = np.maximum(ratios[i] * q[i] - p[i], 0 * p[i])
        if excess.any():  # else the text never comes here
            rows[i] = excess / excess.sum()
    return ratios, rows


def verify_hierarchical(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
    """Verify one chain as the released code of hierarchical speculative decoding does: lossy.

    It is block verification, but that the whole block is accepted with probability min(1, T/D) of
    its path, which is too often after a path that was likelier under the target (Theorem 19.2 of
    docs/theory/state.md).  [zhou2026]_, the mode that its authors recommend, one draft.

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
