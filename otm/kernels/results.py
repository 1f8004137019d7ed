"""What a verification returns."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

Array = TypeVar("Array")


class Verified(NamedTuple, Generic[Array]):
    """Outcome of the verification of the drafts of B sequences.

    Of the drafts of a sequence some are *accepted*, from the first on; then follows one token more:
    a *recovered* token, drawn from the residual where the next draft was rejected, or the *bonus*
    token, from the target's next row, where no draft was left.

    Attributes
    ----------
    tokens : int64 array or Tensor [B, γ + 1]
        The output: the accepted drafts, the recovered or bonus token, then −1.
    accepted : int64 array or Tensor [B]
        Number of accepted drafts, so that `accepted + 1` tokens are output.
    chain : int64 array or Tensor [B], or None
        The first chain that begins with the accepted drafts: the one whose cache is kept.  None
        from a rule for one chain.

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
    """Outcome of the verification of a tree of drafts for each of B sequences.

    Attributes
    ----------
    tokens : int64 array or Tensor [B, L + 1]
        The output: the drafts along the way through the tree, one token more, then −1.
    accepted : int64 array or Tensor [B]
        Number of accepted drafts, so that `accepted + 1` tokens are output.
    node : int64 array or Tensor [B]
        The last accepted draft, whose path is kept in the cache; −1 if none was accepted.

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
