"""Target-only verification: draw tokens from the target, and follow them through the draft tree."""

from __future__ import annotations

from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs, draw_token


def verify_target_only(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
    """Draw tokens from the target as long as they are in the tree, and then one more token.

    The output is a sample of the target for every kind of drafts: sampled tokens, the most probable
    tokens, or a tree whose shape depends on its own tokens.  If drafts are deterministic, no
    memoryless verifier accepts more (Theorem 18.1 of docs/theory/trees.md).  If drafts are sampled,
    nearly every other rule accepts more.  The verifier needs no draft probabilities
    ([zheng2024]_).

    Parameters
    ----------
    root : DraftNode
        Any tree of drafts.
    target_probs : callable
        Function from a draft path to the target's distribution after it; called only along the
        output.
    uniforms : callable
        Source of independent uniforms in [0, 1); the verifier does not check them.

    Returns
    -------
    tuple of int
        The accepted drafts and one more token.

    References
    ----------
    .. [zheng2024] Zheng et al., "SGLang: Efficient Execution of Structured Language Model
       Programs", NeurIPS 2024; its kernel `tree_speculative_sampling_target_only`.

    Examples
    --------
    >>> import numpy as np
    >>> from otm import SparseProbs
    >>> q = SparseProbs([0, 1, 2], [0.25, 0.5, 0.25])
    >>> root = DraftNode((), None, [DraftNode((1,)), DraftNode((0,))], "Top")
    >>> verify_target_only(root, lambda path: q, lambda m: np.full(m, 0.5))
    (1, 1)
    """
    nodes = [root]
    path = root.path
    while True:
        path = (*path, draw_token(target_probs(path), uniforms))
        nodes = [child for node in nodes for child in node.children if child.path == path]
        if not nodes:
            return path
