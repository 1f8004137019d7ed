"""SpecTr's recursion (Algorithm 3) over K chains of drafts, one sequence after another.

This is the definition that the faster versions are compared with, decision for decision.  On object
arrays of `fractions.Fraction` the same code is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.kernels.common.distributions.numpy import collect_ends, extend, locate, mass
from otm.kernels.results import Verified

Select = Callable[..., tuple[int, npt.NDArray[Any]]]
"""What a rule does at one node: target [V], draft [V], tokens [K] (−1: not running), its uniforms.

It returns the place of the accepted draft, −1 if there is none, and the masses [V] that the next
token is drawn from in that case."""


def verify_chains(
    select: Select,
    target_probs: npt.NDArray[Any],
    draft_probs: npt.NDArray[Any],
    draft_tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
    *,
    counted: npt.NDArray[np.bool_] | None = None,
) -> Verified[npt.NDArray[np.int64]]:
    """Accept drafts position by position, each time among the chains that agree so far.

    The rule of a position sees the drafts of those chains that begin with the accepted tokens
    (SpecTr, Theorem 2), each draw once: [B, K, γ] says whose are counted.  For K = 1 this is chain
    verification.
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
    """Output and chain of one sequence: [K, γ + 1, V], [K, γ, V'], [K, γ], uniforms, [K, γ]."""
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
        if index < 0:  # a token of the residual ends the output
            return [*output, locate(residual, for_residual)], int(agree.argmax())
        output.append(int(running[index]))
        agree = running == running[index]  # all chains that have the accepted token go on
    first = int(agree.argmax())  # no chain has a draft left: the target's next row ends it
    return [*output, locate(mass(target_probs[first, len(output)]), for_bonus)], first
