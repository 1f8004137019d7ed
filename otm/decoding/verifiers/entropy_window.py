"""Entropy windows (FLy): a rejected draft is kept where the target hesitates; lossy."""

from __future__ import annotations

import numpy as np

from otm._core.checks import as_draft_count
from otm._core.numbers import as_real
from otm._core.probs.sparse import SparseProbs
from otm.decoding.draft_tree import DraftNode, Randomness, one_chain
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs, Verifier, drawn_from
from otm.decoding.verifiers.chain import residual_of


def entropy_window_verifier(window: int, threshold: float, top: int = 3) -> Verifier:
    """Verify a chain; keep a rejected draft if the window of drafts after it is accepted; lossy.

    Every draft has a coin of its own, as in chain verification.  A draft that its coin rejects is
    kept if the target can give it, the entropy of the target's likeliest tokens is large enough,
    and the coins of the next drafts, a whole window of them, accept ([fly2025]_ and its form in
    vLLM, as we read them).

    Parameters
    ----------
    window : int
        Number of drafts that must be accepted behind the one that is kept, at least 1.
    threshold : float
        Least entropy in nats, of the `top` likeliest tokens' probabilities divided by their sum.
    top : int, optional
        Number of likeliest tokens in the entropy.

    Returns
    -------
    Verifier
        A function of the root, the target's distributions and uniforms to the output.

    Raises
    ------
    InvalidParameterError
        If the threshold is not a finite number of at least 0.
    InvalidDraftCountError
        If the window or `top` is not an integer of at least 1.
    InvalidDraftsError
        In the returned function, if a node has several children, no `draft_probs`, or a draft that
        these cannot give.

    References
    ----------
    .. [fly2025] "Training-Free Loosely Speculative Decoding" (FLy), arXiv 2511.22972.

    Examples
    --------
    >>> draft, q = SparseProbs([0, 1], [0.75, 0.25]), SparseProbs([0, 1], [0.25, 0.75])
    >>> root = DraftNode()
    >>> root.draw_children(draft, 1, lambda m: np.full(m, 0.5))          # 0, which is rejected...
    >>> root.children[0].draw_children(draft, 1, lambda m: np.full(m, 0.9))        # before a 1
    >>> entropy_window_verifier(1, 0.3)(root, lambda path: q, lambda m: np.full(m, 0.5))
    (0, 1, 1)
    >>> entropy_window_verifier(1, 0.6)(root, lambda path: q, lambda m: np.full(m, 0.5))
    (1,)
    """
    window, top = as_draft_count(window), as_draft_count(top)
    least = as_real(threshold, "threshold", least=0)

    def verify(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
        nodes = one_chain(root, "windows of entropy are for one chain")
        coins = uniforms(len(nodes) - 1)
        passed, laws = [], []
        for node, child, coin in zip(nodes, nodes[1:], coins, strict=False):
            draft, target = node.checked_draft_probs(), target_probs(node.path)
            passed.append(coin * draft.of(child.token) < target.of(child.token))
            laws.append((draft, target))
        for i, (draft, target) in enumerate(laws):
            behind = passed[i + 1 : i + 1 + window]
            kept = (
                len(behind) == window
                and all(behind)
                and target.of(nodes[i + 1].token) > 0
                and top_entropy(target, top) >= least
            )
            if not passed[i] and not kept:
                return (*nodes[i].path, residual_of(draft, target, uniforms(1)[0]))
        end = nodes[-1].path
        return (*end, drawn_from(target_probs(end), uniforms))

    return verify


def top_entropy(probs: SparseProbs, top: int) -> float:
    """Entropy in nats of the likeliest tokens, their probabilities divided by their sum."""
    largest = np.sort(probs.probabilities.astype(np.float64))[-top:]
    shares = largest[largest > 0] / largest.sum()
    return float(-(shares * np.log(shares)).sum())
