"""How often each token shall win, for every weight of the target at once: the hull law.

Let G be the generating function of the number of drafts (x^k for k of them) and (Q_j, P_j) the
masses of q and p of the first j tokens in the order of q/p.  A rule that picks a draft where there
is one can give the winner all masses v with v(H) ≥ G(p(H)) − G(0) for sets H, and no less for all
tokens.  Where v/q are the slopes of the upper concave hull of the points (Q_j, G(P_j)),
Σ min(s q, v) is as large as it can be for every s ≥ 0 (Theorem 14.3 of
docs/theory/walk-and-keep.md).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, is_exact, mean_slopes, read_only
from otm._core.ratio_bins import RatioBins
from otm.optimum.win_ratio import WinRatio

CERTAIN = 2.0**-50
"""What a cut inside of a bin must be able to gain for the bin to be split."""


def hull_win_ratio(bins: RatioBins, numbers: int | Probs, weight: Number = 1) -> WinRatio:
    """Ratio of winning to drafting by the hull law, for k drafts or m with `numbers[m]`.

    Where bins hold tokens of several ratios, the hull is that of the ends of bins.  Those in which
    Σ min(s q, v) is decided for s = `weight` are split, and so it is the optimum for this s.
    """
    bins = _split_for(bins, numbers, weight)
    while True:
        slope = mean_slopes(bins.draft_below, bins.draft_above, bins.draft, numbers)
        won = slope * bins.draft
        first = _segments(won, bins.target)
        lengths = np.diff(np.append(first, won.size))
        several = np.repeat(lengths > 1, lengths)
        sums = np.add.reduceat(np.array((won, bins.target)), first, axis=1)
        # a bin that is a segment by itself wins what it wins in its own slot
        scale = np.repeat(sums[0] / np.where(lengths > 1, sums[1], 1), lengths)
        follows = several & (bins.least < bins.most) & (scale > 0)
        # all tokens of a bin shall win at least as often as in its slot, or all at most as often;
        # and if it is a segment by itself, all at least as often as s q/p, or all at most
        limit = np.where(several, scale, np.asarray(weight))
        impure = (limit * bins.least < slope) & (slope < limit * bins.most)
        if not np.count_nonzero(impure):
            break
        bins = bins.split(impure.nonzero()[0])
    mean = np.where(several, scale * np.where(several, bins.ratio, 1), slope)
    scale = np.where(follows, scale, 1)
    return WinRatio(bins, *map(read_only, (slope, mean, follows, scale)))


def _split_for(bins: RatioBins, numbers: int | Probs, weight: Number) -> RatioBins:
    """Split bins until no cut inside of one can have a larger G(P_j) − s Q_j than those between."""
    while bins.wide.size:
        best = (_generating(bins.draft_above, numbers) - weight * bins.target_below).max()
        above, target = bins.corners(bins.wide)
        possible = _generating(above, numbers) - weight * target
        unsure = bins.wide[possible > best + CERTAIN]
        if not unsure.size:
            break
        bins = bins.split(unsure)
    return bins


def _generating(above: Probs, numbers: int | Probs) -> Probs:
    """Mean of x^M, in floats, where 1 − x is `above`: M is k, or m with `numbers[m]`."""
    if not isinstance(numbers, int):
        return np.asarray(np.polynomial.polynomial.polyval(1 - above, numbers))
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(numbers * np.log1p(-above)))


def _segments(won: Probs, target: Probs) -> npt.NDArray[np.int64]:
    """First bins of the segments of the upper concave hull of cumulative (target, won) masses.

    Bins without target mass, which come first, are segments by themselves.
    """
    empty = int(np.count_nonzero(target <= 0))
    if empty == target.size:
        return np.arange(empty)
    if is_exact(won):
        first = _pooled(won[empty:].tolist(), target[empty:].tolist())
    else:
        from scipy.optimize import isotonic_regression  # pools neighbours as `_pooled` does

        with np.errstate(over="ignore"):
            slopes = won[empty:] / target[empty:]
        pools = isotonic_regression(slopes, weights=target[empty:], increasing=False)
        first = pools.blocks[:-1]
    return np.concatenate([np.arange(empty), empty + np.asarray(first)])


def _pooled(won: list[Number], target: list[Number]) -> list[int]:
    """Pool neighbours until their slopes descend: the first of each pool."""
    pools: list[tuple[int, Number, Number]] = []
    for i, (of_winner, of_target) in enumerate(zip(won, target, strict=True)):
        pool = i, of_winner, of_target
        while pools and pools[-1][1] * pool[2] <= pool[1] * pools[-1][2]:
            before = pools.pop()
            pool = before[0], before[1] + pool[1], before[2] + pool[2]
        pools.append(pool)
    return [first for first, *_ in pools]
