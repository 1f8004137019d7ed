"""The swaps that turn "the highest draft wins" into an optimal rule.

Order bins of tokens by q/p and let slot j be the interval (P_{j−1}, P_j] of their cumulative draft
mass.  If every draft sat in the slot of its own bin and the draft in the highest slot won, each
token of bin j would win W_j = (P_j^k − P_{j−1}^k) / p_j times as often as one draft is that token.
Bins that win too rarely for the optimum swap mass with higher slots of bins that win too often.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Frozen, Probs, is_exact, read_only, zeros
from otm.optimum.win_ratio import WinRatio


@dataclass(frozen=True, eq=False)
class Swaps(Frozen):
    """Equal masses that pairs of bins exchange between their slots.

    A bin swaps either always as the lower one or always as the higher one, and both columns ascend.
    """

    low: npt.NDArray[np.int64]  # [s], the lower bin of each swap, s < m
    high: npt.NDArray[np.int64]  # [s], the other; low < high where the mass is positive
    mass: Probs  # [s], mass of each of the two bins that moves to the other's slot


def match_swaps(wanted: WinRatio) -> Swaps:
    """Match the bins that lack winning mass with those that have too much of it."""
    return match((wanted.mean - wanted.slope) * wanted.bins.draft, wanted.slope)


def match(lacking: Probs, slope: Probs) -> Swaps:
    """Match what lacks, [m], with what is too much of it, where it is negative.

    By cumulative amount, in order (north-west corner rule).
    """
    poor, rich = (lacking > 0).nonzero()[0], (lacking < 0).nonzero()[0]
    if not (poor.size and rich.size):
        return Swaps(read_only(poor[:0]), read_only(rich[:0]), read_only(slope[:0]))

    # floats as whole numbers of a unit, of which sums and differences are exact
    unit: float | int = 1 if is_exact(lacking) else 2.0**-62
    amounts = lacking if is_exact(lacking) else np.rint(lacking / unit).astype(np.int64)
    ends = np.concatenate([amounts[poor].cumsum(), (-amounts[rich]).cumsum()])
    merged = ends.argsort(kind="stable")
    last_poor, last_rich = (merged == poor.size - 1).argmax(), (merged == ends.size - 1).argmax()
    merged = merged[: min(last_poor, last_rich) + 1]  # then one side is used up
    is_poor = merged < poor.size
    poor_before: npt.NDArray[np.int64] = is_poor.cumsum()
    poor_before -= is_poor
    low, high = poor[poor_before], rich[np.arange(merged.size) - poor_before]

    mass = ends[merged]
    mass[1:] -= mass[:-1]
    gain = slope[high] - slope[low]
    useful = (low < high) & (gain > 0)  # but for rounding
    # a swap of δ / (W_high − W_low) moves exactly δ of winning probability
    mass = np.divide(mass * unit, gain, out=zeros(gain.size, gain), where=useful)
    return Swaps(read_only(low), read_only(high), read_only(mass))
