"""k-Seq (SpecTr Algorithm 2) at one node; one pass over the vocabulary finds the division factor.

k-Seq accepts a draft x with probability min(1, q/(ρp)), where ρ is the division factor.  k-Seq is
lossless for every ρ ≥ ρ*.  A GPU is poorly suited to a sort or to a search for ρ*.  This module
therefore computes, in one pass, the sum β(ρ) of min(p, q/ρ) over the vocabulary for a few fixed
factors.

Let s < S be the inverses of the two factors that enclose ρ*.  A draft is tested by a mixture of the
factors 1/s and 1/S, with mass h = (1 − λ) min(p, sq) + λ min(p, Sq).  The sum of h follows without
another pass over the vocabulary.  With k drafts a token is accepted F times as often as with one
draft, where F = (1 − (1 − Σh)^k) / Σh.  The rule is valid if F · ((1 − λ)s + λS) ≤ 1.

The rule differs from k-Seq at ρ* only in tokens with a ratio between the two factors, and only to
second order.  The measured loss of acceptance is at most 0.001.

Symbols as in the papers: p is the draft distribution, q the target, k the number of drafts.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm.kernels.common.arrays import array_module, nonzero_or_one, prepend_zero, take, to_float64
from otm.kernels.common.distributions.numpy import UNIT, mass
from otm.kernels.multi_draft.numpy import verify_chains
from otm.kernels.optimal.numpy import deterministic_count, hit_probability

INTERVALS = 16
"""Number of intervals between the fixed factors ρ = 1 + (K − 1)(g / 16)² for g = 0, …, 16."""

SHARES = 64
"""Number of steps of the share λ, which is a multiple of 1/64."""


class Split(NamedTuple):
    """Parameters of a draft's test: inverse factors s ≤ S, the share λ of S, and F.

    F = 0 rejects all drafts.
    """

    low: Any
    high: Any
    share: Any
    factor: Any

    def one_draft(self, target: Any, draft: Any) -> Any:
        """Return the masses h with which one draft yields each token."""
        xp = array_module(target)
        low = xp.minimum(draft, self.low * target)
        return low + self.share * (xp.minimum(draft, self.high * target) - low)


def uniforms_per_position(chains: int) -> int:
    """Count the uniforms at each position: one for each draft."""
    return chains


def select(
    target: npt.NDArray[Any],
    draft: npt.NDArray[Any],
    tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
) -> tuple[int, npt.NDArray[Any]]:
    """Accept the first draft that passes its test: [V], [V], [K], [K] → index or −1, masses [V].

    The masses are those of q − F h.  If no draft is to be tested, or if rounding makes the residual
    empty, the masses of q are returned.
    """
    everything = mass(target)
    running = np.flatnonzero(tokens >= 0)
    if running.size == 0:
        return -1, everything
    target, draft = to_float64(target), to_float64(draft)
    split = find_split(target, draft, running.size, tokens.size)
    one_draft = split.one_draft(target, draft)
    for i in running.tolist():
        x = int(tokens[i])
        if x < target.size and uniforms[i] * draft[x] < one_draft[x]:
            return i, everything
    residual = np.maximum(everything - mass(split.factor * one_draft), 0)
    return -1, residual if residual.any() else everything


verify = partial(verify_chains, select)
"""Verify K chains by k-Seq on the grid at each position."""


def find_split(target: npt.NDArray[Any], draft: npt.NDArray[Any], count: int, chains: int) -> Split:
    """Return the largest valid mixture for `count` drafts, on the grid for K = `chains`."""
    exact = target.dtype == object
    one: Any = Fraction(1) if exact else np.float64(1)
    ends = np.arange(INTERVALS + 1) * one
    scales = INTERVALS**2 / (INTERVALS**2 + (chains - 1) * ends * ends)
    sums = np.array([mass(np.minimum(draft, scale * target)).sum() for scale in scales])
    betas = np.minimum(sums if exact else sums / UNIT, one)
    shares = np.arange(1, SHARES) * one / SHARES
    return mix_factors(scales, betas, shares, deterministic_count(count))


def mix_factors(scales: Any, betas: Any, shares: Any, numbers: Any) -> Split:
    """Return the largest valid mixture of two neighbouring grid factors, in NumPy or torch.

    The arguments are inverse factors [17], the sums β of min(p, q/ρ) [..., 17], the shares λ
    between 0 and 1, and the distribution of the number of drafts [..., K + 1].
    """
    # If a scale is valid, so is every smaller one; the number of invalid scales therefore locates
    # the boundary.
    wrong = (~is_valid(scales, betas, numbers)).sum(axis=-1, keepdims=True)
    low = wrong.clip(max=INTERVALS)
    high = (low - 1).clip(min=0)
    scale, beta = take(scales, low), take(betas, low)
    scale_rise, beta_rise = take(scales, high) - scale, take(betas, high) - beta
    fits = is_valid(scale + shares * scale_rise, beta + shares * beta_rise, numbers)
    share = take(prepend_zero(shares), fits.sum(axis=-1, keepdims=True))
    beta = beta + share * beta_rise
    factor = hit_probability(beta, numbers) / nonzero_or_one(beta)  # 0 if β is 0
    return Split(scale, take(scales, high), share, factor)


def is_valid(scale: Any, beta: Any, numbers: Any) -> Any:
    """Whether no token is accepted more often than its target probability."""
    return scale * hit_probability(beta, numbers) <= beta
