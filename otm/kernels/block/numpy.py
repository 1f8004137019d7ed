"""Block verification as in Sun et al. 2024, one sequence after another.

Chain verification stops at the first rejected draft.  Block verification tests every prefix of the
drafts and accepts the longest that passes.  The output has the same distribution as with chain
verification, and is on average at least as long.  The code is exact on object arrays of
`fractions.Fraction`.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy.typing as npt

from otm.kernels.chain import numpy as chain
from otm.kernels.common.distributions.numpy import UNIT, at, locate, mass, one_hot, residual_mass


def _verify_one(
    target_probs: Any, draft_probs: Any, draft_tokens: npt.NDArray[Any], uniforms: npt.NDArray[Any]
) -> list[int]:
    """Return the output tokens of one chain, unpadded: [γ + 1, V], [γ, V'], [γ], [γ + 2] → list."""
    # Let d and t be the distributions of draft and target at each position.  The prefix of i of n
    # drafts has the weight w_i, with w_0 = 1 and w_i = min(w_{i−1} t(x_i) / d(x_i), 1).  With the
    # distributions after x_1…x_i, let Z_i = Σ_x max(w_i t(x) − d(x), 0).  The prefix passes its
    # test with probability h_i = Z_i / (Z_i + 1 − w_i), or h_n = w_n for all n drafts.  The next
    # token is drawn ∝ max(w_i t − d, 0), or from the target if i = n.
    *coins, for_residual, for_bonus = uniforms
    size = target_probs.shape[1]
    tokens = list(itertools.takewhile(lambda x: 0 <= x < size, draft_tokens.tolist()))
    length = len(tokens)
    weights: list[Any] = [1]
    for i, x in enumerate(tokens):
        probability = 1 if draft_probs is None else at(draft_probs, i, x)
        weights.append(next_weight(weights[i], at(target_probs, i, x), probability))
    # Test the prefixes from the longest down, and accept the first prefix that passes.
    if length == 0 or coins[length - 1] < weights[length]:
        return [*tokens, locate(mass(target_probs[length]), for_bonus)]
    for i in reversed(range(length)):
        target = target_probs[i]  # [V]
        draft = one_hot(tokens[i], target) if draft_probs is None else draft_probs[i]
        residual = residual_mass(target, draft, weights[i])
        excess = residual.sum() if residual.dtype == object else residual.sum() / UNIT
        if i == 0 or coins[i - 1] * (excess + (1 - weights[i])) < excess:
            break
    return [*tokens[:i], locate(residual if residual.any() else mass(target), for_residual)]


def next_weight(weight: Any, target: Any, draft: Any) -> Any:
    """Return min(weight · target / draft, 1) for one token, without a division by zero."""
    weighted = weight * target
    if 0 <= weighted < draft:
        return weighted / draft
    return int(weighted > 0)


uniforms_per_position = chain.uniforms_per_position

verify = partial(chain.one_by_one, _verify_one)
"""Test each prefix of the drafts, accept the longest that passes, and draw the next token.

The accepted prefix has the largest i with u_i < h_i, or is empty if no test passes.  Tests of
shorter prefixes do not matter (Algorithm 2, Theorems 1 and 2).
"""
