"""The figure of overlapped drafting, against the formulas one by one."""

from __future__ import annotations

from fractions import Fraction

from figures.beyond import overlap
from otm.gain import overlapped_improvement, walltime_improvement


def test_each_way_has_its_best_number_of_drafts() -> None:
    """Bugs: the hit rate of another row; a γ that is best for another way; no gain from hits."""
    table = overlap.overlap()
    alpha, cost = overlap.ALPHAS[1], overlap.COSTS[0]
    of_pair = table.where(alpha=float(alpha), c=float(cost))
    prepared = of_pair.where(way=overlap.PREPARED)
    speeds = prepared["speed"].tolist()
    assert speeds == sorted(speeds)
    every = [overlapped_improvement(alpha, g, cost, Fraction(3, 4)) for g in range(1, 33)]
    (half,) = prepared.where(**{"hit rate": 0.75})["speed"]
    assert half == float(max(every))
    assert prepared.where(**{"hit rate": 0.75})["gamma"].tolist() == [every.index(max(every)) + 1]
    # Without hits, drafts are made while the target waits, as usual.
    (waiting,) = of_pair.where(way=overlap.WAITING)["speed"]
    assert (
        speeds[0]
        == waiting
        == float(max(walltime_improvement(alpha, g, cost) for g in range(1, 33)))
    )
