"""Chain verification: accept drafts one after another, up to the first that is rejected."""

from __future__ import annotations

import numpy as np

from otm._core.arithmetic import Number, Probs
from otm._core.probs.distribution import residual_weights
from otm._core.probs.sampling import locate
from otm._core.probs.sparse import SparseProbs, Tokens, align, of_one_kind
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs, drawn_from
from otm.errors import InvalidDraftsError


def verify_chain(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
    """Accept drafts one after another, up to the first that is rejected.

    Draft x is accepted with probability min(1, q(x)/p(x)); in place of the first that is rejected
    comes a token from the residual ∝ max(q − p, 0), and behind the last one from the target
    ([leviathan2023]_, Algorithm 1).

    Parameters
    ----------
    root : DraftNode
        A chain of drafts.
    target_probs : callable
        The target's distribution after each path of drafts; called along the accepted drafts only.
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
                f"{len(node.children)} drafts after {node.path}; chain verification takes one "
                "chain, `spectr_verifier` and `verify_traversal` take trees"
            )
        (child,) = node.children
        draft, target = node.checked_draft_probs(), target_probs(node.path)
        output = accept_or_recover(child.token, draft, target, uniforms)
        if output != child.token:
            return (*node.path, output)
        node = child
    return (*node.path, drawn_from(target_probs(node.path), uniforms))


def accept_or_recover(
    token: int, draft: SparseProbs, target: SparseProbs, uniforms: Randomness
) -> int:
    """Return one draft or, never equal to it, a token of the residual: the maximal coupling."""
    draft, target = of_one_kind(draft, target)
    for_draft, for_residual = uniforms(2)
    if for_draft * draft.of(token) < target.of(token):
        return token
    return residual_of(draft, target, for_residual)


def residual_of(draft: SparseProbs, target: SparseProbs, uniform: Number) -> int:
    """Draw from the residual ∝ max(q − p, 0), in place of a rejected draft."""
    return locate(*residual_on(draft, target), uniform)


def residual_on(draft: SparseProbs, target: SparseProbs) -> tuple[Tokens, Probs]:
    """Tokens of either support, and the weights max(q − p, 0) of the residual on them."""
    tokens, draft_probs, target_probs = align(draft, target)
    return tokens, residual_weights(target_probs, np.minimum(draft_probs, target_probs))
