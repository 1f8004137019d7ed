"""k-Seq (SpecTr Algorithm 2) at one node, with a factor that needs one pass over the vocabulary.

k-Seq accepts a draft x with probability min(1, q/(ρp)) and is lossless for every division factor
ρ ≥ ρ*.  Neither a sort nor a search for ρ* suits a GPU.  Here one pass adds up β(ρ) = Σ min(p, q/ρ)
at a few fixed factors, and a draft is tested by a mixture of the two that enclose ρ*: with their
inverses s < S, its mass is h = (1 − λ) min(p, sq) + λ min(p, Sq).  The sum of h is known without
another pass, and the rule is valid as long as F · ((1 − λ)s + λS) ≤ 1, where
F = (1 − (1 − Σh)^k) / Σh is how many times as likely k drafts give a token as one draft does.  It
differs from k-Seq at ρ* only in tokens whose ratio lies between the two factors, to second order:
measured, it accepts 0.001 less at most.

Letters as in the papers: p the draft's distribution, q the target's, k the number of drafts.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm.kernels.common.distributions.numpy import UNIT, mass
from otm.kernels.multi_draft.numpy import verify_chains

INTERVALS = 16
"""Between the fixed factors, which are ρ = 1 + (K − 1)(g / 16)² for g = 0, …, 16."""

SHARES = 64
"""λ is a multiple of 1/64."""


class Split(NamedTuple):
    """How a draft is tested: inverse factors s ≤ S, the share λ of S, and F (0: none passes)."""

    low: Any
    high: Any
    share: Any
    factor: Any

    def one_draft(self, target: Any, draft: Any, minimum: Any = np.minimum) -> Any:
        """Mass h of tokens that one draft gives, by the minimum of their library."""
        low = minimum(draft, self.low * target)
        return low + self.share * (minimum(draft, self.high * target) - low)


def uniforms_per_position(chains: int) -> int:
    """Count the coins of a position: one for each draft."""
    return chains


def select(
    target: npt.NDArray[Any],
    draft: npt.NDArray[Any],
    tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
) -> tuple[int, npt.NDArray[Any]]:
    """Accept the first draft that passes its test: [V], [V], [K], [K] → place or −1, masses [V].

    The masses are those of q − F h, or of q if no draft is running, or if the residual is empty,
    which only rounding can make of use.
    """
    everything = mass(target)
    running = np.flatnonzero(tokens >= 0)
    if running.size == 0:
        return -1, everything
    if target.dtype != object:
        target, draft = target.astype(np.float64), draft.astype(np.float64)
    split = find_split(target, draft, running.size, tokens.size)
    for i in running.tolist():
        x = int(tokens[i])
        if x < target.size and uniforms[i] * draft[x] < split.one_draft(target[x], draft[x]):
            return i, everything
    residual = np.maximum(everything - mass(split.factor * split.one_draft(target, draft)), 0)
    return -1, residual if residual.any() else everything


verify = partial(verify_chains, select)
"""Verify K chains, selecting among the drafts of a position by k-Seq on the grid."""


def find_split(target: npt.NDArray[Any], draft: npt.NDArray[Any], count: int, chains: int) -> Split:
    """Largest valid mixture for so many drafts, on the grid of so many chains: [V], [V]."""
    exact = target.dtype == object
    one = Fraction(1) if exact else np.float64(1)
    ends = range(INTERVALS + 1)
    scales = [INTERVALS**2 * one / (INTERVALS**2 + (chains - 1) * g * g) for g in ends]
    sums = [mass(np.minimum(draft, scale * target)).sum() for scale in scales]
    betas = [min(s if exact else s / UNIT, one) for s in sums]

    # a smaller scale is valid if a larger one is, hence counting finds the edge
    wrong = sum(not valid(s, b, count) for s, b in zip(scales, betas, strict=True))
    low, high = min(wrong, INTERVALS), max(min(wrong, INTERVALS) - 1, 0)
    rises = scales[high] - scales[low], betas[high] - betas[low]

    def at(share: Any) -> tuple[Any, Any]:
        return scales[low] + share * rises[0], betas[low] + share * rises[1]

    share = sum(valid(*at(one * j / SHARES), count) for j in range(1, SHARES)) * one / SHARES
    beta = at(share)[1]
    factor = at_least_once(beta, count) / beta if beta > 0 else 0 * one
    return Split(scales[low], scales[high], share, factor)


def valid(scale: Any, beta: Any, count: int) -> bool:
    """Whether no token is accepted more often than the target has it."""
    return bool(scale * at_least_once(beta, count) <= beta)


def at_least_once(beta: Any, count: int) -> Any:
    """Probability 1 − (1 − β)^k that one of k drafts is accepted, without cancellation."""
    hit = beta
    for _ in range(count - 1):
        hit = hit + (1 - hit) * beta
    return hit
