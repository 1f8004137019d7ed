"""The recursion over chains for authors of kernels, on NumPy arrays and on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otm._core.tensors import is_tensor
from otm.kernels.multi_draft import numpy as multi_draft
from otm.kernels.results import Verified


def verify_chains(
    select: Callable[..., Any],
    target_probs: Any,
    draft_probs: Any,
    draft_tokens: Any,
    uniforms: Any,
    *,
    counted: Any = None,
) -> Verified[Any]:
    """Verify K chains by a rule that selects among the drafts of one position ([sun2023]_).

    The `verify` of a new rule's kernel is `functools.partial(verify_chains, select)`.  Drafts are
    accepted position by position; `select` sees the drafts of the chains that begin with the
    accepted tokens.  The arguments are not checked.

    Parameters
    ----------
    select : callable
        Of NumPy arrays it takes one node: target [V], draft [V], drafts [K] (−1 where none is to
        be tested) and the uniforms of the position.  It returns the place of the accepted draft, or
        −1, and the masses [V] that the next token is drawn from if no draft is accepted.  Of
        tensors it takes all B nodes of a position at once: [B, V], [B, V], [B, K], [B, m] → places
        [B], masses [B, V].
    target_probs : array or Tensor [B, K, γ + 1, V]
        The target model's probabilities at each position.
    draft_probs : array or Tensor [B, K, γ, V']
        What the drafts were sampled from, V' ≤ V.
    draft_tokens : int array or Tensor [B, K, γ]
        The drafts; the first −1 ends a chain.
    uniforms : float64 array or Tensor [B, γm + 2]
        Independent, in [0, 1): m for each position, one for the recovered token, one for the bonus.
    counted : bool array or Tensor [B, K, γ], optional
        False where a draft is the same draw as that of an earlier chain.

    Returns
    -------
    Verified
        The output, the number of accepted drafts, and a chain that begins with them.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport",
       NeurIPS 2023, Algorithm 3.

    Examples
    --------
    A rule that rejects every draft, hence draws each token from the target:

    >>> import numpy as np
    >>> from otm.kernels import mass, verify_chains
    >>> target, draft = np.full((1, 2, 2, 4), 0.25), np.full((1, 2, 1, 4), 0.25)
    >>> drafts, uniforms = np.array([[[0], [1]]]), np.full((1, 3), 0.9)
    >>> verify_chains(lambda q, p, x, u: (-1, mass(q)), target, draft, drafts, uniforms).tokens
    array([[ 3, -1]])
    """
    verify = multi_draft.verify_chains
    if is_tensor(target_probs):
        from otm.kernels.multi_draft.torch import verify_chains as verify  # loads torch
    return verify(select, target_probs, draft_probs, draft_tokens, uniforms, counted=counted)
