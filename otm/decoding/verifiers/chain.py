"""Chain verification: accept drafts one after another, up to the first rejected draft."""

from __future__ import annotations

import numpy as np

from otm._core.arithmetic import Number, Probs
from otm._core.probs.distribution import residual_weights
from otm._core.probs.sampling import locate
from otm._core.probs.sparse import SparseProbs, Tokens, align, of_one_kind
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs, draw_token
from otm.errors import InvalidDraftsError


def verify_chain(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
    """Accept drafts one after another, up to the first rejected draft.

    Draft x is accepted with probability min(1, q(x)/p(x)).  The first rejected draft is replaced by
    a token from the residual distribution ∝ max(q − p, 0).  If all drafts are accepted, the target
    draws a bonus token ([leviathan2023]_, Algorithm 1).

    Parameters
    ----------
    root : DraftNode
        A chain of drafts.
    target_probs : callable
        Function from a draft path to the target's distribution after it; called only along the
        accepted drafts.
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
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> draft, q = SparseProbs([0, 1], [0.75, 0.25]), SparseProbs([0, 1], [0.25, 0.75])
    >>> root = DraftNode()
    >>> root.draw_children(draft, 1, lambda m: np.full(m, 0.5))
    >>> root.children[0].path
    (0,)
    >>> verify_chain(root, lambda path: q, lambda m: np.full(m, 0.5))
    (1,)
    """
    node = root
    while node.children:
        if len(node.children) > 1:
            raise InvalidDraftsError(
                f"{len(node.children)} drafts after {node.path}; chain verification needs a single "
                "chain; `spectr_verifier` and `verify_traversal` accept trees"
            )
        (child,) = node.children
        draft, target = node.checked_draft_probs(), target_probs(node.path)
        output = accept_or_recover(child.token, draft, target, uniforms)
        if output != child.token:
            return (*node.path, output)
        node = child
    return (*node.path, draw_token(target_probs(node.path), uniforms))


def accept_or_recover(
    token: int, draft: SparseProbs, target: SparseProbs, uniforms: Randomness
) -> int:
    """Return the draft, or a different token from the residual distribution: a maximal coupling."""
    draft, target = of_one_kind(draft, target)
    for_draft, for_residual = uniforms(2)
    if for_draft * draft.of(token) < target.of(token):
        return token
    return draw_recovered(draft, target, for_residual)


def draw_recovered(draft: SparseProbs, target: SparseProbs, uniform: Number) -> int:
    """Draw the recovered token from the residual distribution ∝ max(q − p, 0)."""
    return locate(*aligned_residual(draft, target), uniform)


def aligned_residual(draft: SparseProbs, target: SparseProbs) -> tuple[Tokens, Probs]:
    """Return the tokens of the supports of p and q, and their residual weights max(q − p, 0)."""
    tokens, draft_probs, target_probs = align(draft, target)
    return tokens, residual_weights(target_probs, np.minimum(draft_probs, target_probs))
