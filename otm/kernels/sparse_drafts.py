"""Draft distributions as engines keep them: the few tokens that a draft can be."""

from __future__ import annotations

from typing import Generic, NamedTuple

from otm.kernels.results import Array


class SparseDrafts(NamedTuple, Generic[Array]):
    """Distributions of drafts that list m tokens each; all other tokens have probability 0.

    They take the place of rows of the whole vocabulary, and lead to the same decisions, bit for
    bit.

    Attributes
    ----------
    tokens : int32 or int64 array or Tensor [B, γ, m], packed [N, m], of K chains [B, K, γ, m]
        The listed tokens, each once, in any order.  −1 is padding, where lists are shorter.
    probs : array or Tensor, as the tokens
        Their probabilities, which sum to one; those of padding are not looked at.

    Examples
    --------
    >>> import numpy as np
    >>> from otm.kernels import SparseDrafts, verify_probs
    >>> target = np.array([[[0.2, 0.5, 0.3], [0.1, 0.9, 0.0]]])
    >>> drafts = SparseDrafts(np.array([[[2, 0]]]), np.array([[[0.8, 0.2]]]))
    >>> verify_probs(target, drafts, np.array([[2]]), np.array([[0.3, 0.3, 0.5]])).tokens
    array([[2, 1]])
    """

    tokens: Array
    probs: Array
