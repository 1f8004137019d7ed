"""Chain verification as in Leviathan et al., Algorithm 1, one sequence after another.

The NumPy code is the reference: every faster version makes the same decisions.  The code is exact
on object arrays of `fractions.Fraction`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.kernels.common.distributions.numpy import at, collect, locate, mass, one_hot, residual_mass
from otm.kernels.results import Verified


def uniforms_per_position(chains: int) -> int:
    """Count the uniforms at each position: one for the draft of each chain."""
    return chains


def _verify_one(
    target_probs: Any, draft_probs: Any, draft_tokens: npt.NDArray[Any], uniforms: npt.NDArray[Any]
) -> list[int]:
    """Return the output tokens of one chain, unpadded: [γ + 1, V], [γ, V'], [γ], [γ + 2] → list."""
    *coins, for_residual, for_bonus = uniforms
    output: list[int] = []
    for i, x in enumerate(draft_tokens.tolist()):
        if not 0 <= x < target_probs.shape[1]:
            break
        probability = 1 if draft_probs is None else at(draft_probs, i, x)
        # Comparing products avoids a division by 0, and rejects a token with target probability 0
        # even at u = 0.
        if not coins[i] * probability < at(target_probs, i, x):
            target = target_probs[i]  # [V]
            draft = one_hot(x, target) if draft_probs is None else draft_probs[i]
            residual = residual_mass(target, draft)
            return [*output, locate(residual if residual.any() else mass(target), for_residual)]
        output.append(x)
    return [*output, locate(mass(target_probs[len(output)]), for_bonus)]


def one_by_one(
    verify_one: Callable[..., list[int]],
    target_probs: Any,
    draft_probs: Any,
    draft_tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
) -> Verified[npt.NDArray[np.int64]]:
    """Verify one sequence after another; `verify_one` returns the tokens of one sequence."""
    drafts = itertools.repeat(None) if draft_probs is None else draft_probs
    outputs = map(verify_one, target_probs, drafts, draft_tokens, uniforms)
    return collect(list(outputs), draft_tokens.shape[1])


verify = partial(one_by_one, _verify_one)
"""Accept drafts up to the first rejection, and draw the next token.

A token drawn ∝ max(target − draft, 0) at the same position replaces a rejected draft.  If rounding
leaves no residual mass, the token is drawn from the target.
"""
