"""Entropy windows (FLy): keep a rejected draft where the target is uncertain; lossy."""

from __future__ import annotations

import numpy as np

from otm._core.checks import as_draft_count
from otm._core.numbers import as_real
from otm._core.probs.sparse import SparseProbs
from otm.decoding.draft_tree import DraftNode, Randomness, one_chain
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs, Verifier, draw_token
from otm.decoding.verifiers.chain import draw_recovered


def entropy_window_verifier(window: int, threshold: float, top: int = 3) -> Verifier:
    """Return a lossy verifier that keeps a rejected draft before a window of accepted drafts.

    Each draft has its own uniform, as in chain verification.  A rejected draft is kept under three
    conditions.  The target gives the draft positive probability; the entropy of the target's most
    probable tokens is at least the threshold; and a whole window of next drafts is accepted.  The
    verifier is our reading of [fly2025]_ and of its implementation in vLLM.

    Parameters
    ----------
    window : int
        Number of accepted drafts that must follow the kept draft, at least 1.
    threshold : float
        Smallest entropy, in nats, at which a rejected draft is kept.  The entropy uses the `top`
        most probable tokens, with their probabilities divided by their sum.
    top : int, optional
        Number of most probable tokens that the entropy uses.

    Returns
    -------
    Verifier
        Function from the root, the target's distributions and uniforms to the output.

    Raises
    ------
    InvalidParameterError
        If the threshold is not a finite number of at least 0.
    InvalidDraftCountError
        If the window or `top` is not an integer of at least 1.
    InvalidDraftsError
        When the verifier runs, if a node has several children, no `draft_probs`, or a child of
        probability zero.

    References
    ----------
    .. [fly2025] "Training-Free Loosely Speculative Decoding" (FLy), arXiv 2511.22972.

    Examples
    --------
    >>> draft, q = SparseProbs([0, 1], [0.75, 0.25]), SparseProbs([0, 1], [0.25, 0.75])
    >>> root = DraftNode()
    >>> root.draw_children(draft, 1, lambda m: np.full(m, 0.5))  # draws 0, which is rejected
    >>> root.children[0].draw_children(draft, 1, lambda m: np.full(m, 0.9))  # draws 1
    >>> entropy_window_verifier(1, 0.3)(root, lambda path: q, lambda m: np.full(m, 0.5))
    (0, 1, 1)
    >>> entropy_window_verifier(1, 0.6)(root, lambda path: q, lambda m: np.full(m, 0.5))
    (1,)
    """
    window, top = as_draft_count(window), as_draft_count(top)
    least = as_real(threshold, "threshold", least=0)

    def verify(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
        nodes = one_chain(root, "entropy windows need a single chain")
        coins = uniforms(len(nodes) - 1)
        accepted, pairs = [], []
        for node, child, coin in zip(nodes, nodes[1:], coins, strict=False):
            draft, target = node.checked_draft_probs(), target_probs(node.path)
            accepted.append(coin * draft.of(child.token) < target.of(child.token))
            pairs.append((draft, target))
        for i, (draft, target) in enumerate(pairs):
            after = accepted[i + 1 : i + 1 + window]
            kept = (
                len(after) == window
                and all(after)
                and target.of(nodes[i + 1].token) > 0
                and top_entropy(target, top) >= least
            )
            if not accepted[i] and not kept:
                return (*nodes[i].path, draw_recovered(draft, target, uniforms(1)[0]))
        end = nodes[-1].path
        return (*end, draw_token(target_probs(end), uniforms))

    return verify


def top_entropy(probs: SparseProbs, top: int) -> float:
    """Return the entropy in nats of the most probable tokens, after normalizing their sum to 1."""
    largest = np.sort(probs.probabilities.astype(np.float64))[-top:]
    shares = largest[largest > 0] / largest.sum()
    return float(-(shares * np.log(shares)).sum())
