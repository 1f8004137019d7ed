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

from otm.kernels.common.arrays import array_module, nonzero_or_one, prepend_zero, take, to_float64
from otm.kernels.common.distributions.numpy import UNIT, mass
from otm.kernels.multi_draft.numpy import verify_chains
from otm.kernels.optimal.numpy import deterministic_count, hit_probability

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

    def one_draft(self, target: Any, draft: Any) -> Any:
        """Mass h of tokens that one draft gives."""
        xp = array_module(target)
        low = xp.minimum(draft, self.low * target)
        return low + self.share * (xp.minimum(draft, self.high * target) - low)


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
"""Verify K chains, selecting among the drafts of a position by k-Seq on the grid."""


def find_split(target: npt.NDArray[Any], draft: npt.NDArray[Any], count: int, chains: int) -> Split:
    """Largest valid mixture for `count` drafts, on the grid of `chains` chains: [V], [V]."""
    exact = target.dtype == object
    one: Any = Fraction(1) if exact else np.float64(1)
    ends = np.arange(INTERVALS + 1) * one
    scales = INTERVALS**2 / (INTERVALS**2 + (chains - 1) * ends * ends)
    sums = np.array([mass(np.minimum(draft, scale * target)).sum() for scale in scales])
    betas = np.minimum(sums if exact else sums / UNIT, one)
    shares = np.arange(1, SHARES) * one / SHARES
    return mix_factors(scales, betas, shares, deterministic_count(count))


def mix_factors(scales: Any, betas: Any, shares: Any, numbers: Any) -> Split:
    """Largest valid mixture of two neighbours on the grid, of NumPy arrays or tensors.

    Inverse factors [17] with the sums β of Σ min(p, q/ρ) [..., 17], the shares λ between 0 and 1,
    and the distribution of the number of drafts [..., K + 1].
    """
    # A smaller scale is valid if a larger one is, hence counting finds the edge.
    wrong = (~is_valid(scales, betas, numbers)).sum(axis=-1, keepdims=True)
    low = wrong.clip(max=INTERVALS)
    high = (low - 1).clip(min=0)
    scale, beta = take(scales, low), take(betas, low)
    scale_rise, beta_rise = take(scales, high) - scale, take(betas, high) - beta
    fits = is_valid(scale + shares * scale_rise, beta + shares * beta_rise, numbers)
    share = take(prepend_zero(shares), fits.sum(axis=-1, keepdims=True))
    beta = beta + share * beta_rise
    factor = hit_probability(beta, numbers) / nonzero_or_one(beta)  # 0 where β is 0
    return Split(scale, take(scales, high), share, factor)


def is_valid(scale: Any, beta: Any, numbers: Any) -> Any:
    """Whether no token is accepted more often than the target has it."""
    return scale * hit_probability(beta, numbers) <= beta
