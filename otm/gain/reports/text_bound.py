"""The bound of a report on any memoryless lossless verifier, from a text of the target.

Such a verifier accepts i drafts of K i.i.d. chains with probability at most α_K(D_i, T_i), where
D_i and T_i are the distributions of i tokens (docs/theory/block.md).  φ(d) = 1 − (1 − d)^K is
concave, so it lies below its tangent at any d, which has the slope λ = K (1 − d)^(K−1) and the
height c = φ(d) − λ d at 0.  In the cut T_i(H) + φ(D_i(H^c)) this gives for every set H

    α_K(D_i, T_i) ≤ Σ_y min(T_i(y), λ D_i(y)) + c = E min(1, λ D_i(Y)/T_i(Y)) + c,

with Y drawn from T_i, and equality for the right d.  Where a step begins at a position of the text,
the tokens that follow estimate this without bias, and no draft is needed: the ratio of i tokens is
the product of theirs.  The right d of longer paths is not known, and any other makes the bound
larger: it is taken to be a part of the d of the next token alone, which α_K there tells.  Which
part is chosen for each depth on the other half of the prompts, as in `otm.gain.efficiency_bound`:
chosen where it is used, it would make the bound too small.  For i = 1 the bound is α_K itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from otm._core.means import Floats, Prompts
from otm.gain.reports.pairs import Measured

PARTS = np.linspace(0, 1, 33)
"""Parts of d that are tried at each depth."""

LARGEST = 700.0
"""Logarithms above it are taken for it, as then all drafts are accepted anyhow."""


def bound_along_text(
    measured: Measured, ks: Sequence[int], gammas: Sequence[int], prompts: Prompts
) -> Floats:
    """Bound the tokens of a step: sums whose means these are, [P, D, K, gammas].

    For each position, in the order of its text: "ratio" [N, D], p/q of the token that the target
    drew; "optimum" [N, D, K], α_K; and "above", the draft's mass above the cut of it.  Depth i
    takes the mean over the positions with i rows of their prompt left; NaN where a half of the
    prompts has none.
    """
    optimum, above = measured["optimum"], measured["above"]
    order = np.concatenate(prompts.places)
    left = np.concatenate([np.arange(places.size, 0, -1) for places in prompts.places])
    with np.errstate(divide="ignore"):
        logs = np.minimum(np.log(measured["ratio"][order]), LARGEST)
    sizes, depth = prompts.sizes, max(gammas)
    bounds = np.full((sizes.size, *optimum.shape[1:], depth), np.nan)
    bounds[..., 0] = sizes[:, None, None] + prompts.sums(optimum)
    for d, log_ratio in enumerate(logs.T):
        for j, k in enumerate(ks):
            path = log_ratio  # logarithm of D_i/T_i of the path from each position on
            slope, height = tangents(above[order, d, j], k)
            for i in range(1, depth):
                starts = np.flatnonzero(left > i)
                numbers = np.bincount(prompts.index[order[starts]], minlength=sizes.size)
                if not (numbers[::2].any() and numbers[1::2].any()):
                    break
                path = path + np.append(log_ratio[i:], np.zeros(i))
                ratio = np.exp(np.minimum(path[starts], LARGEST))
                values = np.minimum(slope[starts] * ratio[:, None], 1) + height[starts]
                sums = _chosen_on_the_other_half(values, prompts.index[order[starts]], sizes.size)
                mean = sums.sum() / starts.size
                residuals = (sums - mean * numbers) * (order.size / starts.size)
                bounds[:, d, j, i] = bounds[:, d, j, i - 1] + mean * sizes + residuals
    return bounds[..., np.asarray(gammas) - 1]


def tangents(above: Floats, k: int) -> tuple[Floats, Floats]:
    """Slopes and heights at 0 of the tangents of φ at parts of the masses [N]: [N, PARTS]."""
    below = 1 - above[:, None] * PARTS
    slope = k * below ** (k - 1)
    return slope, 1 - slope + (k - 1) * below**k


def _chosen_on_the_other_half(values: Floats, prompt: npt.NDArray[np.intp], count: int) -> Floats:
    """Add values [N, PARTS] over each prompt, with the part that is best for the other half."""
    half = prompt % 2
    best = np.array([values[half != h].sum(axis=0).argmin() for h in (0, 1)])
    chosen = values[np.arange(half.size), best[half]]
    return np.bincount(prompt, weights=chosen, minlength=count).astype(np.float64)
