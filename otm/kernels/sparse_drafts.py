"""Sparse draft distributions, which list the few tokens with a positive probability."""

from __future__ import annotations

from typing import Generic, NamedTuple

from otm.kernels.results import Array


class SparseDrafts(NamedTuple, Generic[Array]):
    """Draft distributions that list m tokens each; all other tokens have probability 0.

    A sparse draft replaces dense rows of the whole vocabulary.  Sparse and dense drafts lead to the
    same decisions, bit for bit.

    Attributes
    ----------
    tokens : int32 or int64 array or Tensor [B, γ, m], packed [N, m], for K chains [B, K, γ, m]
        The listed tokens in any order, without repetition.  Shorter lists are padded with −1.
    probs : array or Tensor, same shape as `tokens`
        Probabilities of the listed tokens, which sum to one.  The values at padding are ignored.

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
