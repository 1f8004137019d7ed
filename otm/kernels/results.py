"""Results of a verification."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

Array = TypeVar("Array")


class Verified(NamedTuple, Generic[Array]):
    """Result of verifying the drafts of B sequences.

    Some drafts of a sequence are *accepted*, starting from the first.  One more token follows the
    accepted drafts.  If a draft was rejected, a *recovered* token follows, which is drawn from the
    residual distribution.  If all drafts were accepted, the *bonus* token follows, which is drawn
    from the target's next row.

    Attributes
    ----------
    tokens : int64 array or Tensor [B, γ + 1]
        The output: the accepted drafts, the recovered or bonus token, then −1.
    accepted : int64 array or Tensor [B]
        Number of accepted drafts; the output has `accepted + 1` tokens.
    chain : int64 array or Tensor [B], or None
        The first chain that begins with the accepted drafts; its key-value cache can be kept.  None
        if the rule is for one chain.

    Examples
    --------
    >>> import numpy as np
    >>> from otm.kernels import verify_probs
    >>> target, draft = np.array([[[0.5, 0.5], [0.1, 0.9]]]), np.array([[[0.8, 0.2]]])
    >>> outcome = verify_probs(target, draft, np.array([[0]]), np.array([[0.6, 0.3, 0.5]]))
    >>> outcome.tokens[0, : outcome.accepted[0] + 1].tolist()
    [0, 1]
    """

    tokens: Array
    accepted: Array
    chain: Array | None = None


class VerifiedTree(NamedTuple, Generic[Array]):
    """Result of verifying a tree of drafts for each of B sequences.

    Attributes
    ----------
    tokens : int64 array or Tensor [B, L + 1]
        The output: the accepted drafts along a path of the tree, one more token, then −1.
    accepted : int64 array or Tensor [B]
        Number of accepted drafts; the output has `accepted + 1` tokens.
    node : int64 array or Tensor [B]
        Index of the last accepted draft, or −1 if no draft was accepted.  The key-value cache of
        the path to the last accepted draft can be kept.

    Examples
    --------
    >>> import numpy as np
    >>> from otm.kernels import verify_tree_probs
    >>> target = np.full((1, 3, 2), 0.5)
    >>> drafts, parents = np.array([[1, 0]]), np.array([[-1, 0]])
    >>> outcome = verify_tree_probs(target, None, drafts, parents, np.full((1, 3, 1), 0.7))
    >>> outcome.tokens[0, : outcome.accepted[0] + 1].tolist(), int(outcome.node[0])
    ([1, 1], 0)
    """

    tokens: Array
    accepted: Array
    node: Array
