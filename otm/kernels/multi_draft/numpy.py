"""SpecTr's recursion (Algorithm 3) over K chains of drafts, one sequence after another.

The NumPy code is the reference: the faster versions make the same decisions.  The code is exact on
object arrays of `fractions.Fraction`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.kernels.common.distributions.numpy import collect_ends, extend, locate, mass
from otm.kernels.results import Verified

Select = Callable[..., tuple[int, npt.NDArray[Any]]]
"""Rule for one node; it takes target [V], draft [V], tokens [K] and the uniforms of the position.

A token of −1 means that the chain has ended or does not begin with the accepted tokens.  The rule
returns the index of the accepted draft or −1, and masses [V].  If no draft is accepted, the next
token is drawn in proportion to the returned masses.
"""


def verify_chains(
    select: Select,
    target_probs: npt.NDArray[Any],
    draft_probs: npt.NDArray[Any],
    draft_tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
    *,
    counted: npt.NDArray[np.bool_] | None = None,
) -> Verified[npt.NDArray[np.int64]]:
    """Accept drafts position by position, among the chains that begin with the accepted tokens.

    At each position the rule receives the drafts of the chains that begin with the accepted tokens
    (SpecTr, Theorem 2).  `counted` [B, K, γ] marks the drafts to be used, so that each draw is used
    once.  For K = 1 the method is chain verification.
    """
    if counted is None:
        counted = np.ones(draft_tokens.shape, dtype=bool)
    arguments = zip(target_probs, draft_probs, draft_tokens, uniforms, counted, strict=True)
    outputs = [_verify_one(select, *each, counted=own) for *each, own in arguments]
    return Verified(*collect_ends(outputs, draft_tokens.shape[2]))


def _verify_one(
    select: Select,
    target_probs: npt.NDArray[Any],
    draft_probs: npt.NDArray[Any],
    draft_tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
    *,
    counted: npt.NDArray[np.bool_],
) -> tuple[list[int], int]:
    """Return output tokens and chain of one sequence.

    Shapes: [K, γ + 1, V], [K, γ, V'], [K, γ], uniforms, [K, γ].
    """
    count, gamma = draft_tokens.shape
    per_position = (len(uniforms) - 2) // max(gamma, 1)
    for_residual, for_bonus = uniforms[-2:]
    agree = np.ones(count, dtype=bool)
    output: list[int] = []
    for i in range(gamma):
        running = np.where(agree, draft_tokens[:, i], -1)
        if (running < 0).all():
            break
        c = int((running >= 0).argmax())  # a chain that has ended has no draft row here
        target = target_probs[c, i]  # [V]
        here = uniforms[i * per_position : (i + 1) * per_position]
        drafts = np.where(counted[:, i], running, -1)
        index, residual = select(target, extend(draft_probs[c, i], target), drafts, here)
        if index < 0:  # the residual token ends the output
            return [*output, locate(residual, for_residual)], int(agree.argmax())
        output.append(int(running[index]))
        agree = running == running[index]  # all chains with the accepted token continue
    # No chain has a further draft, so the target's next row gives the bonus token.
    first = int(agree.argmax())
    return [*output, locate(mass(target_probs[first, len(output)]), for_bonus)], first
