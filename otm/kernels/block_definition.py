"""Block verification as its authors write it (Sun et al. 2024), one sequence after another.

Chain verification stops at the first draft that is rejected.  Block verification looks at all of
them first and keeps the longest part whose test passes; it has the same law and is never shorter in
expectation.  On object arrays of `fractions.Fraction` the same code is exact.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.kernels.checks import check_chain
from otm.kernels.definition import (
    UNIT,
    ChainResult,
    extend,
    laws_from_logits,
    locate,
    mass,
    one_by_one,
    one_hot,
)

__all__ = ["verify_block", "verify_block_from_logits"]


def verify_block(
    target_probs: npt.NDArray[Any],
    draft_probs: npt.NDArray[Any] | None,
    draft_tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
    *,
    validate: bool = True,
) -> ChainResult[npt.NDArray[np.int64]]:
    """Accept the longest part of the drafts that passes, and draw the token that follows it.

    Takes and returns what `otm.kernels.definition.verify_chain` takes and returns.  With d and t
    the laws at each position, the weight of the first i of n drafts is w_0 = 1 and
    w_i = min(w_{i−1} t(x_i) / d(x_i), 1).  Let Z_i = Σ_x max(w_i t(x) − d(x), 0), with the laws
    after x_1…x_i.  The first i drafts pass their test if u_i < h_i, where
    h_i = Z_i / (Z_i + 1 − w_i) and h_n = w_n.  The largest i that passes is accepted, 0 if none
    does, whatever the tests before it said; the next token is drawn ∝ max(w_i t − d, 0), or from
    the target if i = n ([sun2024block]_, Algorithm 2).

    Parameters
    ----------
    target_probs, draft_probs, draft_tokens, validate
        As for `otm.kernels.definition.verify_chain`.
    uniforms : float64 array [B, γ + 2]
        Independent, in [0, 1): a coin for each test, one uniform for the residual, one for the
        bonus.

    Returns
    -------
    ChainResult
        Tokens [B, γ + 1], padded with −1, and the number of accepted drafts [B].

    Raises
    ------
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError
        As for `otm.kernels.definition.verify_chain`.

    References
    ----------
    .. [sun2024block] Sun et al., "Block Verification Accelerates Speculative Decoding", 2024,
       Algorithm 2 and Theorems 1 and 2.

    Examples
    --------
    The first draft alone would be rejected; both together pass.

    >>> target = np.array([[[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]]])
    >>> draft = np.array([[[0.5, 0.5], [0.25, 0.75]]])
    >>> verify_block(target, draft, np.array([[0, 0]]), np.array([[0.6, 0.9, 0.5, 0.1]]))
    ChainResult(tokens=array([[0, 0, 0]]), accepted=array([2]))
    """
    if validate:
        check_chain(np, target_probs, draft_probs, draft_tokens, uniforms)
    return one_by_one(_verify_one, target_probs, draft_probs, draft_tokens, uniforms)


def verify_block_from_logits(
    target_logits: npt.NDArray[Any],
    draft_logits: npt.NDArray[Any] | None,
    draft_tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
    temperature: float | npt.NDArray[Any] = 1.0,
    *,
    validate: bool = True,
) -> ChainResult[npt.NDArray[np.int64]]:
    """`verify_block` for logits: the laws are softmax(logits / temperature), in float64.

    Takes, returns and raises what `otm.kernels.definition.verify_chain_from_logits` does.
    """
    if validate:
        check_chain(
            np,
            target_logits,
            draft_logits,
            draft_tokens,
            uniforms,
            logits=True,
            temperature=temperature,
        )
    laws = laws_from_logits(target_logits, draft_logits, draft_tokens, temperature)
    return verify_block(*laws, draft_tokens, uniforms, validate=False)


def _verify_one(
    target: npt.NDArray[Any],
    draft: npt.NDArray[Any] | None,
    drafts: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
) -> list[int]:
    """Output of one chain: [γ + 1, V], [γ, V'], [γ], [γ + 2] → the tokens, without padding."""
    *coins, for_residual, for_bonus = uniforms
    tokens = list(itertools.takewhile(lambda x: x >= 0, drafts.tolist()))
    length = len(tokens)
    offered, weights = [], [1]
    for i, x in enumerate(tokens):
        offered.append(one_hot(x, target[i]) if draft is None else extend(draft[i], target[i]))
        weights.append(_next_weight(weights[i], target[i].item(x), offered[i].item(x)))
    # the last test that passes is the first from the end
    if length == 0 or coins[length - 1] < weights[length]:
        return [*tokens, locate(mass(target[length]), for_bonus)]
    for i in reversed(range(length)):
        wide = target[i] if target[i].dtype == object else target[i].astype(np.float64)
        left = np.maximum(mass(weights[i] * wide) - mass(offered[i]), 0)
        excess = left.sum() if left.dtype == object else left.sum() / UNIT
        if i == 0 or coins[i - 1] * (excess + (1 - weights[i])) < excess:
            break
    return [*tokens[:i], locate(left if left.any() else mass(target[i]), for_residual)]


def _next_weight(weight: Any, wanted: Any, offered: Any) -> Any:
    """Return min(weight · wanted / offered, 1), without a division by zero."""
    weighted = weight * wanted
    if weighted < offered:
        return weighted / offered
    return int(weighted > 0)
