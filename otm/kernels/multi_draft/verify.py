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

    A new kernel defines its `verify` as `functools.partial(verify_chains, select)`.  Drafts are
    accepted position by position.  At each position `select` receives the drafts of the chains that
    begin with the accepted tokens.  The arguments are not checked.

    Parameters
    ----------
    select : callable
        For NumPy arrays the function takes one node: target [V], draft [V], drafts [K] and the
        uniforms of the position; a draft of −1 is not tested.  The function returns the index of
        the accepted draft or −1, and masses [V].  If no draft is accepted, the next token is drawn
        in proportion to the returned masses.  For tensors the function takes all B nodes of a
        position at once: [B, V], [B, V], [B, K], [B, m] → indices [B], masses [B, V].
    target_probs : array or Tensor [B, K, γ + 1, V]
        The target model's probabilities at each position.
    draft_probs : array or Tensor [B, K, γ, V']
        The distributions that the drafts were sampled from, V' ≤ V.
    draft_tokens : int array or Tensor [B, K, γ]
        The drafts; the first −1 ends a chain.
    uniforms : float64 array or Tensor [B, γm + 2]
        Independent uniforms in [0, 1): m for each position, one for the recovered token, one for
        the bonus token.
    counted : bool array or Tensor [B, K, γ], optional
        False where a draft is the same draw as a draft of an earlier chain.

    Returns
    -------
    Verified
        The output, the number of accepted drafts, and a chain that begins with the accepted drafts.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS
       2023, Algorithm 3.

    Examples
    --------
    This rule rejects every draft, so each token is drawn from the target:

    >>> import numpy as np
    >>> from otm.kernels import mass, verify_chains
    >>> target, draft = np.full((1, 2, 2, 4), 0.25), np.full((1, 2, 1, 4), 0.25)
    >>> drafts, uniforms = np.array([[[0], [1]]]), np.full((1, 3), 0.9)
    >>> verify_chains(lambda q, p, x, u: (-1, mass(q)), target, draft, drafts, uniforms).tokens
    array([[ 3, -1]])
    """
    verify = multi_draft.verify_chains
    if is_tensor(target_probs):
        from otm.kernels.multi_draft.torch import verify_chains as verify  # imports torch
    return verify(select, target_probs, draft_probs, draft_tokens, uniforms, counted=counted)
