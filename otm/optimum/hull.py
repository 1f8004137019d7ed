"""The upper concave hull of cumulative masses, whose slopes are the best law of a winner."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs, is_exact


def hull_segments(won: Probs, target: Probs) -> npt.NDArray[np.int64]:
    """Where the segments of the hull over the points (Σ target, Σ won) of the first tokens begin.

    Tokens come in the order of target/draft, [m] each.  Those without target mass, which are the
    first ones, are segments by themselves.
    """
    empty = int(np.count_nonzero(target <= 0))
    rise, run = won[empty:], target[empty:]
    if not run.size:
        first = np.arange(0)
    elif is_exact(won):
        first = np.array(_pooled(rise, run))
    else:
        from scipy.optimize import isotonic_regression

        with np.errstate(over="ignore"):
            slopes = rise / run
        first = isotonic_regression(slopes, weights=run, increasing=False).blocks[:-1]
    return np.concatenate([np.arange(empty), empty + first])


def _pooled(rise: Probs, run: Probs) -> list[int]:
    """Pool neighbours until slopes descend, as isotonic regression does: the first of each pool."""
    pools: list[tuple[int, object, object]] = []
    for i in range(run.size):
        first, up, across = i, rise[i], run[i]
        while pools and pools[-1][1] * across <= up * pools[-1][2]:
            before = pools.pop()
            first, up, across = before[0], before[1] + up, before[2] + across
        pools.append((first, up, across))
    return [first for first, *_ in pools]
