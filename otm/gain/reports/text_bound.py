"""Upper bound of a report for every memoryless lossless verifier, from a text of the target.

A memoryless lossless verifier accepts i drafts of K i.i.d. chains with probability at most
α_K(D_i, T_i), where D_i and T_i are the distributions of i tokens (docs/theory/block.md). The
function φ(d) = 1 − (1 − d)^K is concave, so it lies below its tangent at any d. The tangent has
slope λ = K (1 − d)^(K−1) and height c = φ(d) − λ d at 0. A cut H has the value
T_i(H) + φ(D_i(H^c)). So every d gives

    α_K(D_i, T_i) ≤ Σ_y min(T_i(y), λ D_i(y)) + c = E min(1, λ D_i(Y)/T_i(Y)) + c,

where Y has distribution T_i. The optimal d gives equality. If a step begins at a position of the
text, the next tokens give an unbiased estimate of the mean. No draft is needed: the ratio of i
tokens is the product of their ratios. For longer paths the optimal d is unknown, and any other d
only makes the bound larger. The module uses a fraction of the d that is optimal for i = 1; this d
is known from the computation of α_K for one token. Each half of the prompts uses the fraction that
is best on the other half, for each depth, as in `otm.gain.efficiency_bound`. If a fraction were
used on the prompts on which it was chosen, the bound would be too small. For i = 1 the bound is α_K
itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from otm._core.means import Floats, Prompts
from otm.gain.reports.pairs import Measured

FRACTIONS = np.linspace(0, 1, 33)
"""Fractions of d to choose from at each depth."""

LARGEST = 700.0
"""Cap for logarithms of ratios; at this ratio all drafts are accepted."""


def bound_along_text(
    measured: Measured, ks: Sequence[int], gammas: Sequence[int], prompts: Prompts
) -> Floats:
    """Return sums for each prompt; their means bound the tokens per step: [P, D, K, gammas].

    `measured` has three arrays: "ratio" [N, D], p/q of the token that the target sampled; "optimum"
    [N, D, K], the value of α_K; and "above" [N, D, K], the draft's mass above the cut of α_K. The
    term of depth i is a mean over the positions at which at least i rows of their prompt remain.
    The result is NaN if one half of the prompts has no position with enough remaining rows.
    """
    optimum, above = measured["optimum"], measured["above"]
    order = np.concatenate(prompts.places)
    # number of rows from each position to the end of its prompt
    remaining = np.concatenate([np.arange(places.size, 0, -1) for places in prompts.places])
    with np.errstate(divide="ignore"):
        logs = np.minimum(np.log(measured["ratio"][order]), LARGEST)
    sizes, depth = prompts.sizes, max(gammas)
    bounds = np.full((sizes.size, *optimum.shape[1:], depth), np.nan)
    bounds[..., 0] = sizes[:, None, None] + prompts.sums(optimum)
    for d, log_ratio in enumerate(logs.T):
        for j, k in enumerate(ks):
            # logarithm of D_i/T_i for the path that starts at each position
            path = log_ratio
            slope, height = tangents(above[order, d, j], k)
            for i in range(1, depth):
                starts = np.flatnonzero(remaining > i)
                numbers = np.bincount(prompts.index[order[starts]], minlength=sizes.size)
                if not (numbers[::2].any() and numbers[1::2].any()):
                    break
                path = path + np.append(log_ratio[i:], np.zeros(i))
                ratio = np.exp(np.minimum(path[starts], LARGEST))
                values = np.minimum(slope[starts] * ratio[:, None], 1) + height[starts]
                sums = _sum_with_best_of_other_half(
                    values, prompts.index[order[starts]], sizes.size
                )
                mean = sums.sum() / starts.size
                residuals = (sums - mean * numbers) * (order.size / starts.size)
                bounds[:, d, j, i] = bounds[:, d, j, i - 1] + mean * sizes + residuals
    return bounds[..., np.asarray(gammas) - 1]


def tangents(above: Floats, k: int) -> tuple[Floats, Floats]:
    """Return the slopes of tangents of φ and their values at 0, each [N, FRACTIONS].

    The tangents touch φ at the `FRACTIONS` of each mass.
    """
    below = 1 - above[:, None] * FRACTIONS
    slope = k * below ** (k - 1)
    return slope, 1 - slope + (k - 1) * below**k


def _sum_with_best_of_other_half(
    values: Floats, prompt: npt.NDArray[np.intp], count: int
) -> Floats:
    """Add values [N, FRACTIONS] over each prompt, at the best fraction of the other half."""
    half = prompt % 2
    best = np.array([values[half != h].sum(axis=0).argmin() for h in (0, 1)])
    chosen = values[np.arange(half.size), best[half]]
    return np.bincount(prompt, weights=chosen, minlength=count).astype(np.float64)
